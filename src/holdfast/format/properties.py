"""Properties: the text format of `hoodie.properties`, as Java reads and writes it.

Knows the syntax, and of the keys only those without which a table cannot be
opened. What the values mean is decided elsewhere.
"""

import datetime as dt
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence

from holdfast.format.malformed import Malformed

NAME = "hoodie.table.name"
TYPE = "hoodie.table.type"
VERSION = "hoodie.table.version"
DATABASE = "hoodie.database.name"
CHECKSUM = "hoodie.table.checksum"

SEALS = "holdfast.table.seals"
"""Our checksums of the values that stay the same for a table's life; Hudi's covers the two names only."""

_SEALED = (
    "hoodie.archivelog.folder",
    "hoodie.compaction.payload.class",
    "hoodie.populate.meta.fields",
    "hoodie.table.base.file.format",
    "hoodie.table.cdc.enabled",
    "hoodie.table.create.schema",
    "hoodie.table.recordkey.fields",
    "hoodie.table.timeline.timezone",
    TYPE,
    VERSION,
)
_SEALED_PREFIXES = (
    "hoodie.datasource.write.",
    "hoodie.keygen.",
    "hoodie.table.keygenerator.",
    "hoodie.table.partition.",
)
_ORDERING = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
"""Two names of one thing: Hudi from 1.1 on writes the first in place of the second."""

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_LINE_END = re.compile(r"\r\n|\r|\n")
_ENTRY = re.compile(r"(?P<key>(?:[^\\=: \t\f]++|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<unit>[0-9A-Fa-f]{4})|(?P<other>.))", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_PLAIN = re.compile(r"[\\=:#!]|[^ -~]")
_CHECKSUM_TEXT = re.compile(r"[0-9]{1,10}")
_SAVED_AT = re.compile(rb"#[A-Za-z ]* (?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.\d]*Z")

_BLANKS = " \t\f"
_CONTROL_BY_LETTER = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LETTER_BY_CONTROL = {control: letter for letter, control in _CONTROL_BY_LETTER.items()}


def parse_properties(content: bytes) -> dict[str, str]:
    """The keys and values of a properties text; of a key given twice, the last value."""
    values: dict[str, str] = {}
    for line in _logical_lines(content.decode("iso-8859-1")):
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "the last group takes whatever the others leave"
        values[_unescape(entry["key"])] = _unescape(entry["value"])
    return values


def render_properties(values: Mapping[str, str], *, comments: Sequence[str]) -> bytes:
    """The text of the values, in their order, below one line per comment."""
    lines = [f"#{line}" for comment in comments for line in comment.splitlines()]
    lines += [f"{_escape_key(key)}={_escape_value(value)}" for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii", "backslashreplace")


def table_checksum(values: Mapping[str, str]) -> int:
    """The checksum Hudi expects beside these values: it covers the two names only."""
    return zlib.crc32(f"{values.get(DATABASE, '')}.{values[NAME]}".encode())


def decode_table_properties(content: bytes) -> dict[str, str]:
    """The values of a `hoodie.properties` that is fit to open a table with."""
    if not content.strip():
        raise Malformed("the table properties are empty")
    values = parse_properties(content)
    for key in (NAME, TYPE, VERSION):
        if not values.get(key):
            raise Malformed(f"the table properties lack {key}")
    stored = values.get(CHECKSUM)
    expected = table_checksum(values)
    if stored is not None and not (_CHECKSUM_TEXT.fullmatch(stored) and int(stored) == expected):
        raise Malformed(f"the table checksum is {stored!r}, but the names give {expected}")
    _check_seals(values)
    return values


def is_sealed(values: Mapping[str, str]) -> bool:
    """Whether our checksums are among the values."""
    return bool(values.get(SEALS))


def _seals(values: Mapping[str, str]) -> dict[str, str]:
    """The checksum of each value that must not change. What Hudi adds later is not among them."""
    kept = {key: value for key, value in values.items() if key in _SEALED or key.startswith(_SEALED_PREFIXES)}
    ordering = next((values[key] for key in _ORDERING if values.get(key)), None)
    if ordering is not None:
        kept[_ORDERING[0]] = ordering
    return {key: f"{zlib.crc32(f'{key}={value}'.encode()):08x}" for key, value in sorted(kept.items())}


def _check_seals(values: Mapping[str, str]) -> None:
    pairs = (seal.partition("@") for seal in values.get(SEALS, "").split(",") if seal)
    sealed = {key: checksum for key, _, checksum in pairs}
    now = _seals(values)
    if sealed.get(VERSION) != now[VERSION]:
        return  # Another program upgraded the table, and rewrote what it liked.
    for key, checksum in sealed.items():
        if now.get(key) != checksum:
            raise Malformed(f"{key} is not what it was, or {SEALS} was changed")


def encode_table_properties(values: Mapping[str, str], *, moment: dt.datetime) -> bytes:
    """The `hoodie.properties` of these values, with fresh checksums.

    The version comes last: a text cut off anywhere then lacks a key that no
    table can be opened without, and is noticed.
    """
    ordered = {key: values[key] for key in sorted(values) if key not in (CHECKSUM, SEALS, VERSION)}
    ordered[SEALS] = ",".join(f"{key}@{checksum}" for key, checksum in _seals(values).items())
    ordered[CHECKSUM] = str(table_checksum(values))
    ordered[VERSION] = values[VERSION]
    saved = f"Properties saved on {_java_instant(moment)}"
    return render_properties(ordered, comments=(saved, java_date(moment)))


def find_saved_at(content: bytes) -> dt.datetime | None:
    """When the properties were saved, as their first comment says it; None if it says nothing of the kind."""
    said = _SAVED_AT.match(content)
    if said is None:
        return None
    try:
        return dt.datetime.fromisoformat(f"{said['second'].decode()}+00:00")
    except ValueError:
        return None


def java_date(moment: dt.datetime) -> str:
    """A moment in the form of the date line that Java puts above properties."""
    utc = moment.astimezone(dt.UTC)
    day, month = _DAYS[utc.weekday()], _MONTHS[utc.month - 1]
    return f"{day} {month} {utc:%d %H:%M:%S} UTC {utc:%Y}"


def _java_instant(moment: dt.datetime) -> str:
    utc = moment.astimezone(dt.UTC).replace(tzinfo=None)
    if utc.microsecond % 1000:
        return utc.isoformat(timespec="microseconds") + "Z"
    return utc.isoformat(timespec="milliseconds" if utc.microsecond else "seconds") + "Z"


def _logical_lines(text: str) -> Iterator[str]:
    """Entries, each on one line: continuations joined, comments and blank lines left out."""
    entry = ""
    continues = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if not entry and (not line or line[0] in "#!"):
            continues = False
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        entry += line[:-1] if continues else line
        if not continues:
            yield entry
            entry = ""
    if continues:
        yield entry


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_meaning, text)
    if not _SURROGATE.search(plain):
        return plain
    try:
        return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise Malformed("a property holds half of a surrogate pair") from error


def _meaning(escape: re.Match[str]) -> str:
    if escape["unit"]:
        return chr(int(escape["unit"], 16))
    if escape["other"] == "u":
        raise Malformed("a property holds \\u without four hexadecimal digits")
    return _CONTROL_BY_LETTER.get(escape["other"], escape["other"])


def _escape_key(text: str) -> str:
    return _escape(text).replace(" ", "\\ ")


def _escape_value(text: str) -> str:
    escaped = _escape(text)
    # A blank at the front would be taken for a part of the separator.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape(text: str) -> str:
    return _NOT_PLAIN.sub(_escape_character, text)


def _escape_character(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\\=:#!":
        return f"\\{character}"
    if character in _LETTER_BY_CONTROL:
        return f"\\{_LETTER_BY_CONTROL[character]}"
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))
