import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.files.picking import pick, pick_rows


@given(
    lengths=st.lists(st.integers(0, 40), max_size=6),
    places=st.lists(st.floats(0, 1, exclude_max=True), max_size=60),
    at_once=st.integers(1, 20),
)
def test_values_are_those_at_the_positions_in_their_order(lengths, places, at_once):
    ends = np.cumsum([0, *lengths])
    kind = pa.struct([("x", pa.string())])
    spans = itertools.pairwise(ends)
    column = pa.chunked_array([pa.array([{"x": str(n)} for n in range(*span)], kind) for span in spans], kind)
    positions = np.array([int(place * ends[-1]) for place in places if ends[-1]], dtype=np.int64)

    found = pick(column, positions, at_once=at_once)

    assert found.to_pylist() == [{"x": str(position)} for position in positions]
    assert found.type == column.type


def test_rows_are_picked_from_more_text_than_one_array_can_hold():
    chunk = pa.array(["x" * 1_000_000] * 40)
    rows = pa.table({"number": np.arange(40 * 60), "text": pa.chunked_array([chunk] * 60)})
    assert rows["text"].nbytes > 2**31
    allocated = pa.total_allocated_bytes()

    found = pick_rows(rows, np.array([2399, 0, 1200]))

    assert found["number"].to_pylist() == [2399, 0, 1200]
    assert found["text"].num_chunks == 1
    assert pa.total_allocated_bytes() - allocated < 10_000_000
