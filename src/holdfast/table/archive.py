"""The archive of a table, wherever its properties say that it is."""

from collections.abc import Iterator

from holdfast.config.table import TableSettings
from holdfast.errors import TableNotFound
from holdfast.format.malformed import Malformed
from holdfast.format.restores import decode_restore_plan
from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import instant_file
from holdfast.storage.store import Store
from holdfast.table.properties_file import read_settings
from holdfast.table.zone import archive_zone
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline, load_archived
from holdfast.timeline.timeline import load_timeline


def read_archive(
    store: Store, settings: TableSettings | None = None, *, before: InstantTime | None = None
) -> ArchivedTimeline:
    """All archives, without commits that a restore has taken back since. None are there without a table.

    If a time is given, only restores before it count.
    """
    try:
        settings = settings or read_settings(store)
    except TableNotFound:
        return NO_ARCHIVE
    archived = load_archived(store, settings.archive_folder, archive_zone(store, settings))
    if not archived.files:
        return archived
    gaps = [gap for gap in _gaps_of_restores(store, archived) if before is None or gap[1] < before]
    return archived.without_between(gaps)


def _gaps_of_restores(store: Store, archived: ArchivedTimeline) -> Iterator[tuple[InstantTime, InstantTime]]:
    """Where each restore went, archived or not, and its own instant: nothing between them stands."""
    plans = {i.time: b"" for i in load_timeline(store).instants if i.action is Action.RESTORE}
    paths = [instant_file(time, Action.RESTORE, State.REQUESTED) for time in plans]
    plans = {time: content or b"" for time, content in zip(plans, store.read_all(paths), strict=True)}
    for (time, action, state), file in archived.files.items():
        # While it is leaving the timeline, its plan is in the archive alone.
        if action is Action.RESTORE and state is State.REQUESTED:
            plans[time] = plans.get(time) or file.content
    for restore, content in plans.items():
        try:
            target = decode_restore_plan(content).savepoint if content else None
        except Malformed:
            continue  # `verify` reports it.
        if target is not None:
            yield target, restore
