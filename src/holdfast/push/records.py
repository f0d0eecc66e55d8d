"""How a table's state is kept in records: which bytes, and what they mean."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.config.push import PushTable
from holdfast.format.malformed import Malformed
from holdfast.format.znode import ZNRecord, expanded
from holdfast.push.state import PushState

ONLINE = "ONLINE"


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
        return _decoder.decode(expanded(content))
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise Malformed(f"not the side record of a table: {error}") from error


def encode_epochs(epochs: BrokerEpochs) -> bytes:
    return msgspec.json.encode(epochs)


def decode_epochs(content: bytes) -> BrokerEpochs:
    """An announcement that nobody can read must hold deletions up, not let them pass."""
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
