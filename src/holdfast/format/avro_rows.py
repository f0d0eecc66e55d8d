"""Rows as Avro data blocks of log files hold them: for readers that ask for it.

Row by row in Python, twenty times slower than Parquet blocks, and three times larger.
"""

import io
import json
import struct

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

_CONTENT_VERSION = 3
_HEADER = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


def encode_avro_rows(rows: pa.Table, schema: str) -> bytes:
    """The content of an Avro data block; the schema, as text, has all columns of the rows."""
    parsed = parse_schema(json.loads(schema))
    parts = [_HEADER.pack(_CONTENT_VERSION, rows.num_rows)]
    for batch in rows.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            sink = io.BytesIO()
            schemaless_writer(sink, parsed, row)
            record = sink.getvalue()
            parts += [_LENGTH.pack(len(record)), record]
    return b"".join(parts)
