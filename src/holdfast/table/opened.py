"""An open table: where it is, what its settings say, and the seams its operations use.

A table comes to be in one of two ways. `create_new` makes it empty. Or a write
makes it, with its first commit: until then there is no `hoodie.properties`, so
there is no table, whatever the write has left. Its COMMIT in the ledger carries
the properties, and they are shown right after the commit is. A write in Hudi's
options opens the table that is there, or makes a new one (`open_target`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from holdfast.clock import Clock, SystemClock
from holdfast.config.choices import TimelineZone
from holdfast.config.table import TableSettings
from holdfast.errors import InvalidOption, Refused, TableExists, TableNotFound
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Host, SystemHost
from holdfast.model.instant import Action
from holdfast.model.names import DROPPING_FILE, META_FOLDER
from holdfast.storage.open import is_link, location_of, open_store
from holdfast.storage.store import Store, StoreLocation
from holdfast.table.properties_file import (
    create_settings,
    has_lost_settings,
    has_settings,
    read_settings,
    settings_are_lost,
)
from holdfast.table.publish import publish_decided
from holdfast.timeline.after_decision import after_decision
from holdfast.timeline.ledger import Decision, Ledger, LedgerState
from holdfast.timeline.timeline import load_timeline

if TYPE_CHECKING:
    from holdfast.config.datasource import SourceWrite


@dataclass(frozen=True, slots=True)
class OpenTable:
    store: Store
    location: StoreLocation
    settings: TableSettings
    ledger: Ledger
    clock: Clock
    host: Host
    is_new: bool = False
    """Whether it was not there when it was opened: the first commit of a write makes it."""


def open_at(path: str, storage_options: Mapping[str, str] | None = None) -> OpenTable:
    """The table at a path, with the real clock and host. `TableNotFound` if there is none."""
    location = location_of(path, storage_options)
    return open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())


def open_existing(store: Store, location: StoreLocation, *, clock: Clock, host: Host) -> OpenTable:
    if is_link(location, META_FOLDER):
        # No operation follows it: the table would seem to be empty.
        raise Refused(
            "the table's .hoodie is a symbolic link, which is not followed",
            path=location.uri,
            hint="move the folder to where the link is, or open the table where it lies",
        )
    ledger = Ledger(store, clock)
    try:
        settings = read_settings(store)
    except TableNotFound:
        if not _find_unshown(store, location, ledger, clock, host):
            raise
        settings = read_settings(store)
    if settings.is_read_only:
        store = _read_only(store, settings, clock)
        ledger = Ledger(store, clock)
    return OpenTable(store, location, settings, ledger, clock, host)


def _read_only(store: Store, settings: TableSettings, clock: Clock) -> Store:
    """The store of a table of a version that is not written, with its timeline as layout 1 has it."""
    from holdfast.timeline.layout_two import LayoutTwo, ReadOnlyStore

    zone: dt.tzinfo = dt.UTC
    if settings.timeline_zone is TimelineZone.LOCAL:
        zone = ZoneInfo(clock.zone_name() or "UTC")
    return ReadOnlyStore(store, LayoutTwo(settings, zone), settings)


def open_new(
    store: Store, location: StoreLocation, settings: TableSettings, *, clock: Clock, host: Host
) -> OpenTable:
    """A table that comes to be with the first commit of a write. Nothing is stored before."""
    _refuse_if_half_dropped(store)
    return OpenTable(store, location, settings, Ledger(store, clock), clock, host, is_new=True)


def create_new(
    store: Store, location: StoreLocation, settings: TableSettings, *, clock: Clock, host: Host
) -> OpenTable:
    """Make an empty table. `TableExists` if there is one already."""
    _refuse_if_half_dropped(store)
    ledger = Ledger(store, clock)
    _find_unshown(store, location, ledger, clock, host)
    create_settings(store, settings, now_ms=clock.now_ms())
    with after_decision("the table is created", path=store.uri(""), hint="open it"):
        ledger.append(_stop_first_write)
        if _show_newborn(store, location, ledger, clock, host):
            raise TableExists("a write has just made a table here", path=store.uri(""), hint="open it")
        return open_existing(store, location, clock=clock, host=host)


def is_table(store: Store, location: StoreLocation, *, clock: Clock, host: Host) -> bool:
    """Whether there is a table, be it that its first commit is decided and not shown yet."""
    return has_settings(store) or _show_newborn(store, location, Ledger(store, clock), clock, host)


def open_target(
    location: StoreLocation, write: SourceWrite, *, columns: Sequence[str], clock: Clock, host: Host
) -> OpenTable:
    """Open the table, or one that the first commit of the write makes as the options say.

    `InvalidOption` if they contradict the table, or name a column that the
    rows, whose columns are given, do not have.
    """
    return open_target_in(open_store(location), location, write, columns=columns, clock=clock, host=host)


def open_target_in(
    store: Store,
    location: StoreLocation,
    write: SourceWrite,
    *,
    columns: Sequence[str],
    clock: Clock,
    host: Host,
) -> OpenTable:
    """As `open_target`, in a store that is open already."""
    is_delete = write.operation is not None and write.operation.is_delete
    if not is_delete and not is_table(store, location, clock=clock, host=host):
        settings = write.new_settings()
        _check_columns(settings, columns)
        return open_new(store, location, settings, clock=clock, host=host)
    table = open_existing(store, location, clock=clock, host=host)
    write.check_agrees(table.settings)
    return replace(table, settings=write.complete(table.settings))


def _refuse_if_half_dropped(store: Store) -> None:
    if store.stat(DROPPING_FILE) is not None:
        raise Refused(
            "a table was dropped here, and not all of it is gone yet",
            path=store.uri(""),
            hint="finish it: holdfast drop PATH",
        )


def _stop_first_write(state: LedgerState) -> Decision | None:
    """Take the next slot, if the first write of a table runs here: it has to look again, and finds one."""
    if not state.begun or state.committed:
        return None
    return Decision(kind=EntryKind.CREATE, instant=max(state.begun), action=Action.COMMIT)


def _find_unshown(store: Store, location: StoreLocation, ledger: Ledger, clock: Clock, host: Host) -> bool:
    """Whether there is a table although its properties were not found: it has just come to be.

    `TableDamaged` if it has lost them. Before a second commit is decided, they are shown with the
    first. So they are lost if commits had none before the ledger was read, and have none after it.
    """
    seemed_lost = has_lost_settings(store)
    if _show_newborn(store, location, ledger, clock, host):
        return True
    if seemed_lost and has_lost_settings(store):
        raise settings_are_lost()
    return seemed_lost and has_settings(store)


def _show_newborn(store: Store, location: StoreLocation, ledger: Ledger, clock: Clock, host: Host) -> bool:
    """Show a table whose first commit is decided and may not be shown yet; whether there is one."""
    if store.stat(DROPPING_FILE) is not None:
        return False  # Its ledger goes entry by entry.
    state = ledger.read()
    if state.newborn is None:
        return False
    settings = TableSettings.from_properties(ledger.properties(state.committed[state.newborn].slot))
    table = OpenTable(store, location, settings, ledger, clock, host, is_new=True)
    publish_decided(table, state, load_timeline(store))
    return True


def _check_columns(settings: TableSettings, columns: Sequence[str]) -> None:
    ordering = () if settings.ordering is None else (settings.ordering,)
    for name in (*settings.record_key, *settings.partition_by, *ordering):
        if name not in columns:
            raise InvalidOption(
                "an option names a column that the rows do not have", column=name, columns=", ".join(columns)
            )
