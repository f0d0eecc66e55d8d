"""Pieces of records that do not fit into one packet of ZooKeeper.

Pieces are written first, and the record then names them in place of its
content. Their names are new for every write: a piece belongs to one version of
one record, and goes when the next version is there.
"""

from collections.abc import Iterable, Mapping
from urllib.parse import quote

_PIECE_BYTES = 512 * 1024
_MARK = b"@holdfast pieces\n"
"""No record of Pinot's begins so: who does not know of pieces fails, rather than see an empty record."""


def cut(content: bytes, token: str) -> dict[str, bytes]:
    """The content in pieces, by names that begin with `token`; in order."""
    starts = range(0, len(content), _PIECE_BYTES)
    return {f"{token}-{at:04}": content[start : start + _PIECE_BYTES] for at, start in enumerate(starts)}


def naming(names: Iterable[str]) -> bytes:
    """What stands in the place of a record that was cut."""
    return _MARK + "\n".join(names).encode()


def named(data: bytes) -> tuple[str, ...]:
    """The pieces that stand for the record; none if the data are the record itself."""
    return tuple(data.removeprefix(_MARK).decode().split("\n")) if data.startswith(_MARK) else ()


def pieces_path(path: str) -> str:
    """Below which the pieces of a record are."""
    return f"/HOLDFAST/PIECES/{quote(path, safe='')}"


def placed(path: str, pieces: Mapping[str, bytes]) -> dict[str, bytes]:
    """The pieces of a record by their paths."""
    return {f"{pieces_path(path)}/{name}": content for name, content in pieces.items()}
