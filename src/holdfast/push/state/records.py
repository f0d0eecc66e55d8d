"""How a table's state is kept in records: at which paths, in which bytes, and what they mean.

The paths are Pinot's, and beside them those of Holdfast's own records. A record
that did not change is not decoded again.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from holdfast.config.push import PushTable, parse_table
from holdfast.config.push_schema import Schema, parse_schema
from holdfast.errors import InvalidRequest, TableDamaged
from holdfast.format.lineage import lineage_of
from holdfast.format.malformed import Malformed, report_damage
from holdfast.format.segments import segment_of
from holdfast.format.table_configs import schema_of, table_config_of
from holdfast.format.znode import ZNRecord, decode_record, gunzip_bytes
from holdfast.model.lineage import Lineage
from holdfast.model.segment import Segment
from holdfast.push.metastore.port import Versioned
from holdfast.push.state.table_state import PushState

ONLINE = "ONLINE"
CONFIGS = "/PROPERTYSTORE/CONFIGS/TABLE"
SCHEMAS = "/PROPERTYSTORE/SCHEMAS"

_SEGMENTS_KNOWN_MAX = 300_000

_Data = TypeVar("_Data")
_Value = TypeVar("_Value")


def config_path(table: str) -> str:
    return f"{CONFIGS}/{table}"


def schema_path(name: str) -> str:
    return f"{SCHEMAS}/{name}"


def lineage_path(table: str) -> str:
    return f"/PROPERTYSTORE/SEGMENT_LINEAGE/{table}"


def segments_path(table: str) -> str:
    return f"/PROPERTYSTORE/SEGMENTS/{table}"


def segment_path(table: str, segment: str) -> str:
    return f"{segments_path(table)}/{segment}"


def ideal_state_path(table: str) -> str:
    return f"/IDEALSTATES/{table}"


def external_view_path(table: str) -> str:
    return f"/EXTERNALVIEW/{table}"


def push_state_path(table: str) -> str:
    return f"/PROPERTYSTORE/PUSH_STATE/{table}"


def broker_epochs_path(table: str) -> str:
    return f"/PROPERTYSTORE/BROKER_EPOCHS/{table}"


def broker_epoch_path(table: str, broker: str) -> str:
    return f"{broker_epochs_path(table)}/{broker}"


@dataclass(frozen=True, slots=True)
class BrokerEpochs:
    """What one broker reads of a table."""

    epoch: int
    """The lowest epoch that any of its running queries uses: files may go once this passed them."""
    applied: int
    """The epoch that new queries get."""


_NOTHING_APPLIED = BrokerEpochs(-1, -1)

_encoder = msgspec.json.Encoder(enc_hook=lambda value: _plain(value))
_decoder = msgspec.json.Decoder(PushState)


def encode_push_state(state: PushState) -> bytes:
    try:
        return _encoder.encode(state)
    except UnicodeEncodeError as error:
        raise Malformed("a text is not Unicode") from error


def decode_push_state(content: bytes) -> PushState:
    try:
        return _decoder.decode(gunzip_bytes(content))
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Malformed(f"not the side record of a table: {error}") from error


def encode_epochs(epochs: BrokerEpochs) -> bytes:
    return msgspec.json.encode(epochs)


def decode_epochs(content: bytes) -> BrokerEpochs:
    """An announcement that cannot be read must hold deletions up, not let them pass."""
    try:
        return msgspec.json.decode(content, type=BrokerEpochs)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return _NOTHING_APPLIED


def empty_ideal_state(table: PushTable) -> ZNRecord:
    """The ideal state of a table without segments, with the fields Helix expects."""
    return ZNRecord(
        id=table.table,
        simple={
            "IDEAL_STATE_MODE": "CUSTOMIZED",
            "REBALANCE_MODE": "CUSTOMIZED",
            "STATE_MODEL_DEF_REF": "SegmentOnlineOfflineStateModel",
            "STATE_MODEL_FACTORY_NAME": "DEFAULT",
            "NUM_PARTITIONS": "0",
            "REPLICAS": str(table.replication),
            "INSTANCE_GROUP_TAG": table.table,
            "MAX_PARTITIONS_PER_INSTANCE": "1",
        },
    )


def empty_external_view(table: PushTable) -> ZNRecord:
    return ZNRecord(id=table.table, simple={"STATE_MODEL_DEF_REF": "SegmentOnlineOfflineStateModel"})


def with_segments(
    record: ZNRecord, segments: Iterable[str], *, instance: str, renewed: Iterable[str] = ()
) -> ZNRecord:
    """The record with exactly these segments. New and renewed ones are ONLINE on `instance`."""
    known = record.maps
    placed: Mapping[str, str] = MappingProxyType({instance: ONLINE})
    maps = {name: known.get(name, placed) for name in segments}
    maps.update((name, placed) for name in renewed if name in maps)
    simple = dict(record.simple)
    if "NUM_PARTITIONS" in simple:
        simple["NUM_PARTITIONS"] = str(len(maps))
    return ZNRecord(id=record.id, simple=simple, maps=maps, lists=record.lists)


def offline_in(ideal: ZNRecord, view: ZNRecord) -> frozenset[str]:
    """The segments of which fewer replicas are online than the ideal state asks for."""
    return frozenset(
        name for name, states in ideal.maps.items() if _online(view.maps.get(name, {})) < max(1, len(states))
    )


def _online(states: Mapping[str, str]) -> int:
    return sum(state == ONLINE for state in states.values())


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in a record")


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
        with report_damage("a record cannot be read", path=path):
            segment = segment_of(decode_record(found.data))
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
        with report_damage("a record cannot be read", path=path):
            decoded = decode(data)
        with self._lock:
            self._values.pop(path, None)
            self._values[path] = (data, decoded)
            while len(self._values) > self._ENTRIES_MAX:
                del self._values[next(iter(self._values))]
        return decoded
