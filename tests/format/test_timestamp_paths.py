import datetime as dt
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.config.timestamps import TimestampSettings
from holdfast.errors import InvalidRequest
from holdfast.format.timestamp_paths import timestamp_texts

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ZONES = [
    "UTC",
    "GMT+8:00",
    "GMT-0330",
    "America/New_York",
    "Europe/Berlin",
    "Asia/Kathmandu",
    "Europe/Amsterdam",
]
HOUR_MS = 3_600_000


def timestamps(**given):
    return TimestampSettings.from_properties(
        {"hoodie.keygen.timebased." + name.replace("_", "."): value for name, value in given.items()}
    )


def numbers(kind, output="yyyy-MM-dd hh", **more):
    return timestamps(timestamp_type=kind, output_dateformat=output, **more)


def texts(formats, output="yyyyMMddHH", **more):
    return timestamps(
        timestamp_type="DATE_STRING", input_dateformat=formats, output_dateformat=output, **more
    )


def one(value, how, kind=None):
    return timestamp_texts("ts", pa.array([value], kind), how)[0].as_py()


ISO = "yyyy-MM-dd'T'HH:mm:ssZ,yyyy-MM-dd'T'HH:mm:ss.SSSZ"


@pytest.mark.parametrize(
    ("value", "how", "expected"),
    [
        (1578283932000, numbers("EPOCHMILLISECONDS", timezone="GMT+8:00"), "2020-01-06 12"),
        (1578283932000, numbers("EPOCHMILLISECONDS", timezone="GMT"), "2020-01-06 04"),
        (1578283932123456, numbers("EPOCHMICROSECONDS", timezone="GMT+8:00"), "2020-01-06 12"),
        (20000, numbers("SCALAR", timezone="GMT", timestamp_scalar_time_unit="days"), "2024-10-04 12"),
        (18736, numbers("SCALAR", "yyyy-MM-dd", timestamp_scalar_time_unit="DAYS"), "2021-04-19"),
        (1578283932, numbers("UNIX_TIMESTAMP", timezone="GMT"), "2020-01-06 04"),
        (1578283932, numbers("SCALAR", timezone="GMT"), "2020-01-06 04"),
        (1705311000000, numbers("EPOCHMILLISECONDS", "yyyy/MM/dd/HH"), "2024/01/15/09"),
        (
            "2020-01-06 12:12:12",
            texts("yyyy-MM-dd hh:mm:ss", "yyyy-MM-dd hh", timezone="GMT+8:00"),
            "2020-01-06 12",
        ),
        (
            "2020-04-01T13:01:33.428Z",
            texts("yyyy-MM-dd'T'HH:mm:ss.SSSZ", output_timezone="GMT"),
            "2020040113",
        ),
        ("2020-04-01T13:01:33.428Z", texts("yyyy-MM-dd'T'HH:mm:ss.SSSZ"), "2020040113"),
        ("2020-04-01T13:01:33Z", texts(ISO, output_timezone="UTC"), "2020040113"),
        ("2020-04-01T13:01:33-05:00", texts(ISO, output_timezone="UTC"), "2020040118"),
        ("2020-04-01T13:01:33.123-05:00", texts(ISO, output_timezone="UTC"), "2020040118"),
        ("2020-04-01T13:01:33.123-05:00", texts(ISO), "2020040113"),
        (
            "20200401",
            texts(ISO + ",yyyyMMdd", "MM/dd/yyyy", input_timezone="UTC", output_timezone="UTC"),
            "04/01/2020",
        ),
        ("2020-03-21", texts("yyyy-MM-dd", "yyyyMMdd"), "20200321"),
    ],
)
def test_values_become_the_texts_that_hudis_own_tests_expect(value, how, expected):
    assert one(value, how) == expected


@pytest.mark.parametrize(
    ("how", "kind", "expected"),
    [
        (numbers("EPOCHMILLISECONDS", timezone="GMT+8:00"), pa.int64(), "1970-01-01 08"),
        (numbers("SCALAR", timestamp_scalar_time_unit="DAYS"), pa.date32(), "1970-01-02 12"),
        (
            texts("yyyy-MM-dd hh:mm:ss", "yyyy-MM-dd hh:mm:ss", timezone="GMT"),
            pa.string(),
            "1970-01-01 12:00:00",
        ),
        (texts("yyyy-MM-dd"), pa.string(), "1970010100"),
        (texts(ISO, timezone="America/New_York"), pa.string(), "1969123119"),
        (texts("yyyy-MM-dd'T'HH:mmZZ", output_timezone="GMT-5"), pa.string(), "1969123119"),
    ],
)
def test_null_is_the_first_moment_as_hudi_has_it(how, kind, expected):
    assert one(None, how, kind) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy/MM/dd/HH/mm/ss/SSS", "2023/04/05/18/07/08/090"),
        ("y M d H h m s S", "2023 4 5 18 6 7 8 0"),
        ("yy-SS", "23-09"),
        ("YYYY", "2023"),
        ("'year='yyyy/'it''s'/''", "year=2023/it's/'"),
        ("'always'", "always"),
    ],
)
def test_patterns_spell_fields_and_literal_text(pattern, expected):
    moment = dt.datetime(2023, 4, 5, 18, 7, 8, 90_000, tzinfo=dt.UTC)
    value = (moment - EPOCH) // dt.timedelta(milliseconds=1)

    assert one(value, numbers("EPOCHMILLISECONDS", pattern)) == expected


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_680_350_460_123_456], pa.timestamp("us", tz="UTC")),
        pa.array([1_680_350_460_123_456], pa.timestamp("us")),
        pa.array([1_680_350_460_123_456], pa.int64()).dictionary_encode(),
    ],
)
def test_a_timestamp_column_is_read_as_the_microseconds_it_stores(column):
    how = numbers("EPOCHMICROSECONDS", "yyyy/MM/dd/HH")

    assert timestamp_texts("ts", column, how).to_pylist() == ["2023/04/01/12"]


@pytest.mark.parametrize(
    ("column", "how"),
    [
        (pa.array(["2023"]), numbers("EPOCHMILLISECONDS")),
        (pa.array([1]), texts("yyyy")),
        (pa.array([1], pa.timestamp("us")), numbers("EPOCHMILLISECONDS")),
        (pa.array([1], pa.timestamp("us")), texts("yyyy")),
        (pa.array([1], pa.date32()), numbers("UNIX_TIMESTAMP")),
        (pa.array([1.5]), numbers("UNIX_TIMESTAMP")),
        (pa.array([Decimal("1")]), numbers("UNIX_TIMESTAMP")),
        (pa.array([True]), numbers("UNIX_TIMESTAMP")),
    ],
)
def test_a_column_of_another_type_is_refused_and_named_even_without_rows(column, how):
    with pytest.raises(InvalidRequest, match="does not read a column of this type") as refused:
        timestamp_texts("ts", column.slice(1), how)

    assert refused.value.facts["column"] == "ts"
    assert refused.value.facts["type"] == str(column.type)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "2023-02-29",
        "2023-13-01",
        "2023-00-10",
        "2023-04-31",
        "0000-01-01",
        "2023-04-01 ",
        "2023-04-01\n",
        "23x04x01",
        "+2023-04-01",
        "２０２３-04-01",
    ],
)
def test_a_text_that_is_no_date_is_refused_and_shown(value):
    with pytest.raises(InvalidRequest, match=r"a text (fits none|does not name)") as refused:
        timestamp_texts("ts", pa.array(["2023-04-01", value]), texts("yyyy-MM-dd"))

    assert refused.value.facts == {"column": "ts", "value": repr(value)}


def test_numbers_may_be_short_unless_another_follows_at_once():
    assert one("2023-4-1", texts("yyyy-MM-dd", "yyyyMMdd")) == "20230401"
    assert one("2023-04-01T1:2:3.5z", texts("yyyy-MM-dd't'HH:mm:ss.SSSZ", "HHmmssSSS")) == "010203500"
    assert one("2023-04-01 10:00:00.123456", texts("yyyy-MM-dd HH:mm:ss.SSSSSS", "ssSSS")) == "00123"
    with pytest.raises(InvalidRequest, match="fits none"):
        one("202341", texts("yyyyMMdd"))


def test_the_first_pattern_that_fits_decides_even_if_the_date_does_not_exist():
    both = texts("yyyy-MM-dd;yyyy-dd-MM", input_dateformat_list_delimiter_regex=";|,")

    with pytest.raises(InvalidRequest, match="does not name a day"):
        one("2023-31-12", both)


def test_a_clock_put_back_shows_the_earlier_moment_and_one_put_forward_skips():
    how = texts("yyyy-MM-dd HH:mm", input_timezone="Europe/Berlin", output_timezone="UTC")

    assert one("2024-10-27 02:30", how) == "2024102700"
    with pytest.raises(InvalidRequest, match="skip this time") as refused:
        one("2024-03-31 02:30", how)
    assert refused.value.facts["value"] == "'2024-03-31 02:30'"


def test_what_is_finer_than_a_millisecond_is_cut_off_towards_the_epoch():
    nanos = numbers("SCALAR", "yyyy-MM-dd SSS", timestamp_scalar_time_unit="NANOSECONDS")

    assert one(-999, numbers("EPOCHMICROSECONDS", "yyyy-MM-dd SSS")) == "1970-01-01 000"
    assert one(-1001, numbers("EPOCHMICROSECONDS", "yyyy-MM-dd SSS")) == "1969-12-31 999"
    assert one(-(2**63), nanos) == "1677-09-21 146"


@pytest.mark.parametrize(
    ("value", "how"),
    [
        (253_402_300_800_000, numbers("EPOCHMILLISECONDS")),
        (-62_135_596_800_001, numbers("EPOCHMILLISECONDS")),
        (2**62, numbers("UNIX_TIMESTAMP")),
        (-(2**63), numbers("SCALAR", timestamp_scalar_time_unit="DAYS")),
        (253_402_300_799_999, numbers("EPOCHMILLISECONDS", timezone="GMT+1")),
        ("9999-12-31T23:00-02:00", texts("yyyy-MM-dd'T'HH:mmZ", timezone="UTC")),
    ],
)
def test_moments_outside_the_years_1_to_9999_are_refused(value, how):
    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        one(value, how)


def test_a_million_moments_of_a_day_are_spelled_once_per_hour():
    column = pa.array(np.random.default_rng(7).integers(0, 86_400_000, 1_000_000))

    found = timestamp_texts("ts", column, numbers("EPOCHMILLISECONDS", "yyyy/MM/dd/HH"))

    assert len(found) == 1_000_000
    assert sorted(found.dictionary.to_pylist()) == [f"1970/01/01/{hour:02}" for hour in range(24)]
    assert found[123].as_py() == f"1970/01/01/{column[123].as_py() // HOUR_MS:02}"


def spelled(moment, letters):
    half = (moment.hour - 1) % 12 + 1
    fields = {
        "yyyy": f"{moment.year:04}", "yy": f"{moment.year % 100:02}", "MM": f"{moment.month:02}",
        "M": f"{moment.month}", "dd": f"{moment.day:02}", "HH": f"{moment.hour:02}", "hh": f"{half:02}",
        "mm": f"{moment.minute:02}", "ss": f"{moment.second:02}", "SSS": f"{moment.microsecond // 1000:03}",
    }  # fmt: skip
    return "/".join(fields[letter] for letter in letters)


def zone_of(settings_zone):
    fixed = {
        "GMT+8:00": dt.timezone(dt.timedelta(hours=8)),
        "GMT-0330": dt.timezone(-dt.timedelta(minutes=210)),
    }
    return fixed.get(settings_zone) or ZoneInfo(settings_zone)


LETTERS = st.lists(
    st.sampled_from(["yyyy", "yy", "MM", "M", "dd", "HH", "hh", "mm", "ss", "SSS"]), min_size=1, max_size=6
)
# Away from the ends, so that no zone leaves the years of Python's datetime.
MOMENTS = st.integers(-60_000_000_000_000, 250_000_000_000_000)


@settings(max_examples=300)
@given(st.lists(st.one_of(MOMENTS, st.none()), max_size=8), LETTERS, st.sampled_from(ZONES))
@example([1_729_990_800_000, 1_729_994_400_000, -1_000_000_000_000], ["HH", "mm"], "Europe/Berlin")
@example([-1_100_000_000_000], ["HH", "mm", "ss"], "Europe/Amsterdam")
@example([3_445_829_999_999, 3_445_830_000_000], ["HH"], "America/New_York")
def test_numbers_are_spelled_as_pythons_datetime_would(values, letters, zone):
    how = numbers("EPOCHMILLISECONDS", "/".join(letters), timezone=zone)

    found = timestamp_texts("ts", pa.array([0, *values], pa.int64()).slice(1), how)

    moments = [EPOCH + dt.timedelta(milliseconds=1 if ms is None else ms) for ms in values]
    assert found.to_pylist() == [spelled(moment.astimezone(zone_of(zone)), letters) for moment in moments]
    assert len(set(found.dictionary.to_pylist())) == len(found.dictionary)


@pytest.mark.parametrize("change", ["2024-03-31T01:00:00", "2024-10-27T01:00:00", "2079-03-26T01:00:00"])
def test_the_offset_changes_at_the_very_millisecond(change):
    moment = dt.datetime.fromisoformat(change + "+00:00")
    around = [(moment - EPOCH) // dt.timedelta(milliseconds=1) + step for step in (-1, 0, 1)]

    found = timestamp_texts(
        "ts", pa.array(around), numbers("EPOCHMILLISECONDS", "HHmm", timezone="Europe/Berlin")
    )

    before, after = ("0159", "0300") if "-03-" in change else ("0259", "0200")
    assert found.to_pylist() == [before, after, after]


OFFSETS = st.integers(-18 * 60, 18 * 60)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(MOMENTS, st.one_of(OFFSETS, st.none())), max_size=8),
    LETTERS,
    st.one_of(st.none(), st.sampled_from(ZONES)),
    st.one_of(st.none(), st.sampled_from(ZONES)),
)
def test_texts_are_read_and_spelled_as_pythons_datetime_would(values, letters, input_zone, output_zone):
    zones = {"input_timezone": input_zone, "output_timezone": output_zone}
    how = texts(
        "yyyy-MM-dd'T'HH:mm:ss.SSS,yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        "/".join(letters),
        **{name: zone for name, zone in zones.items() if zone},
    )
    inputs, expected = [], []
    for ms, offset in values:
        wall = (EPOCH + dt.timedelta(milliseconds=ms)).replace(tzinfo=None)
        zone = zone_of(input_zone or "UTC") if offset is None else dt.timezone(dt.timedelta(minutes=offset))
        moment = wall.replace(tzinfo=zone)
        if moment.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None) != wall:
            continue  # Clocks skip this time.
        shown = output_zone or input_zone
        expected.append(spelled(moment.astimezone(zone_of(shown)) if shown else moment, letters))
        inputs.append(f"{wall.isoformat(timespec='milliseconds')}{'' if offset is None else f'{moment:%z}'}")

    found = timestamp_texts("ts", pa.array(inputs, pa.string()), how)

    assert found.to_pylist() == expected
