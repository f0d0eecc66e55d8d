"""Names of segments: which are accepted, and how a push job makes them.

As Pinot's generators do it, parts are joined by underscores, and empty ones left out:

    orders_OFFLINE_19700_19730_1732752000456_0
    prefix         times       run           sequence

The sequence is the number of the task that built the segment, and of every
further one of the same task its number there: `3`, `3_1`, `3_2`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from holdfast.config.push_schema import DataType, Schema
from holdfast.errors import InvalidRequest

if TYPE_CHECKING:
    from holdfast.config.push import PushTable

    # What reads job files is not installed where tasks run.
    from holdfast.config.push_job import SegmentNaming

# The last three groups are what ZooKeeper does not take in a path.
_REFUSED = re.compile(r'[\\/:*?"<>|,\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]')
_MAX_ENCODED = 180
"""Together with the longest ending in the deleted area this stays a file name on every disk."""
_LISTED = 10
"""Names in a message, at most; thousands help no reader."""
SIMPLE = "simple"
NORMALIZED_DATE = "normalizedDate"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """What the time column of a segment covers, both ends included."""

    first: str
    last: str
    """As the column has them."""
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNames:
    """The rule by which one run names its segments."""

    prefix: str
    postfix: str = ""
    times: str = ""
    """`simple`, `normalizedDate`, or empty: names without times."""
    is_hourly: bool = False
    has_sequence: bool = True

    def name(self, task: int, number: int, span: TimeSpan | None) -> str:
        """The name of a task's segment; `InvalidRequest` if it cannot be one."""
        sequence = f"{task}_{number}" if number else str(task)
        parts = (self.prefix, *self._times(span), self.postfix, sequence if self.has_sequence else "")
        name = "_".join(part for part in parts if part)
        check_segment_name(name)
        return name

    def _times(self, span: TimeSpan | None) -> tuple[str, ...]:
        if span is None or not self.times:
            return ()
        if self.times == SIMPLE:
            return span.first, span.last
        form = "%Y-%m-%d-%H" if self.is_hourly else "%Y-%m-%d"
        moments = (dt.datetime.fromtimestamp(ms / 1000, dt.UTC) for ms in (span.start_ms, span.end_ms))
        return tuple(moment.strftime(form) for moment in moments)


def segment_names(
    naming: SegmentNaming, table: PushTable, schema: Schema, *, run_ms: int | None
) -> SegmentNames:
    """The rule for a table. With `run_ms` every run has names of its own."""
    run = str(run_ms) if run_ms is not None else ""
    kind = naming.kind or _usual_kind(table, schema)
    has_times = table.time_column is not None and not naming.exclude_time
    # As in Pinot: of a table that every push delivers whole, dates would say nothing.
    has_times &= kind == SIMPLE or not table.refresh
    return SegmentNames(
        prefix=naming.prefix or table.table,
        postfix="_".join(part for part in (naming.postfix, run) if part),
        times=kind if has_times else "",
        is_hourly=_is_hourly(table),
        has_sequence=not naming.exclude_sequence,
    )


def _usual_kind(table: PushTable, schema: Schema) -> str:
    time = schema.fields.get(table.time_column or "")
    is_date = time is not None and time.type is DataType.STRING and "SIMPLE_DATE_FORMAT" in time.format
    return NORMALIZED_DATE if is_date else SIMPLE


def _is_hourly(table: PushTable) -> bool:
    batch = (table.raw.get("ingestionConfig") or {}).get("batchIngestionConfig") or {}
    return str(batch.get("segmentIngestionFrequency", "")).upper() == "HOURLY"


_RUN = re.compile(r"_[0-9]{13}(?=_|$)")
"""The time in milliseconds by which a push tells its segments from those of other pushes."""


def stable_names(names: Iterable[str]) -> dict[str, str]:
    """The new name of every segment that carries the time of its push.

    Where two segments would get the same name they are numbered, in their order.
    """
    known = sorted(names)
    taken = {name for name in known if _without_run(name) == name}
    renamed: dict[str, str] = {}
    for name in known:
        stable = _without_run(name)
        if stable == name:
            continue
        number = 0
        while (candidate := f"{stable}_{number}" if number else stable) in taken:
            number += 1
        taken.add(candidate)
        renamed[name] = candidate
    return renamed


def _without_run(name: str) -> str:
    return _RUN.sub("", name, count=1) or name


def check_segment_name(name: str) -> None:
    """Refuse what Pinot refuses, and a comma, which would split the name in the lineage record."""
    if not name or name != name.strip() or name.startswith(".") or _REFUSED.search(name):
        raise InvalidRequest(
            "not a segment name",
            segment=repr(name),
            code="INVALID_SEGMENT_NAME",
            hint='leave out \\ / : * ? " < > | , control characters, a leading dot and outer blanks',
        )
    try:
        length = len(url_encode_name(name))
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "the segment name is not text", segment=repr(name), code="INVALID_SEGMENT_NAME"
        ) from error
    if length > _MAX_ENCODED:
        raise InvalidRequest(
            "the segment name is too long",
            segment=name[:80],
            length=length,
            limit=_MAX_ENCODED,
            code="INVALID_SEGMENT_NAME",
        )


def check_segment_names(names: Iterable[str]) -> None:
    for name in names:
        check_segment_name(name)


def url_encode_name(name: str) -> str:
    """The name as Java's URL encoder writes it, which is how Pinot names files in the deep store."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def summarize_names(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"
