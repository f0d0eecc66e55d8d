"""Packets of ZooKeeper: what does not fit into one is compressed, and then cut into pieces.

Pieces are written first, and the record then names them in place of its
content. Their names are new for every write: a piece belongs to one version of
one record, and is removed when the next version is there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote
from uuid import uuid4

from holdfast.format.znode import PLAIN_BYTES_MAX, gzip_bytes
from holdfast.push.metastore.port import Change, Create, Replace, too_large

_PACKET_BYTES = 1_048_575
"""The server drops the connection of a client that sends more, which looks like an outage."""
_PACKET_MARGIN = 24_576
_CHANGE_OVERHEAD = 64
_CUT_BYTES_MIN = 16_384
"""Smaller records are not cut: naming their pieces would take as much room."""
_PIECE_BYTES = 512 * 1024
_MARK = b"@holdfast pieces\n"
"""No record of Pinot's begins so: a reader that does not know of pieces fails, and sees no empty record."""


@dataclass(slots=True)
class Packet:
    """What one write sends: the data of each record, and the pieces that are there before it."""

    data: dict[str, bytes] = field(default_factory=dict)
    pieces: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """By the record's path, then by their own."""


def pack(changes: Sequence[Change], root: str) -> Packet:
    """The data of the changes below `root`, compressed and then cut as far as one packet needs it."""

    def overhead(path: str) -> int:
        return _CHANGE_OVERHEAD + len(f"{root}{path}".encode())

    packet = Packet({change.path: change.data for change in changes if isinstance(change, Create | Replace)})
    largest_first = sorted(packet.data, key=lambda path: len(packet.data[path]), reverse=True)
    limit = _PACKET_BYTES - _PACKET_MARGIN
    total = sum(overhead(change.path) for change in changes) + sum(map(len, packet.data.values()))
    for path in largest_first:
        size = len(packet.data[path])
        if total <= limit and size <= PLAIN_BYTES_MAX:
            break
        packet.data[path] = gzip_bytes(packet.data[path])
        total += len(packet.data[path]) - size
    for path in largest_first if total > limit else ():
        size = len(packet.data[path])
        if total <= limit:
            break
        if size < _CUT_BYTES_MIN:
            continue
        packet.pieces[path] = _cut(path, packet.data[path])
        packet.data[path] = _name_pieces(packet.pieces[path])
        total += len(packet.data[path]) - size + sum(map(overhead, packet.pieces[path]))
    if total > limit:
        raise too_large(
            max(packet.data, key=lambda path: len(packet.data[path]), default=changes[0].path),
            size_bytes=total,
            limit_bytes=limit,
            hint="change fewer records at a time",
        )
    return packet


def piece_names(data: bytes) -> tuple[str, ...]:
    """The pieces that stand for the record; none if the data are the record itself."""
    return tuple(data.removeprefix(_MARK).decode().split("\n")) if data.startswith(_MARK) else ()


def pieces_path(path: str) -> str:
    """The folder of the pieces of a record."""
    return f"/HOLDFAST/PIECES/{quote(path, safe='')}"


def _cut(path: str, content: bytes) -> dict[str, bytes]:
    """The pieces of a record by their paths, in order."""
    token = uuid4().hex
    starts = range(0, len(content), _PIECE_BYTES)
    return {
        f"{pieces_path(path)}/{token}-{at:04}": content[start : start + _PIECE_BYTES]
        for at, start in enumerate(starts)
    }


def _name_pieces(places: Iterable[str]) -> bytes:
    """What stands in the place of a record that was cut."""
    return _MARK + "\n".join(place.rpartition("/")[2] for place in places).encode()
