"""Which segments lie in a part of a table, by what they tell of themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Conflict, InvalidRequest, Refused
from holdfast.model.segment import ColumnRange, Segment
from holdfast.push.replacement.parts import check_inside, check_part, segments_in
from holdfast.push.state.table_state import Part

TIME = Part(start_ms=100, end_ms=200)
NORWAY = Part(column="country", value="NO")


def segment(name="s", start=None, end=None, **values):
    ranges = {column: ColumnRange(*value) for column, value in values.items()}
    return Segment(
        name=name, crc=0, docs=1, size_bytes=1, uri=name, start_ms=start, end_ms=end, columns=ranges
    )


def found(part, *segments):
    known = {one.name: one for one in segments}
    return segments_in(part, known, known)


def test_a_segment_whose_whole_time_is_in_the_range_is_in_the_part():
    assert found(TIME, segment(start=100, end=199)) == ("s",)
    assert found(TIME, segment(start=0, end=99)) == ()
    assert found(TIME, segment(start=200, end=300)) == ()


@pytest.mark.parametrize("times", [(50, 100), (199, 200), (0, 500), (None, None)])
def test_a_segment_across_the_border_of_the_range_is_refused(times):
    with pytest.raises(Conflict) as refused:
        found(TIME, segment(start=times[0], end=times[1]))

    assert refused.value.facts["code"] == "PART_OVERLAPS"


def test_a_partition_is_the_one_value_that_a_column_has():
    assert found(NORWAY, segment(country=("NO", "NO"))) == ("s",)
    assert found(NORWAY, segment(country=("SE", "SE"))) == ()
    for across in (segment(country=("DK", "SE")), segment()):
        with pytest.raises(Conflict):
            found(NORWAY, across)


def test_what_is_outside_by_one_border_need_not_tell_about_the_other():
    both = Part(start_ms=100, end_ms=200, column="country", value="NO")

    assert found(both, segment(start=300, end=400)) == ()
    assert found(both, segment(country=("SE", "SE"))) == ()
    assert found(both, segment(start=100, end=150, country=("NO", "NO"))) == ("s",)


def test_what_a_push_brings_lies_in_its_part():
    check_inside(TIME, {"s": segment(start=100, end=150)}, ["s"])
    for strange in (segment(start=300, end=400), segment(start=150, end=250)):
        with pytest.raises(Refused) as refused:
            check_inside(TIME, {"s": strange}, ["s"])
        assert refused.value.facts["code"] == "TO_OUTSIDE_PART"
    with pytest.raises(Refused):
        check_inside(TIME, {}, ["gone"])


@pytest.mark.parametrize("part", [Part(), Part(start_ms=1), Part(start_ms=5, end_ms=5)])
def test_a_part_has_a_border(part):
    with pytest.raises(InvalidRequest):
        check_part(part)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)).map(sorted), max_size=5))
def test_no_row_of_the_part_stays_and_no_other_goes(times):
    """Whatever the segments are: the part is replaced whole and alone, or nothing is."""
    known = {f"s{number}": segment(f"s{number}", start, end) for number, (start, end) in enumerate(times)}
    try:
        chosen = segments_in(TIME, known, known)
    except Conflict:
        return

    for name, one in known.items():
        rows = range(one.start_ms, one.end_ms + 1)
        if name in chosen:
            assert all(100 <= at < 200 for at in rows)
        else:
            assert not any(100 <= at < 200 for at in (rows[0], rows[-1]))
