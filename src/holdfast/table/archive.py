"""The archive of a table, wherever its properties say that it is."""

from holdfast.config.table import TableSettings
from holdfast.errors import TableNotFound
from holdfast.storage.store import Store
from holdfast.table.properties_file import read_settings
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline, load_archived


def read_archive(store: Store, settings: TableSettings | None = None) -> ArchivedTimeline:
    """All archives. None are there where there is no table."""
    try:
        folder = (settings or read_settings(store)).archive_folder
    except TableNotFound:
        return NO_ARCHIVE
    return load_archived(store, folder)
