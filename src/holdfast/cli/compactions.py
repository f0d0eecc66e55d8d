"""`holdfast compactions` and `holdfast compaction`: making base files of what log files say."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from holdfast.cli.arguments import CommandGroup, Mode, ShownByDefault, asking, conf_option, table_command
from holdfast.cli.output import print_json, print_line
from holdfast.cli.output import show as show_document
from holdfast.cli.plans import carry_out
from holdfast.cli.progress import spinner
from holdfast.cli.write import print_commit
from holdfast.lake import open_table
from holdfast.model.instant import State
from holdfast.model.reports import Compaction
from holdfast.services.documents import Block, Bytes, Document, Line, Rows, iso, quantity

_COMPACTIONS = (
    "Compaction Instant Time", "State", "Total FileIds to be Compacted", "Log Files", "Log Bytes", "Waiting",
)  # fmt: skip
_OPERATIONS = (
    "Partition Path", "File Id", "Base Instant", "Data File Path", "Total Delta Files", "Log Bytes",
)  # fmt: skip
_SPARE = ("Log Bytes", "Log Files", "Total FileIds to be Compacted")
_LOG_BYTES = "TOTAL_LOG_FILES_SIZE"

_conf_option = conf_option(
    "An option of compaction, such as hoodie.compaction.target.io=1000. Repeats.",
    "--hoodie-conf",
    "--hoodieConfigs",
)


@click.group(cls=ShownByDefault)
def compactions() -> None:
    """The compactions of a merge-on-read table."""


@click.group(cls=CommandGroup)
def compaction() -> None:
    """One compaction of a merge-on-read table."""


@compactions.command("show")
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the compactions of the table at PATH, newest first: planned, running and done.

    \b
    Example: holdfast compactions show lake/trips
    """
    found = open_table(path, storage_options=storage_options).compactions()[::-1]
    now = dt.datetime.now(dt.UTC)
    rows = [
        (one.instant, one.state, one.file_groups, one.log_files, Bytes(one.log_bytes), _waiting(one, now))
        for one in found
    ]
    block: Block = Rows(_COMPACTIONS, rows, _SPARE) if rows else Line("no compactions")
    fields = {"compactions": [asdict(one) | {"planned_at": iso(one.planned_at)} for one in found]}
    show_document(Document((block,), fields), as_json=as_json)


def _waiting(one: Compaction, now: dt.datetime) -> str:
    """How long a compaction has been pending; nothing of one that is done."""
    if one.state is State.COMPLETED:
        return ""
    return str(max(dt.timedelta(0), now - one.planned_at)).partition(".")[0]


@compaction.command("show")
@table_command
@click.option("--instant", "time", required=True, metavar="T", help="The compaction's time.")
def show_one(path: str, *, time: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show which file slices of the table at PATH a compaction takes.

    \b
    Example: holdfast compaction show lake/trips --instant 20240131093000123
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.read.compactions import compaction_plan
    from holdfast.table.opened import open_at

    operations = compaction_plan(open_at(path, storage_options), time).operations
    rows = [
        (one.partition, one.file_id, one.base_instant, one.base_file, len(one.log_files),
         Bytes(int(one.metrics.get(_LOG_BYTES, 0))))
        for one in operations
    ]  # fmt: skip
    fields = {"instant": time, "operations": [asdict(one) for one in operations]}
    show_document(
        Document(
            (Rows(_OPERATIONS, rows, ("Log Bytes", "Total Delta Files", "Base Instant", "File Id")),), fields
        ),
        as_json=as_json,
    )


@compaction.command("schedule")
@table_command
@_conf_option
def schedule(
    path: str, *, conf: Mapping[str, str], as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Plan a compaction of the table at PATH, for `holdfast compaction run` to carry out.

    Until then writes rewrite the base files that it is about, instead of adding to their log files.

    \b
    Example: holdfast compaction schedule lake/trips
    """
    time = open_table(path, storage_options=storage_options).schedule_compaction(options=conf)
    line = Line("no file slice has log files to compact" if time is None else f"planned compaction {time}")
    show_document(Document((line,), {"instant": time}), as_json=as_json)


@compaction.command("run")
@table_command
@click.option("--instant", "time", metavar="T", help="The planned one; the oldest if it is not given.")
@click.option("--master", metavar="MASTER", help="A Spark master; without one this process compacts.")
@_conf_option
def run(
    path: str,
    *,
    time: str | None,
    master: str | None,
    conf: Mapping[str, str],
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Make base files of the log files of the table at PATH: what is planned, or all there are.

    \b
    Example: holdfast compaction run lake/trips
    """
    table = open_table(path, storage_options=storage_options)
    with spinner(f"compacting {table.settings.name}"):
        commit = table.compact(_session(master), time, options=conf)
    if as_json:
        print_json({"commit": None if commit is None else asdict(commit)})
    elif commit is None:
        print_line("no file slice has log files to compact")
    else:
        print_commit(commit)


def _session(master: str | None) -> Any:
    if master is None:
        return None
    # Loaded here because only this needs Spark, and it is large.
    from holdfast.jobs.process import spark_session

    return spark_session("holdfast compaction", master)


@compaction.command("unschedule")
@table_command
@click.option("--instant", "time", required=True, metavar="T", help="The compaction's time.")
@asking
def unschedule(path: str, *, time: str, mode: Mode, storage_options: Mapping[str, str]) -> None:
    """Take a planned compaction of the table at PATH away.

    Refused if another program has written rows that only the plan leads to.

    \b
    Example: holdfast compaction unschedule lake/trips --instant 20240131093000123
    """
    from holdfast.read.compactions import compaction_plan
    from holdfast.table.opened import open_at

    table = open_table(path, storage_options=storage_options)

    def describe(groups: int) -> Document:
        line = Line(f"compaction {time} of {quantity(groups, 'file group')}")
        return Document((line,), {"instant": time, "file_groups": groups})

    carry_out(
        lambda: len(compaction_plan(open_at(path, storage_options), time).operations),
        lambda _: table.unschedule_compaction(time),
        show_plan=describe,
        question=lambda _: f"Take compaction {time} away?",
        show_report=lambda *_: Document((Line(f"took compaction {time} away"),)),
        mode=mode,
    )
