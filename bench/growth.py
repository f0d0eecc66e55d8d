"""`python -m bench.growth`: how the control plane grows with a table, step by step.

    build a table ─► time every step ─► a larger table ─► … ─► exponent of each step

Three things grow, one at a time: the files of the table, its instants, and the
files of one write. Time is the CPU time of the process, the least of several
runs: other programs change it little. A step whose time grows faster than what
it is given is marked; its growth over the last tenfold counts, too, because a
fixed cost hides the growth of small tables.
"""

import datetime as dt
import gc
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

import holdfast
from bench.machine import machine_facts
from bench.plots import Curve, plot_growth
from bench.workloads.clean import Versions, build_versions
from bench.workloads.clean_process import drafted, opened
from bench.workloads.control_plane import region_names, table_schema, write_stat
from bench.workloads.rollback import FAILED, leave_failed_write, write_unsynced
from holdfast.config.choices import Operation
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import marker_path
from holdfast.services.rollback.failed_writes import FailedWrite
from holdfast.services.rollback.rollback import plan_rollback
from holdfast.table.opened import OpenTable
from holdfast.writes import transaction
from holdfast.writes.outcome import Written
from holdfast.writes.plan import CommitDraft, WritePlan

_HERE = Path(__file__).resolve().parent
_RUNS = 3
_RUNS_MAX = 20
_ENOUGH_S = 0.2
"""CPU time after which a few runs suffice."""
_LONG_S = 5.0
"""CPU time after which one run does."""
_SUPERLINEAR = 1.2
"""An exponent above this is more than caches and chance explain."""
_FILES = (1_000, 10_000, 100_000, 1_000_000)
_INSTANTS = (10, 100, 1_000, 10_000)
_WRITTEN = (10, 100, 1_000, 10_000)
_VERSIONS = 20
_FILES_BESIDE = 10_000
_WRITTEN_BESIDE = 100
_PARTITIONS = 100
_NO_SERVICES = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A table of so many versions of its file groups, and a write that failed, or commits, beside them."""

    versions: Versions
    written: int


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that grows while the others stay."""

    name: str
    shapes: Mapping[int, Shape]


@dataclass(frozen=True, slots=True)
class Point:
    size: int
    cpu_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Aside:
    """Time within a step that is not the step's."""

    cpu_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Growth:
    """How the time of one step grew along an axis."""

    axis: str
    step: str
    points: tuple[Point, ...]
    exponent: float = field(init=False)
    """Of all points, by least squares of the logarithms."""
    last_exponent: float = field(init=False)
    """Between the two largest."""

    def __post_init__(self) -> None:
        pairs = [(point.size, point.cpu_seconds) for point in self.points]
        object.__setattr__(self, "exponent", fitted_exponent(pairs))
        object.__setattr__(self, "last_exponent", fitted_exponent(pairs[-2:]))

    @property
    def is_superlinear(self) -> bool:
        return max(self.exponent, self.last_exponent) > _SUPERLINEAR


def fitted_exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """The b of seconds = a × size ** b that fits best; both are positive."""
    if len(pairs) < 2:
        raise ValueError("an exponent needs two sizes")
    xs = [math.log(size) for size, _ in pairs]
    ys = [math.log(seconds) for _, seconds in pairs]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread


def axes(*, files: Sequence[int], instants: Sequence[int], written: Sequence[int]) -> tuple[Axis, ...]:
    def shape(files: int, versions: int, written: int) -> Shape:
        size = Versions(partitions=_PARTITIONS, groups=max(1, files // versions), versions=versions)
        return Shape(versions=size, written=written)

    found = (
        Axis("files of the table", {n: shape(n, _VERSIONS, _WRITTEN_BESIDE) for n in files}),
        Axis("instants", {n: shape(max(n, _FILES_BESIDE), n, _WRITTEN_BESIDE) for n in instants}),
        Axis("files of one write", {n: shape(_FILES_BESIDE, _VERSIONS, n) for n in written}),
    )
    return tuple(axis for axis in found if len(axis.shapes) > 1)


def measured(axis: Axis, folder: Path, announce: Callable[[str], None]) -> tuple[Growth, ...]:
    """Every step on tables along the axis; each is removed before the next is built."""
    points: dict[str, list[Point]] = {}
    for size, shape in axis.shapes.items():
        path = folder / "table"
        shutil.rmtree(path, ignore_errors=True)
        announce(f"{axis.name} {size:,}: building the table")
        build_versions(str(path), shape.versions)
        leave_failed_write(str(path), files=shape.written, partitions=region_names(shape.versions.partitions))
        for name, act in _steps(str(path), shape):
            announce(f"{axis.name} {size:,}: {name}")
            points.setdefault(name, []).append(_timed(size, act))
        shutil.rmtree(path)
    return tuple(Growth(axis.name, name, tuple(found)) for name, found in points.items())


def _steps(path: str, shape: Shape) -> Iterator[tuple[str, Callable[[], object]]]:
    """Those that change nothing first. The failed write is gone before anything commits."""
    yield "open", partial(holdfast.open_table, path)
    yield "timeline", lambda: holdfast.open_table(path).timeline()
    yield "list files", lambda: holdfast.open_table(path).files()
    yield "plan clean", lambda: drafted(opened(path), CleanSettings())
    failed = FailedWrite(FAILED, Action.COMMIT, owner=None, rollback=None)
    yield "plan rollback", lambda: plan_rollback(opened(path), failed)
    holdfast.open_table(path).roll_back_failed_writes()
    yield "commit", lambda: _commit(path, shape)


def _commit(path: str, shape: Shape) -> Aside:
    """A write whose files are empty; making them, which tasks would do, is not the commit's time."""
    files_took: list[Aside] = []

    def write_files(plan: WritePlan, table: OpenTable, instant: InstantTime) -> CommitDraft:
        began, cpu_began = time.perf_counter(), time.process_time()
        partitions = region_names(shape.versions.partitions)
        stats = [write_stat(partitions[n % len(partitions)], n, instant) for n in range(shape.written)]
        for stat in stats:
            assert stat.path is not None
            write_unsynced(path, marker_path(instant, stat.path, "CREATE"), b"")
            write_unsynced(path, stat.path, b"")
        files_took.append(Aside(time.process_time() - cpu_began, time.perf_counter() - began))
        schema = table_schema()
        return CommitDraft(written=Written(stats=stats), schema=schema, schema_before=schema)

    settings = WriteSettings.from_options(_NO_SERVICES)
    with patch.object(transaction, "write_files", write_files):
        plan = WritePlan(operation=Operation.BULK_INSERT, action=Action.COMMIT, settings=settings)
        commit = transaction.run_write(opened(path), plan)
    assert commit.files_written == shape.written
    assert not commit.post_commit_errors
    (aside,) = files_took
    return aside


def _timed(size: int, act: Callable[[], object]) -> Point:
    """The least time of some runs; more of them if they are short."""
    cpu: list[float] = []
    wall: list[float] = []
    gc.collect()
    while sum(cpu) < _LONG_S and (len(cpu) < _RUNS or (sum(cpu) < _ENOUGH_S and len(cpu) < _RUNS_MAX)):
        began, cpu_began = time.perf_counter(), time.process_time()
        said = act()
        aside = said if isinstance(said, Aside) else Aside()
        cpu.append(time.process_time() - cpu_began - aside.cpu_seconds)
        wall.append(time.perf_counter() - began - aside.seconds)
    return Point(size, min(cpu), min(wall))


@click.command("growth", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--files", multiple=True, type=click.IntRange(min=_VERSIONS), default=_FILES, metavar="N")
@click.option("--instants", multiple=True, type=click.IntRange(min=1), default=_INSTANTS, metavar="N")
@click.option("--written", multiple=True, type=click.IntRange(min=1), default=_WRITTEN, metavar="N")
@click.option("--quick", is_flag=True, help="The two smaller sizes of each: seconds instead of minutes.")
@click.option("--data", type=click.Path(path_type=Path), default=_HERE / "data", help="Folder for tables.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=_HERE / "results", help="Folder for results."
)
def growth(
    *,
    files: tuple[int, ...],
    instants: tuple[int, ...],
    written: tuple[int, ...],
    quick: bool,
    data: Path,
    results: Path,
) -> None:
    """Time each step of the control plane on ever larger tables and fit how it grows.

    Sizes repeat; an axis with fewer than two of them is left out. The largest
    table has a million empty files: it needs 5 GB of disk and some minutes.
    """
    console = Console(highlight=False)
    wanted = axes(files=sorted(files), instants=sorted(instants), written=sorted(written))
    if quick:
        wanted = tuple(Axis(axis.name, dict(list(axis.shapes.items())[:2])) for axis in wanted)
    found: list[Growth] = []
    folder = data / "growth"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for axis in wanted:
            with console.status(axis.name) as status:
                found += measured(axis, folder, status.update)
            _print(console, axis.name, [one for one in found if one.axis == axis.name])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    moment = dt.datetime.now(dt.UTC)
    path = _write(results, found, moment)
    console.print(f"\nall numbers in {path}, drawn in {path.with_suffix('.png')}")


def _print(console: Console, axis: str, found: Sequence[Growth]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("CPU seconds", no_wrap=True)
    for point in found[0].points:
        table.add_column(f"{point.size:,}", justify="right", no_wrap=True)
    for name in ("exponent", "last tenfold"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        style = "bold red" if one.is_superlinear else ""
        table.add_row(
            one.step,
            *(f"{point.cpu_seconds:.4f}" for point in one.points),
            Text(f"{one.exponent:.2f}", style=style),
            Text(f"{one.last_exponent:.2f}" + (" super-linear" if one.is_superlinear else ""), style=style),
        )
    console.print()
    console.print(Text(axis, style="bold"))
    console.print(table)


def _write(folder: Path, found: Sequence[Growth], moment: dt.datetime) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{moment:%Y-%m-%dT%H%M%S}-growth.json"
    document = {
        "measured_at": moment,
        "machine": machine_facts(),
        "superlinear_above": _SUPERLINEAR,
        "growth": [msgspec.to_builtins(one) | {"is_superlinear": one.is_superlinear} for one in found],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    plot_growth(path.with_suffix(".png"), [_curve(one) for one in found])
    return path


def _curve(one: Growth) -> Curve:
    mark = " super-linear" if one.is_superlinear else ""
    points = [(point.size, point.cpu_seconds) for point in one.points]
    return Curve(panel=one.axis, label=f"{one.step}: {one.exponent:.2f}{mark}", points=points)


if __name__ == "__main__":
    growth()
