"""Partition paths: the folder of a row, spelled from its partition values.

Values arrive as text. Escaping is Hive's, which differs from that of URLs:
spaces and letters beyond ASCII stay as they are.
"""

import re
from collections.abc import Sequence

from holdfast.errors import InvalidRequest
from holdfast.model.names import META_FOLDER

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The segment of rows whose partition value is null or empty."""

_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")  # half of a surrogate pair: no bytes in UTF-8

_SEGMENT_BYTES_MAX = 255

_STEPS = "must not step to another folder"
_IS_OURS = "must not lie in the table's own folder"
_IS_HIDDEN = "must not contain a segment that begins with a dot, which hides it from readers"
_FAULTS_OF_DOTS = (_STEPS, _IS_OURS, _IS_HIDDEN)

_HINT = "change the partition value, or escape values when the table is created"
_HINT_OF_DOTS = (
    "change the partition value, or make the table with hoodie.datasource.write.hive_style_partitioning;"
    " escaping leaves dots as they are, as in Hudi"
)


def escape_value(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape_value(text: str) -> str:
    """The value that was escaped; a `%` without two hexadecimal digits stands for itself."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def partition_segment(field: str, value: str | None, *, hive_style: bool, url_encode: bool) -> str:
    """The part of the path for one field. Without `url_encode` a `/` in the value makes folders."""
    text = value or DEFAULT_PARTITION
    if url_encode:
        text = escape_value(text)
    return f"{field}={text}" if hive_style else text


def partition_path(
    fields: Sequence[str], values: Sequence[str | None], *, hive_style: bool, url_encode: bool
) -> str:
    """The path of a partition below the table's root; without fields it is the root, `""`."""
    return "/".join(
        partition_segment(field, value, hive_style=hive_style, url_encode=url_encode)
        for field, value in zip(fields, values, strict=True)
    )


def check_partition_path(path: str) -> None:
    """Refuse a path that leaves the table, hides from readers or cannot be a folder everywhere."""
    if path == "":
        return
    fault = _fault(path)
    if fault:
        raise InvalidRequest(
            f"a partition path {fault}",
            hint=_HINT_OF_DOTS if fault in _FAULTS_OF_DOTS else _HINT,
            path=repr(path),
        )


def _fault(path: str) -> str:
    """What is wrong with the path, as the end of a sentence; empty if nothing is."""
    if _CONTROL.search(path):
        return "must not contain control characters"
    if path.startswith("/") or path.endswith("/"):
        return "must not begin or end with a slash"
    segments = path.split("/")
    if "" in segments:
        return "must not contain an empty segment"
    if "." in segments or ".." in segments:
        return _STEPS
    if segments[0] == META_FOLDER:
        return _IS_OURS
    if any(segment.startswith(".") for segment in segments):
        return _IS_HIDDEN
    if _HALF_PAIR.search(path):
        return "must be valid Unicode text"
    if any(len(segment.encode()) > _SEGMENT_BYTES_MAX for segment in segments):
        return f"must not contain a segment of more than {_SEGMENT_BYTES_MAX} bytes"
    return ""
