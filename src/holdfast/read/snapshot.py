"""A snapshot: the files and the schema of a table as of one instant."""

import datetime as dt
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.choices import TableType
from holdfast.errors import TableDamaged, UnknownInstant, UnsupportedTable
from holdfast.files.merged_slice import LogMerge
from holdfast.format.commits import decode_writes
from holdfast.format.malformed import report_damage
from holdfast.format.schemas import arrow_schema, without_meta_columns
from holdfast.model.instant import Action, Instant, InstantTime, instant_time, is_repeated, wall_time
from holdfast.model.names import PROPERTIES_FILE, instant_path
from holdfast.model.reports import Commit
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store
from holdfast.table.missing_commits import refuse_if_lost
from holdfast.table.opened import OpenTable
from holdfast.table.row_placement import RowPlacement
from holdfast.table.settled import await_settled
from holdfast.table.stable_read import read_stable
from holdfast.table.view import View, each_slice, file_paths, has_logs, load_view
from holdfast.table.zone import timeline_zone
from holdfast.timeline.timeline import Timeline, read_completed

log = logging.getLogger(__name__)

Moment = str | dt.datetime | Instant | Commit

_SECONDS_DIGITS = 14


@dataclass(frozen=True)
class Snapshot:
    schema: pa.Schema | None
    """The data columns; None if the table has no schema yet."""
    slices: pa.Table
    """Rows of `SLICES`, in the order of the paths."""
    written_with: Mapping[InstantTime, str] = field(default_factory=dict)
    """Commit → the Avro schema its files were written with; the footers of other files tell theirs."""
    placement_by_commit: RowPlacement = field(default_factory=dict)
    """Commits of the timeline that say that the rows they wrote lie in the partitions these name."""
    are_first: pa.ChunkedArray | None = None
    """Whether each slice is known to be the first of its file group: all its rows are of its own commit."""
    merge: LogMerge | None = None
    """How the log files are read; None if no slice has any."""

    @cached_property
    def paths(self) -> list[str]:
        """The base files: all there is to read, but for slices that `merged` has."""
        paths: list[str] = self.slices["base"].drop_null().to_pylist()
        return paths

    @property
    def files(self) -> list[str]:
        """All files, those of a slice together, the base file first."""
        if self.merge is None:
            return self.paths
        return [path for each in each_slice(self.slices) for path in each.files]

    @property
    def plain(self) -> "Snapshot":
        """The slices that are one base file each."""
        return self if self.merge is None else replace(self.only(pa.array(~self.has_logs)), merge=None)

    @cached_property
    def merged(self) -> tuple[FileSlice, ...]:
        """The slices with log files."""
        return () if self.merge is None else tuple(each_slice(self.slices.filter(pa.array(self.has_logs))))

    @property
    def has_logs(self) -> npt.NDArray[np.bool_]:
        """Which slices have log files."""
        has_logs: npt.NDArray[np.bool_] = pc.list_value_length(self.slices["logs"]).to_numpy() > 0
        return has_logs

    @property
    def sizes(self) -> pa.ChunkedArray:
        """The bytes of each base file; null for one whose commit is archived."""
        return self.slices["size"]

    def only(self, is_wanted: pa.Array) -> "Snapshot":
        """The same with those slices alone for which it is true."""
        are_first = None if self.are_first is None else self.are_first.filter(is_wanted)
        return replace(self, slices=self.slices.filter(is_wanted), are_first=are_first)


def snapshot_slices(table: OpenTable, as_of: InstantTime | None = None) -> tuple[FileSlice, ...]:
    """The file slices that a query at that instant sees, with the sizes of their files."""
    _await(table, as_of)

    def read(timeline: Timeline) -> tuple[FileSlice, ...]:
        view = _view(table, timeline).reaching(as_of)
        latest = view.latest(as_of, base_only=table.settings.table_type is TableType.COPY_ON_WRITE)
        of_logs = view.log_sizes(latest)
        return tuple(_with_sizes(table, each, of_logs) for each in each_slice(latest))

    return read_stable(table.store, read)


def _with_sizes(table: OpenTable, each: FileSlice, of_logs: Mapping[str, int]) -> FileSlice:
    size, log_bytes = each.size, None
    if size is None and each.base is not None:
        size = _size_in_storage(table, each.base)
    if each.logs:
        known = (of_logs.get(path) for path in each.logs)
        sizes = zip(each.logs, known, strict=True)
        log_bytes = sum(_size_in_storage(table, path) if size is None else size for path, size in sizes)
    return replace(each, size=size, log_bytes=log_bytes)


def _view(table: OpenTable, timeline: Timeline) -> View:
    refuse_if_lost(table, timeline)
    return load_view(table.store, timeline)


def _size_in_storage(table: OpenTable, path: str) -> int:
    stored = table.store.stat(path)
    return stored.size if stored is not None else 0


def snapshot(table: OpenTable, *, as_of: Moment | None = None, read_optimized: bool = False) -> Snapshot:
    """What a query at that moment sees; with `read_optimized` the base files alone of a merge-on-read table.

    `WriterActive` if a moment is named that a write may still change, after waiting for it.
    """
    time = None if as_of is None else as_instant(table, as_of)
    _await(table, time)
    return take_settled_snapshot(table, time, read_optimized=read_optimized)


def take_settled_snapshot(
    table: OpenTable, time: InstantTime | None, *, read_optimized: bool = False
) -> Snapshot:
    """As `snapshot`, as of a time up to which everything is known to be decided."""
    return read_stable(
        table.store, lambda timeline: _snapshot(table, timeline, time, base_only=read_optimized)
    )


def take_settled_snapshots(table: OpenTable, times: Sequence[InstantTime]) -> list[Snapshot]:
    """As `take_settled_snapshot`, of several times, all by one state of the timeline."""
    return read_stable(
        table.store, lambda timeline: [_snapshot(table, timeline, time, base_only=False) for time in times]
    )


def _await(table: OpenTable, as_of: InstantTime | None) -> None:
    """What is there now needs no name; what is named must not change."""
    if as_of is not None:
        await_settled(table, lambda _: as_of)


def _snapshot(table: OpenTable, timeline: Timeline, time: InstantTime | None, *, base_only: bool) -> Snapshot:
    view = _view(table, timeline).reaching(time)
    # Of copy-on-write tables no program reads log files, whatever lies about.
    base_only = base_only or table.settings.table_type is TableType.COPY_ON_WRITE
    slices = view.latest(time, base_only=base_only)
    _warn_of_hidden_rows(table, view)
    schema = table_schema(table, timeline, time)
    if schema is None and time is not None and view.has_archived:
        schema = _schema_as_of(view.schemas, time)
    if schema is None and slices.num_rows > 0:
        file = file_paths(slices)[0].as_py()
        raise TableDamaged("no commit says what columns the table has", table=table.settings.name, file=file)
    return Snapshot(
        schema,
        slices,
        view.schemas,
        placement_by_commit=view.placement_by_commit,
        are_first=_are_first(view.timeline, slices),
        merge=_log_merge(table, view, slices, schema, time),
    )


def _log_merge(
    table: OpenTable, view: View, slices: pa.Table, schema: pa.Schema | None, time: InstantTime | None
) -> LogMerge | None:
    if not has_logs(slices):
        return None
    table.settings.check_log_merges()
    name = table.settings.deciding_column
    if name is not None and (schema is None or name not in schema.names):
        raise UnsupportedTable(
            "the log files of this table cannot be read: it lacks the column that decides between rows",
            table=table.settings.name,
            column=name,
        )
    ordering = None if name is None or schema is None else schema.field(name)
    return LogMerge(view.log_instants(slices, time), ordering)


def _warn_of_hidden_rows(table: OpenTable, view: View) -> None:
    if table.settings.table_type is TableType.COPY_ON_WRITE:
        file = view.find_written_into_the_past()
        if file is not None:
            # No engine reads them, and the table is whole otherwise: verify says what to do.
            log.warning("read.hidden_rows", extra={"table": table.store.uri(""), "file": file})


def _are_first(timeline: Timeline, slices: pa.Table) -> pa.ChunkedArray:
    # A replacecommit may be clustering, which writes rows of older commits into new file groups.
    commits = [i.time for i in timeline.completed_commits if i.action is Action.COMMIT]
    is_known = pc.is_in(slices["instant"], pa.array(commits, pa.string()))
    return pc.and_(is_known, pc.is_null(slices["previous"]))


def table_schema(table: OpenTable, timeline: Timeline, as_of: InstantTime | None = None) -> pa.Schema | None:
    """The data columns as of an instant; None before the first write of a table without a schema."""
    for instant in reversed(timeline.completed_commits):
        if as_of is not None and instant.time > as_of:
            continue
        content = read_completed(table.store, instant)
        with report_damage("commit metadata cannot be read", file=instant_path(instant)):
            text = decode_writes(content).schema
            if text is not None:
                return without_meta_columns(arrow_schema(text))
    if table.settings.create_schema is None:
        return None
    with report_damage("the table's schema cannot be read", file=PROPERTIES_FILE):
        return without_meta_columns(arrow_schema(table.settings.create_schema))


def _schema_as_of(schemas: Mapping[InstantTime, str], time: InstantTime) -> pa.Schema | None:
    """The data columns of the newest commit at that time, from what each commit was written with."""
    newest = max((commit for commit in schemas if commit <= time), default=None)
    return None if newest is None else without_meta_columns(arrow_schema(schemas[newest]))


def uris(store: Store, paths: list[str]) -> list[str]:
    """How other programs name the files, for very many at once."""
    root = store.uri("").rstrip("/")
    return [f"{root}/{path}" for path in paths]


def as_instant(table: OpenTable, moment: Moment) -> InstantTime:
    """An instant, a moment or its ISO text, as an instant time of the table.

    A moment without a zone is what the table's own clock showed, as in Hudi.
    """
    if isinstance(moment, Instant):
        return moment.time
    if isinstance(moment, Commit):
        return moment.instant
    try:
        if isinstance(moment, dt.datetime):
            return _time_of(table, moment)
        text = moment.strip()
        if text.isdigit():
            # To the second, the form of old tables, means all of that second.
            return instant_time(text if len(text) > _SECONDS_DIGITS else text + "999")
        return _time_of(table, dt.datetime.fromisoformat(text))
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise UnknownInstant(
            "not an instant", given=repr(moment), hint="use yyyyMMddHHmmssSSS or an ISO date and time"
        ) from None


def _time_of(table: OpenTable, moment: dt.datetime) -> InstantTime:
    if moment.tzinfo is None:
        return wall_time(moment)
    zone = timeline_zone(table)
    wall = moment.astimezone(zone)
    if is_repeated(moment, zone):
        raise UnknownInstant(
            "the table's clock showed this time twice, when it was put back",
            given=moment.isoformat(),
            zone=zone,
            hint=f"name the instant; holdfast timeline PATH shows those around {wall_time(wall)}",
        )
    return wall_time(wall)
