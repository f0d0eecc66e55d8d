"""What the values of a date-time column mean: Pinot's formats, as moments in milliseconds."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from holdfast.config.date_patterns import DateField, input_pattern
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFormat:
    unit_ms: int = 1
    """What a number counts."""
    pattern: str = ""
    """How a text is read, as `strptime` does; empty: the values are numbers or timestamps."""
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
        return TimeFormat(pattern=_strptime(parts[1]), zone=ZoneInfo(zone).key)
    return TimeFormat(unit_ms=_epoch_ms(parts[0], parts[1], parts[2] if len(parts) > 2 else "1"))


def _older(parts: list[str]) -> TimeFormat:
    """`1:DAYS:EPOCH` or `1:DAYS:SIMPLE_DATE_FORMAT:yyyy-MM-dd`."""
    size, unit, kind = parts[:3]
    if kind.upper() == _DATE:
        return TimeFormat(pattern=_strptime(parts[3]))
    return TimeFormat(unit_ms=_epoch_ms(kind, unit, size))


def _epoch_ms(kind: str, unit: str, size: str) -> int:
    if kind.upper() not in (_EPOCH, _TIMESTAMP) or int(size) < 1:
        raise ValueError("not a count of time")
    return int(size) * _UNITS_MS[unit.upper()]


def _strptime(pattern: str) -> str:
    parts = input_pattern(pattern, option="format")
    return "".join(
        _DIRECTIVES[part.letter] if isinstance(part, DateField) else part.replace("%", "%%") for part in parts
    )
