"""Clean: delete the versions of files that are not needed any more.

    recover ─► finish pending cleans ─► plan ─► CLEAN in the ledger ─► carry out

CLEAN is decided only if no savepoint, no other clean and nothing that takes
commits back came since the plan was made; from then on a process that wants to rely
on a file of the plan is refused. Writers neither wait for a clean nor are in
its way: a clean leaves what they build on.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from holdfast.concurrency.locks.lock import NO_LOCK, Lock
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.choices import FailedWritesPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Conflict
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import Action, InstantTime, State, moment_of
from holdfast.model.names import PLANS_FOLDER, clean_plan_path, instant_file
from holdfast.model.reports import CleanPlan, CleanReport
from holdfast.services.clean.execute import Progress, carry_out, encode_plan, no_progress
from holdfast.services.clean.plan import (
    CleanContext,
    CleanDraft,
    clean_context,
    draft_clean,
    explain_clean,
    window_to_retain,
)
from holdfast.services.clean.scope import commits_between
from holdfast.services.plans import refuse_beyond_plan
from holdfast.services.rehearsals import rehearse
from holdfast.services.rollback.rollback import recover
from holdfast.table.clean_plans import pending_cleans
from holdfast.table.opened import OpenTable
from holdfast.table.pending import refuse_if_restoring
from holdfast.table.publish import publish_decided
from holdfast.table.stable_read import read_stable, timeline_and_ledger
from holdfast.table.zone import next_instant, timeline_zone
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)

_ATTEMPTS = 5
_RECORDED_AFTER = 10
"""Commits after which a clean is recorded that deletes nothing, so that the next looks less far back."""

_LATER = "left to a later clean"
_OVERTAKING = (EntryKind.SAVEPOINT, EntryKind.REVOKE, EntryKind.CLEAN)
"""What makes a plan obsolete that was made before it."""


def clean(table: OpenTable, settings: WriteSettings, *, progress: Progress = no_progress) -> CleanReport:
    """Roll back what dead writers left, finish pending cleans, and clean as a write with these settings does.

    The report is that of the newest clean that was carried out, and says why if
    there was none. `Refused` while a restore is pending. In a table that
    Holdfast cannot write to, such as one without meta columns, what dead writers
    left is for the program that wrote it.
    """
    table.settings.refuse_if_read_only()
    return _recover_and_clean(table, settings, progress)


def plan_clean(table: OpenTable, settings: WriteSettings) -> CleanPlan:
    """What `clean` would delete, exactly, and why; what it would leave. Changes nothing."""
    table.settings.refuse_if_read_only()
    plan = explain_clean(table, settings.clean)
    rehearsed = rehearse(table, lambda rehearsal: clean(rehearsal, settings))
    going = frozenset(rehearsed.vanishing)
    # A clean looks only where something changed since the last, and not before it is due.
    later = [replace(file, reason=_LATER) for file in plan.doomed if file.path not in going]
    report = rehearsed.result
    return replace(
        plan,
        doomed=tuple(file for file in plan.doomed if file.path in going),
        kept=(*plan.kept, *later),
        why_nothing=plan.why_nothing or (report.why_nothing if report is not None else rehearsed.blocked_by),
        vanishing=rehearsed.vanishing,
        hindrance=rehearsed.blocked_by,
    )


def execute_clean(
    table: OpenTable, plan: CleanPlan, settings: WriteSettings, *, progress: Progress = no_progress
) -> CleanReport:
    """Clean as the plan says, which was made with these settings: no file goes that it does not name.

    Fewer may go, if a savepoint or a reader protects them by now. `PlanOutdated`
    if a clean would now delete more.
    """
    refuse_beyond_plan(plan.vanishing, plan_clean(table, settings).vanishing)
    return _recover_and_clean(table, settings, progress, planned=frozenset(plan.vanishing))


def clean_without_recovery(
    table: OpenTable, settings: CleanSettings, *, lock: Lock = NO_LOCK
) -> CleanReport | None:
    """As `clean`, for a writer that has recovered already; None if there is nothing to do."""
    report = _clean(table, settings, lock, no_progress)
    return None if report.instant is None else report


def _recover_and_clean(
    table: OpenTable, settings: WriteSettings, progress: Progress, *, planned: Collection[str] | None = None
) -> CleanReport:
    if not settings.clean.services_enabled:
        return CleanReport(why_nothing="hoodie.table.services.enabled is false")
    is_never = settings.failed_writes_policy is FailedWritesPolicy.NEVER
    lock = open_lock(table, settings.lock)
    if table.settings.is_changeable:
        with lock.hold():
            recover(
                table,
                # A cleaner is not the only writer of the table, who may remove all that is unfinished.
                policy=FailedWritesPolicy.NEVER if is_never else FailedWritesPolicy.LAZY,
                timeout_ms=settings.heartbeat_timeout_ms,
            )
    return _clean(table, settings.clean, lock, progress, planned=planned)


def _clean(
    table: OpenTable,
    settings: CleanSettings,
    lock: Lock,
    progress: Progress,
    *,
    planned: Collection[str] | None = None,
) -> CleanReport:
    """Finish pending cleans and clean; of a clean that is `planned`, no other files."""
    _sweep_plans(table)

    def finish(time: InstantTime) -> CleanReport | None:
        with after_decision("the clean is decided", instant=time, hint="the next clean finishes it"):
            return carry_out(table, time, parallelism=settings.parallelism, progress=progress)

    attempted = [finish(time) for time in _pending(table)]
    why_nothing = ""
    if not any(attempted) or settings.plans_beside_pending:
        decided = _decide(table, settings, lock, planned)
        if isinstance(decided, _Nothing):
            why_nothing = decided.why
        else:
            attempted.append(finish(decided))
    reports = [report for report in attempted if report is not None]
    if not reports:
        return CleanReport(why_nothing=why_nothing or "another process carried the clean out")
    return replace(reports[-1], resumed=tuple(reports[:-1]))


@dataclass(frozen=True, slots=True)
class _Nothing:
    """Nothing is to be cleaned now."""

    why: str


def _sweep_plans(table: OpenTable) -> None:
    """Delete plans that will not be carried out: of cleans that are completed, or were never decided."""
    stored = [file.path for file in table.store.folder(PLANS_FOLDER).files]
    if not stored:
        return
    timeline, state = timeline_and_ledger(table)
    awaited = {clean_plan_path(time) for time in pending_cleans(table.store, timeline, state)}
    newest = clean_plan_path(state.newest) if state.newest is not None else ""
    # One that is newer than everything in the ledger may yet be decided on.
    table.store.delete_all(path for path in stored if path <= newest and path not in awaited)


def _pending(table: OpenTable) -> tuple[InstantTime, ...]:
    """The cleans that were decided or requested, oldest first, by any process."""
    timeline, state = timeline_and_ledger(table)
    refuse_if_restoring(timeline, state)
    return pending_cleans(table.store, _reopen_cut_off(table, timeline), state)


def _reopen_cut_off(table: OpenTable, timeline: Timeline) -> Timeline:
    """The timeline on which the newest clean is pending again if its record was cut off."""
    newest = timeline.completed_cleans[-1].time if timeline.completed_cleans else None
    if newest is None:
        return timeline
    path = instant_file(newest, Action.CLEAN, State.COMPLETED)
    stored = table.store.stat(path)
    if stored is None or stored.size > 0:
        return timeline
    table.store.delete(path)
    return load_timeline(table.store)


def _decide(
    table: OpenTable, settings: CleanSettings, lock: Lock, planned: Collection[str] | None
) -> InstantTime | _Nothing:
    """Put CLEAN into the ledger, with a plan in storage."""
    for _ in range(_ATTEMPTS):
        slot = table.ledger.read().slot
        draft = read_stable(table.store, lambda timeline: _draft(table, timeline, settings))
        if isinstance(draft, _Nothing):
            return draft
        if planned is not None:
            refuse_beyond_plan(planned, draft.decisions.doomed["path"].to_pylist())
        with lock.hold():
            decided = _append(table, draft, slot)
        if decided is not None:
            return decided
    log.info("clean.postponed", extra={"table": table.store.uri(""), "attempts": _ATTEMPTS})
    return _Nothing("others changed the table each time a plan was made: clean again")


def _draft(table: OpenTable, timeline: Timeline, settings: CleanSettings) -> CleanDraft | _Nothing:
    """The draft of a clean that is worth carrying out."""
    state = table.ledger.read()
    refuse_if_restoring(timeline, state)
    if publish_decided(table, state, timeline):
        timeline = load_timeline(table.store)
    context = clean_context(table, timeline, state)
    window = window_to_retain(table, context, settings)
    if window.blocked_by:
        return _Nothing(window.blocked_by)
    if not _is_due(context, settings):
        return _Nothing(f"fewer than {settings.max_commits} commits since the last clean")
    draft = draft_clean(table, state, context, window, settings)
    is_wanted = draft.deletes_something or _is_worth_recording(table, draft)
    return draft if is_wanted else _Nothing(draft.decisions.blocked_by)


def _is_due(context: CleanContext, settings: CleanSettings) -> bool:
    """Whether enough was committed since the last clean."""
    last = context.last
    known = None if last is None else last.last_commit or last.instant
    commits = context.timeline.completed_commits
    since = [commit for commit in commits if known is None or commit.time > known]
    # A clean that is asked for with each commit may also be asked for without one.
    return settings.max_commits == 1 or len(since) >= settings.max_commits


def _is_worth_recording(table: OpenTable, draft: CleanDraft) -> bool:
    """Whether a clean that deletes nothing spares the next one work."""
    earliest, last = draft.decisions.earliest, draft.context.last
    if earliest is None or not draft.settings.incremental:
        return False
    if draft.is_whole or last is None or last.earliest is None:
        return True
    passed = len(commits_between(draft.context.timeline, last.earliest, earliest))
    hours = draft.settings.empty_clean_hours
    last_ms = moment_of(last.instant, timeline_zone(table)).timestamp() * 1000
    is_old = 0 <= hours <= (table.clock.now_ms() - last_ms) / 3_600_000
    return passed >= _RECORDED_AFTER or (passed > 0 and is_old)


def _append(table: OpenTable, draft: CleanDraft, slot: int) -> InstantTime | None:
    """Store the plan and decide on it; None if it is obsolete."""
    content = encode_plan(table, draft.schema_in_file)
    time: InstantTime | None = None
    for _ in range(_ATTEMPTS):
        shown = load_timeline(table.store).newest
        known = [t for t in (shown, table.ledger.read().newest, time) if t is not None]
        time = next_instant(table, max(known, default=None))
        if not table.store.create(clean_plan_path(time), content):
            continue
        decision = _CleanDecision(table, time, draft.decisions.earliest, slot)
        if time in table.ledger.append(decision.decide).cleans:
            return time
        table.store.delete(clean_plan_path(time))
        if decision.is_obsolete:
            return None
    return None


class _CleanDecision:
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
            return True  # It is not known any more what came in between.
        return any(entry.kind in _OVERTAKING for entry, _ in entries)
