"""Opening the lock that settings ask for."""

import importlib.util

import msgspec

from holdfast.concurrency.locks.file import FILE_NAME, FileForm
from holdfast.concurrency.locks.identity import LockIdentity, check_identity, recorded_identity
from holdfast.concurrency.locks.in_process import InProcessLock
from holdfast.concurrency.locks.lease import LeaseForm, LeaseLock, Patience
from holdfast.concurrency.locks.lock import NO_LOCK, Lock
from holdfast.concurrency.locks.storage import StorageForm
from holdfast.concurrency.locks.zookeeper_place import hosts_of, path_of
from holdfast.config.locks import LockProvider, LockSettings
from holdfast.errors import InvalidOption
from holdfast.model.names import META_FOLDER
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable


def open_lock(table: OpenTable, settings: LockSettings | None) -> Lock:
    """The table's lock. `InvalidOption` if the table is written under another."""
    if settings is None:
        check_identity(table.store, None)
        return NO_LOCK
    lock, identity = _lock_of(table, settings)
    check_identity(table.store, msgspec.structs.replace(identity, settings=settings))
    return lock


def recorded_lock(table: OpenTable) -> Lock:
    """The lock that the table's writers use, for those who act on it without settings of their own."""
    recorded = recorded_identity(table.store)
    if recorded is None or recorded.settings is None:
        return NO_LOCK
    return _lock_of(table, recorded.settings)[0]


def _lock_of(table: OpenTable, settings: LockSettings) -> tuple[Lock, LockIdentity]:
    match settings.provider:
        case LockProvider.IN_PROCESS:
            place = table.location.uri
            lock: Lock = InProcessLock(place, clock=table.clock, patience_ms=settings.patience_ms)
            # Not the place: a table that was moved is still locked in the process that writes it.
            return lock, LockIdentity(settings.provider, "each process")
        case LockProvider.FILE:
            store, path = _file_of(table, settings)
            minutes = settings.file_expiry_minutes
            form: LeaseForm = FileForm(path, valid_for_ms=minutes * 60_000 if minutes else None)
            place = path if store is table.store else store.uri(path)
            return _lease_lock(table, settings, store, form, place), LockIdentity(settings.provider, place)
        case LockProvider.STORAGE:
            form = StorageForm(settings.storage_validity_s * 1000, settings.storage_renewal_s * 1000)
            lock = _lease_lock(table, settings, table.store, form, form.path)
            return lock, LockIdentity(settings.provider, form.path)
        case LockProvider.ZOOKEEPER | LockProvider.ZOOKEEPER_BY_TABLE:
            hosts = hosts_of(settings)
            path = path_of(settings, table_uri=table.location.uri, table_name=table.settings.name)
            lock = _zookeeper_lock(table, settings, hosts, path)
            return lock, LockIdentity(LockProvider.ZOOKEEPER, hosts + path)


def _file_of(table: OpenTable, settings: LockSettings) -> tuple[Store, str]:
    if not settings.file_folder:
        return table.store, f"{META_FOLDER}/{FILE_NAME}"
    folder = location_of(settings.file_folder.rstrip("/"), table.location.options)
    root = table.location.uri.rstrip("/") + "/"
    if folder.uri.startswith(root):
        return table.store, f"{folder.uri.removeprefix(root)}/{FILE_NAME}"
    return open_store(folder), FILE_NAME


def _lease_lock(
    table: OpenTable, settings: LockSettings, store: Store, form: LeaseForm, place: str
) -> LeaseLock:
    patience = Patience(
        total_ms=settings.patience_ms,
        pause_ms=settings.retry_wait_ms,
        pause_ms_max=settings.retry_wait_ms_max,
        report_every_ms=max(settings.wait_ms, settings.retry_wait_ms),
    )
    return LeaseLock(store, form, place=place, clock=table.clock, host=table.host, patience=patience)


def _zookeeper_lock(table: OpenTable, settings: LockSettings, hosts: str, path: str) -> Lock:
    if importlib.util.find_spec("kazoo") is None:
        raise InvalidOption(
            "the lock provider needs a package that is not installed",
            provider=settings.provider,
            package="kazoo",
            hint="pip install 'holdfast[zookeeper]'",
        )
    # Loaded here because it is an extra that only this lock needs.
    from holdfast.concurrency.locks.zookeeper import Ensemble, ZookeeperLock

    ensemble = Ensemble(
        hosts=hosts,
        session_timeout_ms=settings.zookeeper_session_timeout_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        retries=settings.connection_retries,
        retry_wait_ms=settings.retry_wait_ms,
        retry_wait_ms_max=settings.retry_wait_ms_max,
    )
    return ZookeeperLock(ensemble, path, clock=table.clock, host=table.host, patience_ms=settings.patience_ms)
