"""Parquet footers: what a file says about its column chunks, and a footer for chunks in a new place.

Only what is needed to move chunks is understood; everything else a footer says
about a chunk (statistics, encodings, sizes) travels along untouched.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from holdfast.format.malformed import Malformed
from holdfast.format.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Items,
    Struct,
    Value,
    decode_struct,
    encode_struct,
    field,
)

MAGIC: Final = b"PAR1"
"""The first and the last bytes of a file."""
TAIL_BYTES: Final = 8

_ENCRYPTED_MAGIC = b"PARE"
_TAIL = struct.Struct("<I4s")

_FILE_VERSION = field(1, I32)
_FILE_SCHEMA = field(2, LIST)
_FILE_ROWS = field(3, I64)
_FILE_ROW_GROUPS = field(4, LIST)
_FILE_KEY_VALUES = field(5, LIST)
_FILE_CREATED_BY = field(6, BINARY)
_FILE_COLUMN_ORDERS = field(7, LIST)

_ELEMENT_TYPE = field(1, I32)
_ELEMENT_TYPE_LENGTH = field(2, I32)
_ELEMENT_REPETITION = field(3, I32)
_ELEMENT_NAME = field(4, BINARY)
_ELEMENT_CHILDREN = field(5, I32)
_ELEMENT_CONVERTED_TYPE = field(6, I32)
_ELEMENT_SCALE = field(7, I32)
_ELEMENT_PRECISION = field(8, I32)
_ELEMENT_LOGICAL_TYPE = field(10, STRUCT)

_GROUP_COLUMNS = field(1, LIST)
_GROUP_UNCOMPRESSED_BYTES = field(2, I64)
_GROUP_ROWS = field(3, I64)
_GROUP_FILE_OFFSET = field(5, I64)
_GROUP_COMPRESSED_BYTES = field(6, I64)

_CHUNK_FILE_PATH = field(1, BINARY)
_CHUNK_FILE_OFFSET = field(2, I64)
_CHUNK_COLUMN = field(3, STRUCT)
_CHUNK_CRYPTO = field(8, STRUCT)
_CHUNK_ENCRYPTED_COLUMN = field(9, BINARY)

_COLUMN_TYPE = field(1, I32)
_COLUMN_PATH = field(3, LIST)
_COLUMN_VALUES = field(5, I64)
_COLUMN_UNCOMPRESSED_BYTES = field(6, I64)
_COLUMN_COMPRESSED_BYTES = field(7, I64)
_COLUMN_DATA_OFFSET = field(9, I64)
_COLUMN_INDEX_OFFSET = field(10, I64)
_COLUMN_DICTIONARY_OFFSET = field(11, I64)
_COLUMN_BLOOM_OFFSET = field(14, I64)
_COLUMN_BLOOM_BYTES = field(15, I32)

_KEY = field(1, BINARY)
_KEY_VALUE = field(2, BINARY)

_REPEATED = 2
_DEPTH_MAX = 100

_T = TypeVar("_T", bytes, Items, Struct)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One column of values in the schema, with all that says how its bytes are understood."""

    path: tuple[str, ...]
    repetitions: tuple[int, ...]
    """Of each element on the path; they decide the repetition and definition levels."""
    physical_type: int
    type_length: int | None
    converted_type: int | None
    scale: int | None
    precision: int | None
    logical_type: Struct | None
    column_order: Struct | None
    """How minimum and maximum compare. Absent in files whose writers had it wrong."""

    @property
    def dotted(self) -> str:
        """The path as pyarrow spells it."""
        return ".".join(self.path)

    @property
    def is_repeated(self) -> bool:
        return _REPEATED in self.repetitions


@dataclass(frozen=True, slots=True)
class Chunk:
    """One leaf's values in one row group: a range of bytes and what the footer says about it."""

    start: int
    size_bytes: int
    uncompressed_bytes: int
    column: Struct

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


@dataclass(frozen=True, slots=True)
class RowGroup:
    rows: int
    chunks: tuple[Chunk, ...]
    """In the order of the leaves; none if there are no rows."""


@dataclass(frozen=True, slots=True)
class Footer:
    leaves: tuple[Leaf, ...]
    row_groups: tuple[RowGroup, ...]
    key_values: Mapping[str, str]
    fields: Struct
    """As stored; a new file takes its schema from here."""

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.row_groups)


def same_leaf(one: Leaf, other: Leaf) -> bool:
    """Whether a chunk of one leaf may stand in a file under the other.

    A file without column orders comes from a writer so old that readers treat
    its pages and statistics with care; its chunks fit only files of its kind.
    """
    return (
        one.path == other.path
        and one.repetitions == other.repetitions
        and one.physical_type == other.physical_type
        and one.type_length == other.type_length
        and one.scale == other.scale
        and one.precision == other.precision
        and _means_the_same(one, other)
        and one.column_order == other.column_order
    )


def footer_size(tail: bytes) -> int:
    """How many bytes before the file's last eight are its footer."""
    if len(tail) != TAIL_BYTES:
        raise Malformed(f"a Parquet file ends with {TAIL_BYTES} bytes, not {len(tail)}")
    size, magic = _TAIL.unpack(tail)
    if magic == _ENCRYPTED_MAGIC:
        raise Malformed("the Parquet footer is encrypted")
    if magic != MAGIC:
        raise Malformed(f"the file ends with {magic!r}, which is not Parquet")
    assert isinstance(size, int), "the tail starts with a number"
    return size


def decode_footer(content: bytes, *, data_end: int) -> Footer:
    """The footer in these bytes; `data_end` is where it starts in its file.

    `Malformed` also for what is valid Parquet but cannot be moved: encrypted
    columns and chunks that live in another file.
    """
    fields = decode_struct(content)
    leaves = tuple(_leaves(fields))
    if not leaves:
        raise Malformed("the Parquet schema has no columns")
    if len({leaf.path for leaf in leaves}) != len(leaves):
        raise Malformed("the Parquet schema has two columns of one name")
    row_groups = tuple(
        _row_group(group, leaves, data_end=data_end)
        for group in _structs(_require(fields, _FILE_ROW_GROUPS, Items))
    )
    footer = Footer(leaves, row_groups, _key_values(fields), fields)
    if footer.rows != _count(fields, _FILE_ROWS):
        raise Malformed("the Parquet footer's row groups do not have as many rows as the file")
    return footer


def encode_footer(template: Footer, row_groups: Sequence[RowGroup], key_values: Mapping[str, str]) -> bytes:
    """The footer of a file with the template's schema and these row groups, up to the end of the file.

    Chunks keep what their old footer says of them, but for what pointed
    outside of them: page indexes and bloom filters. The writer's name is the
    template's, because readers trust statistics by the names they know.
    """
    fields = {
        key: value
        for key, value in template.fields.items()
        if key in (_FILE_VERSION, _FILE_SCHEMA, _FILE_CREATED_BY, _FILE_COLUMN_ORDERS)
    }
    fields[_FILE_ROWS] = sum(group.rows for group in row_groups)
    fields[_FILE_ROW_GROUPS] = Items(STRUCT, [_encode_row_group(group) for group in row_groups])
    fields[_FILE_KEY_VALUES] = Items(
        STRUCT, [{_KEY: key.encode(), _KEY_VALUE: value.encode()} for key, value in key_values.items()]
    )
    content = encode_struct(fields)
    return content + _TAIL.pack(len(content), MAGIC)


def move_chunk(chunk: Chunk, start: int) -> Chunk:
    """The chunk with its bytes at another place."""
    column = {
        key: value
        for key, value in chunk.column.items()
        if key
        not in (_COLUMN_INDEX_OFFSET, _COLUMN_DICTIONARY_OFFSET, _COLUMN_BLOOM_OFFSET, _COLUMN_BLOOM_BYTES)
    }
    data_offset = _count(chunk.column, _COLUMN_DATA_OFFSET)
    column[_COLUMN_DATA_OFFSET] = data_offset - chunk.start + start
    if chunk.start < data_offset:
        column[_COLUMN_DICTIONARY_OFFSET] = start
    return Chunk(start, chunk.size_bytes, chunk.uncompressed_bytes, column)


def rename_chunk(chunk: Chunk, path: Sequence[str]) -> Chunk:
    """The chunk as one of another column, which has the same values in the same form."""
    names = Items(BINARY, [name.encode() for name in path])
    return replace(chunk, column={**chunk.column, _COLUMN_PATH: names})


def _means_the_same(one: Leaf, other: Leaf) -> bool:
    """Whether two leaves carry the same annotation.

    The older form counts only where both lack the newer one: pyarrow calls a
    timestamp without a zone by the same older name as one in UTC.
    """
    if one.logical_type is None and other.logical_type is None:
        return one.converted_type == other.converted_type
    return one.logical_type == other.logical_type


def _leaves(fields: Struct) -> Iterator[Leaf]:
    elements = _structs(_require(fields, _FILE_SCHEMA, Items))
    root: Struct = next(elements, {})
    stored_orders = fields.get(_FILE_COLUMN_ORDERS)
    orders = _structs(stored_orders) if isinstance(stored_orders, Items) else iter(())
    for _ in range(_count(root, _ELEMENT_CHILDREN)):
        for path in _leaf_elements(elements, ()):
            yield _leaf(path, next(orders, None))
    if next(elements, None) is not None:
        raise Malformed("the Parquet schema has elements that belong to no group")


def _leaf_elements(elements: Iterator[Struct], parents: tuple[Struct, ...]) -> Iterator[tuple[Struct, ...]]:
    """The elements from the top to each leaf of the next element."""
    element = next(elements, None)
    if element is None or len(parents) == _DEPTH_MAX:
        raise Malformed("the Parquet schema ends early or nests too deeply")
    path = (*parents, element)
    if _ELEMENT_TYPE in element:
        yield path
        return
    for _ in range(_count(element, _ELEMENT_CHILDREN)):
        yield from _leaf_elements(elements, path)


def _leaf(elements: tuple[Struct, ...], order: Struct | None) -> Leaf:
    last = elements[-1]
    logical_type = last.get(_ELEMENT_LOGICAL_TYPE)
    return Leaf(
        path=tuple(_text(_require(element, _ELEMENT_NAME, bytes)) for element in elements),
        repetitions=tuple(_count(element, _ELEMENT_REPETITION) for element in elements),
        physical_type=_count(last, _ELEMENT_TYPE),
        type_length=_integer_or_none(last, _ELEMENT_TYPE_LENGTH),
        converted_type=_integer_or_none(last, _ELEMENT_CONVERTED_TYPE),
        scale=_integer_or_none(last, _ELEMENT_SCALE),
        precision=_integer_or_none(last, _ELEMENT_PRECISION),
        logical_type=logical_type if isinstance(logical_type, dict) else None,
        column_order=order,
    )


def _row_group(group: Struct, leaves: tuple[Leaf, ...], *, data_end: int) -> RowGroup:
    rows = _count(group, _GROUP_ROWS)
    columns = list(_structs(_require(group, _GROUP_COLUMNS, Items)))
    if len(columns) != len(leaves):
        raise Malformed(f"a Parquet row group has {len(columns)} column chunks for {len(leaves)} columns")
    if rows == 0:  # pyarrow writes such for an empty table; its chunks have no pages to point to.
        return RowGroup(0, ())
    chunks = tuple(_chunk(stored, data_end=data_end) for stored in columns)
    for chunk, leaf in zip(chunks, leaves, strict=True):
        _check_chunk(chunk, leaf, rows=rows)
    return RowGroup(rows, chunks)


def _chunk(stored: Struct, *, data_end: int) -> Chunk:
    if _CHUNK_FILE_PATH in stored:
        raise Malformed("a Parquet column chunk lives in another file")
    if _CHUNK_CRYPTO in stored or _CHUNK_ENCRYPTED_COLUMN in stored:
        raise Malformed("a Parquet column chunk is encrypted")
    column = _require(stored, _CHUNK_COLUMN, dict)
    data_offset = _count(column, _COLUMN_DATA_OFFSET)
    # Some writers put a zero where there is no dictionary.
    start = _integer_or_none(column, _COLUMN_DICTIONARY_OFFSET) or data_offset
    size = _count(column, _COLUMN_COMPRESSED_BYTES)
    if not len(MAGIC) <= start <= data_offset <= start + size <= data_end:
        raise Malformed("a Parquet column chunk lies outside of its file")
    return Chunk(start, size, _count(column, _COLUMN_UNCOMPRESSED_BYTES), column)


def _check_chunk(chunk: Chunk, leaf: Leaf, *, rows: int) -> None:
    names = _require(chunk.column, _COLUMN_PATH, Items).values
    if names != [name.encode() for name in leaf.path]:
        raise Malformed(f"a Parquet column chunk does not belong to {leaf.dotted!r}, where it stands")
    if chunk.column.get(_COLUMN_TYPE) != leaf.physical_type:
        raise Malformed(f"a Parquet column chunk of {leaf.dotted!r} has another type than its column")
    if not leaf.is_repeated and _count(chunk.column, _COLUMN_VALUES) != rows:
        raise Malformed(f"a Parquet column chunk of {leaf.dotted!r} has another length than its row group")


def _encode_row_group(group: RowGroup) -> Struct:
    return {
        # A chunk's own offset is deprecated: it is to be zero unless the file repeats the chunk's metadata.
        _GROUP_COLUMNS: Items(
            STRUCT, [{_CHUNK_FILE_OFFSET: 0, _CHUNK_COLUMN: chunk.column} for chunk in group.chunks]
        ),
        _GROUP_UNCOMPRESSED_BYTES: sum(chunk.uncompressed_bytes for chunk in group.chunks),
        _GROUP_ROWS: group.rows,
        _GROUP_FILE_OFFSET: group.chunks[0].start,
        _GROUP_COMPRESSED_BYTES: sum(chunk.size_bytes for chunk in group.chunks),
    }


def _key_values(fields: Struct) -> dict[str, str]:
    stored = fields.get(_FILE_KEY_VALUES)
    if not isinstance(stored, Items):
        return {}
    return {
        _text(_require(entry, _KEY, bytes)): _text(_require(entry, _KEY_VALUE, bytes))
        for entry in _structs(stored)
        if _KEY_VALUE in entry
    }


def _structs(items: Items) -> Iterator[Struct]:
    for value in items.values:
        if not isinstance(value, dict):
            raise Malformed("a list in the Parquet footer has items of the wrong kind")
        yield value


def _require(fields: Struct, key: int, kind: type[_T]) -> _T:
    value = fields.get(key)
    if not isinstance(value, kind):
        raise Malformed(f"the Parquet footer lacks field {key >> 4} of a struct")
    return value


def _count(fields: Struct, key: int) -> int:
    value: Value | None = fields.get(key)
    if not isinstance(value, int) or value < 0:
        raise Malformed(f"the Parquet footer has {value!r} for field {key >> 4} of a struct")
    return value


def _integer_or_none(fields: Struct, key: int) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) else None


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"the Parquet footer has text that is not UTF-8: {error}") from error
