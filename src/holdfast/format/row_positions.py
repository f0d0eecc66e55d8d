"""Positions of rows in a base file, as text in the footer of a log file's Parquet block.

Ascending and without repeats; each is stored as its distance from the one before,
seven bits a byte. A log block that carries them spares its readers the search for its keys.
"""

import base64
import binascii

import numpy as np
import numpy.typing as npt

from holdfast.format.malformed import Malformed
from holdfast.format.varints import decode_varints, encode_varints

POSITIONS = "holdfast.positions"
"""Footer entry: where the base file has the keys of the log file, those in its delete block too."""
BASE = "holdfast.base"
"""Footer entry: the instant of the base file that the positions are of."""

Positions = npt.NDArray[np.int64]


def encode_positions(positions: Positions) -> str:
    """The text of ascending positions."""
    gaps = np.diff(positions, prepend=0).astype(np.uint64)
    return base64.b64encode(encode_varints(gaps)[0].tobytes()).decode()


def decode_positions(text: str) -> Positions:
    """The positions, ascending; `Malformed` if the text is none."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"the positions of rows are not base64: {error}") from error
    gaps = decode_varints(raw)
    positions: Positions = np.cumsum(gaps).astype(np.int64)
    if np.any(positions < 0) or np.any(gaps[1:] == 0):
        raise Malformed("the positions of rows do not ascend")
    return positions
