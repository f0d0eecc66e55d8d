"""An open table: where it is, what its settings say, and the seams its operations use."""

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.clock import Clock, SystemClock
from holdfast.config.table import TableSettings
from holdfast.host import Host, SystemHost
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import Store, StoreLocation
from holdfast.table.properties_file import create_settings, read_settings
from holdfast.timeline.ledger import Ledger


@dataclass(frozen=True, slots=True)
class OpenTable:
    store: Store
    location: StoreLocation
    settings: TableSettings
    ledger: Ledger
    clock: Clock
    host: Host


def open_at(path: str, storage_options: Mapping[str, str] | None = None) -> OpenTable:
    """The table at a path, with the real clock and host. `TableNotFound` if there is none."""
    location = location_of(path, storage_options)
    return open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())


def open_existing(store: Store, location: StoreLocation, *, clock: Clock, host: Host) -> OpenTable:
    return OpenTable(store, location, read_settings(store), Ledger(store, clock), clock, host)


def create_new(
    store: Store, location: StoreLocation, settings: TableSettings, *, clock: Clock, host: Host
) -> OpenTable:
    create_settings(store, settings, now_ms=clock.now_ms())
    return open_existing(store, location, clock=clock, host=host)
