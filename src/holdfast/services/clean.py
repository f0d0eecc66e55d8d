"""Clean: delete the versions of files that nobody needs any more.

    recover ─► finish pending cleans ─► plan ─► CLEAN in the ledger ─► carry out

CLEAN is decided only if no savepoint, no other clean and nothing that takes
commits back came since the plan was made; from then on whoever wants to rely
on a file of the plan is refused. Writers neither wait for a clean nor are in
its way: a clean leaves what they build on.
"""

import logging
from dataclasses import dataclass, replace

from holdfast.concurrency.locks.lock import NO_LOCK, Lock
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.cleaning import CleanSettings
from holdfast.config.locks import LockSettings
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, FailedWritesPolicy, WriteSettings
from holdfast.errors import Conflict
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import Action, InstantTime, State, moment_of, next_time, time_at
from holdfast.model.names import PLANS_FOLDER, instant_file, stored_plan
from holdfast.model.reports import CleanReport
from holdfast.services.clean_execution import Progress, carry_out, encoded, no_progress
from holdfast.services.clean_plan import Circumstances, Draft, circumstances, draft, window_of
from holdfast.services.clean_scope import commits_between
from holdfast.services.rollback import recover
from holdfast.table.opened import OpenTable
from holdfast.table.publish import publish_decided
from holdfast.table.restoring import refuse_if_restoring
from holdfast.table.steady import read_steadily, timeline_and_ledger
from holdfast.timeline.cleans import completed_cleans, pending_cleans
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)

_ATTEMPTS = 5
_RECORDED_AFTER = 10
"""Commits after which a clean is recorded that deletes nothing, so that the next looks less far back."""

_OVERTAKING = (EntryKind.SAVEPOINT, EntryKind.REVOKE, EntryKind.CLEAN)
"""What makes a plan obsolete that was made before it."""


def clean(
    table: OpenTable,
    settings: CleanSettings,
    *,
    lock: LockSettings | None = None,
    failed_writes: FailedWritesPolicy = FailedWritesPolicy.LAZY,
    timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
    progress: Progress = no_progress,
) -> CleanReport | None:
    """Roll back what dead writers left, finish pending cleans, and clean; None if there is nothing to do.

    The report is that of the newest clean carried out. `Refused` while a
    restore is pending. In a table that Holdfast cannot write to, as those of
    merge-on-read, what dead writers left is left to the program that wrote it.
    """
    held = open_lock(table, lock)
    _recover(table, held, failed_writes, timeout_ms)
    return clean_after_recovery(table, settings, lock=held, progress=progress)


def clean_by_hand(
    table: OpenTable, settings: WriteSettings, *, progress: Progress = no_progress
) -> CleanReport:
    """As `clean`, with the settings of a write to the same table; the report says why if nothing was done."""
    if not settings.clean.services_enabled:
        return CleanReport(why_nothing="hoodie.table.services.enabled is false")
    is_never = settings.failed_writes_policy is FailedWritesPolicy.NEVER
    # Whoever cleans is not the one writer of the table, who may remove all that is unfinished.
    policy = FailedWritesPolicy.NEVER if is_never else FailedWritesPolicy.LAZY
    held = open_lock(table, settings.lock)
    _recover(table, held, policy, settings.heartbeat_timeout_ms)
    return _clean(table, settings.clean, held, progress)


def clean_after_recovery(
    table: OpenTable, settings: CleanSettings, *, lock: Lock = NO_LOCK, progress: Progress = no_progress
) -> CleanReport | None:
    """As `clean`, for a writer that has recovered already."""
    report = _clean(table, settings, lock, progress)
    return None if report.instant is None else report


def _recover(table: OpenTable, lock: Lock, policy: FailedWritesPolicy, timeout_ms: int) -> None:
    if table.settings.is_changeable:
        with lock.hold():
            recover(table, policy=policy, timeout_ms=timeout_ms)


def _clean(table: OpenTable, settings: CleanSettings, lock: Lock, progress: Progress) -> CleanReport:
    _sweep_plans(table)

    def carried_out(time: InstantTime) -> CleanReport | None:
        return carry_out(table, time, parallelism=settings.parallelism, progress=progress)

    attempted = [carried_out(time) for time in _pending(table)]
    reports = [report for report in attempted if report is not None]
    why_nothing = ""
    if not reports or settings.plans_beside_pending:
        decided = _decide(table, settings, lock)
        if isinstance(decided, _Nothing):
            why_nothing = decided.why
        else:
            report = carried_out(decided)
            reports += [] if report is None else [report]
    if not reports:
        return CleanReport(why_nothing=why_nothing or "another process carried the clean out")
    return replace(reports[-1], resumed=tuple(reports[:-1]))


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Nothing is to be cleaned now."""

    why: str


def _sweep_plans(table: OpenTable) -> None:
    """Delete plans that nobody carries out: of cleans that are completed, or were never decided."""
    stored = [file.path for file in table.store.folder(PLANS_FOLDER).files]
    if not stored:
        return
    timeline, state = timeline_and_ledger(table)
    awaited = {stored_plan(time) for time in pending_cleans(table.store, timeline, state)}
    newest = stored_plan(state.newest) if state.newest is not None else ""
    # One that is newer than everything in the ledger may yet be decided on.
    table.store.delete_all(path for path in stored if path <= newest and path not in awaited)


def _pending(table: OpenTable) -> tuple[InstantTime, ...]:
    """The cleans that were decided or requested, oldest first, whoever began them."""
    timeline, state = timeline_and_ledger(table)
    refuse_if_restoring(timeline, state)
    return pending_cleans(table.store, _reopened(table, timeline), state)


def _reopened(table: OpenTable, timeline: Timeline) -> Timeline:
    """The timeline on which the newest clean is pending again if its record was cut off."""
    newest = max(completed_cleans(timeline), default=None)
    if newest is None:
        return timeline
    path = instant_file(newest, Action.CLEAN, State.COMPLETED)
    stored = table.store.stat(path)
    if stored is None or stored.size > 0:
        return timeline
    table.store.delete(path)
    return load_timeline(table.store)


def _decide(table: OpenTable, settings: CleanSettings, lock: Lock) -> InstantTime | _Nothing:
    """Put CLEAN into the ledger, with a plan in storage."""
    for _ in range(_ATTEMPTS):
        slot = table.ledger.read().slot
        plan = read_steadily(table.store, lambda timeline: _draft(table, timeline, settings))
        if isinstance(plan, _Nothing):
            return plan
        with lock.hold():
            decided = _append(table, plan, slot)
        if decided is not None:
            return decided
    log.info("clean.postponed", extra={"attempts": _ATTEMPTS})
    return _Nothing("others changed the table each time a plan was made: clean again")


def _draft(table: OpenTable, timeline: Timeline, settings: CleanSettings) -> Draft | _Nothing:
    """The plan, if it is worth carrying out."""
    state = table.ledger.read()
    refuse_if_restoring(timeline, state)
    if publish_decided(table, state, timeline):
        timeline = load_timeline(table.store)
    found = circumstances(table, timeline, state)
    window = window_of(table, found, settings)
    if window.hindrance:
        return _Nothing(window.hindrance)
    if not _is_due(found, settings):
        return _Nothing(f"fewer than {settings.max_commits} commits since the last clean")
    plan = draft(table, state, found, window, settings)
    return plan if plan.is_full or _is_worth_recording(table, plan) else _Nothing(plan.fates.hindrance)


def _is_due(found: Circumstances, settings: CleanSettings) -> bool:
    """Whether enough was committed since the last clean."""
    known = None if found.last is None else found.last.last_commit or found.last.instant
    commits = found.timeline.completed_commits
    since = [commit for commit in commits if known is None or commit.time > known]
    # A clean that is asked for with each commit may also be asked for without one.
    return settings.max_commits == 1 or len(since) >= settings.max_commits


def _is_worth_recording(table: OpenTable, plan: Draft) -> bool:
    """Whether a plan that deletes nothing spares the next clean work."""
    earliest, last = plan.fates.earliest, plan.found.last
    if earliest is None or not plan.settings.incremental:
        return False
    if plan.is_whole or last is None or last.earliest is None:
        return True
    passed = len(commits_between(plan.found.timeline, last.earliest, earliest))
    hours = plan.settings.empty_clean_hours
    age = moment_of(time_at(table.clock.now_ms())) - moment_of(last.instant)
    is_old = 0 <= hours <= age.total_seconds() / 3600
    return passed >= _RECORDED_AFTER or (passed > 0 and is_old)


def _append(table: OpenTable, plan: Draft, slot: int) -> InstantTime | None:
    """Store the plan and decide on it; None if it is obsolete."""
    content = encoded(table, plan.stored_form)
    time: InstantTime | None = None
    for _ in range(_ATTEMPTS):
        shown = load_timeline(table.store).newest
        known = [t for t in (shown, table.ledger.read().newest, time) if t is not None]
        time = next_time(table.clock.now_ms(), max(known, default=None))
        if not table.store.create(stored_plan(time), content):
            continue
        decision = _Cleaning(table, time, plan.fates.earliest, slot)
        if time in table.ledger.append(decision.decide).cleans:
            return time
        table.store.delete(stored_plan(time))
        if decision.is_obsolete:
            return None
    return None


class _Cleaning:
    """The decision to clean, asked anew in each slot."""

    def __init__(self, table: OpenTable, time: InstantTime, earliest: InstantTime | None, slot: int) -> None:
        self._table = table
        self._time = time
        self._earliest = earliest
        self._checked = slot
        self.is_obsolete = False

    def decide(self, state: LedgerState) -> Decision | None:
        if state.restore is not None:
            refuse_if_restoring(load_timeline(self._table.store), state)
        self.is_obsolete = self.is_obsolete or self._is_overtaken(state)
        self._checked = state.slot
        # A plan whose time has passed is never decided on: it may be swept.
        is_passed = state.newest is not None and state.newest >= self._time
        if self.is_obsolete or is_passed:
            return None
        return Decision(
            kind=EntryKind.CLEAN, instant=self._time, action=Action.CLEAN, earliest=self._earliest
        )

    def _is_overtaken(self, state: LedgerState) -> bool:
        try:
            entries = list(self._table.ledger.between(self._checked, state.slot))
        except Conflict:
            return True  # Nobody knows any more what came in between.
        return any(entry.kind in _OVERTAKING for entry, _ in entries)
