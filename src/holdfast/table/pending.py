"""What waits on the timeline: restores, rollbacks, compactions and clusterings that are not finished.

While a restore is pending, no write may begin. The plan of a compaction or of
a clustering names files that must stay until it is carried out.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.errors import Refused
from holdfast.format.compaction_plans import CompactionPlan, decode_compaction_plan
from holdfast.format.malformed import Malformed, report_damage
from holdfast.format.replace_requests import ReplaceRequest, decode_replace_request
from holdfast.format.restores import decode_restore_plan
from holdfast.format.rollbacks import RollbackPlan, decode_rollback_plan
from holdfast.model.instant import Action, Instant, InstantTime, State, end_of
from holdfast.model.names import in_partition, instant_file, is_data_file
from holdfast.storage.store import Store, read_or_none
from holdfast.timeline.ledger import Aborted, LedgerState, Restoring
from holdfast.timeline.timeline import Timeline

_COMPACTIONS = (Action.COMPACTION, Action.LOGCOMPACTION)
_ALL_SLICES = InstantTime("0")

AT_ONCE = "holdfast.at.once"
"""Extra metadata of a plan: `true` if it was made to be carried out at once. Nobody else begins it."""


def pending_restore(timeline: Timeline, state: LedgerState) -> Restoring | None:
    """The restore that the ledger decided and that is not completed yet."""
    restore = state.restore
    if restore is None or restore.is_over:
        return None
    shown = timeline.find(restore.instant, Action.RESTORE)
    return restore if shown is None or not shown.is_completed else None


def unshown_restores(timeline: Timeline, state: LedgerState) -> list[InstantTime]:
    """Restores that were completed, as the ledger proves, and whose completed files are missing."""
    restore = state.restore
    if restore is None:
        return []
    return [
        instant.time
        for instant in timeline.instants
        if instant.action is Action.RESTORE
        and not instant.is_completed
        # No restore begins before the one before it is completed.
        and (instant.time < restore.instant or (restore.is_over and instant.time == restore.instant))
    ]


def foreign_restores(timeline: Timeline, state: LedgerState) -> list[InstantTime]:
    """Pending restores that the ledger does not know: another program's, or ours in a copy."""
    known = {*unshown_restores(timeline, state), None if state.restore is None else state.restore.instant}
    restores = (i for i in timeline.instants if i.action is Action.RESTORE and not i.is_completed)
    return [instant.time for instant in restores if instant.time not in known]


def restore_goal(store: Store, restore: InstantTime) -> InstantTime | None:
    """Where a pending restore goes, as its plan says; None if that is not known."""
    content = read_or_none(store, instant_file(restore, Action.RESTORE, State.REQUESTED))
    try:
        return None if not content else decode_restore_plan(content).savepoint
    except Malformed:
        return None


def restores_to_take_over(
    store: Store, timeline: Timeline, state: LedgerState, target: InstantTime | None
) -> frozenset[InstantTime]:
    """Pending restores that the ledger does not know, and that a restore to the same commit finishes."""
    if target is None:
        return frozenset()
    return frozenset(
        time for time in foreign_restores(timeline, state) if restore_goal(store, time) == target
    )


def refuse_if_restoring(
    timeline: Timeline, state: LedgerState, *, unless: Collection[InstantTime] = ()
) -> None:
    """`Refused` while a restore is pending, ours or another program's, and while the table is dropped."""
    refuse_if_dropped(state)
    ours = pending_restore(timeline, state)
    if ours is not None:
        raise _refusal(ours.instant, hint=f"finish it: holdfast restore PATH --to {ours.to}")
    for time in foreign_restores(timeline, state):
        if time not in unless:
            raise _refusal(
                time,
                hint="let the program finish it that began it; if that is gone, or this is a copy, "
                "holdfast verify PATH names the restore that finishes it",
            )


def refuse_if_dropped(state: LedgerState) -> None:
    if state.dropped:
        raise Refused("this table is being dropped", hint="finish it: holdfast drop PATH")


def forget_rollbacks(store: Store, timeline: Timeline, state: LedgerState) -> None:
    """Take from the timeline the rollbacks that the newest restore made superfluous, once it is completed.

    They are those it consisted of, whose record is its own, and all between
    the commit it went to and itself.
    """
    restore = state.restore
    if restore is None or pending_restore(timeline, state) is not None:
        return
    parts = {one.rollback for one in state.aborted.values() if one.restore == restore.instant}
    for instant in timeline.instants:
        is_between = restore.to < instant.time < restore.instant
        if instant.action is Action.ROLLBACK and (is_between or instant.time in parts):
            for reached in (State.COMPLETED, State.INFLIGHT, State.REQUESTED):
                store.delete(instant_file(instant.time, Action.ROLLBACK, reached))


def _refusal(restore: InstantTime, *, hint: str) -> Refused:
    return Refused("a restore of this table is not finished", restore=restore, hint=hint)


def read_rollback_plan(store: Store, rollback: InstantTime) -> RollbackPlan | None:
    """The stored plan of a rollback; None if it is absent or torn."""
    content = read_or_none(store, instant_file(rollback, Action.ROLLBACK, State.REQUESTED))
    try:
        return None if content is None else decode_rollback_plan(content)
    except Malformed:
        return None


def rollbacks_by_target(store: Store, timeline: Timeline) -> dict[InstantTime, InstantTime]:
    """Instant to be rolled back → its pending rollback. The first plan for a target counts."""
    plans: dict[InstantTime, InstantTime] = {}
    for instant in timeline.pending_rollbacks:
        plan = read_rollback_plan(store, instant.time)
        if plan is not None:
            plans.setdefault(plan.target, instant.time)
    return plans


def is_rollback_over(timeline: Timeline, state: LedgerState, aborted: Aborted) -> bool:
    """Whether the rollback of an aborted instant, which the timeline does not show, was carried out."""
    if aborted.restore is not None:
        restore = pending_restore(timeline, state)
        return restore is None or restore.instant != aborted.restore
    if state.has_left(aborted.rollback):
        return True
    # Another program may have archived it.
    return bool(timeline.instants) and end_of(aborted.rollback) < end_of(timeline.instants[0].time)


def pending_clustering(store: Store, timeline: Timeline) -> frozenset[InstantTime]:
    """The writes on the timeline that wait as plans of clustering: to be carried out again, not failed."""
    replacements = [i for i in timeline.pending_writes if i.action is Action.REPLACECOMMIT]
    return frozenset(
        instant.time for instant, request in _replace_requests(store, replacements) if request.is_clustering
    )


def read_compaction_plan(store: Store, compaction: InstantTime) -> CompactionPlan | None:
    """The stored plan of a compaction; None if it is absent or was never whole."""
    path = instant_file(compaction, Action.COMPACTION, State.REQUESTED)
    content = read_or_none(store, path)
    if not content:
        return None
    with report_damage("a compaction plan cannot be read", file=path):
        return decode_compaction_plan(content)


def pending_compactions(store: Store, timeline: Timeline) -> list[tuple[Instant, CompactionPlan]]:
    """The compactions that are not finished, oldest first, with what they are to do."""
    pending = [i for i in timeline.instants if i.action is Action.COMPACTION and not i.is_completed]
    found: list[tuple[Instant, CompactionPlan]] = []
    for instant, path, content in _requests(store, pending):
        with report_damage("a compaction plan cannot be read", file=path):
            found.append((instant, decode_compaction_plan(content)))
    return found


def groups_to_compact(store: Store, timeline: Timeline) -> frozenset[str]:
    """The file groups of pending compactions, as `partition/file id`."""
    return frozenset(
        in_partition(operation.partition, operation.file_id)
        for _, plan in pending_compactions(store, timeline)
        for operation in plan.operations
    )


@dataclass(frozen=True)
class PendingServices:
    """The file slices that compactions and clusterings are yet to read."""

    planned: frozenset[InstantTime] = frozenset()
    """The services whose plans say what they need."""
    compactions: frozenset[InstantTime] = frozenset()
    """Compactions: log files may carry their instants, and continue the slices to be merged."""
    needed_since: Mapping[str, InstantTime] = field(default_factory=dict)
    """File group, as `partition/file id` → the instant of the first slice that is needed, with all later."""
    needed_files: tuple[str, ...] = ()
    """Files of single slices that are needed."""


NO_SERVICES = PendingServices()


def pending_services(store: Store, timeline: Timeline) -> PendingServices:
    """What the plans of services say that are not finished. `TableDamaged` if one cannot be read."""
    pending = [i for i in timeline.instants if not i.is_completed]
    compactions = [i for i in pending if i.action in _COMPACTIONS]
    replacements = [i for i in pending if i.action is Action.REPLACECOMMIT]
    if not compactions and not replacements:
        return NO_SERVICES
    since: dict[str, InstantTime] = {}
    needed_files: list[str] = []
    planned: set[InstantTime] = set()
    for instant, path, content in _requests(store, compactions):
        with report_damage("a compaction plan cannot be read", file=path):
            operations = decode_compaction_plan(content).operations
        planned.add(instant.time)
        for operation in operations:
            group = in_partition(operation.partition, operation.file_id)
            _need(since, group, operation.base_instant or _ALL_SLICES)
    for instant, request in _replace_requests(store, replacements):
        if request.is_clustering and request.inputs:
            planned.add(instant.time)
        for slice_ in request.inputs:
            needed_files += slice_.paths
            if not slice_.files or not all(map(is_data_file, slice_.files)):
                _need(since, in_partition(slice_.partition, slice_.file_id), _ALL_SLICES)
    return PendingServices(
        frozenset(planned),
        frozenset(i.time for i in compactions if i.action is Action.COMPACTION),
        since,
        tuple(needed_files),
    )


def _need(since: dict[str, InstantTime], group: str, base: InstantTime) -> None:
    known = since.get(group)
    if known is None or end_of(base) < end_of(known):
        since[group] = base


def _replace_requests(store: Store, instants: Iterable[Instant]) -> Iterator[tuple[Instant, ReplaceRequest]]:
    for instant, path, content in _requests(store, instants):
        with report_damage("a replacecommit's request cannot be read", file=path):
            request = decode_replace_request(content)
        yield instant, request


def _requests(store: Store, instants: Iterable[Instant]) -> Iterator[tuple[Instant, str, bytes]]:
    """The services' plans; one that is empty or not there was never whole, and nothing was done by it."""
    listed = list(instants)
    paths = [instant_file(i.time, i.action, State.REQUESTED) for i in listed]
    for instant, path, content in zip(listed, paths, store.read_all(paths), strict=True):
        if content:
            yield instant, path, content
