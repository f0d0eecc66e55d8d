"""Settings of partition paths made from moments: Hudi's `hoodie.keygen.timebased.*`."""

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from zoneinfo import ZoneInfo

from holdfast.config.choices import TimestampType, TimeUnit
from holdfast.config.date_patterns import DatePattern, input_pattern, output_pattern
from holdfast.config.option import Area
from holdfast.config.option_table import options_of
from holdfast.errors import InvalidOption

_NEW = "hoodie.keygen."
TYPE = _NEW + "timebased.timestamp.type"
UNIT = _NEW + "timebased.timestamp.scalar.time.unit"
INPUT_FORMAT = _NEW + "timebased.input.dateformat"
INPUT_DELIMITER = _NEW + "timebased.input.dateformat.list.delimiter.regex"
INPUT_ZONE = _NEW + "timebased.input.timezone"
OUTPUT_FORMAT = _NEW + "timebased.output.dateformat"
OUTPUT_ZONE = _NEW + "timebased.output.timezone"
ZONE = _NEW + "timebased.timezone"
PARSER = _NEW + "datetime.parser.class"
NAMES = (TYPE, UNIT, INPUT_FORMAT, INPUT_DELIMITER, INPUT_ZONE, OUTPUT_FORMAT, OUTPUT_ZONE, ZONE, PARSER)
NEW_NAMES = {spelling: name for name in NAMES for spelling in reversed(options_of(Area.TABLE)[name].names)}
"""Every accepted spelling → the name under which it is stored."""

_PARSER_KNOWN = "org.apache.hudi.keygen.parser.HoodieDateTimeParser"
_JAVA_OFFSET = re.compile(r"GMT([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_OFFSET_HOURS_MAX = 23
_OFFSET_MINUTES_MAX = 59


_UNIT_OF = {
    TimestampType.UNIX_TIMESTAMP: TimeUnit.SECONDS,
    TimestampType.EPOCHMILLISECONDS: TimeUnit.MILLISECONDS,
    TimestampType.EPOCHMICROSECONDS: TimeUnit.MICROSECONDS,
}
_TEXT_TYPES = (TimestampType.DATE_STRING, TimestampType.MIXED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampSettings:
    unit: TimeUnit | None
    """What a number counts since the epoch; None if the moments are texts."""
    input_patterns: tuple[DatePattern, ...] = ()
    """How texts are read: the first that fits one counts."""
    output_pattern: DatePattern
    input_zone: dt.tzinfo | None = None
    """Of texts without an offset. None: UTC."""
    output_zone: dt.tzinfo | None = None
    """None: numbers in UTC, texts in the input zone if there is one, else as they are written."""

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> Self:
        """Read the settings, in either spelling; `InvalidOption` names the property that is wrong.

        Hudi does not always store the type. With a format for input it can
        only concern texts, which both types that read texts read alike.
        """
        given = {NEW_NAMES[name]: values[name] for name in NEW_NAMES if name in values}
        if given.get(PARSER, _PARSER_KNOWN) != _PARSER_KNOWN:
            raise InvalidOption("a parser for dates is not supported", property=PARSER, value=given[PARSER])
        if not given.get(OUTPUT_FORMAT):
            raise _missing(OUTPUT_FORMAT)
        unit = _unit(given)
        return cls(
            unit=unit,
            input_patterns=_input_patterns(given) if unit is None else (),
            output_pattern=output_pattern(given[OUTPUT_FORMAT], option=OUTPUT_FORMAT),
            input_zone=_zone(given, ZONE if ZONE in given else INPUT_ZONE),
            output_zone=_zone(given, ZONE if ZONE in given else OUTPUT_ZONE),
        )


def properties_to_store(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new table as they are stored, checked; names are the new ones.

    Where Hudi would take the zone of its own process, UTC is written down.
    """
    if not given.get(TYPE):
        raise _missing(TYPE)
    settings = TimestampSettings.from_properties(given)
    stored = dict(given)
    for name in (TYPE, UNIT):
        if name in stored:
            stored[name] = stored[name].strip().upper()
    if settings.unit is not None and settings.output_zone is None:
        stored[OUTPUT_ZONE] = "UTC"
    elif settings.output_zone is not None and settings.input_zone is None:
        stored[INPUT_ZONE] = "UTC"
    return stored


def _unit(given: Mapping[str, str]) -> TimeUnit | None:
    if not given.get(TYPE):
        if not given.get(INPUT_FORMAT):
            raise _missing(TYPE)
        return None
    kind = options_of(Area.TABLE)[TYPE].parse(given[TYPE])
    if kind in _TEXT_TYPES:
        return None
    if kind is TimestampType.SCALAR:
        option = options_of(Area.TABLE)[UNIT]
        unit: TimeUnit = option.parse(given.get(UNIT) or str(option.default))
        return unit
    return _UNIT_OF[kind]


def _input_patterns(given: Mapping[str, str]) -> tuple[DatePattern, ...]:
    formats = given.get(INPUT_FORMAT)
    if not formats:
        raise _missing(INPUT_FORMAT)
    delimiter = given.get(INPUT_DELIMITER, "").strip() or ","
    try:
        splitter = re.compile(delimiter)
    except re.error as error:
        raise InvalidOption(
            "property is not a regular expression", property=INPUT_DELIMITER, value=repr(delimiter)
        ) from error
    if splitter.groups:
        raise InvalidOption(
            "a delimiter must not have groups", property=INPUT_DELIMITER, value=repr(delimiter)
        )
    return tuple(input_pattern(text.strip(), option=INPUT_FORMAT) for text in splitter.split(formats))


def _zone(given: Mapping[str, str], option: str) -> dt.tzinfo | None:
    """The zone as Java names it: of the time zone database, or an offset such as `GMT+8:00`."""
    name = given.get(option, "")
    if not name.strip():
        return None
    offset = _JAVA_OFFSET.fullmatch(name)
    if offset is not None:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours <= _OFFSET_HOURS_MAX and minutes <= _OFFSET_MINUTES_MAX:
            distance = dt.timedelta(hours=hours, minutes=minutes)
            return dt.timezone(-distance if offset[1] == "-" else distance)
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise InvalidOption(
            "the time zone is not known",
            property=option,
            value=repr(name),
            hint="use a name such as Europe/Berlin, or an offset such as GMT+8:00",
        ) from error


def _missing(option: str) -> InvalidOption:
    return InvalidOption("the timestamp key generator needs a property", property=option)
