"""Rows into one local file, which appears whole or not at all."""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from holdfast.cli.values import row_documents
from holdfast.errors import InvalidRequest, StorageUnavailable

Write = Callable[[BinaryIO, Iterable[pa.Table], pa.Schema], int]


def check_target(target: str) -> None:
    """Refuse a file that cannot be written, before anything is read."""
    if _suffix(target) not in _WRITERS:
        hint = "use " + " or ".join(_WRITERS)
        raise InvalidRequest("the file's suffix names no format", file=target, hint=hint)
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder) or os.path.isdir(target):
        raise InvalidRequest("the file cannot be written there", file=target, hint="check the folder")


def write_file(target: str, parts: Iterable[pa.Table], schema: pa.Schema) -> int:
    """Write the rows in the format that the suffix names; how many there were."""
    with _replacing(target) as sink:
        return _WRITERS[_suffix(target)](sink, parts, schema)


def _suffix(target: str) -> str:
    return os.path.splitext(target)[1].lower()


@contextmanager
def _replacing(target: str) -> Iterator[BinaryIO]:
    folder = os.path.dirname(os.path.abspath(target))
    try:
        descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".holdfast-")
        try:
            with os.fdopen(descriptor, "wb") as sink:
                yield sink
                sink.flush()
                os.fsync(descriptor)
                # A temporary file is for its owner alone; this one is to be an ordinary file.
                os.fchmod(descriptor, 0o666 & ~_umask())
            os.replace(draft, target)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError as error:
        raise StorageUnavailable("the file cannot be written", file=target, cause=error.strerror) from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _write_parquet(sink: BinaryIO, parts: Iterable[pa.Table], schema: pa.Schema) -> int:
    count = 0
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(part)
            count += part.num_rows
    return count


def _write_csv(sink: BinaryIO, parts: Iterable[pa.Table], schema: pa.Schema) -> int:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise InvalidRequest(
            "CSV holds no nested values",
            column=nested[0],
            hint="choose other --columns, or .json or .parquet",
        )
    count = 0
    spelled = pa.schema([field.with_type(_csv_type(field.type)) for field in schema])
    with pa_csv.CSVWriter(sink, spelled) as writer:
        for part in parts:
            writer.write_table(pa.table(_csv_columns(part), schema=spelled))
            count += part.num_rows
    return count


def _csv_type(kind: pa.DataType) -> pa.DataType:
    is_text = pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_timestamp(kind)
    return pa.string() if is_text else kind


def _csv_columns(part: pa.Table) -> list[pa.ChunkedArray]:
    """Bytes and timestamps as `read --json` spells them, the rest as it is."""
    documents = list(row_documents(part.select([f.name for f in part.schema if _csv_type(f.type) != f.type])))
    return [
        part[field.name]
        if _csv_type(field.type) == field.type
        else pa.chunked_array([pa.array([document[field.name] for document in documents], pa.string())])
        for field in part.schema
    ]


def _write_json(sink: BinaryIO, parts: Iterable[pa.Table], _schema: pa.Schema) -> int:
    count = 0
    for part in parts:
        for document in row_documents(part):
            sink.write(json.dumps(document, ensure_ascii=False, allow_nan=False).encode() + b"\n")
            count += 1
    return count


_WRITERS: Mapping[str, Write] = {".parquet": _write_parquet, ".csv": _write_csv, ".json": _write_json}
