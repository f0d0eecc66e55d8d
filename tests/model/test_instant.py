import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.instant import instant_time, is_repeated, just_after, moment_of, next_time, time_at

moments = st.integers(min_value=0, max_value=250_000_000_000_000)
lately = st.integers(min_value=1_000_000_000_000, max_value=4_000_000_000_000)
NAMES = ("UTC", "America/New_York", "Asia/Kolkata", "Europe/London", "Australia/Lord_Howe", "Pacific/Apia")
zones = st.sampled_from([ZoneInfo(name) for name in NAMES])

NEW_YORK = ZoneInfo("America/New_York")


def epoch_ms(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


@given(moments)
def test_an_instant_time_names_its_moment_to_the_millisecond(epoch_ms):
    moment = moment_of(time_at(epoch_ms, dt.UTC), dt.UTC)

    assert moment == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=epoch_ms)


@given(lately, zones)
def test_so_it_does_in_every_zone_but_while_a_clock_repeats_itself(epoch_ms, zone):
    moment = dt.datetime.fromtimestamp(epoch_ms // 1000, dt.UTC) + dt.timedelta(milliseconds=epoch_ms % 1000)
    named = moment_of(time_at(epoch_ms, zone), zone)

    assert named == moment or (is_repeated(moment, zone) and named < moment)


@given(moments, moments)
def test_instant_times_sort_as_their_moments_do(one, other):
    assert (time_at(one, dt.UTC) < time_at(other, dt.UTC)) == (one < other)


@given(moments, moments)
def test_a_new_time_is_greater_than_the_newest_whatever_the_clock_says(now_ms, newest_ms):
    newest = time_at(newest_ms, dt.UTC)

    assert next_time(now_ms, newest, dt.UTC) > newest


@given(lately, st.lists(st.integers(0, 7_200_000), max_size=8), zones)
def test_new_times_ascend_in_every_zone_also_when_its_clock_is_put_back(now_ms, steps, zone):
    newest = next_time(now_ms, None, zone)
    for step in steps:
        now_ms += step
        later = next_time(now_ms, newest, zone)

        assert later > newest
        newest = later


def test_a_clock_ahead_of_the_table_is_used_as_it_is():
    assert next_time(2_000, time_at(1_000, dt.UTC), dt.UTC) == time_at(2_000, dt.UTC)


@pytest.mark.parametrize(
    ("now", "time"),
    [
        ("2026-11-01T00:58:00-04:00", "20261101005800000"),
        ("2026-11-01T01:00:00-04:00", "20261101005959000"),
        ("2026-11-01T01:59:00-04:00", "20261101005959000"),
        ("2026-11-01T01:00:00-05:00", "20261101010000000"),
        ("2026-11-01T01:10:00-05:00", "20261101011000000"),
        ("2026-11-01T02:00:00-05:00", "20261101020000000"),
        ("2026-03-08T01:59:59-05:00", "20260308015959000"),
        ("2026-03-08T03:00:00-04:00", "20260308030000000"),
    ],
)
def test_no_time_of_ours_lies_behind_what_a_clock_that_is_put_back_shows_next(now, time):
    assert next_time(epoch_ms(now), None, NEW_YORK) == time


def test_a_change_by_half_an_hour_is_no_different():
    lord_howe = ZoneInfo("Australia/Lord_Howe")

    assert next_time(epoch_ms("2026-04-05T01:45:00+11:00"), None, lord_howe) == "20260405012959000"
    assert next_time(epoch_ms("2026-04-05T01:45:00+10:30"), None, lord_howe) == "20260405014500000"


def test_a_time_that_a_clock_shows_twice_is_the_first_of_both():
    assert moment_of(instant_time("20261101013000000"), NEW_YORK).isoformat() == "2026-11-01T05:30:00+00:00"


def test_the_next_time_after_one_knows_no_zone():
    assert just_after(instant_time("20260308015959999")) == "20260308020000000"
    assert just_after(instant_time("20261231235959")) == "20270101000000000"


@pytest.mark.parametrize(
    "text", ["", "2024", "2024070700130155x", "202407070013015541", "２０２４０７０７００１３０１５５４"]
)
def test_what_is_not_an_instant_time_is_refused(text):
    with pytest.raises(ValueError, match="not an instant time"):
        instant_time(text)
