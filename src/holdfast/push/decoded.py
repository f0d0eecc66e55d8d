"""Records as values. What was decoded once is not decoded again as long as the record stays the same."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.config.push import PushTable, parse_table
from holdfast.config.push_schema import Schema, parse_schema
from holdfast.errors import HoldfastError, InvalidRequest, TableDamaged
from holdfast.format.lineage import lineage_of
from holdfast.format.malformed import Malformed
from holdfast.format.segments import segment_of
from holdfast.format.table_configs import schema_of, table_config_of
from holdfast.format.znode import ZNRecord, decode_record
from holdfast.model.lineage import Lineage
from holdfast.push.metastore.port import Versioned
from holdfast.push.paths import config_path, lineage_path, push_state_path, schema_path, segment_path
from holdfast.push.records import decode_push_state, offline_in
from holdfast.push.segments import Segment
from holdfast.push.state import PushState

_SEGMENTS_KNOWN_MAX = 300_000

_Data = TypeVar("_Data")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """An ideal state or an external view."""

    record: ZNRecord
    segments: frozenset[str]


_NOWHERE = Placement(ZNRecord(id=""), frozenset())


def _placement_of(data: bytes) -> Placement:
    record = decode_record(data)
    return Placement(record, frozenset(record.maps))


class DecodedRecords:
    """Those of one cluster."""

    def __init__(self) -> None:
        self._decoded = _Decoded()
        self._segments: dict[str, tuple[bytes, Segment]] = {}
        self._compared = _Decoded()

    def schema(self, name: str, found: Versioned) -> Schema:
        return self._decoded.get(
            schema_path(name), found.data, lambda data: parse_schema(schema_of(decode_record(data)))
        )

    def config(self, table: str, found: Versioned) -> PushTable:
        path = config_path(table)
        try:
            return self._decoded.get(
                path, found.data, lambda data: parse_table(table_config_of(decode_record(data)))
            )
        except InvalidRequest as error:
            raise TableDamaged(
                "the table's configuration cannot be read", path=path, cause=str(error)
            ) from error

    def placement(self, path: str, found: Versioned | None) -> Placement:
        return _NOWHERE if found is None else self._decoded.get(path, found.data, _placement_of)

    def offline(self, ideal: Placement, view: Placement) -> frozenset[str]:
        # Unchanged records are the same objects: a large table is then not gone through again.
        return self._compared.get(
            ideal.record.id, (ideal, view), lambda pair: offline_in(pair[0].record, pair[1].record)
        )

    def lineage(self, table: str, found: Versioned | None) -> Lineage:
        if found is None:
            return Lineage()
        return self._decoded.get(
            lineage_path(table), found.data, lambda data: lineage_of(decode_record(data))
        )

    def push_state(self, table: str, found: Versioned | None) -> PushState:
        if found is None:
            return PushState()
        return self._decoded.get(push_state_path(table), found.data, decode_push_state)

    def segment(self, table: str, name: str, found: Versioned) -> Segment:
        path = segment_path(table, name)
        # A switch reads the same thousands of records as the one before.
        digest = hashlib.blake2b(found.data, digest_size=16).digest()
        known = self._segments.get(path)
        if known is not None and known[0] == digest:
            return known[1]
        try:
            segment = segment_of(decode_record(found.data))
        except Malformed as error:
            raise _damaged(path, error) from error
        if len(self._segments) >= _SEGMENTS_KNOWN_MAX:
            self._segments.clear()
        self._segments[path] = (digest, segment)
        return segment


class _Decoded:
    """The latest value of each record, so that a large one is not decoded again while it stays the same."""

    _ENTRIES_MAX = 1000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, tuple[Any, Any]] = {}

    def get(self, path: str, data: _Data, decode: Callable[[_Data], _Value]) -> _Value:
        with self._lock:
            known = self._values.get(path)
        if known is not None and known[0] == data:
            value: _Value = known[1]
            return value
        try:
            decoded = decode(data)
        except Malformed as error:
            raise _damaged(path, error) from error
        with self._lock:
            self._values.pop(path, None)
            self._values[path] = (data, decoded)
            while len(self._values) > self._ENTRIES_MAX:
                del self._values[next(iter(self._values))]
        return decoded


def _damaged(path: str, error: Exception) -> HoldfastError:
    return TableDamaged("a record cannot be read", path=path, cause=str(error))
