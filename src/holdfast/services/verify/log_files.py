"""Log files, compared with what commits say about them, and the plans of compactions with both."""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.format.compaction_plans import CompactionPlan
from holdfast.model.instant import InstantTime
from holdfast.model.names import in_partition, instant_path, partition_of
from holdfast.model.reports import Finding, FindingKind, Severity
from holdfast.services.verify.instant_outcomes import InstantOutcomes, Outcome
from holdfast.storage.store import Store
from holdfast.table.log_files import find_writers, log_name, read_log_heads
from holdfast.table.pending import pending_compactions
from holdfast.table.view import View, parse_log_files, slice_groups
from holdfast.timeline.timeline import Timeline

_WHY = {
    Outcome.COMMITTED: "its commit does not name it",
    Outcome.GONE: "its write was rolled back",
    Outcome.UNKNOWN: "no instant has its time",
}


def check_log_files(
    store: Store, view: View, sizes: Mapping[str, int], outcomes: InstantOutcomes
) -> Iterator[Finding]:
    """What is wrong with log files that are there."""
    logs = parse_log_files(view.listed)["path"].to_pylist()
    if not logs:
        return
    written = {} if view.written_logs is None else _longest(view.written_logs)
    yield from _find_short(written, sizes)
    unnamed = [path for path in logs if path not in written]
    counts = view.log_instants(view.slices).counts
    for path, writers in find_writers(store, unnamed).items():
        said = [(writer, outcomes.of(writer)) for writer in sorted(writers)]
        if any(outcome is Outcome.PENDING for _, outcome in said):
            continue
        wrong = [outcome for writer, outcome in said if _is_wrong(path, outcome, readers_see=counts(writer))]
        if wrong and len(wrong) == len(said) and not writers <= _find_commands(store, path, logs):
            readers_see = any(counts(writer) for writer, _ in said)
            yield Finding(
                FindingKind.ORPHAN,
                path,
                f"{_WHY[wrong[0]]}, and readers see it" if readers_see else _WHY[wrong[0]],
                "repair moves it to quarantine",
                Severity.DAMAGE if readers_see else Severity.WARNING,
            )


def _find_commands(store: Store, path: str, logs: Collection[str]) -> set[InstantTime]:
    """The writes whose blocks in a log file do not count, as commands in its slice say, which come behind."""
    name = log_name(path)
    found: set[InstantTime] = set()
    for each in logs:
        other = log_name(each)
        assert name is not None, "the path is that of a log file"
        assert other is not None, "the paths are those of log files"
        is_near = (partition_of(each), *other.slice) == (partition_of(path), *name.slice)
        if is_near and other.order >= name.order:
            heads = read_log_heads(store, each) or ()
            found.update(head.taken_back for head in heads if head.taken_back is not None)
    return found


def _is_wrong(path: str, outcome: Outcome, *, readers_see: bool) -> bool:
    """Whether blocks of a write with that outcome should not be there, in a file that no commit names."""
    name = log_name(path)
    is_ours = name is not None and name.written_by is not None
    if outcome is Outcome.COMMITTED:
        return is_ours  # Commits of old releases of Hudi may name a log file once, and add to it often.
    return outcome is Outcome.GONE or (outcome is Outcome.UNKNOWN and not readers_see)


def _longest(written: pa.Table) -> dict[str, int]:
    """Log file → how long it is at least, as the newest commit that wrote to it says."""
    longest = written.group_by("path").aggregate([("size", "max")])
    return dict(zip(longest["path"].to_pylist(), longest["size_max"].to_pylist(), strict=True))


def _find_short(written: Mapping[str, int], sizes: Mapping[str, int]) -> Iterator[Finding]:
    for path, said in written.items():
        size = sizes.get(path)
        if size is not None and said and size < said:
            yield Finding(
                FindingKind.TRUNCATED,
                path,
                f"it has {size} bytes, its commit says {said}",
                "put a copy back from a backup, or restore the table to a commit before it",
                Severity.DAMAGE,
            )


def find_lost_logs(view: View, newest: pa.Table) -> dict[str, str]:
    """Log file → why it is missed."""
    lost = view.find_lost_logs(newest)
    is_there = pc.is_in(lost, view.listed)
    gone = dict.fromkeys(lost.filter(pc.invert(is_there)).to_pylist(), "the newest snapshot needs it")
    detached = "its file slice is known to no commit and no plan, and readers do not see its rows"
    return gone | dict.fromkeys(lost.filter(is_there).to_pylist(), detached)


def check_compactions(store: Store, timeline: Timeline, view: View) -> Iterator[Finding]:
    """Plans that lack a log file which a commit wrote: with the new base file its rows would be lost."""
    plans = pending_compactions(store, timeline)
    if not plans or view.written_logs is None:
        return
    groups = slice_groups(view.written_logs).to_pylist()
    columns = (view.written_logs[name].to_pylist() for name in ("path", "instant"))
    written: dict[tuple[str, str], set[str]] = {}
    for group, path, instant in zip(groups, *columns, strict=True):
        written.setdefault((group, instant), set()).add(path)
    for compaction, plan in plans:
        for path in sorted(_lacking(plan, written)):
            yield Finding(
                FindingKind.CONTRADICTORY,
                instant_path(compaction),
                f"the plan lacks {path}, which a commit wrote",
                f"holdfast compaction unschedule PATH --instant {compaction.time}",
                Severity.DAMAGE,
            )


def _lacking(plan: CompactionPlan, written: Mapping[tuple[str, str], set[str]]) -> set[str]:
    lacking: set[str] = set()
    for operation in plan.operations:
        group = in_partition(operation.partition, operation.file_id)
        named = {in_partition(operation.partition, name) for name in operation.log_files}
        lacking |= written.get((group, operation.base_instant or InstantTime("")), set()) - named
    return lacking
