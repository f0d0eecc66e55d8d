import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.instant import instant_time, moment_of, next_time, time_at

moments = st.integers(min_value=0, max_value=250_000_000_000_000)


@given(moments)
def test_an_instant_time_names_its_moment_to_the_millisecond(epoch_ms):
    moment = moment_of(time_at(epoch_ms))

    assert moment == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=epoch_ms)


@given(moments, moments)
def test_instant_times_sort_as_their_moments_do(one, other):
    assert (time_at(one) < time_at(other)) == (one < other)


@given(moments, moments)
def test_a_new_time_is_greater_than_the_newest_whatever_the_clock_says(now_ms, newest_ms):
    newest = time_at(newest_ms)

    assert next_time(now_ms, newest) > newest


def test_a_clock_ahead_of_the_table_is_used_as_it_is():
    assert next_time(2_000, time_at(1_000)) == time_at(2_000)


@pytest.mark.parametrize(
    "text", ["", "2024", "2024070700130155x", "202407070013015541", "２０２４０７０７００１３０１５５４"]
)
def test_what_is_not_an_instant_time_is_refused(text):
    with pytest.raises(ValueError, match="not an instant time"):
        instant_time(text)
