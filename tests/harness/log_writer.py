"""Log files written block by block, beside base files of ours, as Hudi or a failed write leaves them.

The blocks are made with pyarrow and fastavro alone, so that what reads them
is not judged by itself.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastavro import parse_schema, schemaless_writer

import holdfast
from holdfast.format.avro_payloads import hudi_schema
from holdfast.format.log_blocks import BlockHeader, BlockType, LogBlock, command_block, encode_block
from holdfast.format.schemas import META_COLUMNS, avro_schema

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
EVENT_TIME = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
LATEST = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"

Values = tuple[str, int | None, str | None]
"""Key, ordering value and value of a row."""


def data_block(
    instant: str,
    rows: Sequence[Values],
    *,
    schema: pa.Schema = SCHEMA,
    is_avro: bool = False,
    header: Mapping[int, bytes] | None = None,
    footer: Mapping[bytes, bytes] | None = None,
    file_id: str = "f",
) -> LogBlock:
    """Rows as Hudi stores them in a block: of the columns of a wider schema, those given."""
    records = [
        {
            "_hoodie_commit_time": instant,
            "_hoodie_commit_seqno": f"{instant}_0_{number}",
            "_hoodie_record_key": row[0],
            "_hoodie_partition_path": "",
            "_hoodie_file_name": file_id,
            **dict(zip(schema.names, row, strict=False)),
        }
        for number, row in enumerate(rows)
    ]
    text = avro_schema(schema, table_name="t", meta_columns=True)
    said = {BlockHeader.INSTANT_TIME: instant.encode(), BlockHeader.SCHEMA: text.encode(), **(header or {})}
    if is_avro:
        return LogBlock(BlockType.AVRO_DATA, _avro_rows(records, text), said)
    whole = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])
    stored = pa.Table.from_pylist(records, schema=whole)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink, whole, compression="zstd", store_schema=False, write_page_checksum=True
    ) as file:
        file.write_table(stored)
        file.add_key_value_metadata(dict(footer or {}))
    return LogBlock(BlockType.PARQUET_DATA, sink.getvalue(), said)


def _avro_rows(records: Sequence[Mapping[str, Any]], text: str) -> bytes:
    parsed = parse_schema(json.loads(text))
    encoded = []
    for record in records:
        sink = io.BytesIO()
        schemaless_writer(sink, parsed, record)
        encoded.append(struct.pack(">i", len(sink.getvalue())) + sink.getvalue())
    return struct.pack(">ii", 3, len(encoded)) + b"".join(encoded)


def delete_block(instant: str, deletes: Mapping[str, int | None], *, partition: str = "") -> LogBlock:
    """Key → ordering value; None is written as Hudi's `IntWrapper(0)`."""
    records = [
        {
            "recordKey": key,
            "partitionPath": partition,
            "orderingVal": (
                f"org.apache.hudi.avro.model.{'IntWrapper' if order is None else 'LongWrapper'}",
                {"value": order or 0},
            ),
        }
        for key, order in deletes.items()
    ]
    sink = io.BytesIO()
    schema = parse_schema(hudi_schema("HoodieDeleteRecordList"))
    schemaless_writer(sink, schema, {"deleteRecordList": records})
    content = struct.pack(">ii", 3, len(sink.getvalue())) + sink.getvalue()
    text = avro_schema(SCHEMA, table_name="t", meta_columns=True)
    header = {BlockHeader.INSTANT_TIME: instant.encode(), BlockHeader.SCHEMA: text.encode()}
    return LogBlock(BlockType.DELETE, content, header)


@dataclass
class LoggedTable:
    """A merge-on-read table with one file group, to which tests add log files."""

    folder: Path
    rows: Sequence[Values]
    payload: str = EVENT_TIME
    options: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Values] = ()
    """Rows of a file group of their own, which has no log files."""

    def __post_init__(self) -> None:
        made = holdfast.create_table(
            str(self.folder), name="t", record_key="id", ordering="ts",
            properties={"hoodie.compaction.payload.class": self.payload},
        )  # fmt: skip
        if self.others:
            made.bulk_insert(table_of(self.others))
        self.base = made.bulk_insert(table_of(self.rows), options=self.options).instant
        self.change_property("COPY_ON_WRITE", "MERGE_ON_READ")
        (self.base_file,) = self.folder.glob(f"*_{self.base}.parquet")
        self.file_id = self.base_file.name.split("_")[0]
        self.number = 0

    def change_property(self, before: str, after: str) -> None:
        """Write another text into the properties, in which values are no more sealed."""
        properties = self.folder / ".hoodie" / "hoodie.properties"
        lines = properties.read_text().replace(before, after).splitlines()
        properties.write_text("".join(f"{line}\n" for line in lines if "holdfast.table.seals" not in line))

    @property
    def opened(self) -> holdfast.Table:
        return holdfast.open_table(str(self.folder))

    def time(self, number: int) -> str:
        """The instant of the so-manieth write after the first."""
        return str(int(self.base) + number)

    def log(
        self,
        *blocks: LogBlock,
        instant: str | None = None,
        state: str | None = "completed",
        cut: int | None = None,
        slice_: str | None = None,
        file_id: str | None = None,
    ) -> Path:
        """Add a log file with these blocks, and the write that made it; `cut` are the bytes that it keeps."""
        self.number += 1
        slice_id = file_id or self.file_id
        name = f".{slice_id}_{slice_ or self.base}.log.{self.number}_0-{self.number}-1"
        path = self.folder / name
        path.write_bytes(b"".join(map(encode_block, blocks))[:cut])
        time = instant or (blocks[0].instant if blocks else self.time(self.number))
        if state is not None:
            stat = {"fileId": slice_id, "path": name, "prevCommit": slice_ or self.base, "partitionPath": "",
                    "fileSizeInBytes": path.stat().st_size, "numWrites": 1}  # fmt: skip
            self.instant(time, "deltacommit", state=state, stats=[stat])
        return path

    def instant(
        self,
        time: str,
        action: str,
        *,
        state: str = "completed",
        stats: Sequence[Mapping[str, Any]] = (),
        request: bytes = b"",
        operation: str = "UPSERT",
        schema: pa.Schema = SCHEMA,
    ) -> None:
        """Put a write on the timeline, in this state."""
        timeline = self.folder / ".hoodie"
        (timeline / f"{time}.{action}.requested").write_bytes(request)
        if state != "requested":
            (timeline / f"{time}.{action}.inflight").write_bytes(b"")
        if state == "completed":
            text = avro_schema(schema, table_name="t")
            said = {"partitionToWriteStats": {"": list(stats)}, "compacted": action == "compaction",
                    "extraMetadata": {"schema": text}, "operationType": operation}  # fmt: skip
            shown = {"compaction": "commit", "logcompaction": "deltacommit"}.get(action, action)
            (timeline / f"{time}.{shown}").write_text(json.dumps(said))

    def read(self, **given: Any) -> set[Values]:
        return rows_of(self.opened.to_arrow(**given))


def rows_of(found: pa.Table) -> set[Values]:
    rows = [(row["id"], row["ts"], row["value"]) for row in found.to_pylist()]
    assert len(rows) == len({key for key, _, _ in rows}), f"a key comes twice: {sorted(rows)}"
    return set(rows)


def table_of(rows: Sequence[Values]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


__all__ = [
    "EVENT_TIME",
    "LATEST",
    "SCHEMA",
    "LoggedTable",
    "Values",
    "command_block",
    "data_block",
    "delete_block",
    "rows_of",
    "table_of",
]
