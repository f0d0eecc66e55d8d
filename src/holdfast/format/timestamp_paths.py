"""Partition values made from moments: a column of numbers, dates or texts, spelled as dates.

The texts are those of Hudi's timestamp key generator. A moment is an integer
of milliseconds, a wall clock one that is read as if in UTC. Whole columns are
computed with Arrow and numpy; only distinct wall-clock units are spelled.
"""

import datetime as dt
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import TimeUnit
from holdfast.config.date_patterns import DateField, DatePattern
from holdfast.config.timestamps import TYPE, TimestampSettings
from holdfast.errors import InvalidRequest

_Ms = npt.NDArray[np.int64]

_FIRST_MS = -62_135_596_800_000  # 0001-01-01
_LAST_MS = 253_402_300_799_999  # the end of 9999-12-31
_NULL_MS = 1
"""What Hudi takes for null: 1 in the unit of numbers, one millisecond in texts."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND_MS = 1000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_UNIT_MS = {
    TimeUnit.MILLISECONDS: 1,
    TimeUnit.SECONDS: _SECOND_MS,
    TimeUnit.MINUTES: _MINUTE_MS,
    TimeUnit.HOURS: _HOUR_MS,
    TimeUnit.DAYS: _DAY_MS,
}
_UNITS_IN_MS = {TimeUnit.MICROSECONDS: 1000, TimeUnit.NANOSECONDS: 1_000_000}
_UNIT_OF_TIMESTAMP = {"ms": TimeUnit.MILLISECONDS, "us": TimeUnit.MICROSECONDS}
_PRECISION_MS = {"S": 1, "s": _SECOND_MS, "m": _MINUTE_MS, "h": _HOUR_MS, "H": _HOUR_MS}
_OFFSET = "Z|z|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?"
_RANGE = {"y": (1, 9999), "M": (1, 12), "d": (1, 31), "H": (0, 23), "h": (1, 12), "m": (0, 59), "s": (0, 59)}


def timestamp_texts(name: str, column: pa.Array, settings: TimestampSettings) -> pa.DictionaryArray:
    """The column's moments as the output pattern spells them, without nulls.

    `InvalidRequest` for a column of a type that the settings do not read, and
    for a value that is no moment in the years 1 to 9999.
    """
    values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if settings.unit is None:
        return _from_texts(name, values, settings)
    numbers = _numbers(name, values, settings.unit)
    moments = _moments(name, numbers, settings.unit)
    return _spell(name, _wall_clock(moments, settings.output_zone), settings.output_pattern)


def _from_texts(name: str, values: pa.Array, settings: TimestampSettings) -> pa.DictionaryArray:
    kind = values.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise _wrong_type(name, kind, "text, as a date pattern for input is set")
    filled = values.cast(pa.string()).fill_null(_null_text(settings))
    encoded = pc.dictionary_encode(filled)
    wall = _walls_of_texts(name, encoded.dictionary, settings)
    spelled = _spell(name, wall, settings.output_pattern)
    return pa.DictionaryArray.from_arrays(spelled.indices.take(encoded.indices), spelled.dictionary)


def _numbers(name: str, values: pa.Array, unit: TimeUnit) -> npt.NDArray[np.int64]:
    kind = values.type
    if pa.types.is_timestamp(kind):
        # Hudi sees the number that is stored, whatever it counts.
        if _UNIT_OF_TIMESTAMP.get(kind.unit) is not unit:
            raise _wrong_type(name, kind, f"numbers of {unit.lower()}")
    elif pa.types.is_date32(kind):
        if unit is not TimeUnit.DAYS:
            raise _wrong_type(name, kind, f"numbers of {unit.lower()}")
        values = values.cast(pa.int32())
    elif not pa.types.is_signed_integer(kind):
        raise _wrong_type(name, kind, f"numbers of {unit.lower()}")
    numbers: npt.NDArray[np.int64] = values.cast(pa.int64()).fill_null(_NULL_MS).to_numpy()
    return numbers


def _moments(name: str, numbers: npt.NDArray[np.int64], unit: TimeUnit) -> _Ms:
    """The numbers as milliseconds. As in Java, what is finer is cut off towards the epoch."""
    parts = _UNITS_IN_MS.get(unit)
    if parts is None:
        factor = _UNIT_MS[unit]
        # Compared before they are multiplied, which could overflow.
        _check_years(name, numbers, -(-_FIRST_MS // factor), _LAST_MS // factor)
        moments: _Ms = numbers * factor
        return moments
    _check_years(name, numbers, _FIRST_MS * parts, _LAST_MS * parts)
    cut_off: _Ms = numbers // parts + ((numbers < 0) & (numbers % parts != 0))
    return cut_off


def _check_years(name: str, numbers: npt.NDArray[np.int64], first: int, last: int) -> None:
    if not len(numbers):
        return
    for extreme in (int(numbers.min()), int(numbers.max())):
        if not first <= extreme <= last:
            raise InvalidRequest(
                "a moment in a partition must lie in the years 1 to 9999", column=name, value=extreme
            )


def _wall_clock(moments: _Ms, zone: dt.tzinfo | None) -> _Ms:
    """What clocks in the zone, or in UTC, show at the moments."""
    if isinstance(zone, ZoneInfo):
        return moments + _offsets(moments, zone)
    return moments + _constant_offset_ms(zone)


def _moments_of_walls(wall: _Ms, zone: dt.tzinfo | None) -> tuple[_Ms, npt.NDArray[np.bool_]]:
    """When clocks in the zone show these times, and where they never do.

    Of the two moments at which a clock shows a time when it is put back, the earlier.
    """
    if not isinstance(zone, ZoneInfo):
        return wall - _constant_offset_ms(zone), np.zeros(len(wall), dtype=np.bool_)
    # No zone is a day away from UTC, so these are the offsets before and after any change nearby.
    earlier, later = (wall - _offsets(wall + day_ms, zone) for day_ms in (-_DAY_MS, _DAY_MS))
    moments = np.where(_wall_clock(earlier, zone) == wall, earlier, later)
    return moments, _wall_clock(moments, zone) != wall


def _offsets(moments: _Ms, zone: ZoneInfo) -> _Ms:
    """How far clocks in the zone are ahead of UTC. Looked up once per distinct day.

    Not by Arrow, which knows no summer times after 2037.
    """
    days = pc.dictionary_encode(pa.array(moments // _DAY_MS))
    of_days = np.array([_offsets_of_day(day, zone) for day in days.dictionary.to_pylist()], dtype=np.int64)
    before, change, after = of_days.reshape(-1, 3)[days.indices.to_numpy()].T
    offsets: _Ms = np.where(moments < change, before, after)
    return offsets


def _offsets_of_day(day: int, zone: ZoneInfo) -> tuple[int, int, int]:
    """The offset in which a day of UTC begins, when it changes, and that in which the day ends."""
    start, end = day * _DAY_MS, (day + 1) * _DAY_MS
    before, after = _offset_ms(start, zone), _offset_ms(end, zone)
    if before == after:
        return before, start, after
    while end - start > 1:
        middle = (start + end) // 2
        if _offset_ms(middle, zone) == before:
            start = middle
        else:
            end = middle
    return before, end, after


def _offset_ms(moment: int, zone: ZoneInfo) -> int:
    # Python's datetime ends where the years do; nothing changes in the days before.
    inside = min(max(moment, _FIRST_MS + 2 * _DAY_MS), _LAST_MS - 2 * _DAY_MS)
    offset = (_EPOCH + dt.timedelta(milliseconds=inside)).astimezone(zone).utcoffset()
    assert offset is not None, "a zone of the database has an offset at every moment"
    return offset // dt.timedelta(milliseconds=1)


def _constant_offset_ms(zone: dt.tzinfo | None) -> int:
    offset = zone.utcoffset(None) if zone else None
    return offset // dt.timedelta(milliseconds=1) if offset else 0


def _spell(name: str, wall: _Ms, pattern: DatePattern) -> pa.DictionaryArray:
    """The wall-clock times in the pattern; each is spelled once per unit that the pattern shows."""
    _check_years(name, wall, _FIRST_MS, _LAST_MS)
    letters = [part.letter for part in pattern if isinstance(part, DateField)]
    precision = min((_PRECISION_MS.get(letter, _DAY_MS) for letter in letters), default=_DAY_MS)
    units = pc.dictionary_encode(pa.array(wall // precision))
    moments = pa.array(units.dictionary.to_numpy() * precision).cast(pa.timestamp("ms"))
    texts = pc.dictionary_encode(_texts(moments, pattern, offset=""))
    return pa.DictionaryArray.from_arrays(texts.indices.take(units.indices), texts.dictionary)


def _texts(wall: pa.TimestampArray, pattern: DatePattern, *, offset: str) -> pa.StringArray:
    parts = [pa.repeat("", len(wall))]  # A pattern may consist of texts only.
    for part in pattern:
        if isinstance(part, str):
            parts.append(pa.scalar(part))
        else:
            parts.append(pa.scalar(offset) if part.letter == "Z" else _digits(wall, part))
    return pc.binary_join_element_wise(*parts, pa.scalar(""))


def _digits(wall: pa.TimestampArray, field: DateField) -> pa.StringArray:
    width = field.width
    match field.letter:
        case "y":
            years = pc.year(wall).to_numpy()
            numbers = pa.array(years % 100 if width == 2 else years)
        case "M":
            numbers = pc.month(wall)
        case "d":
            numbers = pc.day(wall)
        case "H":
            numbers = pc.hour(wall)
        case "h":
            hours = pc.hour(wall).to_numpy()
            numbers = pa.array((hours - 1) % 12 + 1)
        case "m":
            numbers = pc.minute(wall)
        case "s":
            numbers = pc.second(wall)
        case _:
            thousandths = pc.utf8_lpad(pc.millisecond(wall).cast(pa.string()), width=3, padding="0")
            return pc.utf8_slice_codeunits(thousandths, 0, width)
    return pc.utf8_lpad(numbers.cast(pa.string()), width=width, padding="0")


def _null_text(settings: TimestampSettings) -> str:
    """What Hudi reads in the place of null: the first moment, spelled in the first input pattern."""
    zone = settings.input_zone or settings.output_zone or dt.UTC
    moment = np.array([_NULL_MS], dtype=np.int64)
    wall = _wall_clock(moment, zone)
    east_ms = int((wall - moment)[0])
    minutes = abs(east_ms) // _MINUTE_MS
    offset = f"{'-' if east_ms < 0 else '+'}{minutes // 60:02}{minutes % 60:02}"
    texts = _texts(pa.array(wall).cast(pa.timestamp("ms")), settings.input_patterns[0], offset=offset)
    text: str = texts[0].as_py()
    return text


def _walls_of_texts(name: str, texts: pa.StringArray, settings: TimestampSettings) -> _Ms:
    """The wall-clock times to be shown for distinct texts."""
    wall = np.zeros(len(texts), dtype=np.int64)
    offsets = np.zeros(len(texts), dtype=np.int64)
    has_offset = np.zeros(len(texts), dtype=np.bool_)
    unread = np.ones(len(texts), dtype=np.bool_)
    for pattern in settings.input_patterns:
        rows = np.flatnonzero(unread)
        found = pc.extract_regex(texts.take(pa.array(rows)), _regex(pattern))
        fits = found.is_valid().to_numpy(zero_copy_only=False)
        rows, found = rows[fits], found.filter(pa.array(fits))
        unread[rows] = False
        wall[rows], is_date = _read_fields(found, pattern)
        _refuse(name, texts, rows[~is_date], "a text does not name a day and time that exist")
        if DateField("Z", 1) in pattern or DateField("Z", 2) in pattern:
            offsets[rows], has_offset[rows] = _read_offsets(found.field("Z")), True
    _refuse(name, texts, np.flatnonzero(unread), "a text fits none of the date patterns for input")
    zone = settings.output_zone or settings.input_zone
    if zone is None:
        return wall
    moments, is_skipped = _moments_of_walls(wall, settings.input_zone)
    _refuse(name, texts, np.flatnonzero(is_skipped & ~has_offset), "clocks in the zone skip this time")
    return _wall_clock(np.where(has_offset, wall - offsets, moments), zone)


def _regex(pattern: DatePattern) -> str:
    """Matches a text in the pattern, with a group per field.

    A number has as few digits as it likes where no other number follows it.
    """
    groups: list[str] = []
    followers: Sequence[DateField | str] = (*pattern[1:], "")
    for part, follower in zip(pattern, followers, strict=True):
        if isinstance(part, str):
            groups.append(f"(?i:{_quote(part)})")
        elif part.letter == "Z":
            groups.append(f"(?P<Z>{_OFFSET})")
        else:
            longest = {"y": 4, "S": part.width}.get(part.letter, 2)
            is_followed = isinstance(follower, DateField) and follower.letter != "Z"
            fewest = (part.width if part.letter == "y" else longest) if is_followed else 1
            most = fewest if is_followed else longest
            groups.append(f"(?P<{part.letter}>[0-9]{{{fewest},{most}}})")
    return r"\A" + "".join(groups) + r"\z"


def _quote(text: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in text)


def _read_fields(found: pa.StructArray, pattern: DatePattern) -> tuple[_Ms, npt.NDArray[np.bool_]]:
    """The wall-clock times of texts that fit the pattern, and which of them exist."""
    values: dict[str, npt.NDArray[np.int64]] = {}
    exists = np.ones(len(found), dtype=np.bool_)
    for letter, (least, greatest) in _RANGE.items():
        if any(isinstance(part, DateField) and part.letter == letter for part in pattern):
            numbers = found.field(letter).cast(pa.int64()).to_numpy()
            exists &= (numbers >= least) & (numbers <= greatest)
            values["H" if letter == "h" else letter] = numbers % 12 if letter == "h" else numbers
    months = (values["y"] - 1970) * 12 + values.get("M", 1) - 1
    days = months.astype("M8[M]").astype("M8[D]") + (values.get("d", 1) - 1)
    exists &= days.astype("M8[M]").astype(np.int64) == months
    wall = days.astype(np.int64) * _DAY_MS
    for letter in ("H", "m", "s"):
        wall += values.get(letter, 0) * _PRECISION_MS[letter]
    if any(isinstance(part, DateField) and part.letter == "S" for part in pattern):
        wall += _thousandths(found.field("S"))
    return wall, exists


def _thousandths(fractions: pa.StringArray) -> npt.NDArray[np.int64]:
    digits = pc.utf8_slice_codeunits(pc.utf8_rpad(fractions, width=3, padding="0"), 0, 3)
    numbers: npt.NDArray[np.int64] = digits.cast(pa.int64()).to_numpy()
    return numbers


def _read_offsets(texts: pa.StringArray) -> _Ms:
    """Milliseconds east of UTC for `Z`, `+02`, `+0200` and `+02:00`."""
    digits = pc.utf8_rpad(pc.replace_substring_regex(texts, "[^0-9]", ""), width=6, padding="0")
    total = np.zeros(len(texts), dtype=np.int64)
    for at, unit_ms in ((0, _HOUR_MS), (2, _MINUTE_MS), (4, _SECOND_MS)):
        total += pc.utf8_slice_codeunits(digits, at, at + 2).cast(pa.int64()).to_numpy() * unit_ms
    is_west = pc.starts_with(texts, "-").to_numpy(zero_copy_only=False)
    return np.where(is_west, -total, total)


def _refuse(name: str, texts: pa.StringArray, rows: npt.NDArray[np.int64], fault: str) -> None:
    if len(rows):
        raise InvalidRequest(fault, column=name, value=repr(texts[int(rows[0])].as_py()))


def _wrong_type(name: str, kind: pa.DataType, wanted: str) -> InvalidRequest:
    return InvalidRequest(
        "the timestamp key generator does not read a column of this type",
        column=name,
        type=str(kind),
        wanted=wanted,
        hint=f"choose another column, or create the table with a {TYPE} that fits this one",
    )
