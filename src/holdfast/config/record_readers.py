"""Record readers: how Pinot's jobs describe the format of files, as options of Spark's readers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from holdfast.config.documents import Section
from holdfast.config.values import flag, one_of, options, scalar, text, without_none

DATA_FORMATS = ("parquet", "csv", "json", "avro", "orc")
LIST_SEPARATOR = ";"

_TEXT_OPTIONS = ("encoding", "multiLine", "dateFormat", "timestampFormat")
_CSV_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "delimiter": ("sep",),
    "quoteCharacter": ("quote",),
    "escapeCharacter": ("escape",),
    "commentMarker": ("comment",),
    "nullStringValue": ("nullValue",),
    "ignoreSurroundingSpaces": ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"),
}
"""Pinot's names → Spark's."""

_CSV_DIALECTS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "excel": {},
    "rfc4180": {},
    "tdf": {"sep": "\t"},
    "mysql": {"sep": "\t", "quote": "", "escape": "\\", "nullValue": "\\N"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordReader:
    format: str
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options of Spark's reader."""
    header: tuple[str, ...] = ()
    list_separator: str = LIST_SEPARATOR
    classes: tuple[str, ...] = ()
    """The Java classes that were named."""


def parse_reader(part: Section) -> RecordReader:
    """A `recordReaderSpec`."""
    kind = part.require("dataFormat", lambda value: one_of(value, DATA_FORMATS))
    classes = (part.read("className", text), part.read("configClassName", text))
    reader = RecordReader(format=kind, options={"header": "true"} if kind == "csv" else {})
    if kind in ("csv", "json"):
        reader = part.section("configs", _csv if kind == "csv" else _json) or reader
    else:
        # Formats with a schema need no options; Pinot's are about its own types.
        part.read("configs", options)
    return replace(reader, classes=tuple(filter(None, classes)))


def _csv(part: Section) -> RecordReader:
    dialect = part.read("fileFormat", lambda value: one_of(value, tuple(_CSV_DIALECTS))) or "default"
    found = dict(_CSV_DIALECTS[dialect])
    for name, meant in _CSV_OPTIONS.items():
        value = part.read(name, scalar)
        found |= {} if value is None else dict.fromkeys(meant, value)
    found |= _text_options(part)
    header = part.read("header", _header)
    is_first_line = part.read("skipHeader", flag) or not header
    separator = part.read("multiValueDelimiter", _character) or LIST_SEPARATOR
    return RecordReader(
        format="csv",
        options=found | {"header": str(is_first_line).lower()},
        header=tuple(name.strip() for name in (header or "").split(found.get("sep", ","))) if header else (),
        list_separator=separator,
    )


def _json(part: Section) -> RecordReader:
    return RecordReader(format="json", options=_text_options(part))


def _text_options(part: Section) -> dict[str, str]:
    return without_none({name: part.read(name, scalar) for name in _TEXT_OPTIONS})


def _character(value: Any) -> str:
    written = scalar(value)
    if len(written) != 1:
        raise ValueError("not one character")
    return written


def _header(value: Any) -> str:
    """The names of the columns. `true` is what Spark's users write for a first line with names."""
    if value is False:
        raise ValueError("write the names of the columns")
    return "" if value is True else text(value)
