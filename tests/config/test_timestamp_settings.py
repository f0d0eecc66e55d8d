import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from holdfast.config.choices import TimeUnit
from holdfast.config.date_patterns import DateField
from holdfast.config.timestamps import TimestampSettings, properties_to_store
from holdfast.errors import InvalidOption

PREFIX = "hoodie.keygen.timebased."
FORMATS = {PREFIX + "input.dateformat": "yyyy-MM-dd", PREFIX + "output.dateformat": "yyyy/MM"}
NUMBERS = {PREFIX + "timestamp.type": "UNIX_TIMESTAMP", PREFIX + "output.dateformat": "yyyy"}


def refused(values, match):
    with pytest.raises(InvalidOption, match=match) as found:
        TimestampSettings.from_properties(values)
    return found.value


def test_patterns_are_split_into_fields_and_texts():
    found = TimestampSettings.from_properties(
        NUMBERS | {PREFIX + "output.dateformat": "'day='yyyy-MM''dd'T'"}
    )

    year, month, day = DateField("y", 4), DateField("M", 2), DateField("d", 2)
    assert found.output_pattern == ("day=", year, "-", month, "'", day, "T")


def test_the_old_spelling_is_read_and_the_new_one_wins():
    old = "hoodie.deltastreamer.keygen.timebased."
    values = {old + "timestamp.type": "UNIX_TIMESTAMP", old + "output.dateformat": "MM"}

    assert TimestampSettings.from_properties(values).output_pattern == (DateField("M", 2),)
    assert TimestampSettings.from_properties(values | NUMBERS).output_pattern == (DateField("y", 4),)


def test_formats_without_a_type_concern_texts_as_hudi_stores_them():
    found = TimestampSettings.from_properties(FORMATS)

    assert found.unit is None
    assert len(found.input_patterns) == 1


def test_a_scalar_counts_seconds_unless_told_otherwise():
    scalar = NUMBERS | {PREFIX + "timestamp.type": "SCALAR"}
    hours = scalar | {PREFIX + "timestamp.scalar.time.unit": "hours"}

    assert TimestampSettings.from_properties(scalar).unit is TimeUnit.SECONDS
    assert TimestampSettings.from_properties(hours).unit is TimeUnit.HOURS


def test_the_common_zone_overrides_both_others():
    zones = {PREFIX + "input.timezone": "UTC", PREFIX + "output.timezone": "UTC"}

    found = TimestampSettings.from_properties(NUMBERS | zones | {PREFIX + "timezone": "Asia/Tokyo"})

    assert found.input_zone == found.output_zone == ZoneInfo("Asia/Tokyo")


@pytest.mark.parametrize(
    ("name", "hours"), [("GMT+8", 8), ("GMT+8:00", 8), ("GMT+08:30", 8.5), ("GMT-0530", -5.5), ("GMT+0", 0)]
)
def test_javas_fixed_offsets_are_understood(name, hours):
    found = TimestampSettings.from_properties(NUMBERS | {PREFIX + "timezone": name})

    assert found.output_zone.utcoffset(None) == dt.timedelta(hours=hours)


@pytest.mark.parametrize(
    "zone", ["Europe/Atlantis", "GMT+24", "GMT+1:60", "America", "../UTC", "/etc/localtime", "PST "]
)
def test_an_unknown_zone_is_refused_not_taken_for_utc(zone):
    error = refused(NUMBERS | {PREFIX + "output.timezone": zone}, "time zone is not known")

    assert error.facts["property"] == PREFIX + "output.timezone"


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [
        ("yyyy-MMM", "MMM"),
        ("yyyy-DDD", "DDD"),
        ("yyyy-MM-dd a", "a"),
        ("xxxx-'W'ww", "xxxx"),
        ("yyyyy", "yyyyy"),
        ("yyyyMMdd'T'HHZ", "Z"),
        ("ss.SSSS", "SSSS"),
        ("EEE", "EEE"),
        ("yyyy-MM-ddTHH", "T"),
    ],
)
def test_letters_that_cannot_be_written_for_certain_are_refused_by_name(pattern, letters):
    error = refused(NUMBERS | {PREFIX + "output.dateformat": pattern}, "letters that are not supported")

    assert error.facts["property"] == PREFIX + "output.dateformat"
    assert error.facts["letters"] == letters


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("yyyy-MM-dd'T'HH:mmXXX", "letters that are not supported.*XXX.*write Z"),
        ("MM-dd", "needs a year"),
        ("yy-MM-dd", "four digits"),
        ("yyyy-MM-dd yyyy", "twice"),
        ("yyyy HH hh", "twice"),
        ("yyyy'0'MM", "begin with a digit"),
        ("yyyy-MM-dd'T", "not closed"),
        ("yyyy,,yyyy", "must not be empty"),
    ],
)
def test_a_pattern_that_reads_no_certain_moment_is_refused(pattern, match):
    error = refused(FORMATS | {PREFIX + "input.dateformat": pattern}, match)

    assert error.facts["property"] == PREFIX + "input.dateformat"


@pytest.mark.parametrize("delimiter", ["(", "(,)"])
def test_a_delimiter_must_be_a_plain_regular_expression(delimiter):
    values = FORMATS | {PREFIX + "input.dateformat.list.delimiter.regex": delimiter}

    assert refused(values, "delimiter|regular").facts["property"].endswith("delimiter.regex")


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({PREFIX + "timestamp.type": "UNIX_TIMESTAMP"}, "output.dateformat"),
        ({PREFIX + "output.dateformat": "yyyy"}, "timestamp.type"),
        (NUMBERS | {PREFIX + "timestamp.type": "MIXED"}, "input.dateformat"),
        (NUMBERS | {PREFIX + "timestamp.type": "DATE_STRING"}, "input.dateformat"),
    ],
)
def test_a_missing_property_is_named(values, missing):
    assert refused(values, "needs a property").facts["property"] == PREFIX + missing


@pytest.mark.parametrize(
    ("name", "value"), [("timestamp.type", "EPOCH"), ("timestamp.scalar.time.unit", "fortnights")]
)
def test_unknown_types_and_units_are_refused(name, value):
    values = NUMBERS | {PREFIX + "timestamp.type": "SCALAR"} | {PREFIX + name: value}

    assert refused(values, "cannot be used").facts["property"] == PREFIX + name


def test_a_foreign_date_parser_is_refused():
    name = "hoodie.keygen.datetime.parser.class"
    own = {name: "org.apache.hudi.keygen.parser.HoodieDateTimeParser"}

    assert TimestampSettings.from_properties(NUMBERS | own)
    assert refused(NUMBERS | {name: "com.example.Parser"}, "parser").facts["property"] == name


def test_a_new_table_says_utc_where_hudi_would_take_its_own_zone():
    given_output = {PREFIX + "output.timezone": "Asia/Tokyo"}
    text = FORMATS | {PREFIX + "timestamp.type": "date_string"}

    assert properties_to_store(NUMBERS) == NUMBERS | {PREFIX + "output.timezone": "UTC"}
    in_tokyo = properties_to_store(NUMBERS | {PREFIX + "timezone": "Asia/Tokyo"})
    assert in_tokyo[PREFIX + "timezone"] == "Asia/Tokyo"
    assert properties_to_store(text | given_output)[PREFIX + "input.timezone"] == "UTC"
    assert properties_to_store(text) == FORMATS | {PREFIX + "timestamp.type": "DATE_STRING"}
