"""Hudi's metadata table: a nested table that lists files, which Holdfast does not maintain.

A reader that trusts it would not see our files. So before a write it is
switched off: first the property, by which Hudi decides, then the folder.
"""

import logging

from holdfast.model.names import META_FOLDER
from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import change_settings, read_settings

log = logging.getLogger(__name__)

_FOLDER = META_FOLDER + "/metadata"
_OFF = {"hoodie.table.metadata.partitions": "", "hoodie.table.metadata.partitions.inflight": ""}


def drop_metadata_table(table: OpenTable) -> None:
    """Switch the metadata table off if the table has one. Safe to repeat after a crash."""
    settings = read_settings(table.store)
    if settings.metadata_partitions:
        change_settings(table.store, _OFF, now_ms=table.clock.now_ms())
        log.warning("metadata_table.dropped", extra={"partitions": settings.metadata_partitions})
    leftovers = table.store.paths(_FOLDER)
    if leftovers:
        table.store.delete_all(leftovers)
        table.store.prune(_FOLDER)
