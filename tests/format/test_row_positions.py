import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.malformed import Malformed
from holdfast.format.row_positions import BASE, REMOVED, ROWS, decode_positions, encode_positions

POSITIONS = st.lists(st.integers(-1, 2**40)).map(lambda found: np.array(found, dtype=np.int64))


@given(POSITIONS, POSITIONS)
def test_positions_are_read_as_they_were_written(rows, removed):
    entries = encode_positions("1", rows, removed)

    assert decode_positions(entries, ROWS, base="1", count=len(rows)).tolist() == rows.tolist()
    assert decode_positions(entries, REMOVED, base="1", count=len(removed)).tolist() == removed.tolist()


def test_those_of_another_base_file_and_none_are_none():
    entries = encode_positions("1", np.array([1]), np.array([], dtype=np.int64))

    assert decode_positions(entries, ROWS, base="2", count=1) is None
    assert decode_positions({}, ROWS, base="1", count=1) is None
    assert decode_positions({BASE: b"1"}, ROWS, base="1", count=1) is None


@pytest.mark.parametrize(
    "stored",
    [
        b"?",
        base64.b64encode(b"no zlib"),
        base64.b64encode(zlib.compress(b"123")),
        base64.b64encode(zlib.compress(bytes(8 * 3))),
        base64.b64encode(zlib.compress(b"\xfe" + b"\xff" * 7)),
        base64.b64encode(zlib.compress(bytes(10**7))),
        base64.b64encode(zlib.compress(bytes(8)))[:-8],
    ],
)
def test_what_is_no_list_of_so_many_positions_is_malformed(stored):
    with pytest.raises(Malformed):
        decode_positions({BASE: b"1", ROWS: stored}, ROWS, base="1", count=1)
