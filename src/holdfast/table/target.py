"""The table that a write in Hudi's options goes to: the one there, or a new one."""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.clock import Clock
from holdfast.config.datasource import SourceWrite
from holdfast.config.table import TableSettings
from holdfast.errors import InvalidOption, TableExists
from holdfast.host import Host
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable, create_new, open_existing
from holdfast.table.properties_file import has_settings


def open_target(
    location: StoreLocation, write: SourceWrite, *, columns: Sequence[str], clock: Clock, host: Host
) -> OpenTable:
    """Open the table, or create it as the options say.

    `InvalidOption` if they contradict the table, or name a column that the
    rows, whose columns are given, do not have: a table made by mistake would
    contradict the corrected options.
    """
    store = open_store(location)
    if not has_settings(store) and not (write.operation is not None and write.operation.is_delete):
        settings = write.new_settings()
        _check_columns(settings, columns)
        try:
            return create_new(store, location, settings, clock=clock, host=host)
        except TableExists:
            pass  # Another writer was faster. Its table is as good, if it agrees.
    table = open_existing(store, location, clock=clock, host=host)
    write.check_agrees(table.settings)
    return replace(table, settings=write.completed(table.settings))


def _check_columns(settings: TableSettings, columns: Sequence[str]) -> None:
    ordering = () if settings.ordering is None else (settings.ordering,)
    for name in (*settings.record_key, *settings.partition_by, *ordering):
        if name not in columns:
            raise InvalidOption(
                "an option names a column that the rows do not have", column=name, columns=", ".join(columns)
            )
