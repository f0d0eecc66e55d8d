"""What another reader would make of a merge-on-read table that Holdfast reads rightly.

Each function says what one release is known to do, as it was found by running it.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping

from holdfast.config.choices import TableType
from holdfast.errors import InvalidRequest
from holdfast.format.log_blocks import BlockType
from holdfast.model.instant import InstantTime, end_of, moment_of
from holdfast.model.names import instant_path
from holdfast.model.reports import Finding, FindingKind, Severity
from holdfast.table.log_files import log_name, read_log_heads
from holdfast.table.opened import OpenTable
from holdfast.table.view import View, each_slice, load_view, parse_log_files, slice_groups
from holdfast.table.zone import timeline_zone
from holdfast.timeline.timeline import Timeline

_MILLISECOND = dt.timedelta(milliseconds=1)


def check_reader(reader: str) -> None:
    """`InvalidRequest` if nothing is known about a reader of that name."""
    if reader not in READERS:
        raise InvalidRequest("nothing is known about this reader", reader=reader, known=", ".join(READERS))


def find_misread(table: OpenTable, timeline: Timeline, reader: str) -> Iterator[Finding]:
    """What that reader would not read as it is. In a copy-on-write table there is nothing of the kind."""
    check_reader(reader)
    if table.settings.table_type is TableType.MERGE_ON_READ:
        yield from READERS[reader](table, load_view(table.store, timeline))


def _misread(path: str, detail: str, remedy: str) -> Finding:
    return Finding(FindingKind.MISREAD, path, detail, remedy, Severity.WARNING)


def _by_hudi_1(table: OpenTable, view: View) -> Iterator[Finding]:
    """It takes the modification time of a commit's file for the time at which the commit was completed.

    A log file is then of the slice with the greatest base instant up to the
    completion of the instant in its name.
    """
    zone = timeline_zone(table)
    completed = {i.time: i for i in view.timeline.completed_commits}
    slices = _instants_of_slices(view)
    told: set[InstantTime] = set()
    for group, times in _instants_of_logs(view).items():
        for time in sorted(times - told):
            commit = completed.get(time)
            if commit is None or commit.completed_at is None:
                continue
            later = [one for one in slices.get(group, ()) if one > time]
            overtaken = [one for one in later if moment_of(one, zone) <= commit.completed_at]
            # Storage may keep whole milliseconds only.
            if commit.completed_at + _MILLISECOND <= moment_of(time, zone):
                detail = "before its instant, so Hudi 1.x gives its log files to older slices"
                remedy = "write the file anew with its own content: what counts is when it is modified"
            elif overtaken:
                detail = f"after {overtaken[0]} began, as in a copy, so Hudi 1.x gives it the older log files"
                remedy = "let a clean remove the older slices, or copy the table with its modification times"
            else:
                continue
            told.add(time)
            yield _misread(instant_path(commit), f"it was modified {detail}", remedy)


def _by_hudi_0_15(table: OpenTable, view: View) -> Iterator[Finding]:
    """It stops reading the log files of a slice at a block that is younger than the newest commit."""
    newest = view.timeline.last_commit
    if newest is None:
        return
    for each in each_slice(view.latest()):
        stopped = ""
        for path in each.logs:
            heads = read_log_heads(table.store, path) or ()
            if stopped and any(head.kind != BlockType.COMMAND for head in heads):
                detail = f"Hudi 0.15 does not read beyond {stopped}, which is younger than the newest commit"
                yield _misread(path, detail, "the next commit puts it right")
            if any(end_of(head.instant) > end_of(newest.time) for head in heads if head.instant):
                stopped = stopped or path


def _by_hudi_rs(table: OpenTable, view: View) -> Iterator[Finding]:
    """It does not read log files of a slice that a pending compaction is to make.

    Nor, with version 1 of its reader, a file group of log files alone.
    """
    for path in parse_log_files(view.listed)["path"].to_pylist():
        name = log_name(path)
        if name is not None and name.base_instant in view.compactions:
            detail = f"hudi-rs does not read it before compaction {name.base_instant} is completed"
            remedy = f"carry it out: holdfast compaction run PATH --instant {name.base_instant}"
            yield _misread(path, detail, remedy)
    for each in each_slice(view.latest()):
        if each.base is None:
            detail = "version 1 of the reader of hudi-rs cannot read a file group of log files alone"
            yield _misread(
                each.logs[0], detail, "let Hudi compact it, or read it with version 2, the default"
            )


def _instants_of_slices(view: View) -> dict[str, list[InstantTime]]:
    """File group → the instants of its base files, ascending."""
    found: dict[str, set[InstantTime]] = {}
    pairs = (slice_groups(view.slices).to_pylist(), view.slices["instant"].to_pylist())
    for group, instant in zip(*pairs, strict=True):
        found.setdefault(group, set()).add(instant)
    return {group: sorted(instants) for group, instants in found.items()}


def _instants_of_logs(view: View) -> dict[str, set[InstantTime]]:
    """File group → the instants in the names of its log files."""
    logs = parse_log_files(view.listed)
    found: dict[str, set[InstantTime]] = {}
    for group, instant in zip(slice_groups(logs).to_pylist(), logs["instant"].to_pylist(), strict=True):
        found.setdefault(group, set()).add(instant)
    return found


READERS: Mapping[str, Callable[[OpenTable, View], Iterator[Finding]]] = {
    "hudi-1.2": _by_hudi_1,
    "hudi-0.15": _by_hudi_0_15,
    "hudi-rs": _by_hudi_rs,
}
