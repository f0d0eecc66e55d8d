"""Whether the partition columns of a table are partition columns for readers of other formats, too."""

import datetime as dt
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from holdfast.exports.statistics import FileFacts
from holdfast.exports.step import Step
from holdfast.format.partition_paths import DEFAULT_PARTITION

_KINDS = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)


def partition_columns(
    columns: tuple[str, ...], step: Step, facts: Mapping[str, FileFacts]
) -> tuple[str, ...]:
    """The columns, if each of these files is known to hold one value of each; else none."""
    if step.schema is None:
        return columns
    kinds = {field.name: field.type for field in step.schema}
    for name in columns:
        if name not in kinds or not any(is_kind(kinds[name]) for is_kind in _KINDS):
            return ()
    is_told = all(_tells_partition(path, each, columns) for path, each in facts.items())
    return columns if is_told else ()


def partition_text(value: Any) -> str | None:
    """The text of a partition value; None stands for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _tells_partition(path: str, facts: FileFacts, columns: tuple[str, ...]) -> bool:
    """Whether a file holds one value of each column, and every reader takes it for what it is.

    An empty text has no spelling of its own. Some readers believe the names of folders.
    """
    segments = path.split("/")[:-1]
    for number, name in enumerate(columns):
        found = facts.columns.get(name)
        if found is None or not found.is_one_value(facts.rows) or found.least == "":
            return False
        text = DEFAULT_PARTITION if found.least is None else partition_text(found.least)
        folder = segments[number] if len(segments) == len(columns) else ""
        spelled = folder.removeprefix(f"{name}=")
        if text not in (spelled, unquote(spelled)):
            return False
    return True
