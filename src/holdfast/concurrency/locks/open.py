"""Opening the lock that settings ask for."""

import importlib.util
from dataclasses import replace

import msgspec

from holdfast.concurrency.locks.file import FILE_NAME, FileForm
from holdfast.concurrency.locks.identity import LockIdentity, check_identity, identity_in_use, other_lock
from holdfast.concurrency.locks.in_process import InProcessLock
from holdfast.concurrency.locks.lease import LeaseForm, LeaseLock, LockWait
from holdfast.concurrency.locks.lock import NO_LOCK, Lock
from holdfast.concurrency.locks.storage import StorageForm
from holdfast.concurrency.locks.zookeeper_place import hosts_of, path_of
from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings
from holdfast.errors import InvalidOption
from holdfast.model.names import META_FOLDER
from holdfast.storage.open import canonical, location_of, open_store
from holdfast.storage.rehearsal import Rehearsal
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable


def open_lock(table: OpenTable, settings: LockSettings | None) -> Lock:
    """The table's lock. `InvalidOption` if the table is written under another."""
    if settings is None:
        check_identity(table, None)
        return NO_LOCK
    lock, identity = _lock_of(table, settings)
    check_identity(table, msgspec.structs.replace(identity, settings=settings))
    return NO_LOCK if _is_rehearsed(table) else lock


def lock_in_use(table: OpenTable) -> Lock:
    """The lock that the table's writers use, for those who act on it without settings of their own."""
    recorded = identity_in_use(table)
    if recorded is None or recorded.settings is None or _is_rehearsed(table):
        return NO_LOCK
    lock, identity = _lock_of(table, recorded.settings)
    if not recorded.is_same(identity):
        raise other_lock(str(recorded), identity)
    return lock


def _is_rehearsed(table: OpenTable) -> bool:
    """Whether no other process sees what is done, so that none has to wait for it."""
    return isinstance(table.store, Rehearsal)


def _lock_of(table: OpenTable, settings: LockSettings) -> tuple[Lock, LockIdentity]:
    match settings.provider:
        case LockProvider.IN_PROCESS:
            place = canonical(table.location.uri)
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
            path = path_of(settings, table_uri=canonical(table.location.uri), table_name=table.settings.name)
            lock = _zookeeper_lock(table, settings, hosts, path)
            return lock, LockIdentity(LockProvider.ZOOKEEPER, hosts + path)


def _file_of(table: OpenTable, settings: LockSettings) -> tuple[Store, str]:
    if not settings.file_folder:
        return table.store, f"{META_FOLDER}/{FILE_NAME}"
    given = location_of(settings.file_folder.rstrip("/"), table.location.options)
    folder = replace(given, uri=canonical(given.uri))
    root = canonical(table.location.uri).rstrip("/") + "/"
    if folder.uri.startswith(root):
        return table.store, f"{folder.uri.removeprefix(root)}/{FILE_NAME}"
    return open_store(folder), FILE_NAME


def _lease_lock(
    table: OpenTable, settings: LockSettings, store: Store, form: LeaseForm, place: str
) -> LeaseLock:
    patience = LockWait(
        total_ms=settings.patience_ms,
        pause_ms=settings.retry_wait_ms,
        pause_ms_max=settings.retry_wait_ms_max,
        report_every_ms=max(settings.wait_ms, settings.retry_wait_ms),
    )
    return LeaseLock(
        store,
        form,
        place=place,
        clock=table.clock,
        host=table.host,
        patience=patience,
        table=table.store.uri(""),
    )


def _zookeeper_lock(table: OpenTable, settings: LockSettings, hosts: str, path: str) -> Lock:
    if importlib.util.find_spec("kazoo") is None:
        raise InvalidOption(
            "the lock provider needs a package that is not installed",
            provider=settings.provider,
            package="kazoo",
            hint="pip install 'holdfast-lake[zookeeper]'",
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
