"""Push tables with real Parquet segments, switched by writing their records, and a broker over them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from harness.catalogs import save_together
from holdfast.config.push import parse_table
from holdfast.config.push_schema import parse_schema
from holdfast.model.lineage import EntryState, Lineage, LineageEntry
from holdfast.model.segment import Segment
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.segments.deep_store import DeepStore
from holdfast.push.state.catalog import Catalog
from holdfast.storage.local import LocalStore

ORDERS = {
    "schemaName": "orders",
    "dimensionFieldSpecs": [
        {"name": "id", "dataType": "LONG"},
        {"name": "city", "dataType": "STRING"},
        {"name": "snapshot", "dataType": "INT"},
    ],
    "metricFieldSpecs": [{"name": "amount", "dataType": "DOUBLE"}],
}


def orders(ids: Sequence[int], *, snapshot: int = 0, city: str = "Oslo") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": pa.array([city] * len(ids), pa.string()),
            "snapshot": pa.array([snapshot] * len(ids), pa.int32()),
            "amount": pa.array([float(number) for number in ids], pa.float64()),
        }
    )


class Tables:
    """The controller's side, reduced to what a broker can see of it."""

    def __init__(self, folder: Path, metastore: Any = None) -> None:
        self.metastore = MemoryMetastore() if metastore is None else metastore
        self.catalog = Catalog(self.metastore)
        self.folder = folder
        self.deep_store = DeepStore(LocalStore(folder))

    def create(self, schema: Mapping[str, Any] = ORDERS, *, quota: Mapping[str, str] | None = None) -> str:
        name = schema["schemaName"]
        config = {
            "tableName": name,
            "tableType": "OFFLINE",
            "segmentsConfig": {"replication": "1"},
            "tenants": {},
            "tableIndexConfig": {},
            "metadata": {},
            "ingestionConfig": {
                "batchIngestionConfig": {
                    "segmentIngestionType": "REFRESH",
                    "consistentDataPush": True,
                }
            },
        }
        if quota is not None:
            config["quota"] = dict(quota)
        self.catalog.create_schema(parse_schema(schema))
        self.catalog.create_table(parse_table(config))
        return f"{name}_OFFLINE"

    def upload(
        self, table: str, segments: Mapping[str, pa.Table], *, row_group_size: int | None = None
    ) -> None:
        """Segments outside every entry: queries see them at once."""
        state = self.catalog.load(table)
        added = {name: self._stored(table, name, rows, row_group_size) for name, rows in segments.items()}
        after = replace(
            state,
            segments=state.segments | added.keys(),
            push=replace(state.push, epoch=state.push.epoch + 1),
        )
        self.catalog.save(state, after, added=added)

    def start(self, table: str, segments_from: Sequence[str], segments: Mapping[str, pa.Table]) -> str:
        """An open entry whose new segments are there and hidden."""
        entry = LineageEntry(
            id=str(uuid4()),
            segments_from=tuple(segments_from),
            segments_to=tuple(segments),
            state=EntryState.IN_PROGRESS,
            changed_at_ms=self._next_ms(table),
        )
        state = self.catalog.load(table)
        self.catalog.save(state, replace(state, lineage=_with(state.lineage, entry)))
        state = self.catalog.load(table)
        added = {name: self._stored(table, name, rows, None) for name, rows in segments.items()}
        self.catalog.save(state, replace(state, segments=state.segments | added.keys()), added=added)
        return entry.id

    def turn(self, *entries: tuple[str, str, EntryState]) -> None:
        """Give entries of several tables another state in one write."""
        steps = []
        for table, entry_id, new_state in entries:
            state = self.catalog.load(table)
            entry = state.lineage.entry(entry_id)
            assert entry is not None
            changed = replace(entry, state=new_state, changed_at_ms=self._next_ms(table))
            epoch = state.push.epoch + 1
            steps.append(
                (
                    state,
                    replace(
                        state,
                        lineage=_with(state.lineage, changed),
                        push=replace(state.push, epoch=epoch),
                    ),
                )
            )
        save_together(self.catalog, steps)

    def push(self, table: str, segments_from: Sequence[str], segments: Mapping[str, pa.Table]) -> str:
        entry = self.start(table, segments_from, segments)
        self.turn((table, entry, EntryState.COMPLETED))
        return entry

    def _stored(self, table: str, name: str, rows: pa.Table, row_group_size: int | None) -> Segment:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, row_group_size=row_group_size)
        kept = self.deep_store.put(table, name, sink.getvalue().to_pybytes(), token=uuid4().hex)
        return Segment(name=name, crc=1, docs=rows.num_rows, size_bytes=kept.size_bytes, uri=kept.path)

    def _next_ms(self, table: str) -> int:
        entries = self.catalog.load(table).lineage.entries
        return max((entry.changed_at_ms for entry in entries), default=0) + 1


def _with(lineage: Lineage, entry: LineageEntry) -> Lineage:
    others = tuple(one for one in lineage.entries if one.id != entry.id)
    return replace(lineage, entries=(*others, entry))


def rows_of(answer: Mapping[str, Any]) -> list[list[Any]]:
    assert answer["exceptions"] == [], answer["exceptions"]
    return answer["resultTable"]["rows"]


def code_of(answer: Mapping[str, Any]) -> int:
    assert answer["exceptions"], answer.get("resultTable")
    return answer["exceptions"][0]["errorCode"]
