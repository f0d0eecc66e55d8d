"""Names of segments, as Pinot's generators make them: parts joined by underscores, empty ones left out.

    orders_OFFLINE_19700_19730_1732752000456_0
    prefix         times       run           sequence

The sequence is the number of the task that built the segment, and of every
further one of the same task its number there: `3`, `3_1`, `3_2`.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.config.push_schema import DataType, Schema
from holdfast.push.segments import check_segment_name

if TYPE_CHECKING:
    from holdfast.config.push import PushTable

    # What reads job files is not installed where tasks run.
    from holdfast.config.push_job import SegmentNaming

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
