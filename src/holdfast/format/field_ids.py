"""Field ids: the numbers by which Parquet files name their columns, nested ones included.

Engines that read the files by another format's metadata (Iceberg's) find columns
by these numbers, whatever their names. A column has the same number in all files
of a table, and no other column ever gets it. Files without numbers, of older
versions or other programs, are read by name.

Everything here is pure; which numbers a table has given out is known to
`table/field_ids.py`.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa

from holdfast.format.malformed import Malformed
from holdfast.format.schemas import META_COLUMNS

FIELD_IDS = "holdfast.field.ids"
"""Extra metadata of commits: every column of the table with its number, as JSON."""

FieldIds = Mapping[str, int]
"""Path of a column → its number. Fields of structs follow a dot, `element` stands for a list's
elements, `key` and `value` for a map's."""

META_FIELD_IDS: FieldIds = {name: 1_000_001 + place for place, name in enumerate(META_COLUMNS)}
"""Beyond what data columns reach, and below what Iceberg keeps for itself."""

_ARROW_KEY = b"PARQUET:field_id"
_LARGEST = min(META_FIELD_IDS.values()) - 1
_IDS = msgspec.json.Decoder(dict[str, int])


def column_paths(schema: Iterable[pa.Field]) -> list[str]:
    """The path of every column, a parent before what is in it."""
    return [path for field in schema for path in _paths_in(field.name, field.type)]


def extend_field_ids(known: FieldIds, schema: pa.Schema) -> FieldIds:
    """The numbers that are known, and the next ones for columns that have none, in their order."""
    following = max(known.values(), default=0) + 1
    missing = [path for path in column_paths(schema) if path not in known]
    return {**known, **{path: following + place for place, path in enumerate(missing)}}


def with_field_ids(schema: pa.Schema, ids: FieldIds) -> pa.Schema:
    """The schema as Parquet is to store it: with the numbers of its columns, as far as they are known."""
    every = {**ids, **META_FIELD_IDS}
    return pa.schema([_number_field(field, field.name, every) for field in schema])


def read_field_ids(schema: Iterable[pa.Field]) -> FieldIds:
    """The numbers in a schema that was read from a Parquet file."""
    return {path: number for field in schema for path, number in _read_ids(field, field.name)}


def encode_field_ids(ids: FieldIds) -> str:
    return msgspec.json.encode(dict(sorted(ids.items(), key=lambda entry: entry[1]))).decode()


def field_id_facts(ids: FieldIds) -> dict[str, str]:
    """What a commit says of field ids in its extra metadata; nothing if no column has one."""
    return {FIELD_IDS: encode_field_ids(ids)} if ids else {}


def decode_field_ids(text: str | bytes) -> FieldIds:
    """`Malformed` if it is not what `encode_field_ids` gives."""
    try:
        ids = _IDS.decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"these are not field ids: {error}") from error
    check_field_ids(ids)
    return ids


def check_field_ids(ids: FieldIds) -> None:
    """`Malformed` if two columns have one number, or a number is not one of a data column."""
    if len(set(ids.values())) < len(ids) or not all(0 < number <= _LARGEST for number in ids.values()):
        raise Malformed("these are not field ids: each column has a number of its own, from 1 on")


def _paths_in(path: str, kind: pa.DataType) -> Iterator[str]:
    yield path
    for name, field in _children(kind):
        yield from _paths_in(f"{path}.{name}", field.type)


def _children(kind: pa.DataType) -> list[tuple[str, pa.Field]]:
    """The columns within one, and what they are called in its path."""
    if pa.types.is_struct(kind):
        return [(field.name, field) for field in kind]
    if pa.types.is_list(kind):
        return [("element", kind.value_field)]
    if pa.types.is_map(kind):
        return [("key", kind.key_field), ("value", kind.item_field)]
    return []


def _number_field(field: pa.Field, path: str, ids: FieldIds) -> pa.Field:
    children = [
        _number_field(child, f"{path}.{name}", ids) for name, child in _children(field.type)
    ]  # fmt: skip
    if pa.types.is_struct(field.type):
        field = field.with_type(pa.struct(children))
    elif pa.types.is_list(field.type):
        field = field.with_type(pa.list_(children[0]))
    elif pa.types.is_map(field.type):
        field = field.with_type(pa.map_(children[0], children[1]))
    if path not in ids:
        return field
    return field.with_metadata({_ARROW_KEY: str(ids[path])})


def _read_ids(field: pa.Field, path: str) -> Iterator[tuple[str, int]]:
    stored = (field.metadata or {}).get(_ARROW_KEY)
    if stored is not None:
        yield path, int(stored)
    for name, child in _children(field.type):
        yield from _read_ids(child, f"{path}.{name}")
