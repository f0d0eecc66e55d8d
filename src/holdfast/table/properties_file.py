"""`hoodie.properties`: read it, create it, change it without a moment of absence.

Every store here replaces a file in one step, so a change needs no backup. Hudi
makes one; a reader falls back to it where Hudi stopped half-way.
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


def change_settings(store: Store, changes: Mapping[str, str], *, now_ms: int) -> TableSettings:
    """Set some properties and keep all others, whoever else changes the file meanwhile."""
    while True:
        try:
            content, version = store.read_version(PROPERTIES_FILE)
        except FileNotFoundError:
            # Another program stopped between deleting the file and writing it anew.
            values = dict(_read_properties(store)) | dict(changes)
            is_changed = store.create(PROPERTIES_FILE, _encoded(values, now_ms))
        else:
            values = dict(_decoded(content, PROPERTIES_FILE)) | dict(changes)
            is_changed = store.replace(PROPERTIES_FILE, _encoded(values, now_ms), version)
        if is_changed:
            return TableSettings.from_properties(values)


def _decoded(content: bytes, path: str) -> Mapping[str, str]:
    try:
        return decode_table_properties(content)
    except Malformed as error:
        raise _damaged(path, error) from error


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
        raise _damaged(PROPERTIES_FILE, damage)
    raise TableNotFound(
        "there is no table here", path=store.uri(""), hint="check the path, or create the table first"
    )


def _damaged(path: str, cause: Malformed) -> TableDamaged:
    return TableDamaged(
        "the table's properties cannot be read",
        file=path,
        cause=cause,
        hint="put the file back from a backup: nothing else tells how the table was made",
    )


def _encoded(values: Mapping[str, str], now_ms: int) -> bytes:
    return encode_table_properties(values, moment=dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC))
