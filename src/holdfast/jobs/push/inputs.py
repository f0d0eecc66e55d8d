"""The rows of a push job: files, a snapshot of a lake table, or a DataFrame.

What is read is fixed before Spark starts: a list of files, or a commit that a
lease holds while it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from holdfast.config.push_job import FileInput, PushJob, TableInput
from holdfast.config.push_schema import Field, Schema
from holdfast.errors import InvalidRequest, Refused
from holdfast.jobs.ingested import intake_of
from holdfast.jobs.push.replacement import PushTarget
from holdfast.jobs.source_files import SourceFile, list_files, name_key_on_error
from holdfast.model.instant import InstantTime
from holdfast.model.pushes import INPUT_FILES, INPUT_FOLDER, LAKE_INSTANT, LAKE_TABLE
from holdfast.read.snapshot import snapshot, snapshot_slices
from holdfast.services.leases import lease
from holdfast.services.targets import commit_at
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable, open_at
from holdfast.table.settled import await_settled, read_settled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.model.arrow_stream import ArrowStream

INPUT_NAMES = "input.names"
_NAMES_LENGTH_MAX = 2000
_LEASE_SECONDS = 600
_TEXT_RATIO = 0.3
"""Bytes of a segment for each byte of text, about; the exact figure is checked once it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushInput:
    frame: Callable[[SparkSession], DataFrame] | None = None
    """What Spark reads; None: nothing, or what is in memory."""
    rows: pa.Table | None = None
    """Rows in memory, for which no Spark is needed."""
    files: tuple[str, ...] = ()
    """The addresses of the input files."""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    size_bytes: int = 0
    """About how large its segments will be; 0: unknown."""
    lake: OpenTable | None = None
    instant: InstantTime | None = None
    """The commit of the lake table whose snapshot is read."""


@contextmanager
def open_input(
    job: PushJob, target: PushTarget, frame: DataFrame | ArrowStream | None, *, holds: bool = True
) -> Iterator[PushInput]:
    """What the job reads, while the block runs. Without `holds` it is only looked at."""
    if frame is not None:
        if job.input is not None:
            raise InvalidRequest(
                "the job names an input, and a DataFrame was given", hint="leave one of them out"
            )
        yield _of_frame(frame)
        return
    schema = target.schema
    columns = {*(job.columns or schema.fields), *target.rules.sources}
    match job.input:
        case FileInput() as files:
            yield _of_files(files, schema, columns, has_rules=bool(target.rules))
        case TableInput() as table:
            with name_key_on_error(table.path_line, "source.table"):
                lake = open_at(table.path, table.storage_options)
            with _read_commit(lake, job, table, holds=holds) as instant:
                yield _of_table(lake, instant, columns)
        case None:
            raise InvalidRequest("the job names no input", hint="set inputDirURI or source.table")


def _of_frame(frame: DataFrame | ArrowStream) -> PushInput:
    if hasattr(frame, "mapInArrow"):
        return PushInput(frame=lambda _: cast("DataFrame", frame))
    from holdfast.engines.arrow.streams import read_stream

    return PushInput(rows=read_stream(frame))


def _of_files(files: FileInput, schema: Schema, columns: Collection[str], *, has_rules: bool) -> PushInput:
    with name_key_on_error(files.folder_line, "inputDirURI"):
        found = list_files(
            files.folder, recursive=files.recursive, include=files.include, exclude=files.exclude
        )
    ratio = _TEXT_RATIO if files.format in ("csv", "json") else 1.0
    if files.format == "parquet" and found:
        largest = max(found, key=lambda file: file.size)
        folder, _, name = largest.uri.rpartition("/")
        ratio = _share(open_store(location_of(folder)), name, largest.size, columns)
    return PushInput(
        frame=(lambda session: _file_frame(session, files, found, None if has_rules else schema))
        if found
        else None,
        files=tuple(file.uri for file in found),
        source=_file_facts(files.folder, [file.uri.rpartition("/")[2] for file in found]),
        size_bytes=int(ratio * sum(file.size for file in found)),
    )


def _file_frame(
    session: SparkSession, files: FileInput, found: Sequence[SourceFile], schema: Schema | None
) -> DataFrame:
    """What Spark reads; without a schema the rows have whatever columns and types JSON shows."""
    # Loaded here because Spark is large, and a plan needs none of it.
    from holdfast.engines.spark.inputs import file_frame, spark_path

    options, ddl = dict(files.options), ""
    # Texts are read as texts, and converted where a value that does not fit is named with its column.
    if files.format == "json" and schema is not None:
        ddl = _as_text(schema.fields.values())
    elif files.header:
        ddl = ", ".join(f"{_quote(name)} string" for name in files.header)
        options["enforceSchema"] = "true"
    elif files.format == "csv":
        options["inferSchema"] = "false"
    places = [spark_path(file.uri) for file in found]
    return file_frame(session, places, file_format=files.format, options=options, ddl=ddl)


@contextmanager
def _read_commit(lake: OpenTable, job: PushJob, table: TableInput, *, holds: bool) -> Iterator[InstantTime]:
    """The commit whose snapshot is read; its files stay while the block runs, if it is held."""
    if holds:
        with lease(lake, f"push to {job.table}", _LEASE_SECONDS, as_of=table.as_of) as held:
            yield held.instant
        return
    as_of = table.as_of
    if as_of is not None:
        settled = await_settled(lake, lambda now: commit_at(lake, now, as_of).time)
        yield commit_at(lake, settled, as_of).time
        return
    commit = read_settled(lake).commit
    if commit is None:
        raise Refused("the lake table has no commit", table=lake.settings.name)
    yield commit.time


def _of_table(lake: OpenTable, instant: InstantTime, columns: Collection[str]) -> PushInput:
    slices = snapshot_slices(lake, instant)
    largest = max((one for one in slices if one.base), key=lambda one: one.size or 0, default=None)
    share = 1.0 if largest is None else _share(lake.store, largest.path, largest.size or 0, columns)
    return PushInput(
        frame=lambda session: _table_frame(session, lake, instant),
        source={LAKE_TABLE: lake.location.uri, LAKE_INSTANT: instant, **_pipeline_files(lake, instant)},
        size_bytes=int(share * sum(one.bytes for one in slices)),
        lake=lake,
        instant=instant,
    )


def _share(store: Store, path: str, size: int, columns: Collection[str]) -> float:
    """About which part of a Parquet file the columns take; others, and those of Hudi's, are not pushed."""
    # Loaded here because Arrow is large, and rows may come from elsewhere.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store.open(path) as source:
            footer = pq.read_metadata(source)
    except (FileNotFoundError, pa.ArrowException):
        return 1.0  # Reading the rows fails with the reason.
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    pushed = (one for one in chunks if one.path_in_schema.partition(".")[0] in columns)
    taken: int = sum(one.total_compressed_size for one in pushed)
    return taken / max(size, 1)


def _table_frame(session: SparkSession, lake: OpenTable, instant: InstantTime) -> DataFrame:
    # Loaded here because Spark is large, and a plan needs none of it.
    from holdfast.engines.spark.reader import read_frame
    from holdfast.read.arrow_rows import select_schema
    from holdfast.read.path_columns import path_columns

    found = snapshot(lake, as_of=instant)
    schema = select_schema(found.schema, columns=None, meta_columns=False)
    return read_frame(session, lake, found, schema, path_columns=path_columns(lake, found, schema))


def _as_text(fields: Iterable[Field]) -> str:
    return ", ".join(f"{_quote(one.name)} {'array<string>' if one.is_array else 'string'}" for one in fields)


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _pipeline_files(lake: OpenTable, instant: InstantTime) -> dict[str, str]:
    """The files that became the commit, if a pipeline wrote it."""
    intake = intake_of(lake, instant)
    if intake is None or not intake.files:
        return {}
    return _file_facts(intake.folder, [name for name, _, _ in intake.files])


def _file_facts(folder: str, names: Sequence[str]) -> dict[str, str]:
    return {INPUT_FOLDER: folder, INPUT_FILES: str(len(names)), INPUT_NAMES: _names(names)}


def _names(names: Sequence[str]) -> str:
    """As many names as fit into a record."""
    text = ", ".join(names)
    if len(text) <= _NAMES_LENGTH_MAX:
        return text
    return text[:_NAMES_LENGTH_MAX].rpartition(", ")[0] + ", …"
