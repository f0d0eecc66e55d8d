"""What a push job will replace, and whether what it built may take that place."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.config.push import PushTable
from holdfast.config.push_job import Backfill, PushJob
from holdfast.config.push_schema import Schema
from holdfast.errors import InvalidRequest, Refused
from holdfast.jobs.push.replacement import PushTarget, visible_segments
from holdfast.jobs.push.run_records import Scope
from holdfast.push.segments.build import BuiltSegment, InputFile, file_key
from holdfast.push.segments.names import number_files, summarize_names


class Mode(StrEnum):
    WHOLE = "replaces the whole table"
    PART = "replaces a part of the table"
    ADD = "adds to the table, and overwrites segments of the same names"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPlan:
    """What a run would do, as far as it is known before the rows are read."""

    table: str
    mode: Mode
    source: Mapping[str, str]
    expected_bytes: int
    """About how many bytes are to be stored; 0: unknown."""
    replaced: tuple[str, ...]
    example: str
    """The name that the first segment would have, but for the times of its rows."""
    gates: tuple[Mapping[str, Any], ...] = ()
    deep_store: str = ""
    warnings: tuple[str, ...] = ()


def mode_of(job: PushJob, table: PushTable, schema: Schema) -> Mode:
    """How the job changes the table; `InvalidRequest` if it cannot do so."""
    if job.backfill is not None and (table.refresh or table.time_column is None):
        raise InvalidRequest(
            "a backfill replaces a part of a table with a time column to which pushes add",
            table=table.table,
            hint="leave backfill out, or set segmentIngestionType to APPEND and name the timeColumnName",
        )
    partition = job.backfill.partition if job.backfill else None
    if partition is not None and partition[0] not in schema.fields:
        raise InvalidRequest(
            "the table has no such column", column=partition[0], columns=", ".join(schema.fields)
        )
    if job.backfill is not None:
        return Mode.PART
    if table.refresh and table.consistent_push:
        return Mode.WHOLE
    if job.gates:
        raise InvalidRequest(
            "gates need a push that is switched at its end",
            table=table.table,
            hint="set segmentIngestionType to REFRESH and consistentDataPush to true, or name a backfill",
        )
    return Mode.ADD


def scope_of(job: PushJob, mode: Mode) -> Scope:
    if job.backfill is None:
        return Scope(adds_only=mode is Mode.ADD)
    part = job.backfill
    return Scope(start_ms=part.start_ms, end_ms=part.end_ms, partition=part.partition)


def segments_to_replace(target: PushTarget, job: PushJob, mode: Mode) -> tuple[str, ...]:
    """What queries see now and will not see after the push."""
    match mode:
        case Mode.ADD:
            return ()
        case Mode.WHOLE:
            return visible_segments(target)
        case Mode.PART:
            assert job.backfill is not None, "a part is replaced by a backfill"
            return _segments_of(target, job.backfill)


def files_by_key(job: PushJob, mode: Mode, files: Sequence[str]) -> dict[str, InputFile]:
    """Every input file with its sequence, by its key; none where segments are not made file by file.

    By default a file is a segment. Where files are to be cut, Spark may do so
    as it likes if the names of every run are its own; else they have to be
    the same in the next run, whatever files it adds.
    """
    is_cut = job.sizing.rows is not None or job.sizing.bytes is not None
    if is_cut and mode is not Mode.ADD:
        return {}
    through_all = job.naming.numbers_all_files
    if through_all is None:
        through_all = mode is not Mode.ADD
    numbers = number_files(files, through_all_folders=through_all)
    return {file_key(address): InputFile(address, number) for address, number in numbers.items()}


def check_built(job: PushJob, segments: Sequence[BuiltSegment]) -> None:
    """Refuse segments that would hide each other, or rows outside of what the job replaces."""
    twice = [name for name, count in Counter(one.name for one in segments).items() if count > 1]
    if twice:
        raise InvalidRequest(
            "several segments get the same name",
            segments=summarize_names(sorted(twice)),
            hint="let names have a sequence; use.global.directory.sequence.id counts through folders",
        )
    part = job.backfill
    if part is None:
        return
    outside = [one.name for one in segments if not _is_inside(part, one.start_ms, one.end_ms)]
    if outside:
        raise InvalidRequest(
            "rows lie outside of the time that the backfill replaces",
            segments=summarize_names(outside),
            start_ms=part.start_ms,
            end_ms=part.end_ms,
            hint="select the rows of that time only",
        )
    if part.partition is not None:
        column, value = part.partition
        others = [one.name for one in segments if one.ranges.get(column) != (value, value)]
        if others:
            raise InvalidRequest(
                "rows are not of the partition that the backfill replaces",
                segments=summarize_names(others),
                column=column,
                value=value,
                hint="select the rows of that partition only",
            )


def _segments_of(target: PushTarget, part: Backfill) -> tuple[str, ...]:
    """The visible segments of the part. `Refused` if one holds rows of it and others."""
    seen = visible_segments(target)
    facts: Mapping[str, Mapping[str, Any]] = target.get("zkmetadata", type="OFFLINE")
    chosen: list[str] = []
    torn: list[str] = []
    for name in seen:
        if name not in facts:
            continue  # It was deleted after it was listed.
        start_ms, end_ms = (_time(facts[name], key) for key in ("segment.start.time", "segment.end.time"))
        if not _touches(part, start_ms, end_ms):
            continue
        is_of_it = _holds(part.partition, facts[name])
        if is_of_it is False:
            continue
        (chosen if is_of_it and _is_inside(part, start_ms, end_ms) else torn).append(name)
    if torn:
        raise Refused(
            "segments hold rows of the backfill's part and others",
            segments=summarize_names(torn),
            hint="replace their whole time, and every partition in them",
        )
    return tuple(chosen)


def _holds(partition: tuple[str, str] | None, facts: Mapping[str, Any]) -> bool | None:
    """Whether a segment holds rows of the partition only; None: of others, too, or it is unknown."""
    if partition is None:
        return True
    column, value = partition
    found = _ranges(facts).get(column)
    if found is None or found[0] != found[1]:
        return None
    return found[0] == value


def _ranges(facts: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    found: Mapping[str, Sequence[str]] = json.loads(facts.get("holdfast.segment.columns", "{}"))
    return found


def _time(facts: Mapping[str, Any], key: str) -> int | None:
    time = int(facts.get(key, -1))
    return None if time < 0 else time


def _touches(part: Backfill, start_ms: int | None, end_ms: int | None) -> bool:
    if start_ms is None or end_ms is None:
        return True
    return end_ms >= part.start_ms and start_ms < part.end_ms


def _is_inside(part: Backfill, start_ms: int | None, end_ms: int | None) -> bool:
    if start_ms is None or end_ms is None:
        return False
    return part.start_ms <= start_ms and end_ms < part.end_ms


def all_gates(job: PushJob, table: PushTable) -> tuple[Mapping[str, Any], ...]:
    """Those of the table's configuration, then those of the job."""
    return (*table.raw.get("gates", ()), *job.gates)
