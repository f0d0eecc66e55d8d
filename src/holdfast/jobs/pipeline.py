"""Pipelines: source, transform, lake table, clean and push, one run after the other.

    list the source ─► leave out what was ingested ─► read, transform, write ─► clean ─► push

The commit itself names the files that it took in, so it does not matter where a
run dies: either its commit stands, and the next run leaves those files out, or it
does not, and they are new. The push is due whenever queries see another
instant than the newest, whichever run committed that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.clock import SystemClock
from holdfast.config.choices import Operation
from holdfast.config.datasource import SourceWrite
from holdfast.config.pipeline import Pipeline, Rejects, load_pipeline
from holdfast.config.write import WriteSettings
from holdfast.engines.spark.failures import spark_failures_as_ours
from holdfast.errors import Conflict, HoldfastError
from holdfast.host import SystemHost
from holdfast.jobs.ingested import (
    NOTHING_INGESTED,
    Changed,
    Ingested,
    Register,
    batch_origin,
    files_origin,
    new_files,
    plain_origin,
)
from holdfast.jobs.pipeline_push import due_instant, push_table
from holdfast.jobs.process import spark_session
from holdfast.jobs.rejects import write_rejects
from holdfast.jobs.reports import Announce, PipelineReport, PushReport
from holdfast.jobs.source_files import SourceFile, matching_files, name_key_on_error
from holdfast.jobs.transform_syntax import parse_transform
from holdfast.model.instant import InstantTime
from holdfast.model.names import STREAMS_FOLDER
from holdfast.model.reports import CleanReport, Commit
from holdfast.read.snapshot import table_schema
from holdfast.services.clean.clean import clean
from holdfast.storage.open import location_of, open_store
from holdfast.table.opened import OpenTable, is_table, open_existing, open_target
from holdfast.table.publish import load_published_timeline
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.origin import Origin

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.engines.spark.bad_rows import TextFiles

_ATTEMPTS = 5
_LOOK_EVERY_MS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """What a run would do. A source without files is always read as a whole."""

    name: str
    creates_table: bool
    files: tuple[SourceFile, ...]
    files_left: int
    push: InstantTime | None
    """The newest commit, if queries see another; what the run commits is pushed, too."""
    pushes_to: str = ""
    """The served table and its controller; empty if the pipeline pushes nothing."""
    gates: int = 0
    is_transform_parsed: bool = False
    """Whether the SQL was looked at, which takes sqlglot."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)


def plan_pipeline(pipeline: Pipeline | str | os.PathLike[str]) -> PipelinePlan:
    """What `run_pipeline` would do now. Changes nothing, and needs no Spark."""
    loaded = _load(pipeline)
    is_parsed = bool(loaded.transform) and parse_transform(loaded.transform, first_line=loaded.transform_line)
    table, push = _existing(loaded), loaded.push
    intake = _plan_intake(loaded, None if table is None else Register(table))
    return PipelinePlan(
        name=loaded.name,
        creates_table=table is None,
        files=intake.files,
        files_left=intake.left,
        push=None if table is None or push is None else due_instant(push, table)[0],
        pushes_to="" if push is None else f"{push.table} at {push.controller}",
        gates=0 if push is None else len(push.gates),
        is_transform_parsed=is_parsed,
    )


def run_pipeline(
    pipeline: Pipeline | str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    announce: Announce | None = None,
) -> PipelineReport:
    """Run a pipeline, or the one in a file, once.

    Without a session one is started at `master`, if there is anything to do. A
    run that fails leaves its commit or nothing; whichever it is, the next run
    goes on from there.
    """
    return _Run(_load(pipeline), spark, master, announce).run()


def _load(pipeline: Pipeline | str | os.PathLike[str]) -> Pipeline:
    return pipeline if isinstance(pipeline, Pipeline) else load_pipeline(pipeline)


@dataclass(frozen=True, slots=True)
class _NewFiles:
    """The files that a run is to ingest, and what was known of them."""

    files: tuple[SourceFile, ...] = ()
    left: int = 0
    ingested: Ingested = NOTHING_INGESTED


def _existing(pipeline: Pipeline) -> OpenTable | None:
    """The table, if it is there."""
    location = location_of(pipeline.destination.path, pipeline.destination.storage_options)
    store, clock, host = open_store(location), SystemClock(), SystemHost()
    if not is_table(store, location, clock=clock, host=host):
        return None
    return open_existing(store, location, clock=clock, host=host)


def _plan_intake(pipeline: Pipeline, register: Register | None) -> _NewFiles:
    """The files to ingest. One without a byte holds no rows, and may be about to be written."""
    source = pipeline.source
    if source.stream or not source.path:
        return _NewFiles()
    with name_key_on_error(pipeline.path_line, "source.path"):
        listed = matching_files(source.path, storage_options=source.storage_options)
    ingested = NOTHING_INGESTED if register is None else register.read()
    filled = (file for file in listed if file.size)
    found = new_files(filled, ingested, changed=Changed(source.changed))
    if not source.files_per_run:
        return _NewFiles(tuple(found), 0, ingested)
    oldest = sorted(found, key=lambda file: (file.modified_ms, file.uri))[: source.files_per_run]
    return _NewFiles(tuple(oldest), len(found) - len(oldest), ingested)


@dataclass
class _Run:
    """One run, and what it has done so far."""

    pipeline: Pipeline
    spark: SparkSession | None
    master: str
    announce: Announce | None
    clock: SystemClock = field(default_factory=SystemClock)
    register: Register | None = None
    """Kept for the whole run, so that every commit is read once."""
    files: tuple[SourceFile, ...] = ()
    files_left: int = 0
    rejected: int = 0
    rejects: str = ""
    commits: list[Commit] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def run(self) -> PipelineReport:
        source = self.pipeline.source
        if source.stream:
            self._ingest_stream()
        elif source.path:
            self._ingest_files()
        else:
            self._ingest_all()
        self._keep_register()
        try:
            return PipelineReport(
                name=self.pipeline.name,
                files=tuple(file.uri for file in self.files),
                files_left=self.files_left,
                commit=self.commits[-1] if self.commits else None,
                earlier=tuple(self.commits[:-1]),
                rejected=self.rejected,
                rejects=self.rejects,
                clean=self._clean() if self.pipeline.clean and self.commits else None,
                push=self._push(),
                seconds=self.seconds,
                warnings=tuple(self.warnings),
            )
        except HoldfastError as error:
            if self.commits:
                error.add_note(f"commit {self.commits[-1].instant} stands; the next run goes on from there")
            raise

    def _ingest_files(self) -> None:
        intake = self._plan()
        for _ in range(_ATTEMPTS):
            if not intake.files:
                return
            try:
                self._ingest(intake)
            except Conflict:
                fresh = self._plan()
                if fresh.files == intake.files:
                    raise
                # Another run has taken some of them meanwhile, and committed.
                intake = fresh
            else:
                return
        raise Conflict(
            "other runs keep ingesting the same files", hint="run a pipeline in one process at a time"
        )

    def _plan(self) -> _NewFiles:
        with self._stage("plan"):
            return _plan_intake(self.pipeline, self._register(_show_decided(_existing(self.pipeline))))

    def _register(self, table: OpenTable | None) -> Register | None:
        if self.register is None and table is not None:
            self.register = Register(table)
        return self.register

    def _keep_register(self) -> None:
        try:
            if self.register is not None:
                self.register.checkpoint_if_due()
        except HoldfastError as error:
            self.warnings.append(f"the list of what was ingested could not be kept: {error}")

    def _ingest(self, intake: _NewFiles) -> None:
        source = self.pipeline.source
        with self._writing() as session:
            # After the session: if Spark is not installed, that says what to install.
            from holdfast.engines.spark.bad_rows import TextFiles, explain_bad_row
            from holdfast.engines.spark.inputs import FAILURES, file_frame, spark_path

            paths = [spark_path(file.uri) for file in intake.files]
            frame = file_frame(
                session,
                paths,
                file_format=source.format,
                options=source.options,
                schema=self._schema(),
                ddl=source.schema,
                is_partial=self.pipeline.destination.operation is Operation.DELETE,
            )
            text = TextFiles(paths, source.format, source.options, frame.schema)
            if self.pipeline.rejects is not None:
                self._store_fitting(session, text, intake, self.pipeline.rejects)
            else:
                try:
                    self._store(frame, self._origin_of(intake))
                except FAILURES as error:
                    bad = explain_bad_row(session, error, text)
                    if bad is None:
                        raise
                    raise bad from error
        self.files, self.files_left = intake.files, intake.left

    def _store_fitting(
        self, session: SparkSession, text: TextFiles, intake: _NewFiles, rejects: Rejects
    ) -> None:
        """Write the rows that fit. The others are listed before the commit that counts them is made."""
        from holdfast.engines.spark.bad_rows import separate_bad_rows

        with separate_bad_rows(session, text, at_most=rejects.max_rows) as (frame, bad):
            place = write_rejects(rejects, self.pipeline.name, intake.files, bad) if bad else ""
            self._store(frame, self._origin_of(intake, rejected=len(bad)))
            self.rejected, self.rejects = len(bad), place

    def _origin_of(self, intake: _NewFiles, *, rejected: int = 0) -> Callable[[Register], Origin]:
        name = self.pipeline.name
        return lambda register: files_origin(
            register, intake.files, intake.ingested, pipeline=name, rejected=rejected
        )

    def _ingest_all(self) -> None:
        source = self.pipeline.source
        with self._writing() as session:
            from holdfast.engines.spark.inputs import whole_frame

            frame = whole_frame(session, source.format, source.options, ddl=source.schema)
            self._store(frame, lambda _: plain_origin(self.pipeline.name))

    def _ingest_stream(self) -> None:
        source = self.pipeline.source
        with self._writing() as session:
            from holdfast.engines.spark.streams import run_stream
            from holdfast.engines.spark.types import spark_schema_of

            schema = self._schema()
            run_stream(
                session,
                self._ingest_batch,
                file_format=source.format,
                options=source.options,
                path=source.path,
                schema=source.schema or (None if schema is None else spark_schema_of(schema)),
                checkpoint=self._checkpoint(),
            )

    def _ingest_batch(self, frame: DataFrame, query: str, batch: int) -> None:
        """Commit a micro-batch, unless a run has done so that was stopped before the stream noted it."""
        register = self._register(_show_decided(_existing(self.pipeline)))
        done = -1 if register is None else register.read().batches.get(query, -1)
        if done >= batch:
            return
        if done < batch - 1:
            self.warnings.append(
                f"batches {done + 1} to {batch - 1} of the stream were taken back and are not read again"
            )
        self._store(frame, lambda register: batch_origin(register, query, batch, pipeline=self.pipeline.name))

    def _checkpoint(self) -> str:
        """Where the stream notes what it has read: with the table, unless the pipeline says otherwise."""
        if self.pipeline.source.checkpoint:
            place = self.pipeline.source.checkpoint
        else:
            table = location_of(self.pipeline.destination.path).uri
            place = f"{table}/{STREAMS_FOLDER}/{quote(self.pipeline.name, safe='')}"
        return f"file://{place}" if place.startswith("/") else place

    def _schema(self) -> pa.Schema | None:
        """What text is read in: the table's schema, unless a transform stands between the two."""
        table = None if self.pipeline.transform else _existing(self.pipeline)
        return None if table is None else table_schema(table, load_timeline(table.store))

    def _store(self, frame: DataFrame, origin: Callable[[Register], Origin]) -> None:
        """Write what the transform makes of the rows, in one commit."""
        # Loaded here because a run with nothing to do needs neither Arrow nor Spark.
        from holdfast.engines.spark.writer import SparkRows
        from holdfast.writes.operations import write

        request = _request(self.pipeline)
        with self._transform(frame) as rows:
            table = self._target(request, rows)
            register = self._register(table)
            assert register is not None, "there is a table"
            commit = write(
                table,
                self.pipeline.destination.operation,
                SparkRows(rows),
                WriteSettings.from_options(request.options),
                origin=origin(register),
            )
        self.commits.append(commit)

    def _transform(self, frame: DataFrame) -> AbstractContextManager[DataFrame]:
        if not self.pipeline.transform:
            return nullcontext(frame)
        from holdfast.engines.spark.transforms import run_transform

        return run_transform(frame, self.pipeline.transform, first_line=self.pipeline.transform_line)

    def _target(self, write: SourceWrite, rows: DataFrame) -> OpenTable:
        """The table, made if it is not there and compared with the pipeline if it is."""
        to = self.pipeline.destination
        if _existing(self.pipeline) is None:
            write = write.for_new_table(name=to.name, table_type=to.table_type)
            write.new_settings().check_writable()
        location = location_of(to.path, to.storage_options)
        return open_target(location, write, columns=rows.columns, clock=self.clock, host=SystemHost())

    def _clean(self) -> CleanReport | None:
        table = _existing(self.pipeline)
        assert table is not None, "a commit was made"
        with self._stage("clean"):
            try:
                return clean(table, WriteSettings.from_options(_request(self.pipeline).options))
            except HoldfastError as error:
                self.warnings.append(f"the table could not be cleaned: {error}")
                return None

    def _push(self) -> PushReport | None:
        table = None if self.pipeline.push is None else _show_decided(_existing(self.pipeline))
        if self.pipeline.push is None or table is None:
            return None
        instant, warning = due_instant(self.pipeline.push, table)
        if warning:
            self.warnings.append(warning)
        if instant is None:
            return None
        with self._stage("push"):
            return push_table(
                self.pipeline, table, instant, spark=self._session(), announce=self.announce or _silent
            )

    def _session(self) -> SparkSession:
        if self.spark is None:
            self.spark = spark_session(f"holdfast run {self.pipeline.name}", self.master)
        return self.spark

    @contextmanager
    def _writing(self) -> Iterator[SparkSession]:
        """The stage in which Spark works, announced while its tasks get done."""
        with self._stage("write"), spark_failures_as_ours():
            session = self._session()
            if self.announce is None:
                yield session
                return
            announce = self.announce
            from holdfast.engines.spark.jobs import task_counts

            watch = self.clock.every_ms(
                _LOOK_EVERY_MS, lambda: announce("write", *task_counts(session)), name="holdfast-progress"
            )
            try:
                yield session
            finally:
                watch.stop()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        (self.announce or _silent)(name, 0, 0)
        began_ms = self.clock.monotonic_ms()
        try:
            yield
        finally:
            took = (self.clock.monotonic_ms() - began_ms) / 1000
            self.seconds[name] = self.seconds.get(name, 0.0) + took


def _request(pipeline: Pipeline) -> SourceWrite:
    to = pipeline.destination
    return SourceWrite.to_table(
        record_key=to.record_key, partition_by=to.partition_by, ordering=to.ordering, options=to.options
    )


def _show_decided(table: OpenTable | None) -> OpenTable | None:
    """The table, showing everything that was decided: a run may have died before it could."""
    if table is not None:
        load_published_timeline(table, table.ledger.read())
    return table


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass
