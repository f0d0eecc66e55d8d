"""The story of one table, told by running it: write, die, recover, correct, go back, clean.

`make run` runs this. Everything is real: Spark writes the table, a second
process is killed in the middle of a write, and Apache Hudi's Rust reader is
asked for its opinion.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
from hudi import HudiTableBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.console import Console
from rich.panel import Panel
from rich.table import Table as Grid

import holdfast
from holdfast.engines.spark.session import local_session

LAKE = Path(__file__).resolve().parent.parent / "build" / "story" / "trips"
CITIES = ("amsterdam", "berlin", "lisbon", "paris", "rome", "vienna")
console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def trips(spark: SparkSession, *, first: int, count: int) -> DataFrame:
    """Taxi trips, the same ones every time."""
    cities = f.array(*(f.lit(city) for city in CITIES))
    return spark.range(first, first + count).select(
        f.format_string("trip-%07d", "id").alias("trip_id"),
        f.element_at(cities, (f.col("id") % len(CITIES) + 1).cast("int")).alias("city"),
        (f.lit(1_760_000_000) + f.col("id") * 7).alias("ts"),
        f.round(5 + (f.col("id") * 37 % 900) / 20, 2).alias("fare"),
    )


def corrected(rows: DataFrame) -> DataFrame:
    """The same trips a moment later, at another fare."""
    return rows.withColumn("ts", f.col("ts") + 1).withColumn("fare", f.round(f.col("fare") * 1.1, 2))


def chapter(number: int, title: str) -> None:
    console.print()
    console.rule(f"[bold]{number}  {title}", align="left", style="dim")


def main() -> None:
    shutil.rmtree(LAKE.parent, ignore_errors=True)
    console.print(
        Panel.fit("[bold]Holdfast[/]  lakehouse tables that you can always take back", style="cyan")
    )
    with console.status("starting Spark on this machine ..."):
        spark = local_session("holdfast-story")

    chapter(1, "A table, and a first load on Spark")
    table = holdfast.create_table(
        str(LAKE), name="trips", record_key="trip_id", partition_by="city", ordering="ts"
    )
    first = table.bulk_insert(trips(spark, first=0, count=200_000))
    console.print(
        f"committed [green]{first.instant}[/]: {first.records_written:,} trips in "
        f"{first.files_written} files, {len(first.partitions)} cities, "
        f"{first.bytes_written / 1e6:.1f} MB"
    )

    chapter(2, "A second writer dies in the middle of its write")
    killed_after = kill_a_writer_while_it_writes()
    console.print(
        f"killed with SIGKILL {killed_after:.1f} s after it began; it left "
        f"[red]{counted(files_of_the_dead_writer(), 'data file')}[/] and an unfinished instant"
    )
    console.print(f"a reader sees {table.read(spark).count():,} trips: exactly the first load")
    show_timeline(table)

    chapter(3, "The next write cleans up, then commits")
    second = table.upsert(corrected(trips(spark, first=190_000, count=60_000)))
    for removed in second.rolled_back:
        announced = counted(len(removed.deleted), "file")
        console.print(f"rolled back [yellow]{removed.rolled_back}[/]: of {announced} announced none is left")
    console.print(
        f"committed [green]{second.instant}[/]: {second.records_updated:,} trips corrected, "
        f"{second.records_inserted:,} added"
    )
    show_timeline(table)

    chapter(4, "Some trips never happened")
    third = table.delete(trips(spark, first=0, count=1_000).select("trip_id", "city"))
    console.print(
        f"committed [green]{third.instant}[/]: {third.records_deleted:,} trips deleted, "
        f"{third.files_written} of {len(table.files())} file groups written anew"
    )
    changed = table.changes(spark, since=first.instant).count()
    console.print(f"changed since the first load: {changed:,} trips, read from their files alone")

    chapter(5, "Looking back")
    by_city(spark, table, first.instant)
    console.print(
        f"as of {first.instant}: {table.read(spark, as_of=first.instant).count():,} trips; "
        f"now: {table.read(spark).count():,}"
    )

    chapter(6, "A bad batch is taken back")
    kept = table.savepoint(user="story", comment="before the import")
    bad = table.upsert(trips(spark, first=0, count=30_000).withColumn("fare", f.lit(-1.0)))
    console.print(f"committed [green]{bad.instant}[/]: {bad.records_updated:,} trips now cost -1")
    undone = table.undo()
    worse = trips(spark, first=0, count=10).withColumn("fare", f.lit(-2.0))
    for _ in range(2):
        table.insert_overwrite(worse)
    console.print(
        f"undone [yellow]{undone.rolled_back}[/]; two worse ones follow: {table.read(spark).count():,} trips"
    )
    restored = table.restore(kept.instant)
    console.print(
        f"restored to the savepoint [green]{restored.target}[/]: {len(restored.rolled_back)} commits "
        f"taken back, {table.read(spark).count():,} trips, proven"
    )

    chapter(7, "Old versions go when nobody needs them")
    retain_one = {"hoodie.clean.commits.retained": "1"}
    explain(table.plan_clean(retain_one))
    with table.lease("a long report", ttl=60, as_of=first.instant) as lease:
        held = len(table.plan_clean(retain_one).doomed)
        console.print(f"while a reader holds a lease on {lease.instant}, {counted(held, 'file')} may go")
    table.delete_savepoint(kept.instant)
    cleaned = table.clean(retain_one)
    console.print(
        f"cleaned with [green]{cleaned.instant}[/]: {counted(len(cleaned.deleted), 'file')} deleted, "
        f"{cleaned.bytes_freed / 1e6:.1f} MB freed; verify finds {len(table.verify().findings)} faults"
    )

    chapter(8, "A second opinion: Apache Hudi's own Rust reader")
    batches = HudiTableBuilder.from_base_uri(str(LAKE)).build().read()
    seen = pa.Table.from_batches(batches).num_rows
    console.print(f"hudi-rs opens the same folder and counts {seen:,} trips")
    assert seen == table.to_arrow(columns=["trip_id"]).num_rows == 249_000
    console.print()
    here, holdfast_command = (
        os.path.relpath(path) for path in (LAKE, Path(sys.executable).with_name("holdfast"))
    )
    console.print(f"The table stays in [bold]{here}[/]. Look inside with:")
    for command in ("timeline show", "show", "cleans show", "verify"):
        console.print(f"  {holdfast_command} {command} {here}", style="dim")
    spark.stop()


def kill_a_writer_while_it_writes() -> float:
    """Start another process on the same table, wait for its first files, and kill it."""
    writer = subprocess.Popen(
        [sys.executable, __file__, "doomed"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    finished = len(list(LAKE.glob("*/*.parquet")))
    began = 0.0
    with console.status("another process begins a large write ..."):
        while len(list(LAKE.glob("*/*.parquet"))) < finished + 2:
            if writer.poll() is not None:
                raise SystemExit("the doomed writer ended before it could be killed")
            if not began and any(LAKE.glob(".hoodie/.heartbeat/*")):
                began = time.monotonic()
            time.sleep(0.01)
        kill_session(writer.pid)
        writer.wait()
    return time.monotonic() - began


def kill_session(session: int) -> None:
    """Kill the process and everything it started: the JVM and its Python workers."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except ProcessLookupError:
                continue


def doomed() -> None:
    spark = local_session("doomed")
    holdfast.open_table(str(LAKE)).bulk_insert(trips(spark, first=1_000_000, count=4_000_000))


def files_of_the_dead_writer() -> int:
    """Data files whose instant is not completed."""
    pending = [i.time for i in holdfast.open_table(str(LAKE)).timeline() if i.state != "COMPLETED"]
    return sum(any(time in path.name for time in pending) for path in LAKE.glob("*/*.parquet"))


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def explain(plan: holdfast.CleanPlan) -> None:
    """How many files go and stay, by reason."""
    grid = Grid(box=None, padding=(0, 2), header_style="dim")
    for column in ("files", "size", "fate", "reason"):
        grid.add_column(column, justify="right" if column in ("files", "size") else "left")
    for fate, style, files in (("goes", "yellow", plan.doomed), ("stays", "green", plan.kept)):
        for reason in sorted({file.reason for file in files}):
            sizes = [file.size for file in files if file.reason == reason]
            grid.add_row(str(len(sizes)), f"{sum(sizes) / 1e6:.1f} MB", f"[{style}]{fate}", reason)
    console.print(grid)


def show_timeline(table: holdfast.Table) -> None:
    grid = Grid(box=None, padding=(0, 2), header_style="dim")
    for column in ("instant", "action", "state"):
        grid.add_column(column)
    for instant in table.timeline():
        style = "green" if instant.state == "COMPLETED" else "red"
        grid.add_row(instant.time, str(instant.action), f"[{style}]{instant.state.lower()}")
    console.print(grid)


def by_city(spark: SparkSession, table: holdfast.Table, before: str) -> None:
    def fares(as_of: str | None) -> dict[str, float]:
        rows = table.read(spark, as_of=as_of).groupBy("city").agg(f.round(f.sum("fare"), 2).alias("fares"))
        return {row.city: row.fares for row in rows.collect()}

    then, now = fares(before), fares(None)
    grid = Grid(box=None, padding=(0, 2), header_style="dim")
    grid.add_column("city")
    grid.add_column("fares then", justify="right")
    grid.add_column("fares now", justify="right")
    for city in sorted(now):
        grid.add_row(city, f"{then[city]:,.2f}", f"{now[city]:,.2f}")
    console.print(grid)


if __name__ == "__main__":
    doomed() if sys.argv[1:] == ["doomed"] else main()
