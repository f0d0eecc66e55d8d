"""A snapshot: the files and the schema of a table as of one instant."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.table import TableType
from holdfast.errors import TableDamaged, UnknownInstant, UnsupportedTable
from holdfast.model.instant import Action, Instant, InstantTime, instant_time, time_at
from holdfast.model.reports import Commit
from holdfast.storage.store import Store
from holdfast.table.in_place import Said
from holdfast.table.opened import OpenTable
from holdfast.table.schema import schema_as_of, table_schema
from holdfast.table.steady import read_steadily
from holdfast.table.view import load_view
from holdfast.timeline.timeline import Timeline

Moment = str | dt.datetime | Instant | Commit

_SECONDS_DIGITS = 14


@dataclass(frozen=True)
class Snapshot:
    schema: pa.Schema | None
    """The data columns; None if the table has no schema yet."""
    paths: list[str]
    written_with: Mapping[InstantTime, str] = field(default_factory=dict)
    """Commit → the Avro schema its files were written with; the footers of other files tell theirs."""
    said_in_place: Said = field(default_factory=dict)
    """Commits of the timeline that say that the rows they wrote lie in the partitions these name."""
    are_first: pa.ChunkedArray | None = None
    """Whether each file is known to be the first of its file group: all its rows are of its own commit."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One base file of a snapshot."""

    path: str
    partition: str
    file_id: str
    instant: str
    size: int


def snapshot_files(table: OpenTable, as_of: InstantTime | None = None) -> tuple[SnapshotFile, ...]:
    """The base files a query at that instant sees, with their sizes."""
    files = read_steadily(table.store, lambda timeline: load_view(table.store, timeline).latest(as_of))
    columns = (files[name].to_pylist() for name in ("path", "partition", "file_id", "instant", "size"))
    return tuple(
        SnapshotFile(path, partition, file_id, instant, _size(table, path, size))
        for path, partition, file_id, instant, size in zip(*columns, strict=True)
    )


def _size(table: OpenTable, path: str, said: int | None) -> int:
    """What the commit said; of an archived commit's file, what storage says."""
    if said is not None:
        return said
    stored = table.store.stat(path)
    return stored.size if stored is not None else 0


def snapshot(table: OpenTable, *, as_of: Moment | None = None, read_optimized: bool = False) -> Snapshot:
    """What a query at that moment sees. Merge-on-read tables only through `read_optimized`."""
    if table.settings.table_type is TableType.MERGE_ON_READ and not read_optimized:
        raise UnsupportedTable(
            "snapshot reads of merge-on-read tables are not supported",
            table=table.settings.name,
            hint="read_optimized=True reads the base files alone",
        )
    time = None if as_of is None else as_instant(as_of)
    return read_steadily(table.store, lambda timeline: _snapshot(table, timeline, time))


def _snapshot(table: OpenTable, timeline: Timeline, time: InstantTime | None) -> Snapshot:
    view = load_view(table.store, timeline).reaching(time)
    files = view.latest(time)
    paths = files["path"].to_pylist()
    schema = table_schema(table, timeline, time)
    if schema is None and time is not None and view.has_archived:
        schema = schema_as_of(view.schemas, time)
    if schema is None and paths:
        raise TableDamaged(
            "no commit says what columns the table has", table=table.settings.name, file=paths[0]
        )
    return Snapshot(
        schema,
        paths,
        view.schemas,
        said_in_place=view.said_in_place,
        are_first=_are_first(view.timeline, files),
    )


def _are_first(timeline: Timeline, files: pa.Table) -> pa.ChunkedArray:
    # A replacecommit may be clustering, which writes rows of older commits into new file groups.
    commits = [i.time for i in timeline.completed_commits if i.action is Action.COMMIT]
    is_told = pc.is_in(files["instant"], pa.array(commits, pa.string()))
    return pc.and_(is_told, pc.is_null(files["previous"]))


def uris(store: Store, paths: list[str]) -> list[str]:
    """How other programs name the files, for very many at once."""
    root = store.uri("").rstrip("/")
    return [f"{root}/{path}" for path in paths]


def as_instant(moment: Moment) -> InstantTime:
    """An instant, a moment or its ISO text, as an instant time. Moments without a zone are UTC."""
    if isinstance(moment, Instant):
        return moment.time
    if isinstance(moment, Commit):
        return moment.instant
    try:
        if isinstance(moment, dt.datetime):
            return _time_of(moment)
        text = moment.strip()
        if text.isdigit():
            # To the second, the form of old tables, means all of that second.
            return instant_time(text if len(text) > _SECONDS_DIGITS else text + "999")
        return _time_of(dt.datetime.fromisoformat(text))
    except (ValueError, OverflowError, AttributeError, TypeError):
        raise UnknownInstant(
            "not an instant", given=repr(moment), hint="use yyyyMMddHHmmssSSS or an ISO date and time"
        ) from None


def _time_of(moment: dt.datetime) -> InstantTime:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return time_at((aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1))
