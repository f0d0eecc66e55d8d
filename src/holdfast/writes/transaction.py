"""One write, from its first entry in the ledger to its last.

    recover ─► BEGIN ─► heartbeat, requested, inflight ─► files ─► COMMIT ─► publish ─► tidy, clean

Before COMMIT is in the ledger nobody sees anything, and the next write removes
it. After it the write stands, whoever publishes it. An error between the two
aborts and cleans up at once; a crash leaves that to the next write.

Every write, whether it admits others or not, is validated against whatever was
committed since its BEGIN, in the slot its COMMIT takes. So writers need no lock
among themselves; a lock keeps out programs that do not know the ledger.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from holdfast.concurrency.heartbeats import Heartbeat
from holdfast.concurrency.locks.lock import Hold, Lock
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.write import WriteSettings
from holdfast.errors import (
    HoldfastError,
    LockTimeout,
    OutcomeUnknown,
    Refused,
    StorageUnavailable,
    WriteConflict,
    WriterActive,
)
from holdfast.format.commits import IN_PLACE, CommitMetadata, WriteStat, encode_commit, inflight_metadata
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.replace_requests import encode_replace_request
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, State, next_time
from holdfast.model.names import heartbeat_path, instant_file
from holdfast.model.reports import Commit, RollbackReport
from holdfast.services.rollback import FailedWrite, recover, roll_back
from holdfast.services.sweep import unclaimed_files
from holdfast.table.markers import delete_markers
from holdfast.table.metadata_table import drop_metadata_table
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_settings
from holdfast.table.publish import publish_decided, shown_timeline
from holdfast.table.restoring import refuse_if_restoring
from holdfast.timeline.cleans import pending_cleans
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.cleaning import Cleaning
from holdfast.writes.conflicts import Claim, Footprint
from holdfast.writes.origin import NO_ORIGIN, Origin
from holdfast.writes.rows import Written
from holdfast.writes.validation import (
    Validation,
    begin_validation,
    refuse_if_fenced,
    refuse_if_taken_back,
)

log = logging.getLogger(__name__)

_BEGIN_ATTEMPTS = 5
_PUBLISH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class WriteRequest:
    operation: str
    action: Action
    settings: WriteSettings
    origin: Origin = NO_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a write has to commit."""

    written: Written
    schema: str
    """The table's schema after this write, as Avro JSON without meta columns."""
    schema_before: str | None
    """The schema it found; None if the table had none."""
    replaced: Mapping[str, Sequence[str]] | None = None
    """File ids that stop being visible, by partition; None unless the write replaces."""


Produce = Callable[[InstantTime], Contents]
"""Write the data files of an instant. Everything they are built on is to be read in this call."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one attempt at a write needs all the way."""

    table: OpenTable
    request: WriteRequest
    owner: Owner
    lock: Lock


def run_write(
    table: OpenTable, request: WriteRequest, produce: Produce, *, cancel: Callable[[], None] = lambda: None
) -> Commit:
    """Carry out one write. See the module for what a failure leaves.

    A write that lost against another is made anew as often as its settings
    say. `cancel` ends `produce` from another thread when the write has lost
    its right.
    """
    table.settings.check_writable()
    lock = open_lock(table, request.settings.lock)
    recovered: list[RollbackReport] = []
    for retries_left in range(request.settings.conflict_retries, -1, -1):
        attempt = _Attempt(table, request, table.host.owner(table.clock.unique()), lock)
        try:
            return _run(attempt, produce, cancel, recovered)
        except WriteConflict as conflict:
            if retries_left == 0:
                raise
            log.info("write.retried", extra={"cause": str(conflict), "retries_left": retries_left})
    raise AssertionError("the last attempt returns or raises")


def _run(
    attempt: _Attempt, produce: Produce, cancel: Callable[[], None], recovered: list[RollbackReport]
) -> Commit:
    table, request, settings = attempt.table, attempt.request, attempt.request.settings
    with (
        Heartbeat(
            table,
            attempt.owner,
            interval_ms=settings.heartbeat_interval_ms,
            misses=settings.heartbeat_misses,
            on_lost=cancel,
            expires=settings.is_shared,
        ) as heartbeat,
        Cleaning(table, settings) as cleaning,
    ):
        instant, slot = _begin(attempt, recovered)
        try:
            heartbeat.beat_for(instant)
            cleaning.begin()
            validation, contents = _write_files(attempt, instant, slot, produce)
            payload = _prepared(table, request, instant, contents)
            heartbeat.refuse_if_lost()
        except Exception as error:
            heartbeat.stop()
            _give_up(table, instant, request.action, error)
            # What ended the work may be no more than that it was cancelled, or built on a commit
            # that is not there any more.
            heartbeat.refuse_if_lost()
            refuse_if_taken_back(table, instant, slot)
            raise
        try:
            decided = _decide(attempt, instant, payload, validation, _claim_of(request, contents, payload))
        except (WriteConflict, LockTimeout) as error:
            heartbeat.stop()
            _give_up(table, instant, request.action, error)
            raise
    problems = _tidy(table, instant, contents.written.stats, decided, cleaning)
    return _report(request, instant, contents, tuple(recovered), problems)


def _begin(attempt: _Attempt, recovered: list[RollbackReport]) -> tuple[InstantTime, int]:
    """Remove what dead writers left, then claim an instant no other writer can have; with its slot."""
    table, settings = attempt.table, attempt.request.settings
    for _ in range(_BEGIN_ATTEMPTS):
        with attempt.lock.hold():
            recovery = recover(
                table, policy=settings.failed_writes_policy, timeout_ms=settings.heartbeat_timeout_ms
            )
            recovered += recovery.rolled_back
            if not settings.is_shared:
                _refuse_if_running(recovery.left, attempt.owner)
            state = _claim(attempt)
        for time, begun in state.begun.items():
            if begun.owner == attempt.owner:
                return time, begun.slot
    raise WriterActive("other writers keep starting on this table", hint="write from one process at a time")


def _claim(attempt: _Attempt) -> LedgerState:
    """Put BEGIN into the ledger, unless another write is in its way or it is there already."""
    table, settings = attempt.table, attempt.request.settings
    timeline = load_timeline(table.store)

    def decide(state: LedgerState) -> Decision | None:
        refuse_if_restoring(load_timeline(table.store) if state.restore else timeline, state)
        if any(begun.owner == attempt.owner for begun in state.begun.values()):
            return None
        if state.begun and not settings.is_shared:
            return None
        if state.begun and not (state.committed or timeline.completed_commits):
            first = min(state.begun)
            raise _active(first, state.begun[first].owner, "the first")
        known = [time for time in (timeline.newest, state.newest) if time is not None]
        return Decision(
            kind=EntryKind.BEGIN,
            instant=next_time(table.clock.now_ms(), max(known, default=None)),
            action=attempt.request.action,
            owner=attempt.owner,
            operation=attempt.request.operation,
            shared=settings.is_shared,
        )

    return table.ledger.append(decide)


def _refuse_if_running(left: Sequence[FailedWrite], owner: Owner) -> None:
    for write in left:
        if write.owner != owner:
            raise _active(write.time, write.owner, "another")


def _active(time: InstantTime, owner: Owner | None, which: str) -> WriterActive:
    return WriterActive(
        f"{which} write is running on this table",
        instant=time,
        owner=owner or "another program",
        hint="wait until it has finished, or stop it",
    )


def _write_files(
    attempt: _Attempt, instant: InstantTime, slot: int, produce: Produce
) -> tuple[Validation, Contents]:
    table, request = attempt.table, attempt.request
    requested = instant_file(instant, request.action, State.REQUESTED)
    inflight = instant_file(instant, request.action, State.INFLIGHT)
    is_replacing = request.action is Action.REPLACECOMMIT
    table.store.create(requested, encode_replace_request() if is_replacing else b"")
    table.store.create(inflight, inflight_metadata(request.operation))
    state = table.ledger.read()
    refuse_if_fenced(state, instant)
    # Another write may have been decided after the recovery and before our BEGIN. What we are
    # about to build on must show it; what is committed from our BEGIN on is validated against.
    timeline = shown_timeline(table, state)
    request.origin.check()
    drop_metadata_table(table)
    return begin_validation(table, instant, slot, timeline), produce(instant)


def _prepared(table: OpenTable, request: WriteRequest, instant: InstantTime, contents: Contents) -> bytes:
    """Remove files of attempts that do not count, and build what will be committed."""
    # Another program may have upgraded the table, or built a metadata table, since the write began.
    read_settings(table.store).check_changeable()
    drop_metadata_table(table)
    _delete_unclaimed(table, instant, contents.written.stats, refuses=request.settings.refuses_duplicates)
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in contents.written.stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    replaced = UNSET if contents.replaced is None else {p: list(i) for p, i in contents.replaced.items()}
    return encode_commit(
        CommitMetadata(
            by_partition,
            extra_metadata={**request.origin.said, IN_PLACE: _in_place(request), "schema": contents.schema},
            operation_type=request.operation,
            partition_to_replace_file_ids=replaced,
        )
    )


def _in_place(request: WriteRequest) -> str:
    """`true` if the write puts every row into the partition that its columns name."""
    # A record that is found in another one, and is not to follow its columns, stays there.
    may_stay = request.operation == "UPSERT" and request.settings.index_type.is_global
    return "false" if may_stay and not request.settings.moves_records else "true"


def _claim_of(request: WriteRequest, contents: Contents, payload: bytes) -> Claim:
    footprint = Footprint.of(payload)
    replaces: frozenset[str] = frozenset()
    if contents.replaced is not None:
        replaces = footprint.partitions | frozenset(contents.replaced)
    return Claim(
        footprint=footprint,
        schema_before=contents.schema_before,
        replaces=replaces,
        replaces_all=request.operation == "INSERT_OVERWRITE_TABLE",
        has_unique_keys=request.operation == "UPSERT",
        is_global=request.settings.index_type.is_global,
        origin=request.origin,
    )


def _decide(
    attempt: _Attempt, instant: InstantTime, payload: bytes, validation: Validation, claim: Claim
) -> LedgerState:
    """Put COMMIT into the ledger and show it, unless the write has lost its right."""
    table, request = attempt.table, attempt.request

    def decide(state: LedgerState, hold: Hold) -> Decision | None:
        if instant in state.committed:
            return None
        validation.check(state, claim)
        hold.refuse_if_lost()
        return Decision(
            kind=EntryKind.COMMIT,
            instant=instant,
            action=request.action,
            operation=request.operation,
            payload=payload,
        )

    with attempt.lock.hold() as hold:
        decided = table.ledger.append(lambda state: decide(state, hold))
        _show(table, instant, decided)
    return decided


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


def _delete_unclaimed(
    table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat], *, refuses: bool
) -> None:
    """Delete files of attempts that do not count; or refuse to commit beside them, if asked to."""
    committed = frozenset(stat.path for stat in stats if stat.path is not None)
    unclaimed = unclaimed_files(table, instant, committed=committed)
    found = [path for path in unclaimed if refuses and table.store.stat(path) is not None]
    if found:
        raise Refused(
            "a task left a file beside the one that counts",
            file=found[0],
            count=len(found),
            hint="nothing of this write is visible; run it again, or allow such files to be deleted",
        )
    stuck = table.store.delete_all(unclaimed)
    if stuck:
        raise StorageUnavailable("a file of a failed attempt could not be deleted", file=stuck[0])


def _delete_markers(table: OpenTable, instant: InstantTime, stats: Sequence[WriteStat]) -> None:
    """Delete the markers, after another look at what they announce.

    An attempt may have finished a file after the first look and kept it,
    because the commit was not visible yet. From now on it is.
    """
    _delete_unclaimed(table, instant, stats, refuses=False)
    delete_markers(table.store, instant)


def _tidy(
    table: OpenTable,
    instant: InstantTime,
    stats: Sequence[WriteStat],
    decided: LedgerState,
    cleaning: Cleaning,
) -> tuple[str, ...]:
    """Remove what the running write needed, and what nobody needs. What fails here the next write does."""
    steps: tuple[Callable[[], None], ...] = (
        lambda: _delete_markers(table, instant, stats),
        lambda: table.store.delete(heartbeat_path(instant)),
        lambda: _checkpoint(table, decided),
        cleaning.finish,
        cleaning.finish_archiving,
    )
    problems: list[str] = []
    for step in steps:
        try:
            step()
        except HoldfastError as error:
            log.warning("commit.tidy_failed", extra={"instant": instant, "cause": str(error)})
            problems.append(str(error))
    return tuple(problems)


def _checkpoint(table: OpenTable, decided: LedgerState) -> None:
    cleaned: set[InstantTime] = set()
    if decided.cleans:
        cleaned = decided.cleans.keys() - set(
            pending_cleans(table.store, load_timeline(table.store), decided)
        )
    table.ledger.checkpoint_if_due(decided, cleaned=cleaned)


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
