"""A push service in memory: controllers over one metastore and one deep store, and a clock that obeys."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.world import SimulatedClock
from holdfast.config.push_rules import Rules
from holdfast.errors import HoldfastError
from holdfast.model.lineage import EntryState, visible
from holdfast.push.calls import (
    Caller,
    PublishResult,
    RollbackTarget,
    StartRequest,
    UploadOptions,
)
from holdfast.push.controller import Controller, ControllerSettings
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.port import Metastore
from holdfast.push.segments.deep_store import DeepStore, segment_path
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import BrokerEpochs
from holdfast.push.uploads.archives import segment_crc
from holdfast.push.uploads.register import Payload
from holdfast.storage.memory import MemoryStore
from holdfast.storage.store import Store

TABLE = "orders_OFFLINE"
ANN = Caller(actor="ann", address="127.0.0.1", request_id="r1")
DAY_MS = 86_400_000

SCHEMA = {
    "schemaName": "orders",
    "dimensionFieldSpecs": [{"name": "snapshot", "dataType": "INT"}],
}


def config(table: str = "orders", *, consistent: bool = True, refresh: bool = True, **more: object) -> dict:
    """A table configuration as Pinot's tools send it."""
    batch = {
        "segmentIngestionType": "REFRESH" if refresh else "APPEND",
        "consistentDataPush": consistent,
        **more.pop("batch", {}),
    }
    return {
        "tableName": f"{table}_OFFLINE",
        "tableType": "OFFLINE",
        "segmentsConfig": {"replication": "1", "schemaName": "orders", **more.pop("segments", {})},
        "tenants": {},
        "tableIndexConfig": {},
        "metadata": {},
        "ingestionConfig": {"batchIngestionConfig": batch},
        **more,
    }


@functools.cache
def parquet(number: int, rows: int = 2) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"snapshot": pa.array([number] * rows, pa.int32())}), sink)
    return sink.getvalue()


@dataclass
class PushWorld:
    """One service, and what tests do with it."""

    metastore: Metastore = field(default_factory=MemoryMetastore)
    store: Store = field(default_factory=MemoryStore)
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    rules: Rules = field(default_factory=Rules)
    orphan_ms: int = 3 * DAY_MS

    def __post_init__(self) -> None:
        self.catalog = Catalog(self.metastore)
        self.deep_store = DeepStore(self.store)
        self.controller = Controller(
            self.catalog,
            self.deep_store,
            self.clock,
            settings=ControllerSettings(rules=self.rules, orphan_ms=self.orphan_ms),
            wait=lambda _: None,
        )

    def another(self, *, metastore: Metastore | None = None, store: Store | None = None) -> PushWorld:
        """Another controller on the same records and files."""
        return PushWorld(
            metastore or self.metastore, store or self.store, self.clock, self.rules, self.orphan_ms
        )

    def create(self, **options: object) -> PushWorld:
        self.controller.tables.put_schema(SCHEMA, override=True, by=ANN)
        self.controller.tables.create(config(**options), by=ANN)
        return self

    def start(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        by: Caller = ANN,
        table: str = TABLE,
        **options,
    ) -> str:
        request = StartRequest(segments_from=tuple(sources), segments_to=tuple(targets), **options)
        return self.controller.start_replace(table, request, by=by).entry_id

    def upload(self, name: str, number: int = 1, *, table: str = TABLE, **options) -> None:
        """A segment whose rows all say `number`."""
        self.controller._registrar.register(
            table, [self.payload(name, number)], options=UploadOptions(**options), by=ANN
        )

    def place(self, name: str, number: int, *, table: str = TABLE, token: str = "run-0") -> str:
        """Build a segment in the deep store as a push job does; its path."""
        return self.deep_store.put(table, name, parquet(number), token=token).path

    def register(self, name: str, number: int, *, table: str = TABLE, token: str = "run-0") -> None:
        """A segment whose file is in its place already."""
        uri = self.deep_store.uri(segment_path(table, name, token=token))
        described = replace(self.payload(name, number), file=None, uri=uri, size_bytes=0)
        self.controller.uploads.register(table, [described], copy=False, options=UploadOptions(), by=ANN)

    def payload(self, name: str, number: int) -> Payload:
        return Payload(
            name=name,
            crc=number,
            docs=2,
            created_ms=0,
            file=InMemory(parquet(number)),
            size_bytes=len(parquet(number)),
            columns={},
        )

    def end(self, entry_id: str, *, by: Caller = ANN, table: str = TABLE, **options) -> PublishResult:
        return self.controller.end_replace(table, entry_id, by=by, **options)

    def revert(
        self, entry_id: str, *, force: bool = False, by: Caller = ANN, table: str = TABLE
    ) -> PublishResult:
        return self.controller.revert_replace(table, entry_id, force=force, by=by)

    def push(self, number: int, *names: str, force: bool = True, table: str = TABLE) -> str:
        """A whole push of rows that all say `number`."""
        names = names or (f"v{number}",)
        entry_id = self.start(sorted(self.seen(table)), names, force=force, table=table)
        for name in names:
            self.upload(name, number, table=table)
        self.end(entry_id, table=table)
        return entry_id

    def rollback(self, *, by: Caller = ANN, **target) -> PublishResult:
        return self.controller.rollback(TABLE, RollbackTarget(**target), by=by)

    def retention(self, *, after_ms: int = 0, table: str = TABLE):
        self.clock.now += after_ms
        return self.controller.upkeep.run_retention(table)

    def seen(self, table: str = TABLE) -> set[str]:
        state = self.catalog.load(table)
        return set(visible(state.segments, state.lineage))

    def rows(self, table: str = TABLE) -> list[int]:
        """What a query sees: the number of each row, read from the files."""
        return sorted(number for name in self.seen(table) for number in self.rows_of(name, table=table))

    def rows_of(self, name: str, *, table: str = TABLE) -> list[int]:
        segment = self.catalog.segment(table, name)
        assert segment is not None, f"{name} has no metadata"
        with self.deep_store.open(segment.uri) as source:
            return pq.read_table(io.BytesIO(source.read())).column("snapshot").to_pylist()

    def state_of(self, entry_id: str, *, table: str = TABLE) -> EntryState | None:
        entry = self.catalog.load(table).lineage.entry(entry_id)
        return entry.state if entry else None

    def files(self, table: str = TABLE) -> set[str]:
        return {file.path for file in self.deep_store.files(table)}

    def announce(self, broker: str, epoch: int, *, table: str = TABLE) -> None:
        self.catalog.announce_epoch(table, broker, BrokerEpochs(epoch, epoch))

    def copy(self) -> PushWorld:
        """The same records and files, going their own way from here."""
        metastore = MemoryMetastore()
        metastore._tree.records = dict(self.metastore._tree.records)
        metastore._tree.writes = self.metastore._tree.writes
        return PushWorld(
            metastore, self.store.copy(), SimulatedClock(self.clock.now), self.rules, self.orphan_ms
        )


class InMemory(io.BytesIO):
    """Bytes in the place of an uploaded file; they can be read again."""

    def read(self, size: int = -1, /) -> bytes:
        content = super().read(size)
        if not content:
            self.seek(0)
        return content


def uploaded_file(folder: str | Path, content: bytes, name: str = "upload") -> Path:
    path = Path(folder) / name
    path.write_bytes(content)
    return path


def refused(code: str, call: Callable[..., object], *arguments: object, **options: object) -> HoldfastError:
    """The error of a call that must be refused with this code."""
    with pytest.raises(HoldfastError) as caught:
        call(*arguments, **options)
    assert caught.value.facts.get("code") == code, caught.value
    return caught.value


__all__ = ["TemporaryDirectory", "segment_crc"]
