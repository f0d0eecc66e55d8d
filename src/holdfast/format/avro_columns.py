"""Avro records as columns: the content of a data block, without a step of Python for each record.

All records are read at once, one field after the other: each has its own
place in the bytes, and numpy moves all of them. Only the items of arrays and
maps are taken turn by turn. No place ever leaves its record, whatever the
bytes say.
"""

import json
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.format.malformed import Malformed
from holdfast.format.schemas import arrow_schema

_VERSIONS = range(1, 4)
_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_PADDING = 16
"""Behind the bytes, so that the longest number may be read at the end before its length is known."""
_LONGEST_VARINT = 10
_LARGEST_COLUMN = 2**31 - 1

_Numbers = npt.NDArray[np.int64]


def decode_avro_rows(content: bytes, schema: str, wanted: Collection[str]) -> pa.Table:
    """Those of the wanted columns that the records in an Avro data block have, as its schema has them.

    `Malformed` if the bytes are not what the schema says.
    """
    columns = arrow_schema(schema)
    record = _Builder().record(json.loads(schema), columns)
    places = _places(content)
    arrays: list[pa.Array] = []
    for member, column in zip(record, columns, strict=True):
        array = member(places, column.name in wanted)
        if array is not None:
            arrays.append(array)
    if (places.at != places.ends).any():
        raise Malformed("a record of an Avro block ends before its bytes do")
    return pa.table(arrays, schema=pa.schema([column for column in columns if column.name in wanted]))


@dataclass(slots=True)
class _Places:
    """Where each of some records is read at."""

    content: npt.NDArray[np.uint8]
    at: _Numbers
    ends: _Numbers

    def __len__(self) -> int:
        return len(self.at)

    def only(self, chosen: npt.NDArray[Any]) -> "_Places":
        return _Places(self.content, self.at[chosen], self.ends[chosen])

    def skip(self, sizes: _Numbers | int) -> _Numbers:
        """Move on by so many bytes; where they begin."""
        starts = self.at
        if np.any((self.ends - starts < sizes) | (np.asarray(sizes) < 0)):
            raise Malformed("a record of an Avro block ends early")
        self.at = starts + sizes
        return starts

    def take_bytes(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes of each."""
        starts = self.skip(size)
        taken: npt.NDArray[np.uint8] = self.content[starts[:, None] + np.arange(size)]
        return taken

    def numbers(self) -> _Numbers:
        """One whole number of each."""
        at = self.at.copy()
        raw = np.zeros(len(at), dtype=np.uint64)
        left = np.arange(len(at))
        for place in range(_LONGEST_VARINT):
            bytes_ = self.content[at[left]]
            raw[left] |= (bytes_ & 0x7F).astype(np.uint64) << np.uint64(7 * place)
            at[left] += 1
            left = left[bytes_ >= 0x80]
            if not len(left):
                break
        if len(left) or np.any(at > self.ends):
            raise Malformed("a number in a record of an Avro block has no end")
        self.at = at
        half = (raw >> np.uint64(1)).astype(np.int64)
        numbers: _Numbers = half ^ -(raw & np.uint64(1)).astype(np.int64)
        return numbers


class _Member(Protocol):
    """Reads one field of each record, and gives it as an array if it is wanted."""

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None: ...


def _places(content: bytes) -> _Places:
    """The records of a data block."""
    if len(content) < _HEAD.size:
        raise Malformed("the Avro block ends early")
    version, count = _HEAD.unpack_from(content)
    if version not in _VERSIONS or not 0 <= count <= len(content):
        raise Malformed(f"the Avro block is of version {version} and has {count} records")
    starts = np.empty(count, dtype=np.int64)
    ends = np.empty(count, dtype=np.int64)
    at = _HEAD.size
    unpack = _LENGTH.unpack_from
    try:
        for number in range(count):
            at += _LENGTH.size
            starts[number] = at
            (length,) = unpack(content, at - _LENGTH.size)
            at += length
            ends[number] = at
    except struct.error as error:
        raise Malformed("the Avro block ends early") from error
    if at != len(content) or np.any(ends < starts):
        raise Malformed("the records of the Avro block do not fill it")
    padded = np.frombuffer(content + bytes(_PADDING), dtype=np.uint8)
    return _Places(padded, starts, ends)


@dataclass(slots=True)
class _Builder:
    """Makes what reads a schema that `arrow_schema` has understood; `kind` is the Arrow type it gave."""

    known: dict[str, Any] = field(default_factory=dict)
    """Definitions by their full names: they may be used again."""

    def record(self, avro: Mapping[str, Any], columns: Sequence[pa.Field] | pa.Schema) -> list[_Member]:
        return self._fields(avro, columns, _inside(avro, ""))

    def member(self, avro: Any, kind: pa.DataType, namespace: str) -> _Member:
        match avro:
            case str() if avro in _PRIMITIVES:
                return _PRIMITIVES[avro](kind)
            case str():
                return self.member(*self._definition(avro, namespace, kind))
            case list():
                return self._union(avro, kind, namespace)
            case {"type": "array", "items": items}:
                return _Array(self.member(items, kind.value_type, namespace), kind)
            case {"type": "map", "values": values}:
                value = self.member(values, kind.item_type, namespace)
                return _Map(_Text(pa.string()), value, kind)
            case {"type": "record" | "enum" | "fixed" as what, "name": str()}:
                return self._define(what, avro, kind, namespace)
            case {"type": inner}:
                return self.member(inner, kind, namespace)
        raise Malformed("an Avro schema has a part that is none")

    def _union(self, branches: list[Any], kind: pa.DataType, namespace: str) -> _Member:
        present = [number for number, branch in enumerate(branches) if branch != "null"]
        return _Union(len(branches), present[0], self.member(branches[present[0]], kind, namespace), kind)

    def _define(self, what: str, avro: Mapping[str, Any], kind: pa.DataType, namespace: str) -> _Member:
        own = avro.get("namespace", namespace)
        self.known[_full_name(avro["name"], own)] = avro, own
        if what == "record":
            return _Struct(self._fields(avro, list(kind), _inside(avro, namespace)), kind)
        return _Enum(avro["symbols"]) if what == "enum" else _Fixed(avro["size"], kind)

    def _fields(
        self, avro: Mapping[str, Any], columns: Sequence[pa.Field] | pa.Schema, namespace: str
    ) -> list[_Member]:
        pairs = zip(avro["fields"], columns, strict=True)
        return [self.member(each["type"], column.type, namespace) for each, column in pairs]

    def _definition(self, name: str, namespace: str, kind: pa.DataType) -> tuple[Any, pa.DataType, str]:
        avro, own = self.known[_full_name(name, namespace)]
        return avro, kind, own


def _inside(avro: Mapping[str, Any], namespace: str) -> str:
    """The namespace of what a record defines."""
    return _full_name(avro["name"], avro.get("namespace", namespace)).rpartition(".")[0]


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


@dataclass(frozen=True, slots=True)
class _Boolean:
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        flags = places.take_bytes(1)[:, 0]
        if np.any(flags > 1):
            raise Malformed("a record of an Avro block has a boolean that is neither true nor false")
        return pa.array(flags == 1) if is_wanted else None


@dataclass(frozen=True, slots=True)
class _Whole:
    """An int or a long, and what is stored as one."""

    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        numbers = places.numbers()
        if self.kind.bit_width == 32:
            if np.any(numbers != numbers.astype(np.int32)):
                raise Malformed("a record of an Avro block has an int that is none")
            numbers = numbers.astype(np.int32)
        return pa.array(numbers).view(self.kind) if is_wanted else None


@dataclass(frozen=True, slots=True)
class _Fraction:
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        size = self.kind.bit_width // 8
        content = places.take_bytes(size)
        return pa.array(np.ascontiguousarray(content).view(f"<f{size}")[:, 0]) if is_wanted else None


@dataclass(frozen=True, slots=True)
class _Text:
    """Text, bytes, and decimals in as many bytes as they need."""

    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        lengths = places.numbers()
        starts = places.skip(lengths)
        if not is_wanted:
            return None
        if pa.types.is_decimal(self.kind):
            return _decimals(places.content, starts, lengths, self.kind)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if offsets[-1] > _LARGEST_COLUMN:
            raise Malformed("a column of an Avro block is too large")
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        taken = places.content[np.repeat(starts, lengths) + within]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(taken)]
        array = pa.Array.from_buffers(self.kind, len(starts), buffers)
        array.validate(full=True)
        return array


@dataclass(frozen=True, slots=True)
class _Fixed:
    size: int
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        if not is_wanted:
            places.skip(self.size)
            return None
        if pa.types.is_decimal(self.kind):
            starts = places.skip(self.size)
            return _decimals(places.content, starts, np.full(len(starts), self.size), self.kind)
        content = pa.py_buffer(places.take_bytes(self.size).tobytes())
        return pa.Array.from_buffers(self.kind, len(places), [None, content])


@dataclass(frozen=True, slots=True)
class _Enum:
    symbols: Sequence[str]

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        numbers = places.numbers()
        if np.any((numbers < 0) | (numbers >= len(self.symbols))):
            raise Malformed("a record of an Avro block has an unknown symbol")
        return pa.array(self.symbols, pa.string()).take(pa.array(numbers)) if is_wanted else None


@dataclass(frozen=True, slots=True)
class _Union:
    """A type, or null."""

    branches: int
    present: int
    member: _Member
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        chosen = places.numbers()
        if np.any((chosen < 0) | (chosen >= self.branches)):
            raise Malformed("a record of an Avro block has an unknown branch of a union")
        is_there = chosen == self.present
        if is_there.all():
            return self.member(places, is_wanted)
        some = places.only(is_there)
        values = self.member(some, is_wanted)
        places.at[is_there] = some.at
        if values is None:
            return None
        if not len(some):
            return pa.nulls(len(places), self.kind)
        return values.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))


@dataclass(frozen=True, slots=True)
class _Struct:
    members: Sequence[_Member]
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        arrays = [member(places, is_wanted) for member in self.members]
        return pa.StructArray.from_arrays(arrays, fields=list(self.kind)) if is_wanted else None


@dataclass(frozen=True, slots=True)
class _Array:
    item: _Member
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        items = _Items(len(places))
        items.read(places, lambda some: [self.item(some, is_wanted)])
        if not is_wanted:
            return None
        (values,) = items.columns([self.kind.value_type])
        return pa.ListArray.from_arrays(items.offsets(), values, type=self.kind)


@dataclass(frozen=True, slots=True)
class _Map:
    key: _Member
    value: _Member
    kind: pa.DataType

    def __call__(self, places: _Places, is_wanted: bool, /) -> pa.Array | None:
        items = _Items(len(places))
        items.read(places, lambda some: [self.key(some, is_wanted), self.value(some, is_wanted)])
        if not is_wanted:
            return None
        keys, values = items.columns([self.kind.key_type, self.kind.item_type])
        return pa.MapArray.from_arrays(items.offsets(), keys, values, type=self.kind)


class _Items:
    """The items of the arrays or maps of some records, taken one of each at a time."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._owners: list[_Numbers] = []
        self._taken: list[list[pa.Array | None]] = []

    def read(self, places: _Places, take: Callable[[_Places], list[pa.Array | None]]) -> None:
        left = np.zeros(len(places), dtype=np.int64)
        open_ = np.arange(len(places))
        while len(open_):
            is_at_head = left[open_] == 0
            heads = open_[is_at_head]
            if len(heads):
                left[heads] = _block_sizes(places, heads)
                open_ = open_[left[open_] > 0]
            if len(open_):
                some = places.only(open_)
                self._taken.append(take(some))
                self._owners.append(open_)
                places.at[open_] = some.at
                left[open_] -= 1

    def offsets(self) -> pa.Array:
        owners = np.concatenate([np.empty(0, dtype=np.int64), *self._owners])
        counts = np.bincount(owners, minlength=self._records)
        return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    def columns(self, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
        """What was taken, the items of each record together and in their order."""
        if not self._owners:
            return [pa.array([], kind) for kind in kinds]
        order = pa.array(np.argsort(np.concatenate(self._owners), kind="stable"))
        return [pa.concat_arrays(column).take(order) for column in zip(*self._taken, strict=True)]


def _block_sizes(places: _Places, heads: _Numbers) -> _Numbers:
    """How many items the next block of each of these has; none at the end."""
    some = places.only(heads)
    counts = some.numbers()
    is_sized = counts < 0  # The block then also tells its size in bytes.
    sized = some.only(is_sized)
    sized.numbers()
    some.at[is_sized] = sized.at
    sizes: _Numbers = np.abs(counts)
    if np.any((sizes < 0) | (sizes > some.ends - some.at)):
        raise Malformed("a record of an Avro block has more items than bytes")
    places.at[heads] = some.at
    return sizes


def _decimals(
    content: npt.NDArray[np.uint8], starts: _Numbers, lengths: _Numbers, kind: pa.DataType
) -> pa.Array:
    """Decimals from whole numbers of several bytes, the greatest first."""
    width = kind.bit_width // 8
    if len(lengths) and (lengths.min() < 1 or lengths.max() > width):
        raise Malformed("a record of an Avro block has a decimal of a length that cannot be")
    is_negative = content[starts] >= 0x80
    little = np.where(is_negative[:, None], np.uint8(0xFF), np.uint8(0)).repeat(width, axis=1)
    for place in range(int(lengths.max(initial=0))):
        has = lengths > place
        little[has, place] = content[(starts + lengths - 1 - place)[has]]
    decimals = pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(little.tobytes())])
    decimals.validate(full=True)
    return decimals


_PRIMITIVES: Mapping[str, Callable[[pa.DataType], _Member]] = {
    "boolean": _Boolean,
    "int": _Whole,
    "long": _Whole,
    "float": _Fraction,
    "double": _Fraction,
    "string": _Text,
    "bytes": _Text,
}
