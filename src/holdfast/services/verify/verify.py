"""Verify: look at everything a table consists of and name what is not as it should be.

Nothing is changed, and writers may run meanwhile. Whatever names an instant
(files, markers, heartbeats) is listed before the ledger and the timeline are
read: a writer makes itself known before it writes anything else, so an
instant that is not known then belongs to no write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from holdfast.concurrency.heartbeats import decode_beat
from holdfast.concurrency.locks.file import FILE_NAME, FileForm
from holdfast.concurrency.locks.identity import IDENTITY_FILE, RECORD_ANEW, wrong_identity
from holdfast.concurrency.locks.lease import Lease
from holdfast.concurrency.locks.storage import StorageForm
from holdfast.config.choices import TableType
from holdfast.errors import SnapshotExpired, TableDamaged
from holdfast.format.malformed import Malformed
from holdfast.host import Liveness, Owner
from holdfast.model.instant import Action, Instant, InstantTime, State
from holdfast.model.names import (
    ARCHIVED_IN_PLACE,
    ARCHIVED_UNDONE,
    FIELD_IDS_RECORD,
    HEARTBEAT_FOLDER,
    META_FOLDER,
    PROPERTIES_BACKUP,
    ZONE_FILE,
    clean_plan_path,
    heartbeat_path,
    instant_file,
    instant_path,
    marker_folder,
)
from holdfast.model.reports import Finding, FindingKind, Severity, VerifyReport
from holdfast.services.leases import readable_leases
from holdfast.services.pushes import push_record, push_records
from holdfast.services.repair.missing_commits import find_lacking
from holdfast.services.verify.files import ListedFiles, check_files, list_files
from holdfast.services.verify.instant_outcomes import InstantOutcomes, Outcome
from holdfast.services.verify.instants import (
    REPAIR_FINISHES,
    REPAIR_MOVES,
    content_path,
    contradictions,
    gaps,
    ledger_damage,
    pending_restores,
    pending_rollbacks,
    read_instants,
)
from holdfast.services.verify.readers import check_reader, find_misread
from holdfast.storage.store import Store, read_or_none
from holdfast.table.clean_plans import pending_cleans, read_clean_plan
from holdfast.table.field_ids import check_field_id_record
from holdfast.table.markers import instants_with_markers
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_current_settings
from holdfast.table.row_placement import check_placement_record
from holdfast.table.stable_read import read_stable
from holdfast.table.undone import check_undone
from holdfast.table.zone import wrong_record
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline

_CLOCKS_DIFFER_MS = 60_000
_RANK = {Severity.DAMAGE: 0, Severity.WARNING: 1, Severity.INFO: 2}

_WRITER = {Liveness.ALIVE: "is alive", Liveness.GONE: "is gone", Liveness.UNKNOWN: "is not known here"}
_FOR_PENDING = {
    Liveness.ALIVE: "wait for it",
    Liveness.GONE: "holdfast rollbacks run PATH, or the next write, rolls it back",
    Liveness.UNKNOWN: "wait for it; if its writer is gone, holdfast rollbacks run PATH rolls it back",
}


_FOR_COMPACTION = "holdfast compaction run PATH carries it out, compaction unschedule takes it away"
_REPAIR_UNDOES = "repair moves it to quarantine, and removes what else is left of the write"
_REPAIR_ENTERS = "repair, or the next write, enters it into the ledger"
_REPAIR_SHOWS = "repair shows it again from the ledger"
_REPAIR_TAKES_BACK = (
    "copy the missing files from where the table came from, or repair takes it back, "
    "and moves what is left of it to quarantine"
)


def verify(table: OpenTable, as_reader: str | None = None) -> VerifyReport:
    """Look for everything that is wrong with a table, and for what is pending in it.

    And for what another reader, if one is named, would not read as it is.
    What seems wrong is looked at twice, and only what both looks find is
    reported: what a running writer was just about to finish is not.
    """
    if as_reader is not None:
        check_reader(as_reader)
    first = _look(table, as_reader)
    if first.is_clean:
        return first
    second = _look(table, as_reader)
    seen = {(finding.kind, finding.path) for finding in first.findings}
    kept = [f for f in second.findings if f.severity is Severity.INFO or (f.kind, f.path) in seen]
    return VerifyReport(findings=tuple(kept), files_checked=second.files_checked)


def _look(table: OpenTable, as_reader: str | None) -> VerifyReport:
    files = list_files(table.store)
    marked = instants_with_markers(table.store)
    writers = _Writers(table)
    state = _ledger_state(table)
    earlier = _Earlier(files, marked, writers, state)
    return read_stable(table.store, lambda timeline: _check_all(table, earlier, timeline, as_reader))


@dataclass(frozen=True)
class _Earlier:
    """What was looked at before the timeline."""

    files: ListedFiles
    marked: tuple[InstantTime, ...]
    writers: _Writers
    state: LedgerState


def _check_all(
    table: OpenTable, earlier: _Earlier, timeline: Timeline, as_reader: str | None
) -> VerifyReport:
    store, before, writers = table.store, earlier.state, earlier.writers
    contents = read_instants(table, timeline, before)
    outcomes = InstantOutcomes(
        timeline, _ledger_state(table), contents.undone, frozenset(contents.plans.values())
    )
    of_files, files_checked = check_files(
        store,
        earlier.files,
        outcomes,
        torn=frozenset(instant.time for instant in contents.torn),
        readable=_readable(timeline, contents.torn, outcomes),
        savepoints=contents.savepoints,
        has_logs=table.settings.table_type is TableType.MERGE_ON_READ,
    )
    findings = [
        *of_files,
        *contents.findings,
        *gaps(store, outcomes.state),
        *ledger_damage(store),
        *contradictions(timeline, contents, outcomes),
        *_disagreements(table, timeline, before, outcomes, writers),
        *pending_rollbacks(timeline, contents, outcomes),
        *pending_restores(store, timeline, outcomes.state),
        *_pending(timeline, before, outcomes, writers),
        *_stale_markers(earlier.marked, outcomes, writers),
        *_stale_heartbeats(outcomes, writers),
        *_locks(table),
        *_in_place(store),
        *_undone(store),
        *_field_ids(store),
        *_exports(table),
        *_zone(table, outcomes.state),
        *_lock_record(table, outcomes.state),
        *_leases(table),
        *_plans(table, timeline, outcomes.state),
        *_pushes(table, outcomes),
        *_leftovers(store),
    ]
    if as_reader is not None:
        findings += _misread(table, timeline, as_reader)
    findings.sort(key=lambda finding: (_RANK[finding.severity], finding.kind, finding.path))
    return VerifyReport(findings=tuple(findings), files_checked=files_checked)


def _misread(table: OpenTable, timeline: Timeline, as_reader: str) -> list[Finding]:
    try:
        return list(find_misread(table, timeline, as_reader))
    except (TableDamaged, SnapshotExpired):
        return []  # What is damaged is a finding of its own, and its rows are not read.


def _readable(timeline: Timeline, torn: Collection[Instant], outcomes: InstantOutcomes) -> Timeline:
    """The timeline without what cannot be read, and without what was taken back and is still shown."""
    return Timeline(
        tuple(i for i in timeline.instants if i not in torn and i.time not in outcomes.taken_back)
    )


class _Writers:
    """Who beats, as the heartbeats say at this moment."""

    def __init__(self, table: OpenTable) -> None:
        self._host = table.host
        self.owners: dict[InstantTime, Owner | None] = {}
        """Who beats for an instant; None if another program does."""
        paths = [file.path for file in table.store.folder(HEARTBEAT_FOLDER).files]
        for path, content in zip(paths, table.store.read_all(paths), strict=True):
            time = path.rpartition("/")[2]
            if content is not None and time.isdigit():
                beat = decode_beat(content)
                self.owners[InstantTime(time)] = None if beat is None else beat.owner

    def liveness(self, time: InstantTime, owner: Owner | None = None) -> Liveness:
        owner = owner or self.owners.get(time)
        return Liveness.UNKNOWN if owner is None else self._host.liveness(owner)

    def is_alive(self, time: InstantTime) -> bool:
        return self.liveness(time) is Liveness.ALIVE


def _ledger_state(table: OpenTable) -> LedgerState:
    """What the ledger says; nothing if it cannot be read, which is a finding of its own."""
    try:
        return table.ledger.read_with_older_aborts()
    except TableDamaged:
        return LedgerState()


def _disagreements(
    table: OpenTable, timeline: Timeline, before: LedgerState, outcomes: InstantOutcomes, writers: _Writers
) -> Iterator[Finding]:
    """What the ledger had decided before the timeline was read, and the timeline does not show."""
    completed = {instant.time: instant for instant in timeline.completed_commits}
    yield from _unshown(table, timeline, before, outcomes, writers)
    for time, instant in completed.items():
        aborted = before.aborted.get(time)
        if aborted is not None and aborted.revoked_by is not None:
            severity = Severity.WARNING if outcomes.is_carried_out(aborted) else Severity.INFO
            yield _disagreement(content_path(instant), "it was taken back and is still shown", severity)
        elif aborted is not None:
            detail, remedy = "it is completed although aborted", _REPAIR_UNDOES
            yield Finding(FindingKind.GHOST, content_path(instant), detail, remedy, Severity.DAMAGE)
        elif time in outcomes.state.begun:
            detail, remedy = "the ledger is older, and has not decided it", _REPAIR_ENTERS
            yield Finding(FindingKind.UNDECIDED, content_path(instant), detail, remedy, Severity.WARNING)
    for time in before.savepoints:
        savepoint = timeline.find(time, Action.SAVEPOINT)
        if savepoint is not None and not savepoint.is_completed:
            path = instant_file(time, Action.SAVEPOINT, State.COMPLETED)
            yield _disagreement(path, "the savepoint was decided and is not shown yet", Severity.WARNING)


def _unshown(
    table: OpenTable, timeline: Timeline, before: LedgerState, outcomes: InstantOutcomes, writers: _Writers
) -> Iterator[Finding]:
    """Commits that stood before the timeline was read, and stand now, and are not on it."""
    standing = {t: one for t, one in before.committed.items() if t in outcomes.state.committed}
    lacking = find_lacking(table, timeline, replace(outcomes.state, committed=standing))
    for _, time, action in lacking.whole:
        path = instant_file(time, action, State.COMPLETED)
        found = timeline.find(time)
        if found is None or found.state is State.REQUESTED:  # The second is left by a repair that died.
            detail = "it was committed, and the timeline shows nothing of it"
            yield Finding(FindingKind.VANISHED, path, detail, _REPAIR_SHOWS, Severity.DAMAGE)
        else:
            severity = Severity.INFO if writers.is_alive(time) else Severity.WARNING
            yield _disagreement(path, "it was committed and is not shown yet", severity)
    for number, (_, time, action) in enumerate(lacking.lost):
        path = instant_file(time, action, State.COMPLETED)
        detail = "it was committed after one whose files are not here"
        if number == 0:
            detail = "it was committed, and files of it are not here"
        yield Finding(FindingKind.LOST, path, detail, _REPAIR_TAKES_BACK, Severity.DAMAGE)


def _disagreement(path: str, detail: str, severity: Severity) -> Finding:
    return Finding(FindingKind.DISAGREEMENT, path, detail, REPAIR_FINISHES, severity)


def _pending(
    timeline: Timeline, before: LedgerState, outcomes: InstantOutcomes, writers: _Writers
) -> Iterator[Finding]:
    """Everything else that is not completed and not decided either."""
    known = {(instant.time, instant.action) for instant in timeline.instants}
    begun = [
        Instant(time, found.action, State.REQUESTED)
        for time, found in outcomes.state.begun.items()
        if (time, found.action) not in known
    ]
    apart = (Action.ROLLBACK, Action.RESTORE)
    shown = [i for i in timeline.instants if not i.is_completed and i.action not in apart]
    writes = {*before.committed, *outcomes.state.aborted}
    for instant in (*begun, *shown):
        if instant.time in (before.savepoints if instant.action is Action.SAVEPOINT else writes):
            continue
        claim = outcomes.state.begun.get(instant.time)
        liveness = writers.liveness(instant.time, None if claim is None else claim.owner)
        path = instant_path(instant)
        if instant.action is Action.COMPACTION and claim is None:
            waiting = f"the compaction is {instant.state.lower()}, and no process is known to carry it out"
            yield Finding(FindingKind.PENDING, path, waiting, _FOR_COMPACTION, Severity.INFO)
            continue
        detail = f"the {instant.action} is {instant.state.lower()}, its writer {_WRITER[liveness]}"
        yield Finding(FindingKind.PENDING, path, detail, _FOR_PENDING[liveness], Severity.INFO)


def _stale_markers(
    marked: Iterable[InstantTime], outcomes: InstantOutcomes, writers: _Writers
) -> Iterator[Finding]:
    for time in marked:
        if outcomes.of(time) is not Outcome.PENDING and not writers.is_alive(time):
            detail = f"the instant is {outcomes.of(time).value}"
            yield Finding(FindingKind.MARKERS, marker_folder(time), detail, REPAIR_MOVES, Severity.WARNING)


def _stale_heartbeats(outcomes: InstantOutcomes, writers: _Writers) -> Iterator[Finding]:
    for time in writers.owners:
        outcome, liveness = outcomes.of(time), writers.liveness(time)
        if outcome is Outcome.PENDING or liveness is Liveness.ALIVE:
            continue
        path = heartbeat_path(time)
        if outcome is Outcome.UNKNOWN and liveness is not Liveness.GONE:
            # Hudi's writers beat before their instant is known.
            detail, remedy = "no instant has its time yet", "delete it if no writer runs"
            yield Finding(FindingKind.HEARTBEAT, path, detail, remedy, Severity.INFO)
        else:
            detail = f"the instant is {outcome.value}"
            yield Finding(FindingKind.HEARTBEAT, path, detail, REPAIR_MOVES, Severity.WARNING)


def _locks(table: OpenTable) -> Iterator[Finding]:
    for form in (FileForm(f"{META_FOLDER}/{FILE_NAME}"), StorageForm(0, 0)):
        content = read_or_none(table.store, form.path)
        lease = None if content is None else form.read(content)
        if lease is not None and not lease.is_released:
            yield from _lock(table, form.path, lease)


def _lock(table: OpenTable, path: str, lease: Lease) -> Iterator[Finding]:
    liveness = Liveness.UNKNOWN if lease.owner is None else table.host.liveness(lease.owner)
    is_over = lease.until_ms is not None and lease.until_ms + _CLOCKS_DIFFER_MS < table.clock.now_ms()
    if liveness is Liveness.ALIVE:
        return
    if liveness is Liveness.GONE or is_over:
        detail, severity = f"{lease.holder} held it and is gone", Severity.WARNING
    else:
        detail, severity = f"{lease.holder} holds it", Severity.INFO
    yield Finding(FindingKind.LOCK, path, detail, "delete it if that writer is gone for good", severity)


def _in_place(store: Store) -> Iterator[Finding]:
    try:
        check_placement_record(store)
    except Malformed as error:
        remedy = "delete it; queries on Spark then open more files, and nothing else changes"
        yield Finding(FindingKind.TORN, ARCHIVED_IN_PLACE, str(error), remedy, Severity.WARNING)


def _undone(store: Store) -> Iterator[Finding]:
    try:
        check_undone(store)
    except Malformed as error:
        remedy = "delete it; the next rollback or restore that is archived makes it anew"
        yield Finding(FindingKind.TORN, ARCHIVED_UNDONE, str(error), remedy, Severity.WARNING)


def _field_ids(store: Store) -> Iterator[Finding]:
    try:
        check_field_id_record(store)
    except Malformed as error:
        remedy = "delete it; the next write that adds a column makes it anew from the commits"
        yield Finding(FindingKind.TORN, FIELD_IDS_RECORD, str(error), remedy, Severity.WARNING)


def _exports(table: OpenTable) -> Iterator[Finding]:
    formats = read_current_settings(table).export_formats
    if not formats:
        return
    # Loaded here because most tables have no exports.
    from holdfast.exports.advance import FORMATS

    for form in formats:
        try:
            FORMATS[form].read(table.store)
        except TableDamaged as error:
            path = str(error.facts.get("file", form))
            detail = f"the export to {form}: {error.message}; nothing can be taken back before it is mended"
            yield Finding(FindingKind.TORN, path, detail, error.hint, Severity.DAMAGE)


def _zone(table: OpenTable, state: LedgerState) -> Iterator[Finding]:
    try:
        wrong = wrong_record(table, state)
    except TableDamaged as error:
        yield Finding(FindingKind.TORN, ZONE_FILE, error.message, error.hint, Severity.DAMAGE)
        return
    if wrong:
        yield _disagreement(ZONE_FILE, wrong, Severity.WARNING)


def _lock_record(table: OpenTable, state: LedgerState) -> Iterator[Finding]:
    try:
        wrong = wrong_identity(table.store, state)
    except TableDamaged as error:
        yield Finding(FindingKind.TORN, IDENTITY_FILE, error.message, error.hint, Severity.DAMAGE)
        return
    if wrong:
        yield Finding(FindingKind.DISAGREEMENT, IDENTITY_FILE, wrong, RECORD_ANEW, Severity.WARNING)


def _plans(table: OpenTable, timeline: Timeline, state: LedgerState) -> Iterator[Finding]:
    """Plans that cleans were decided on. Before one is on the timeline, nothing of it was deleted."""
    for clean in pending_cleans(table.store, timeline, state):
        try:
            read_clean_plan(table.store, clean)
        except TableDamaged as error:
            if error.facts["file"] == clean_plan_path(clean):
                remedy = f"{REPAIR_MOVES}; the next clean makes another plan"
                yield Finding(
                    FindingKind.TORN_PLAN, clean_plan_path(clean), error.message, remedy, Severity.WARNING
                )


def _leases(table: OpenTable) -> Iterator[Finding]:
    for error in readable_leases(table)[1]:
        path, detail = str(error.facts["file"]), f"{error.message}: {error.facts['cause']}"
        yield Finding(FindingKind.TORN, path, detail, error.hint, Severity.WARNING)


def _pushes(table: OpenTable, outcomes: InstantOutcomes) -> Iterator[Finding]:
    records = push_records(table)
    for path in records.torn:
        detail = "the record of a push cannot be read"
        yield Finding(FindingKind.PUSH, path, detail, REPAIR_MOVES, Severity.WARNING)
    for push in records.pushes:
        if outcomes.of(push.instant) is Outcome.GONE:
            detail = f"{push.table} at {push.controller} was pushed from it, and it was taken back"
            remedy = "holdfast push revert TABLE --from-lake PATH, if that push is still served"
            yield Finding(FindingKind.PUSH, push_record(push), detail, remedy, Severity.INFO)


def _leftovers(store: Store) -> Iterator[Finding]:
    for file in store.leftovers():
        detail = "a process is writing it, or was killed while it did"
        yield Finding(FindingKind.LEFTOVER, file.path, detail, "the next write removes it", Severity.INFO)
    if store.stat(PROPERTIES_BACKUP) is not None:
        detail, remedy = "Hudi was changing the table's properties", "delete it if hoodie.properties is whole"
        yield Finding(FindingKind.LEFTOVER, PROPERTIES_BACKUP, detail, remedy, Severity.INFO)
