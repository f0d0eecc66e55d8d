"""The archive of a table, wherever its properties say that it is."""

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


def read_archive(store: Store, settings: TableSettings | None = None) -> ArchivedTimeline:
    """All archives, without commits that a restore has taken back since. None are there without a table."""
    try:
        settings = settings or read_settings(store)
    except TableNotFound:
        return NO_ARCHIVE
    archived = load_archived(store, settings.archive_folder, archive_zone(store, settings))
    return archived.without_between(_gaps_of_restores(store)) if archived.files else archived


def _gaps_of_restores(store: Store) -> list[tuple[InstantTime, InstantTime]]:
    """Where each restore of the timeline went, and its own instant: nothing between them stands."""
    restores = [i.time for i in load_timeline(store).instants if i.action is Action.RESTORE]
    paths = [instant_file(time, Action.RESTORE, State.REQUESTED) for time in restores]
    gaps: list[tuple[InstantTime, InstantTime]] = []
    for restore, content in zip(restores, store.read_all(paths), strict=True):
        try:
            target = None if not content else decode_restore_plan(content).savepoint
        except Malformed:
            continue  # `verify` reports it.
        if target is not None:
            gaps.append((target, restore))
    return gaps
