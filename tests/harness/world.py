"""A small world for tests: a clock that obeys, a host that is told who lives, tables of few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from harness.faults import Crash, CrashingStore, RecordingStore
from holdfast.clock import Timer
from holdfast.config.choices import Operation
from holdfast.config.datasource import SourceWrite
from holdfast.config.locks import LockSettings
from holdfast.config.table import new_table_settings
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.format.ledger_entries import EntryKind
from holdfast.format.schemas import META_COLUMNS
from holdfast.host import Liveness, Owner
from holdfast.jobs.ingested import Changed, Register, files_origin, new_files
from holdfast.jobs.source_files import SourceFile
from holdfast.model.instant import Action, InstantTime
from holdfast.model.reports import Commit
from holdfast.storage.memory import MemoryStore
from holdfast.storage.store import Store, StoreLocation
from holdfast.table.opened import OpenTable, create_new, open_existing, open_target_in
from holdfast.table.publish import publish_decided
from holdfast.timeline.ledger import Decision, Ledger
from holdfast.timeline.timeline import load_timeline
from holdfast.writes import operations
from holdfast.writes.origin import NO_ORIGIN, Origin

START_MS = 1_700_000_000_000
LOCATION = StoreLocation("memory:///", {})
_DEFAULTS = WriteSettings()


class _NoTimer:
    def stop(self) -> None:
        pass


@dataclass
class SimulatedClock:
    """Moves one millisecond whenever it is asked, so that runs repeat exactly."""

    now: int = START_MS
    offset_ms: int = 0
    zone: str | None = "UTC"

    def now_ms(self) -> int:
        self.now += 1
        return self.now + self.offset_ms

    def monotonic_ms(self) -> int:
        return self.now

    def every_ms(self, interval_ms: int, action: Callable[[], None], *, name: str) -> Timer:
        return _NoTimer()

    def wait_ms(self, duration_ms: int) -> None:
        self.now += duration_ms

    def unique(self) -> str:
        self.now += 1
        return f"f{self.now:031x}"

    def zone_name(self) -> str | None:
        return self.zone


@dataclass(frozen=True)
class WrongClock:
    """The clock of somebody whose wall clock is wrong by so much."""

    right: SimulatedClock
    wrong_by_ms: int

    def now_ms(self) -> int:
        return self.right.now_ms() + self.wrong_by_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self.right, name)


@dataclass(frozen=True)
class SimulatedHost:
    """A host that gives one answer about everybody else."""

    actor: int = 0
    others: Liveness = Liveness.GONE

    def owner(self, token: str) -> Owner:
        return Owner("simulated", "boot", self.actor, "0", token)

    def liveness(self, owner: Owner) -> Liveness:
        return self.others


Row = tuple[Any, ...]
"""Key, city and fare; then, as text, what other columns say."""


def rows(*ids: str, city: str | None = None, fare: float | None = None) -> pa.Table:
    """Rows with the given keys, spread over two cities unless one is named."""
    cities = [city or ("paris" if index % 2 == 0 else "rome") for index in range(len(ids))]
    return table_of((key, city, fare or len(key)) for key, city in zip(ids, cities, strict=True))


def table_of(rows: Iterable[Row]) -> pa.Table:
    ids, cities, fares = zip(*rows, strict=True)
    return pa.table({"id": ids, "city": cities, "fare": pa.array(fares, pa.float64())})


def row_list(table: pa.Table) -> list[Row]:
    """The rows, in no particular order."""
    known = ("id", "city", "fare")
    others = [name for name in table.column_names if name not in (*known, *META_COLUMNS)]
    return [
        (*(row[name] for name in known), *(f"{n}={row[n]}" for n in others if row[n] is not None))
        for row in table.to_pylist()
    ]


@dataclass
class World:
    """One table, and the acts the tests perform on it."""

    store: Store
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    host: SimulatedHost = field(default_factory=SimulatedHost)
    checkpoint_after: int = 100
    lock: LockSettings | None = None
    """What every write takes that says nothing else."""
    log_ratio_max: float | None = None
    """The same: how large log files may grow, which are larger than base files of few rows."""

    def create(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        ordering: str | None = None,
        table_type: str = "COPY_ON_WRITE",
    ) -> OpenTable:
        settings = new_table_settings(
            name="trips",
            record_key=("id",),
            partition_by=("city",),
            ordering=ordering,
            table_type=table_type,
            properties=properties or {},
        )
        return create_new(self.store, LOCATION, settings, clock=self.clock, host=self.host)

    def first_write(
        self,
        rows: pa.Table,
        *,
        operation: str = "bulk_insert",
        record_key: str = "id",
        settings: WriteSettings = _DEFAULTS,
    ) -> Commit:
        """As `holdfast.write` does it: into the table, which the first commit makes if there is none."""
        write = SourceWrite.to_table(
            record_key=(record_key,), partition_by=("city",), ordering=None, options={}
        ).for_new_table(name="trips", table_type="COPY_ON_WRITE")
        table = open_target_in(
            self.store, LOCATION, write, columns=rows.column_names, clock=self.clock, host=self.host
        )
        return operations.write(table, Operation(operation), ArrowRows(rows), settings)

    def open(self) -> OpenTable:
        opened = open_existing(self.store, LOCATION, clock=self.clock, host=self.host)
        return replace(opened, ledger=Ledger(self.store, self.clock, checkpoint_after=self.checkpoint_after))

    def write(
        self,
        operation: str,
        rows: pa.Table,
        settings: WriteSettings = _DEFAULTS,
        origin: Origin = NO_ORIGIN,
    ) -> Commit:
        """One of the operations that take rows, by its name."""
        locked = self.under_lock(settings)
        return operations.write(self.open(), Operation(operation), ArrowRows(rows), locked, origin=origin)

    def ingest(self, files: Mapping[str, pa.Table], settings: WriteSettings = _DEFAULTS) -> Commit | None:
        """As a pipeline does it: those of the files that are new, by their names, in one commit.

        Keys are not looked for, so a file that is ingested twice is seen twice.
        """
        table = self.open()
        publish_decided(table, table.ledger.read(), load_timeline(self.store))
        register = Register(table, checkpoint_after=self.checkpoint_after)
        ingested = register.read()
        listed = [SourceFile(f"/in/{name}", rows.num_rows, START_MS) for name, rows in files.items()]
        new = new_files(listed, ingested, changed=Changed.REFUSE)
        if not new:
            return None
        origin = files_origin(register, new, ingested, pipeline="trips")
        rows = pa.concat_tables(files[file.uri.removeprefix("/in/")] for file in new)
        commit = self.write("bulk_insert", rows, settings, origin)
        register.checkpoint_if_due()
        return commit

    def insert(self, *ids: str, city: str | None = None) -> Commit:
        return self.write("insert", rows(*ids, city=city))

    def bulk_insert(self, *ids: str, city: str | None = None) -> Commit:
        return self.write("bulk_insert", rows(*ids, city=city))

    def delete_partitions(self, *partitions: str, settings: WriteSettings = _DEFAULTS) -> Commit:
        return operations.delete_partitions(self.open(), partitions, self.under_lock(settings))

    def under_lock(self, settings: WriteSettings = _DEFAULTS) -> WriteSettings:
        ratio = settings.log_ratio_max if self.log_ratio_max is None else self.log_ratio_max
        return replace(settings, lock=settings.lock or self.lock, log_ratio_max=ratio)

    def copy(self) -> World:
        """A world that goes its own way from here, on a clock of its own."""
        clock = replace(self.clock)
        store = self.store.copy()
        store._clock = clock
        return replace(self, store=store, clock=clock)

    def on(self, store: Store) -> World:
        """The same clock and host over another store."""
        return replace(self, store=store)

    def commit_times(self) -> list[InstantTime]:
        return [commit.time for commit in load_timeline(self.store).completed_commits]

    def files_of(self, time: InstantTime) -> list[str]:
        """The base files of one instant."""
        return [path for path in self.store.paths("") if path.endswith(f"_{time}.parquet")]

    def die_after(self, act: Callable[[World], object], *, last: str) -> None:
        """Let an act die right after the last of its changes that contains this text."""
        copy = self.copy()
        recorder = RecordingStore(copy.store)
        act(copy.on(recorder))
        try:
            act(self.on(CrashingStore(self.store, recorder.last(last), after=True)))
        except Crash:
            return
        raise AssertionError("the act did not come to the change it should die after")


def memory_world() -> World:
    clock = SimulatedClock()
    return World(MemoryStore(clock), clock)


def abort(table: OpenTable, instant: InstantTime) -> None:
    """ABORT, by somebody who opened the table for himself."""
    rollback = InstantTime(str(int(instant) + 1))
    decision = Decision(
        kind=EntryKind.ABORT, instant=instant, action=Action.COMMIT, rollback=rollback, reason="thought dead"
    )
    another = World(table.store, table.clock, SimulatedHost(1, Liveness.UNKNOWN))
    another.open().ledger.append(lambda _state: decision)
