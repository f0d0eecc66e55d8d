"""Row positions: where the rows lie in a base file that a log block's rows supersede.

They stand in the Parquet footer of a data block, where no other reader looks,
and hold for one base file: that of the file slice they name.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from holdfast.format.malformed import Malformed

Positions = npt.NDArray[np.int64]

BASE = b"holdfast.base"
"""The instant of the file slice that positions refer to."""
ROWS = b"holdfast.positions"
"""One position for each row of the block."""
REMOVED = b"holdfast.positions.removed"
"""One for each record of the delete block that follows in the same file."""

NOWHERE = -1
"""Of a row that the base file does not have."""


def encode_positions(base: str, rows: Positions, removed: Positions) -> dict[bytes, bytes]:
    """Entries for the footer of a Parquet data block."""
    return {BASE: base.encode(), ROWS: _encode(rows), REMOVED: _encode(removed)}


def decode_positions(
    entries: Mapping[bytes, bytes], name: bytes, *, base: str, count: int
) -> Positions | None:
    """One list of positions; None if the footer has none for that file slice.

    `Malformed` if it is not whole.
    """
    if entries.get(BASE) != base.encode() or name not in entries:
        return None
    unpacker = zlib.decompressobj()
    try:
        packed = base64.b64decode(entries[name], validate=True)
        # One more than there may be, so that too many are seen without unpacking them all.
        steps = np.frombuffer(unpacker.decompress(packed, (count + 1) * 8), dtype="<i8")
    except (binascii.Error, zlib.error, ValueError) as error:
        raise Malformed(f"the row positions of a log block cannot be read: {error}") from error
    if not unpacker.eof:
        raise Malformed("the row positions of a log block are not whole, or too many")
    positions: Positions = np.cumsum(steps, dtype=np.int64)
    if len(positions) != count or (positions < NOWHERE).any():
        raise Malformed(f"a log block has {len(positions)} row positions for {count} records")
    return positions


def _encode(positions: Positions) -> bytes:
    steps = np.diff(positions, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(steps.tobytes(), 1))
