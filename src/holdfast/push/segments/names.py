"""Names of segments: which are accepted, and how a push job makes them.

As Pinot's generators do it, parts are joined by underscores, and empty ones left out:

    orders_OFFLINE_19700_19730_1732752000456_0
    prefix         times       run           sequence

The sequence is the number of the input file, or where there are no files, of
the task that built the segment; of every further segment of the same one its
number there follows: `3`, `3_1`, `3_2`.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections import Counter
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
_FIXED = "fixed"
_INPUT_FILE = "inputFile"
_GROUP = re.compile(r"\$\{filePathPattern:\\(\d+)\}")


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
    fixed: str = ""
    """The name without what tells the run; empty: it is made of the other parts."""
    file_pattern: str = ""
    template: str = ""
    """The name by the address of an input file; empty: the other parts make it."""
    uuid_seed: str = ""
    """What a UUID at the end of each name is made of; empty: there is none."""

    def name(self, task: int, number: int, span: TimeSpan | None, file: str = "") -> str:
        """The name of a segment of a task, or of `file`; `InvalidRequest` if it cannot be one."""
        sequence = f"{task}_{number}" if number else str(task)
        if self.fixed or self.template:
            base = self.fixed or self._of_file(file)
            parts = [base, self.postfix, str(number) if number else ""]
        else:
            parts = [self.prefix, *self._times(span), self.postfix, sequence if self.has_sequence else ""]
        if self.uuid_seed:
            parts.append(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.uuid_seed}/{sequence}/{file}")))
        name = "_".join(part for part in parts if part)
        check_segment_name(name)
        return name

    def _of_file(self, file: str) -> str:
        if not file:
            raise InvalidRequest("names by input file need input files", hint="use simple names")
        # Patterns of Pinot's jobs look at URIs.
        spellings = (file, f"file:{file}", f"file://{file}") if file.startswith("/") else (file,)
        found = next(filter(None, (re.fullmatch(self.file_pattern, one) for one in spellings)), None)
        groups = () if found is None else (found[0], *found.groups(""))
        if found is None or any(int(one) >= len(groups) for one in _GROUP.findall(self.template)):
            raise InvalidRequest(
                "file.path.pattern does not fit an input file",
                file=file,
                pattern=self.file_pattern,
                template=self.template,
                hint="it has to match the whole address, and to have the groups that the template names",
            )
        return _GROUP.sub(lambda match: groups[int(match[1])], self.template)

    def _times(self, span: TimeSpan | None) -> tuple[str, ...]:
        if span is None or not self.times:
            return ()
        if self.times == SIMPLE:
            return span.first, span.last
        form = "%Y-%m-%d-%H" if self.is_hourly else "%Y-%m-%d"
        moments = (dt.datetime.fromtimestamp(ms / 1000, dt.UTC) for ms in (span.start_ms, span.end_ms))
        return tuple(moment.strftime(form) for moment in moments)


def segment_names(
    naming: SegmentNaming, table: PushTable, schema: Schema, *, run_ms: int | None, run: str = ""
) -> SegmentNames:
    """The rule for a table. With `run_ms` every run has names of its own; `run` is what UUIDs are made of."""
    told = str(run_ms) if run_ms is not None else ""
    kind = naming.kind or _usual_kind(table, schema)
    has_times = (
        kind in (SIMPLE, NORMALIZED_DATE) and table.time_column is not None and not naming.exclude_time
    )
    # As in Pinot: of a table that every push delivers whole, dates would say nothing.
    has_times &= kind == SIMPLE or not table.refresh
    is_by_file = kind == _INPUT_FILE
    return SegmentNames(
        prefix=naming.prefix or table.table,
        postfix=told if is_by_file or kind == _FIXED else "_".join(filter(None, (naming.postfix, told))),
        times=kind if has_times and kind in (SIMPLE, NORMALIZED_DATE) else "",
        is_hourly=_is_hourly(table),
        has_sequence=not naming.exclude_sequence,
        fixed=naming.fixed if kind == _FIXED else "",
        file_pattern=naming.file_pattern if is_by_file else "",
        template=naming.template if is_by_file else "",
        uuid_seed=run if naming.appends_uuid else "",
    )


def number_files(addresses: Sequence[str], *, through_all_folders: bool) -> dict[str, int]:
    """The sequence of each input file: its place among all, or, as in Pinot, among those of its folder."""
    if through_all_folders:
        return {address: at for at, address in enumerate(sorted(addresses))}
    numbers: dict[str, int] = {}
    taken: Counter[str] = Counter()
    for address in sorted(addresses):
        folder = address.rpartition("/")[0]
        numbers[address] = taken[folder]
        taken[folder] += 1
    return numbers


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
