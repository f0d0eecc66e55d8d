"""A snapshot: the files and the schema of a table as of one instant."""

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa

from holdfast.config.table import TableType
from holdfast.errors import TableDamaged, UnknownInstant, UnsupportedTable
from holdfast.model.instant import InstantTime, instant_time, time_at
from holdfast.table.opened import OpenTable
from holdfast.table.schema import table_schema
from holdfast.table.view import load_view
from holdfast.timeline.timeline import load_timeline

Moment = str | dt.datetime


@dataclass(frozen=True)
class Snapshot:
    schema: pa.Schema | None
    """The data columns; None if the table has no schema yet."""
    paths: list[str]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One base file of a snapshot."""

    path: str
    partition: str
    file_id: str
    instant: str
    size: int


def snapshot_files(table: OpenTable, as_of: InstantTime | None = None) -> tuple[SnapshotFile, ...]:
    """The base files a query at that instant sees, with their sizes: two listings of the table."""
    files = load_view(table.store, load_timeline(table.store)).latest(as_of)
    sizes = {file.path: file.size for file in table.store.walk("")}
    return tuple(SnapshotFile(**row, size=sizes.get(row["path"], 0)) for row in files.to_pylist())


def snapshot(table: OpenTable, *, as_of: Moment | None = None, read_optimized: bool = False) -> Snapshot:
    """What a query at that moment sees. Merge-on-read tables only through `read_optimized`."""
    if table.settings.table_type is TableType.MERGE_ON_READ and not read_optimized:
        raise UnsupportedTable(
            "snapshot reads of merge-on-read tables are not supported",
            table=table.settings.name,
            hint="read_optimized=True reads the base files alone",
        )
    time = None if as_of is None else as_instant(as_of)
    timeline = load_timeline(table.store)
    paths = load_view(table.store, timeline).latest(time)["path"].to_pylist()
    schema = table_schema(table, timeline, time)
    if schema is None and paths:
        raise TableDamaged(
            "no commit says what columns the table has", table=table.settings.name, file=paths[0]
        )
    return Snapshot(schema, paths)


def as_instant(moment: Moment) -> InstantTime:
    """An instant, a moment or its ISO text, as an instant time. Moments without a zone are UTC."""
    if isinstance(moment, dt.datetime):
        return _time_of(moment)
    text = moment.strip()
    try:
        if text.isdigit():
            return instant_time(text)
        return _time_of(dt.datetime.fromisoformat(text))
    except ValueError:
        raise UnknownInstant(
            "not an instant", given=repr(moment), hint="use yyyyMMddHHmmssSSS or an ISO date and time"
        ) from None


def _time_of(moment: dt.datetime) -> InstantTime:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return time_at((aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1))
