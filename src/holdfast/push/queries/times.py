"""Pinot's functions of time, written for DuckDB. Everything is in UTC unless a zone is named."""

import re
from collections.abc import Callable, Mapping

from holdfast.config.push_schema import DataType
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.typed import Typed, as_long, as_millis, as_text, as_timestamp, text_literal

Arguments = tuple[Typed, ...]

_UNIT_MS: Mapping[str, int] = {
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}
_TRUNCATED_TO = frozenset(
    {"millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"}
)
_ZONE = re.compile(r"[A-Za-z0-9_+\-/:]{1,64}")
_PERIOD = re.compile(
    r"(-)?P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def now(_arguments: Arguments) -> Typed:
    return Typed("epoch_ms(CAST(get_current_timestamp() AS TIMESTAMP))", DataType.LONG)


def ago(arguments: Arguments) -> Typed:
    """Milliseconds at a moment that lies an ISO 8601 duration back."""
    match = _PERIOD.fullmatch(_word(arguments[0], "duration"))
    if match is None or not any(match.groups()[1:]):
        raise QueryFailed(
            QueryError.QUERY_VALIDATION, "not an ISO 8601 duration", found=arguments[0].sql[:60]
        )
    weeks, days, hours, minutes = (int(part or 0) for part in match.groups()[1:5])
    seconds = float(match[6] or 0)
    span = round(((weeks * 7 + days) * 24 + hours) * 3_600_000 + minutes * 60_000 + seconds * 1000)
    return Typed(f"({now(()).sql} - {-span if match[1] else span})", DataType.LONG)


def date_trunc(arguments: Arguments) -> Typed:
    """DATETRUNC(unit, time, input unit, zone, output unit)."""
    unit = _word(arguments[0], "unit").lower()
    if unit not in _TRUNCATED_TO:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a unit of time", found=unit[:40])
    scale = _scale(arguments[2]) if len(arguments) > 2 else 1
    out = _scale(arguments[4]) if len(arguments) > 4 else scale
    moment = as_timestamp(arguments[1])
    if scale != 1:
        moment = f"epoch_ms({_times(as_millis(arguments[1]), scale)})"
    zone = _zone(arguments[3]) if len(arguments) > 3 else "UTC"
    if zone == "UTC":
        cut = f"epoch_ms(date_trunc('{unit}', {moment}))"
    else:
        local = f"timezone('{zone}', CAST({moment} AS TIMESTAMPTZ))"
        cut = f"epoch_ms(timezone('{zone}', date_trunc('{unit}', {local})))"
    return Typed(_divide(cut, out), DataType.LONG)


def to_date_time(arguments: Arguments) -> Typed:
    """TODATETIME(millis, pattern, zone)."""
    pattern = strftime_pattern(_word(arguments[1], "pattern"))
    moment = as_timestamp(arguments[0])
    zone = _zone(arguments[2]) if len(arguments) > 2 else "UTC"
    if zone == "UTC":
        pattern = pattern.replace(_OFFSET, "+0000").replace(_ZONE_NAME, "UTC")
        return Typed(f"strftime({moment}, {text_literal(pattern)})", DataType.STRING)
    if _ZONE_NAME in pattern:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION, "the short name of a time zone is not known", zone=zone, hint="use Z"
        )
    local = f"timezone('{zone}', CAST({moment} AS TIMESTAMPTZ))"
    pieces = (
        f"strftime({local}, {text_literal(piece)})" if piece else "''" for piece in pattern.split(_OFFSET)
    )
    minutes = f"CAST(round((epoch_ms({local}) - epoch_ms({moment})) / 60000) AS BIGINT)"
    offset = (
        f"(CASE WHEN {minutes} < 0 THEN '-' ELSE '+' END || "
        f"lpad(CAST(abs({minutes}) // 60 * 100 + abs({minutes}) % 60 AS VARCHAR), 4, '0'))"
    )
    return Typed(f"({f' || {offset} || '.join(pieces)})", DataType.STRING)


def from_date_time(arguments: Arguments) -> Typed:
    """FROMDATETIME(text, pattern, zone, default)."""
    written = strftime_pattern(_word(arguments[1], "pattern")).replace(_ZONE_NAME, "UTC")
    pattern = text_literal(written.replace(_OFFSET, "%z"))
    moment = f"strptime({as_text(arguments[0])}, {pattern})"
    if _OFFSET in written:
        # The text says itself which moment it is.
        return Typed(f"epoch_ms({moment})", DataType.LONG)
    if len(arguments) > 2 and _zone(arguments[2]) != "UTC":
        moment = f"timezone('{_zone(arguments[2])}', {moment})"
    return Typed(f"epoch_ms({moment})", DataType.LONG)


def date_time_convert(arguments: Arguments) -> Typed:
    """DATETIMECONVERT(time, input format, output format, granularity)."""
    moment = _read(arguments[0], _word(arguments[1], "format"))
    size, unit = _granularity(_word(arguments[3], "granularity"))
    cut = f"(({moment} // {size * unit}) * {size * unit})" if size * unit > 1 else moment
    return _format_millis(cut, _word(arguments[2], "format"))


def time_convert(arguments: Arguments) -> Typed:
    """TIMECONVERT(time, 'SECONDS', 'DAYS')."""
    return Typed(
        _divide(_times(as_long(arguments[0]), _scale(arguments[1])), _scale(arguments[2])), DataType.LONG
    )


def add(arguments: Arguments) -> Typed:
    unit = _interval_unit(arguments[0])
    moved = f"({as_timestamp(arguments[2])} + to_{unit}s({_count(unit, arguments[1])}))"
    return Typed(f"epoch_ms({moved})", DataType.LONG)


def difference(arguments: Arguments) -> Typed:
    """Whole units from the first moment to the second."""
    unit = _interval_unit(arguments[0])
    return Typed(
        f"date_sub('{unit}', {as_timestamp(arguments[1])}, {as_timestamp(arguments[2])})", DataType.LONG
    )


def part(name: str, moment: Typed, zone: str = "UTC") -> Typed:
    """EXTRACT(name FROM moment) and the functions of that name."""
    duck = _PARTS.get(name.lower().replace("_", ""))
    if duck is None:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a part of a time", found=name[:40])
    local = as_timestamp(moment)
    if zone != "UTC":
        local = f"timezone('{zone}', CAST({local} AS TIMESTAMPTZ))"
    sql = f"date_part('{duck}', {local})"
    if duck == "millisecond":
        sql = f"({sql} % 1000)"
    return Typed(f"CAST({sql} AS INTEGER)", DataType.INT)


_PARTS: Mapping[str, str] = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "monthofyear": "month",
    "week": "week",
    "weekofyear": "week",
    "day": "day",
    "dayofmonth": "day",
    "dayofweek": "isodow",
    "dow": "isodow",
    "dayofyear": "doy",
    "doy": "doy",
    "yearofweek": "isoyear",
    "yow": "isoyear",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
}


def _part_rule(name: str) -> Callable[[Arguments], Typed]:
    return lambda arguments: part(name, arguments[0], _zone(arguments[1]) if len(arguments) > 1 else "UTC")


def _to_epoch(unit_ms: int) -> Callable[[Arguments], Typed]:
    return lambda arguments: Typed(_divide(as_millis(arguments[0]), unit_ms), DataType.LONG)


def _from_epoch(unit_ms: int) -> Callable[[Arguments], Typed]:
    return lambda arguments: Typed(_times(as_long(arguments[0]), unit_ms), DataType.LONG)


def _to_bucket(unit_ms: int) -> Callable[[Arguments], Typed]:
    return lambda arguments: Typed(
        f"({_divide(as_millis(arguments[0]), unit_ms)} // {as_long(arguments[1])})", DataType.LONG
    )


def _to_rounded(unit_ms: int) -> Callable[[Arguments], Typed]:
    return lambda arguments: Typed(
        f"({_to_bucket(unit_ms)(arguments).sql} * {as_long(arguments[1])})", DataType.LONG
    )


def _from_bucket(unit_ms: int) -> Callable[[Arguments], Typed]:
    return lambda arguments: Typed(
        _times(f"({as_long(arguments[0])} * {as_long(arguments[1])})", unit_ms), DataType.LONG
    )


_EPOCH_UNITS = {unit: size for unit, size in _UNIT_MS.items() if unit != "MILLISECONDS"}
PART_RULES = {name: _part_rule(name) for name in _PARTS}
EPOCH_RULES = {
    **{f"toepoch{unit.lower()}": _to_epoch(size) for unit, size in _EPOCH_UNITS.items()},
    **{f"fromepoch{unit.lower()}": _from_epoch(size) for unit, size in _EPOCH_UNITS.items()},
}
BUCKET_RULES = {
    **{f"toepoch{unit.lower()}bucket": _to_bucket(size) for unit, size in _EPOCH_UNITS.items()},
    **{f"toepoch{unit.lower()}rounded": _to_rounded(size) for unit, size in _EPOCH_UNITS.items()},
    **{f"fromepoch{unit.lower()}bucket": _from_bucket(size) for unit, size in _EPOCH_UNITS.items()},
}

_OFFSET, _ZONE_NAME = "\x01", "\x02"
"""What stands in a pattern for the offset of its zone, and for its name; no text of a pattern has them."""
_LETTERS: Mapping[str, str] = {
    "yyyy": "%Y", "YYYY": "%Y", "y": "%Y", "yy": "%y", "M": "%-m", "MM": "%m", "MMM": "%b", "MMMM": "%B",
    "d": "%-d", "dd": "%d", "D": "%-j", "DDD": "%j", "H": "%-H", "HH": "%H", "h": "%-I", "hh": "%I",
    "m": "%-M", "mm": "%M", "s": "%-S", "ss": "%S", "SSS": "%g", "a": "%p", "E": "%a", "EEE": "%a",
    "EEEE": "%A", "Z": _OFFSET, "z": _ZONE_NAME, "xxxx": "%G", "ww": "%V", "e": "%u",
}  # fmt: skip
_PATTERN_PIECE = re.compile(r"'((?:[^']++|'')*+)'|([A-Za-z])\2*|[^A-Za-z']")


def strftime_pattern(pattern: str) -> str:
    """A Java date pattern in the letters of strftime."""
    pieces: list[str] = []
    at = 0
    while at < len(pattern):
        match = _PATTERN_PIECE.match(pattern, at)
        if match is None:
            raise _bad_pattern(pattern)
        at = match.end()
        if match[1] is not None:
            pieces.append((match[1].replace("''", "'") or "'").replace("%", "%%"))
        elif match[2] is None:
            pieces.append(match[0].replace("%", "%%"))
        elif match[0] in _LETTERS:
            pieces.append(_LETTERS[match[0]])
        else:
            raise _bad_pattern(pattern)
    return "".join(pieces)


def _bad_pattern(pattern: str) -> QueryFailed:
    return QueryFailed(QueryError.QUERY_VALIDATION, "the date pattern is not supported", pattern=pattern[:60])


def _read(value: Typed, form: str) -> str:
    """Milliseconds from a value in one of Pinot's date time formats."""
    size, unit, pattern = _format(form)
    if pattern is None:
        return _times(as_millis(value), size * unit)
    return from_date_time((value, Typed("", DataType.STRING, literal=pattern))).sql


def _format_millis(millis: str, form: str) -> Typed:
    size, unit, pattern = _format(form)
    if pattern is None:
        return Typed(_divide(millis, size * unit), DataType.LONG)
    moment = Typed(millis, DataType.LONG)
    return to_date_time((moment, Typed("", DataType.STRING, literal=pattern)))


def _format(form: str) -> tuple[int, int, str | None]:
    """`1:DAYS:EPOCH`, `1:DAYS:SIMPLE_DATE_FORMAT:yyyyMMdd`, or the newer order with `|`."""
    if "|" in form or form.upper() in ("EPOCH", "TIMESTAMP"):
        kind, *rest = form.split("|")
        if kind.upper() == "SIMPLE_DATE_FORMAT":
            return 1, 1, rest[0] if rest else "yyyy-MM-dd"
        if kind.upper() == "TIMESTAMP":
            return 1, 1, None
        unit = rest[0] if rest else "MILLISECONDS"
        return (int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else 1), _unit_ms(unit), None
    pieces = form.split(":", 3)
    if len(pieces) < 3 or not pieces[0].isdigit():
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a date time format", found=form[:60])
    if pieces[2].upper() == "SIMPLE_DATE_FORMAT" and len(pieces) == 4:
        return int(pieces[0]), 1, pieces[3]
    return int(pieces[0]), _unit_ms(pieces[1]), None


def _granularity(text: str) -> tuple[int, int]:
    size, _, unit = text.partition(":")
    if not size.isdigit() or int(size) < 1:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a granularity", found=text[:60])
    return int(size), _unit_ms(unit)


def _interval_unit(value: Typed) -> str:
    unit = _word(value, "unit").lower().rstrip("s")
    if unit not in _TRUNCATED_TO:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a unit of time", found=unit[:40])
    return unit


def _count(unit: str, value: Typed) -> str:
    return f"CAST({value.sql} AS {'DOUBLE' if unit in ('second', 'millisecond') else 'INTEGER'})"


def _scale(value: Typed) -> int:
    return _unit_ms(_word(value, "unit"))


def _unit_ms(unit: str) -> int:
    size = _UNIT_MS.get(unit.upper())
    if size is None:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a unit of time", found=unit[:40])
    return size


def _zone(value: Typed) -> str:
    zone = _word(value, "time zone")
    if not _ZONE.fullmatch(zone):
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a time zone", found=zone[:60])
    return zone


def _word(value: Typed, what: str) -> str:
    """A text that must be written out in the statement."""
    if not isinstance(value.literal, str):
        raise QueryFailed(QueryError.QUERY_VALIDATION, f"the {what} must be a text in quotes")
    return value.literal


def _times(sql: str, factor: int) -> str:
    return sql if factor == 1 else f"({sql} * {factor})"


def _divide(sql: str, divisor: int) -> str:
    return sql if divisor == 1 else f"({sql} // {divisor})"
