"""What the values of a date-time column mean: Pinot's formats, as moments in milliseconds."""

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from holdfast.config.date_patterns import DateField, DatePattern, input_pattern
from holdfast.config.push_schema import DataType, Field
from holdfast.errors import InvalidOption, SchemaMismatch

_UNITS_MS: Mapping[str, int] = {
    "MILLISECONDS": 1, "SECONDS": 1000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000,
}  # fmt: skip
_EPOCH = "EPOCH"
_DATE = "SIMPLE_DATE_FORMAT"
_TIMESTAMP = "TIMESTAMP"
_DIRECTIVES = {
    "y": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "S": "%f", "Z": "%z",
}  # fmt: skip
_LOOKS = {
    "y": "[0-9]{4}", "M": "(0[1-9]|1[0-2])", "d": "(0[1-9]|[12][0-9]|3[01])", "H": "([01][0-9]|2[0-3])",
    "m": "[0-5][0-9]", "s": "[0-5][0-9]", "S": "[0-9]{3}",
}  # fmt: skip
"""Fields from the longest to the shortest, as they look in their full width."""
_WIDTHS = {"y": 4, "S": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFormat:
    unit_ms: int = 1
    """What a number counts."""
    pattern: str = ""
    """How a text is read, as `strptime` does; empty: the values are numbers or timestamps."""
    looks: str = ""
    """How texts look whose order is that of time, as a regular expression; empty: theirs need not be."""
    zone: str = "UTC"

    def ms_of(self, value: object) -> int:
        """When it is; `ValueError` if the value is no moment."""
        if not self.pattern:
            return int(str(value)) * self.unit_ms
        moment = dt.datetime.strptime(str(value), self.pattern)  # noqa: DTZ007  # the zone comes next
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(self.zone))
        return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def time_format(field: Field) -> TimeFormat:
    """The format of a column: `1:DAYS:EPOCH`, `EPOCH|DAYS|1`, `TIMESTAMP` or either with a date pattern.

    A column without one counts milliseconds.
    """
    text = field.format.strip()
    if field.type is DataType.TIMESTAMP or not text or text.upper() == _TIMESTAMP:
        return TimeFormat()
    parts = text.split("|") if "|" in text else text.split(":", 3)
    try:
        return _newer(parts) if "|" in text else _older(parts)
    except (KeyError, ValueError, IndexError, OSError, InvalidOption) as error:
        raise SchemaMismatch(
            "the format of a date-time column is not understood", column=field.name, format=text
        ) from error


def _newer(parts: list[str]) -> TimeFormat:
    """`EPOCH|DAYS|1` or `SIMPLE_DATE_FORMAT|yyyy-MM-dd|UTC`."""
    if parts[0].upper() == _DATE:
        zone = parts[2] if len(parts) > 2 else "UTC"
        return _dates(parts[1], ZoneInfo(zone).key)
    return TimeFormat(unit_ms=_epoch_ms(parts[0], parts[1], parts[2] if len(parts) > 2 else "1"))


def _older(parts: list[str]) -> TimeFormat:
    """`1:DAYS:EPOCH` or `1:DAYS:SIMPLE_DATE_FORMAT:yyyy-MM-dd`."""
    size, unit, kind = parts[:3]
    if kind.upper() == _DATE:
        return _dates(parts[3], "UTC")
    return TimeFormat(unit_ms=_epoch_ms(kind, unit, size))


def _epoch_ms(kind: str, unit: str, size: str) -> int:
    if kind.upper() not in (_EPOCH, _TIMESTAMP) or int(size) < 1:
        raise ValueError("not a count of time")
    return int(size) * _UNITS_MS[unit.upper()]


def _dates(written: str, zone: str) -> TimeFormat:
    pattern = input_pattern(written, option="format")
    directives = "".join(
        _DIRECTIVES[part.letter] if isinstance(part, DateField) else part.replace("%", "%%")
        for part in pattern
    )
    return TimeFormat(pattern=directives, looks=_looks(pattern), zone=zone)


def _looks(pattern: DatePattern) -> str:
    """How texts look that sort as time does: each field in its full width, the longest first."""
    fields = [part for part in pattern if isinstance(part, DateField)]
    letters = [field.letter for field in fields]
    is_sorted = letters == [letter for letter in _LOOKS if letter in letters]
    if not is_sorted or any(field.width != _WIDTHS.get(field.letter, 2) for field in fields):
        return ""
    looks = (_LOOKS[part.letter] if isinstance(part, DateField) else re.escape(part) for part in pattern)
    return "".join(looks)
