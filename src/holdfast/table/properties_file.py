"""`hoodie.properties`: read it, create it, change it without a moment of absence.

A change goes through a backup that readers fall back to, as Hudi does it, so
that a crash between any two steps leaves one of the two whole files.
"""

import datetime as dt
from collections.abc import Mapping

from holdfast.config.table import TableSettings
from holdfast.errors import TableDamaged, TableExists, TableNotFound
from holdfast.format.malformed import Malformed
from holdfast.format.properties import decode_table_properties, encode_table_properties
from holdfast.model.names import PROPERTIES_BACKUP, PROPERTIES_FILE
from holdfast.storage.store import Store

_READ_ATTEMPTS = 3


def read_settings(store: Store) -> TableSettings:
    return TableSettings.from_properties(_read_properties(store))


def create_settings(store: Store, settings: TableSettings, *, now_ms: int) -> None:
    """Make the table exist: this one file is the moment of its birth."""
    if has_settings(store) or not store.create(PROPERTIES_FILE, _encoded(settings.properties, now_ms)):
        raise TableExists(
            "there is already a table here", path=store.uri(""), hint="open it, or choose another path"
        )


def has_settings(store: Store) -> bool:
    return any(store.stat(path) is not None for path in (PROPERTIES_FILE, PROPERTIES_BACKUP))


def finish_change(store: Store) -> None:
    """Bring a change that a crash interrupted to an end: one whole file, no backup."""
    if store.stat(PROPERTIES_BACKUP) is None:
        return
    if store.stat(PROPERTIES_FILE) is None:
        store.create(PROPERTIES_FILE, store.read(PROPERTIES_BACKUP))
    store.delete(PROPERTIES_BACKUP)


def change_settings(store: Store, changes: Mapping[str, str], *, now_ms: int) -> TableSettings:
    """Set some properties and keep all others."""
    finish_change(store)
    values = dict(_read_properties(store)) | dict(changes)
    store.create(PROPERTIES_BACKUP, store.read(PROPERTIES_FILE))
    store.delete(PROPERTIES_FILE)
    if not store.create(PROPERTIES_FILE, _encoded(values, now_ms)):
        raise TableDamaged("somebody else changed the table's properties", file=PROPERTIES_FILE)
    store.delete(PROPERTIES_BACKUP)
    return TableSettings.from_properties(values)


def _read_properties(store: Store) -> Mapping[str, str]:
    damage: Malformed | None = None
    for _ in range(_READ_ATTEMPTS):
        # A change may delete one file and create the other between these reads; then look again.
        for path in (PROPERTIES_FILE, PROPERTIES_BACKUP):
            try:
                return decode_table_properties(store.read(path))
            except FileNotFoundError:
                continue
            except Malformed as error:
                damage = error
    if damage is not None:
        raise TableDamaged("the table's properties cannot be read", file=PROPERTIES_FILE, cause=damage)
    raise TableNotFound(
        "there is no table here", path=store.uri(""), hint="check the path, or create the table first"
    )


def _encoded(values: Mapping[str, str], now_ms: int) -> bytes:
    return encode_table_properties(values, moment=dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC))
