"""`hoodie.properties`: read it, create it, change it without a moment of absence.

Every store here replaces a file in one step, so a change needs no backup. Hudi
makes one; a reader falls back to it where Hudi stopped half-way.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.config.table import TableSettings
from holdfast.errors import TableDamaged, TableExists, TableNotFound
from holdfast.format.malformed import Malformed
from holdfast.format.properties import SEALS, decode_table_properties, encode_table_properties
from holdfast.model.instant import COMMIT_ACTIONS, State
from holdfast.model.names import (
    DROPPING_FILE,
    META_FOLDER,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    parse_instant_file,
)
from holdfast.storage.store import Store
from holdfast.timeline.after_decision import create_for_certain

if TYPE_CHECKING:
    from holdfast.table.opened import OpenTable

log = logging.getLogger(__name__)

_READ_ATTEMPTS = 3
_FROM_BACKUP = "put the file back from a backup: nothing else tells how the table was made"
_METADATA_TABLE = META_FOLDER + "/metadata"
_METADATA_TABLE_OFF = {
    "hoodie.table.metadata.partitions": "",
    "hoodie.table.metadata.partitions.inflight": "",
}


def read_settings(store: Store) -> TableSettings:
    return TableSettings.from_properties(_read_properties(store))


def create_settings(store: Store, settings: TableSettings, *, now_ms: int) -> None:
    """Make the table exist: this one file is the moment of its birth."""
    content = _encode(settings.properties, now_ms)
    if has_settings(store) or not create_for_certain(
        store,
        PROPERTIES_FILE,
        content,
        what="a table was created",
        hint="create it again: `TableExists` says that it was",
    ):
        raise TableExists(
            "there is already a table here", path=store.uri(""), hint="open it, or choose another path"
        )


def show_settings(store: Store, properties: Mapping[str, str], *, now_ms: int) -> None:
    """Make a table exist whose first commit is decided, with the properties it was decided with.

    Another process may have created a table after that decision: it then hears that it was late.
    """
    content = _encode(properties, now_ms)
    while True:
        try:
            found, version = store.read_version(PROPERTIES_FILE)
        except FileNotFoundError:
            is_shown = store.create(PROPERTIES_FILE, content)
        else:
            standing = _decode(found, PROPERTIES_FILE)
            is_same = all(standing.get(key) == value for key, value in properties.items())
            is_shown = is_same or store.replace(PROPERTIES_FILE, content, version)
        if is_shown:
            return


def has_settings(store: Store) -> bool:
    return any(store.stat(path) is not None for path in (PROPERTIES_FILE, PROPERTIES_BACKUP))


def change_settings(store: Store, changes: Mapping[str, str], *, now_ms: int) -> TableSettings:
    """Set some properties and keep all others, also if another program changes the file meanwhile."""
    while True:
        try:
            content, version = store.read_version(PROPERTIES_FILE)
        except FileNotFoundError:
            # Another program stopped between deleting the file and writing it anew.
            values = dict(_read_properties(store)) | dict(changes)
            is_changed = store.create(PROPERTIES_FILE, _encode(values, now_ms))
        else:
            values = dict(_decode(content, PROPERTIES_FILE)) | dict(changes)
            is_changed = store.replace(PROPERTIES_FILE, _encode(values, now_ms), version)
        if is_changed:
            return TableSettings.from_properties(values)


def read_current_settings(table: OpenTable) -> TableSettings:
    """What the table's file says now; what it will say, if the table is yet to come."""
    try:
        return read_settings(table.store)
    except TableNotFound:
        if not table.is_new:
            raise
        return table.settings


def drop_metadata_table(table: OpenTable) -> tuple[str, ...]:
    """Switch Hudi's metadata table off if the table has one; its files, which are gone.

    It is a nested table that lists files, and a write of ours does not keep it: a reader that
    trusts it would not see our files. First goes the property, by which Hudi decides, then the
    folder. Safe to repeat after a crash.
    """
    settings = read_current_settings(table)
    if settings.metadata_partitions:
        change_settings(table.store, _METADATA_TABLE_OFF, now_ms=table.clock.now_ms())
        log.warning(
            "metadata_table.dropped",
            extra={
                "table": table.store.uri(""),
                "partitions": settings.metadata_partitions,
                "cause": "a write does not keep it, and its readers would miss new files",
            },
        )
    leftovers = table.store.paths(_METADATA_TABLE)
    if not leftovers:
        return ()
    stuck = frozenset(table.store.delete_all(leftovers))
    table.store.prune(_METADATA_TABLE)
    return tuple(path for path in leftovers if path not in stuck)


def _decode(content: bytes, path: str) -> Mapping[str, str]:
    try:
        return decode_table_properties(content)
    except Malformed as error:
        raise _unreadable(path, error) from error


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
        raise _unreadable(PROPERTIES_FILE, damage)
    raise TableNotFound(
        "there is no table here", path=store.uri(""), hint="check the path, or create the table first"
    )


def has_lost_settings(store: Store) -> bool:
    """Whether there is a completed commit, and nothing tells how its table was made.

    So it is for a moment, too, while the first commit of a table is shown. A table that is
    being dropped is none.
    """
    if has_settings(store) or store.stat(DROPPING_FILE) is not None:
        return False
    names = (file.path.rpartition("/")[2] for file in store.folder(META_FOLDER).files)
    parsed = (parse_instant_file(name) for name in names)
    completed = (found for found in parsed if found is not None and found[2] is State.COMPLETED)
    return any(action in COMMIT_ACTIONS for _, action, _ in completed)


def settings_are_lost() -> TableDamaged:
    return TableDamaged("the table's properties are missing", file=PROPERTIES_FILE, hint=_FROM_BACKUP)


def _unreadable(path: str, cause: Malformed) -> TableDamaged:
    hint = f"{_FROM_BACKUP}; if a value was changed on purpose, delete the line of {SEALS}"
    return TableDamaged("the table's properties cannot be read", file=path, cause=cause, hint=hint)


def _encode(values: Mapping[str, str], now_ms: int) -> bytes:
    return encode_table_properties(values, moment=dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC))
