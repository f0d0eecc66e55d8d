"""One write, from its first entry in the ledger to its last.

    recover ─► BEGIN ─► heartbeat, requested, inflight ─► files ─► COMMIT ─► publish ─► tidy

Before COMMIT is in the ledger nobody sees anything, and the next write removes
it. After it the write stands, whoever publishes it. An error between the two
aborts and cleans up at once; a crash leaves that to the next write.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from holdfast.concurrency.heartbeats import Heartbeat
from holdfast.config.write import WriteSettings
from holdfast.errors import Fenced, HoldfastError, OutcomeUnknown, StorageUnavailable, WriterActive
from holdfast.format.commits import CommitMetadata, WriteStat, encode_commit, inflight_metadata
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.replace_requests import encode_replace_request
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, State, next_time
from holdfast.model.names import heartbeat_path, instant_file
from holdfast.model.reports import Commit, RollbackReport
from holdfast.services.rollback import FailedWrite, is_alive, roll_back, roll_back_failed_writes
from holdfast.services.sweep import unclaimed_files
from holdfast.table.markers import delete_markers
from holdfast.table.metadata_table import drop_metadata_table
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_settings
from holdfast.table.publish import publish_decided
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.rows import Written

log = logging.getLogger(__name__)

_BEGIN_ATTEMPTS = 5
_PUBLISH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class WriteRequest:
    operation: str
    action: Action
    settings: WriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a write has to commit."""

    written: Written
    schema: str
    """The table's schema after this write, as Avro JSON without meta columns."""
    replaced: Mapping[str, Sequence[str]] | None = None
    """File ids that stop being visible, by partition; None unless the write replaces."""


Produce = Callable[[InstantTime], Contents]
"""Write the data files of an instant. Everything they are built on is to be read in this call."""


def run_write(table: OpenTable, request: WriteRequest, produce: Produce) -> Commit:
    """Carry out one write. See the module for what a failure leaves."""
    table.settings.check_writable()
    owner = table.host.owner(table.clock.unique())
    with Heartbeat(table, owner, interval_ms=request.settings.heartbeat_interval_ms) as heartbeat:
        instant, recovered = _begin(table, request, owner)
        try:
            heartbeat.beat_for(instant)
            contents = _write_files(table, request, instant, produce)
            payload = _prepared(table, request, instant, contents)
        except Exception as error:
            heartbeat.stop()
            _give_up(table, instant, request.action, error)
            raise
        decided = _decide(table, request, instant, payload)
        _show(table, instant, decided)
    problems = _tidy(table, instant, contents.written.stats, decided)
    return _report(request, instant, contents, recovered, problems)


def _begin(
    table: OpenTable, request: WriteRequest, owner: Owner
) -> tuple[InstantTime, tuple[RollbackReport, ...]]:
    """Remove what dead writers left, then claim an instant no other writer can have."""
    recovered: tuple[RollbackReport, ...] = ()
    for _ in range(_BEGIN_ATTEMPTS):
        recovered += roll_back_failed_writes(table)
        instant = _claim(table, request, owner)
        if instant is not None:
            return instant, recovered
    raise WriterActive("other writers keep starting on this table", hint="write from one process at a time")


def _claim(table: OpenTable, request: WriteRequest, owner: Owner) -> InstantTime | None:
    """Put BEGIN into the ledger; None if another write began and can be rolled back."""
    newest = load_timeline(table.store).newest

    def decide(state: LedgerState) -> Decision | None:
        if state.begun:
            return None
        known = [time for time in (newest, state.newest) if time is not None]
        return Decision(
            kind=EntryKind.BEGIN,
            instant=next_time(table.clock.now_ms(), max(known, default=None)),
            action=request.action,
            owner=owner,
            operation=request.operation,
        )

    state = table.ledger.append(decide)
    _refuse_if_alive(table, state, owner)
    return next((time for time, begun in state.begun.items() if begun.owner == owner), None)


def _refuse_if_alive(table: OpenTable, state: LedgerState, owner: Owner) -> None:
    for time, begun in state.begun.items():
        if begun.owner != owner and is_alive(table, FailedWrite(time, begun.action, begun.owner, None)):
            raise WriterActive(
                "another write is running on this table",
                instant=time,
                owner=begun.owner,
                hint="wait until it has finished, or stop it",
            )


def _write_files(table: OpenTable, request: WriteRequest, instant: InstantTime, produce: Produce) -> Contents:
    requested = instant_file(instant, request.action, State.REQUESTED)
    inflight = instant_file(instant, request.action, State.INFLIGHT)
    is_replacing = request.action is Action.REPLACECOMMIT
    table.store.create(requested, encode_replace_request() if is_replacing else b"")
    table.store.create(inflight, inflight_metadata(request.operation))
    state = table.ledger.read()
    _refuse_if_fenced(state, instant)
    # Another write may have been decided after the recovery and before our BEGIN. What we are
    # about to build on must show it; from our BEGIN on nobody else can be committed.
    publish_decided(table, state, load_timeline(table.store))
    drop_metadata_table(table)
    return produce(instant)


def _prepared(table: OpenTable, request: WriteRequest, instant: InstantTime, contents: Contents) -> bytes:
    """Remove files of attempts that do not count, and build what will be committed."""
    # Another program may have upgraded the table, or built a metadata table, since the write began.
    read_settings(table.store).check_writable()
    drop_metadata_table(table)
    _delete_unclaimed(table, instant, contents.written.stats)
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in contents.written.stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    replaced = UNSET if contents.replaced is None else {p: list(i) for p, i in contents.replaced.items()}
    return encode_commit(
        CommitMetadata(
            by_partition,
            extra_metadata={"schema": contents.schema},
            operation_type=request.operation,
            partition_to_replace_file_ids=replaced,
        )
    )


def _decide(table: OpenTable, request: WriteRequest, instant: InstantTime, payload: bytes) -> LedgerState:
    """Put COMMIT into the ledger, unless somebody has put ABORT there before."""

    def decide(state: LedgerState) -> Decision | None:
        _refuse_if_fenced(state, instant)
        if instant in state.committed:
            return None
        return Decision(
            kind=EntryKind.COMMIT,
            instant=instant,
            action=request.action,
            operation=request.operation,
            payload=payload,
        )

    return table.ledger.append(decide)


def _refuse_if_fenced(state: LedgerState, instant: InstantTime) -> None:
    if instant in state.aborted:
        raise Fenced(
            "this write was rolled back by another process",
            instant=instant,
            reason=state.aborted[instant].reason,
            hint="nothing of it is visible; run the write again",
        )


def _show(table: OpenTable, instant: InstantTime, decided: LedgerState) -> None:
    """Publish this commit, and before it every other that was decided before it."""
    for attempt in range(1, _PUBLISH_ATTEMPTS + 1):
        try:
            publish_decided(table, decided, load_timeline(table.store))
        except StorageUnavailable as error:
            if attempt == _PUBLISH_ATTEMPTS:
                raise OutcomeUnknown(
                    "the write is committed but could not be shown yet",
                    instant=instant,
                    cause=error,
                    hint="the next operation on the table shows it; do not write the rows again",
                ) from error
        else:
            return


def _delete_unclaimed(table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat]) -> None:
    """Delete files of attempts that do not count."""
    committed = frozenset(stat.path for stat in stats if stat.path is not None)
    stuck = table.store.delete_all(unclaimed_files(table, instant, committed=committed))
    if stuck:
        raise StorageUnavailable("a file of a failed attempt could not be deleted", file=stuck[0])


def _delete_markers(table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat]) -> None:
    """Delete the markers, after another look at what they announce.

    An attempt may have finished a file after the first look and kept it,
    because the commit was not visible yet. From now on it is.
    """
    _delete_unclaimed(table, instant, stats)
    delete_markers(table.store, instant)


def _tidy(
    table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat], decided: LedgerState
) -> tuple[str, ...]:
    """Remove what the running write needed. What fails here is swept by the next write."""
    steps: tuple[Callable[[], None], ...] = (
        lambda: _delete_markers(table, instant, stats),
        lambda: table.store.delete(heartbeat_path(instant)),
        lambda: table.ledger.checkpoint_if_due(decided),
    )
    problems: list[str] = []
    for step in steps:
        try:
            step()
        except HoldfastError as error:
            log.warning("commit.tidy_failed", extra={"instant": instant, "cause": str(error)})
            problems.append(str(error))
    return tuple(problems)


def _give_up(table: OpenTable, instant: InstantTime, action: Action, error: Exception) -> None:
    """Roll this write back at once. If that fails too, the next write does it."""
    try:
        roll_back(table, FailedWrite(instant, action, None, None), reason=str(error)[:500])
    except HoldfastError as second:
        log.warning("rollback.postponed", extra={"instant": instant, "cause": str(second)})
        error.add_note(f"rolling the write back failed too and is left to the next write: {second}")


def _report(
    request: WriteRequest,
    instant: InstantTime,
    contents: Contents,
    recovered: tuple[RollbackReport, ...],
    problems: tuple[str, ...],
) -> Commit:
    stats = contents.written.stats
    touched = {stat.partition_path or "" for stat in stats} | set(contents.replaced or ())
    return Commit(
        instant=instant,
        action=request.action,
        operation=request.operation,
        records_written=sum(stat.num_writes for stat in stats),
        records_inserted=sum(stat.num_inserts for stat in stats),
        records_updated=sum(stat.num_update_writes for stat in stats),
        records_deleted=sum(stat.num_deletes for stat in stats),
        files_written=len(stats),
        bytes_written=sum(stat.total_write_bytes for stat in stats),
        partitions=tuple(sorted(touched)),
        index=contents.written.index,
        rolled_back=recovered,
        post_commit_errors=problems,
    )
