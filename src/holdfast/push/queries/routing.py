"""Routing: which segments answer the queries of a table, as one value that is swapped whole.

A query takes the snapshots of all its tables under one lock and keeps them
until it ends, so it never sees two sides of a switch (L1), and the broker
announces the lowest epoch that any of its queries still uses, so no file goes
that one of them may read (L3). A snapshot never gives way to an older one, and
a broker that the others may count as gone answers nothing.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType, TracebackType
from typing import Self

from holdfast.clock import Clock, SystemClock, Timer
from holdfast.config.push import PushTable, raw_name
from holdfast.errors import Conflict, HoldfastError, StorageUnavailable, TableNotFound
from holdfast.model.lineage import EntryState, LineageEntry, visible
from holdfast.model.segment import Segment
from holdfast.push.audit import epoch_at
from holdfast.push.queries.columns import Column, columns_of
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.replacement.snapshots import snapshots, was_rejected
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import (
    SCHEMAS,
    BrokerEpochs,
    ideal_state_path,
    lineage_path,
    push_state_path,
)
from holdfast.push.state.table_state import TableState

log = logging.getLogger(__name__)

_STEADY_ATTEMPTS = 100
_LOOK_AGAIN_S = 0.02
_AFTER_FAILURE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSnapshot:
    """What queries of one table read at one epoch."""

    table: str
    epoch: int
    segments: tuple[Segment, ...]
    """In the order of their names."""
    unavailable: tuple[str, ...] = ()
    """Segments that queries should see and that cannot be read."""
    columns: tuple[Column, ...] = ()
    config: PushTable
    lineage_version: int | None = None
    ideal_state_version: int | None = None
    push_state_version: int | None = None
    built_at_ms: int = 0

    @property
    def docs(self) -> int:
        return sum(segment.docs for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    coalesce_ms: int = 50
    """How long further changes are awaited before a rebuild."""
    poll_ms: int = 30_000
    """How often versions are compared in case a watch was lost."""
    recreated_after_ms: int = 10_000
    """How long a lower epoch must be seen before it is taken for a new table of the same name."""


def build_snapshot(catalog: Catalog, table: str, *, built_at_ms: int = 0) -> RoutingSnapshot:
    """The snapshot of a table as its records are now."""
    state = catalog.load(table)
    return _snapshot(catalog, state, state.visible, built_at_ms)


def _snapshot(catalog: Catalog, state: TableState, names: Iterable[str], built_at_ms: int) -> RoutingSnapshot:
    wanted = sorted(names)
    found = catalog.segments(state.table, wanted)
    missing = {name for name in wanted if name not in found or found[name].is_opaque}
    missing |= state.offline.intersection(wanted)
    return RoutingSnapshot(
        table=state.table,
        epoch=state.push.epoch,
        segments=tuple(found[name] for name in wanted if name not in missing),
        unavailable=tuple(sorted(missing)),
        columns=columns_of(catalog.schema_of(state.table).raw),
        config=state.config,
        lineage_version=state.versions.get(lineage_path(state.table)),
        ideal_state_version=state.versions.get(ideal_state_path(state.table)),
        push_state_version=state.versions.get(push_state_path(state.table)),
        built_at_ms=built_at_ms,
    )


class Lease:
    """The snapshots of one query. While it is held, their files stay."""

    def __init__(self, taken: Mapping[str, RoutingSnapshot], release: Callable[[], None]) -> None:
        self.snapshots = MappingProxyType(dict(taken))
        """By typed table name."""
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Router:
    """The routing of all tables for one broker. Every method may be called from any thread."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        broker: str,
        clock: Clock | None = None,
        settings: RouterSettings | None = None,
    ) -> None:
        self.broker = broker
        self._catalog = catalog
        self._clock = clock or SystemClock()
        self._settings = settings or RouterSettings()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._routing = _Routing()
        self._in_use: Counter[tuple[str, int]] = Counter()
        self._announced: dict[str, BrokerEpochs] = {}
        self._announcing = threading.Lock()
        self._refreshing = threading.Lock()
        self._lower_since: dict[str, int] = {}
        self._schemas_changed = True
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._poll: Timer | None = None
        self._watches: dict[str, Callable[[], None]] = {}

    # Life

    def start(self) -> None:
        """Build every snapshot, then follow changes in the background."""
        self._watches[""] = self._catalog.watch_tables(self._wake.set)
        self._watches[SCHEMAS] = self._catalog.metastore.watch(SCHEMAS, self._schemas_have_changed)
        self.refresh()
        self._poll = self._clock.every_ms(
            self._settings.poll_ms, self._schemas_have_changed, name="routing-poll"
        )
        self._thread = threading.Thread(target=self._follow, name="routing", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following, and tell the others that this broker reads nothing any more."""
        self._is_closed = True
        self._wake.set()
        if self._poll is not None:
            self._poll.stop()
        if self._thread is not None:
            self._thread.join()
        while self._watches:
            self._watches.popitem()[1]()
        with self._announcing:
            for table in list(self._announced):
                self._withdraw(table)

    # Queries

    def tables(self) -> tuple[str, ...]:
        """Typed names of the tables that can be queried."""
        with self._lock:
            return tuple(sorted(self._routing.current))

    def resolve(self, name: str) -> str | None:
        """The typed name of a table that is named raw or typed, in any case; None if there is none."""
        with self._lock:
            return self._routing.names.get(name.lower())

    def resolve_fresh(self, name: str) -> str | None:
        """As `resolve`, but of a name that this broker has not heard of the catalog is asked."""
        known = self.resolve(name)
        if known is None and self._has_unseen_version(name):
            self.refresh()
            known = self.resolve(name)
        return known

    def _has_unseen_version(self, name: str) -> bool:
        """Whether the catalog has a table of this name that was not looked at as it is now."""
        table = _names(self._catalog.tables()).get(name.lower())
        if table is None:
            return False
        with self._lock:
            seen = self._routing.versions
        # One that is being deleted stays in the catalog for a while, and was found not to answer.
        return table not in seen or seen[table] != self._versions([table])[table]

    def epochs(self) -> dict[str, int]:
        """The epoch that new queries get, by typed table name."""
        with self._lock:
            return {table: snapshot.epoch for table, snapshot in self._routing.current.items()}

    def lease(
        self, tables: Sequence[str], *, at_least: Mapping[str, int] | None = None, deadline_s: float = 0.0
    ) -> Lease:
        """The current snapshots of all these tables, of one moment.

        `at_least` are epochs that must have been reached; they are waited for
        until the deadline, a moment of `time.monotonic`.
        """
        self._check_connected()
        needed = at_least or {}
        while True:
            with self._lock:
                taken = {table: self._current(table) for table in tables}
                missing = [table for table, epoch in needed.items() if taken[table].epoch < epoch]
                if not missing:
                    return self._open_lease(taken)
                if self._is_closed:
                    raise _no_connection()
            if time.monotonic() >= deadline_s:
                table = missing[0]
                raise QueryFailed(
                    QueryError.BROKER_TIMEOUT,
                    "the table has not reached the epoch that was asked for",
                    table=raw_name(table),
                    epoch=taken[table].epoch,
                    asked=needed[table],
                )
            self.refresh()
            with self._changed:
                behind = any(self._current(table).epoch < epoch for table, epoch in needed.items())
                if behind:
                    self._changed.wait(min(_LOOK_AGAIN_S, max(0.0, deadline_s - time.monotonic())))

    def take_as_of(
        self,
        table: str,
        *,
        epoch: int | None = None,
        entry_id: str | None = None,
        at_ms: int | None = None,
    ) -> Lease:
        """A retained snapshot, or what an open entry would show, without switching to it."""
        self._check_connected()
        with self._lock:
            # Held before the state is read: whatever leaves the table later waits for this lease.
            lease = self._open_lease({table: self._current(table)})
        try:
            state = self._catalog.load(table)
            if entry_id is not None:
                chosen = _segments_of_entry(state, entry_id)
            else:
                chosen = _at(state, epoch if at_ms is None else self._epoch_at(state, at_ms))
            built = _snapshot(self._catalog, state, chosen[0], self._clock.now_ms())
            lease.snapshots = MappingProxyType({table: replace(built, epoch=chosen[1])})
            return lease
        except TableNotFound:
            lease.release()
            raise _no_table(table) from None
        except BaseException:
            lease.release()
            raise

    def _epoch_at(self, state: TableState, at_ms: int) -> int:
        found = epoch_at(self._catalog.metastore, state.table, at_ms, current=state.push.epoch)
        if found is None:
            raise QueryFailed(
                QueryError.QUERY_VALIDATION,
                "it is not known what queries saw then",
                table=raw_name(state.table),
                at_ms=at_ms,
                hint="name a snapshot by asOfEpoch",
            )
        return found

    def take_segments(self, table: str, names: Iterable[str]) -> Lease:
        """Any segments of the table, hidden ones included."""
        self._check_connected()
        self.resolve_fresh(table)
        with self._lock:
            lease = self._open_lease({table: self._current(table)})
        try:
            state = self._catalog.load(table)
            built = _snapshot(self._catalog, state, names, self._clock.now_ms())
            lease.snapshots = MappingProxyType({table: built})
            return lease
        except BaseException:
            lease.release()
            raise

    # Following

    def refresh(self) -> None:
        """Take over what has changed, for all tables of one moment."""
        with self._refreshing:
            for _ in range(_STEADY_ATTEMPTS):
                if self._refresh_once():
                    break
            else:
                # Half of a group must not be shown; the old state is whole.
                log.warning("routing.unsteady")
                self._wake.set()
            self._announce_all()

    def _follow(self) -> None:
        while True:
            self._wake.wait()
            if self._is_closed:
                return
            # Long enough to merge what belongs together, short enough not to be noticed.
            time.sleep(self._settings.coalesce_ms / 1000)
            self._wake.clear()
            if self._is_closed:  # Its wake-up may be the one that was just cleared.
                return
            try:
                self.refresh()
            except Exception as error:  # noqa: BLE001  # the loop that keeps a service alive
                log.warning("routing.refresh_failed", extra={"cause": str(error)})
                time.sleep(_AFTER_FAILURE_S)
                self._wake.set()

    def _schemas_have_changed(self) -> None:
        self._schemas_changed = True
        self._wake.set()

    def _refresh_once(self) -> bool:
        """One attempt. False if anything moved meanwhile, so that the tables may be of different moments."""
        tables = self._catalog.tables()
        self._watch(tables)
        rebuild_all, self._schemas_changed = self._schemas_changed, False
        try:
            is_steady = self._reload(tables, rebuild_all)
        except BaseException:
            self._schemas_changed = True
            raise
        self._schemas_changed = self._schemas_changed or (rebuild_all and not is_steady)
        return is_steady

    def _reload(self, tables: Sequence[str], rebuild_all: bool) -> bool:
        before = self._versions(tables)
        with self._lock:
            known = self._routing
        changed = [
            table
            for table in tables
            if rebuild_all or table not in known.versions or known.versions[table] != before[table]
        ]
        built: dict[str, RoutingSnapshot | HoldfastError | None] = {}
        for table in changed:
            self._announce_first(table)
            built[table] = self._build(table)
        if changed and (self._catalog.tables() != tables or self._versions(tables) != before):
            return False
        self._swap(tables, built, before)
        return True

    def _versions(self, tables: Sequence[str]) -> dict[str, int | None]:
        found = self._catalog.metastore.read_all([push_state_path(table) for table in tables])
        return {table: None if one is None else one.version for table, one in zip(tables, found, strict=True)}

    def _build(self, table: str) -> RoutingSnapshot | HoldfastError | None:
        try:
            return build_snapshot(self._catalog, table, built_at_ms=self._clock.now_ms())
        except TableNotFound:
            return None
        except (StorageUnavailable, Conflict):
            raise  # Nothing is wrong with the table: what was routed stays until the store answers.
        except HoldfastError as error:
            log.error("routing.table_unreadable", extra={"table": table, "cause": str(error)})
            return error

    def _swap(
        self,
        tables: Sequence[str],
        built: Mapping[str, RoutingSnapshot | HoldfastError | None],
        versions: Mapping[str, int | None],
    ) -> None:
        """Show all changes at once."""
        with self._changed:
            old = self._routing
            current = {table: one for table, one in old.current.items() if table in tables}
            failed = {table: one for table, one in old.failed.items() if table in tables}
            for table, one in built.items():
                failed.pop(table, None)
                if one is None:
                    current.pop(table, None)
                elif isinstance(one, HoldfastError):
                    current.pop(table, None)
                    failed[table] = one
                elif self._is_newer(current.get(table), one):
                    current[table] = one
            used = {table for table, _ in self._in_use}
            gone = set(self._announced) - set(current) - set(failed) - used
            self._routing = _Routing(current, failed, dict(versions), _names((*current, *failed)))
            self._changed.notify_all()
        for table in gone:
            self._withdraw(table)

    def _is_newer(self, current: RoutingSnapshot | None, one: RoutingSnapshot) -> bool:
        """Never an older epoch (L11), unless it stays: then a new table has the old one's name."""
        if current is None or one.epoch >= current.epoch:
            self._lower_since.pop(one.table, None)
            return True
        since = self._lower_since.setdefault(one.table, self._clock.monotonic_ms())
        if self._clock.monotonic_ms() - since < self._settings.recreated_after_ms:
            log.warning("routing.older_epoch", extra={"table": one.table, "epoch": one.epoch})
            self._wake_later()
            return False
        del self._lower_since[one.table]
        return True

    def _wake_later(self) -> None:
        self._schemas_changed = True

    def _watch(self, tables: Sequence[str]) -> None:
        for table in tables:
            if table not in self._watches:
                self._watches[table] = self._catalog.watch(table, self._wake.set)
        for table in set(self._watches) - set(tables) - {"", SCHEMAS}:
            self._watches.pop(table)()

    # Announcing

    def _announce_first(self, table: str) -> None:
        """Before a table is read for the first time: nothing that is found then may be deleted."""
        if table not in self._announced:
            with self._announcing:
                self._announce(table, BrokerEpochs(epoch=0, applied=0))

    def _announce_all(self) -> None:
        with self._announcing:
            with self._lock:
                wanted = {
                    table: BrokerEpochs(epoch=self._lowest(table), applied=snapshot.epoch)
                    for table, snapshot in self._routing.current.items()
                }
            for table, epochs in wanted.items():
                if self._announced.get(table) != epochs:
                    self._announce(table, epochs)

    def _announce(self, table: str, epochs: BrokerEpochs) -> None:
        self._catalog.announce_epoch(table, self.broker, epochs)
        self._announced[table] = epochs

    def _withdraw(self, table: str) -> None:
        try:
            self._catalog.withdraw_epoch(table, self.broker)
        except HoldfastError as error:
            log.warning("routing.withdraw_failed", extra={"table": table, "cause": str(error)})
        self._announced.pop(table, None)

    # Leases; all of these hold the lock

    def _current(self, table: str) -> RoutingSnapshot:
        found = self._routing.current.get(table)
        if found is not None:
            return found
        failure = self._routing.failed.get(table)
        if failure is not None:
            raise QueryFailed(
                QueryError.INTERNAL, "the records of the table cannot be read", table=raw_name(table)
            ) from failure
        raise _no_table(table)

    def _open_lease(self, taken: Mapping[str, RoutingSnapshot]) -> Lease:
        keys = [(table, snapshot.epoch) for table, snapshot in taken.items()]
        self._in_use.update(keys)
        return Lease(taken, lambda: self._end_lease(keys))

    def _end_lease(self, keys: Sequence[tuple[str, int]]) -> None:
        with self._lock:
            for key in keys:
                self._in_use[key] -= 1
                if not self._in_use[key]:
                    del self._in_use[key]
            # The announcement itself is made in the background: no query waits for it.
            is_behind = any(
                table not in self._routing.current or self._lowest(table) > epoch for table, epoch in keys
            )
        if is_behind:
            self._wake.set()

    def _lowest(self, table: str) -> int:
        used = [epoch for name, epoch in self._in_use if name == table]
        return min((*used, self._routing.current[table].epoch))

    def _check_connected(self) -> None:
        if self._is_closed or not self._catalog.metastore.is_connected():
            raise _no_connection()


@dataclass(frozen=True, slots=True)
class _Routing:
    """Everything that is swapped together."""

    current: Mapping[str, RoutingSnapshot] = field(default_factory=dict)
    failed: Mapping[str, HoldfastError] = field(default_factory=dict)
    versions: Mapping[str, int | None] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def _names(tables: Iterable[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for table in tables:
        names[table.lower()] = table
        names.setdefault(raw_name(table).lower(), table)
    return names


def _at(state: TableState, epoch: int | None) -> tuple[frozenset[str], int]:
    """The segments that were seen at an epoch."""
    if epoch == state.push.epoch:
        return state.visible, state.push.epoch
    known = snapshots(state)
    found = next((one for one in known if one.epoch == epoch), None)
    if found is None:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION,
            "the snapshot of this epoch is not kept",
            table=raw_name(state.table),
            epoch=epoch,
            kept=", ".join(
                str(number) for number in sorted({one.epoch for one in known} | {state.push.epoch})
            ),
        )
    return found.segments, found.epoch


def _segments_of_entry(state: TableState, entry_id: str) -> tuple[frozenset[str], int]:
    """The segments that an entry shows, or would show if it were completed now."""
    entry = state.lineage.entry(entry_id)
    if entry is None:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION,
            "the table has no such entry",
            table=raw_name(state.table),
            entry=entry_id,
        )
    if entry.state is EntryState.IN_PROGRESS or _is_inspectable(state, entry):
        completed = replace(entry, state=EntryState.COMPLETED)
        entries = tuple(completed if one.id == entry_id else one for one in state.lineage.entries)
        return visible(state.segments, replace(state.lineage, entries=entries)), state.push.epoch
    found = next((one for one in snapshots(state) if one.entry_id == entry_id), None)
    if found is None:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION,
            "the snapshot of this entry is not kept",
            table=raw_name(state.table),
            entry=entry_id,
        )
    return found.segments, found.epoch


def _is_inspectable(state: TableState, entry: LineageEntry) -> bool:
    """Whether all that a gate rejected is still there."""
    is_whole = state.segments.issuperset(entry.segments_to) and not state.details_of(entry.id).finalised
    return entry.state is EntryState.REVERTED and is_whole and was_rejected(state, entry)


def _no_table(table: str) -> QueryFailed:
    return QueryFailed(QueryError.TABLE_DOES_NOT_EXIST, "there is no such table", table=raw_name(table))


def _no_connection() -> QueryFailed:
    return QueryFailed(
        QueryError.BROKER_RESOURCE_MISSING,
        "this broker has lost its connection to the metastore and must not answer",
        hint="ask again, or ask another broker",
    )
