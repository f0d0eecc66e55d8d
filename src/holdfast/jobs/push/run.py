"""Push jobs: rows become segments in the deep store, and queries see them all at once.

    leftovers ─► would it fit? ─► build, unregistered ─► start ─► upload ─► gates ─► end

A table whose every push delivers all of it is replaced as a whole; of one that
is added to, a backfill replaces the part it names, and any other push adds.
Whatever fails before the end is taken back, and so is the job when it is
interrupted; what a killed one leaves, the next one takes back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.clock import Clock, SystemClock
from holdfast.config.push_job import FileInput, PushJob, load_push_job, parse_push_job
from holdfast.errors import HoldfastError, InvalidRequest, OutcomeUnknown, Refused
from holdfast.host import Host, SystemHost, heartbeat_thread
from holdfast.jobs.lake_pushes import record_push
from holdfast.jobs.process import (
    ignore_signals,
    spark_session,
    start_in_thread,
    stoppable,
    wait_or_cancel,
)
from holdfast.jobs.push.inputs import PushInput, open_input
from holdfast.jobs.push.plan import (
    Mode,
    PushPlan,
    all_gates,
    check_built,
    files_by_key,
    mode_of,
    scope_of,
    segments_to_replace,
)
from holdfast.jobs.push.replacement import (
    Opening,
    PushTarget,
    Replacement,
    RetryPolicy,
    check_room,
    check_shared,
    check_start,
    discard_files,
    open_target,
    segment_addresses,
    upload_segments,
    visible_segments,
)
from holdfast.jobs.push.run_records import (
    CleanedUp,
    RunRecord,
    clean_up,
    remove_record,
    run_files,
    write_record,
)
from holdfast.jobs.reports import Announce, GateResult, PushReport
from holdfast.model.pushes import PUSH_RUN, Push
from holdfast.push.queries.columns import columns_of
from holdfast.push.segments.build import SEGMENT_BYTES, BuiltSegment, InputFile, SegmentRequest
from holdfast.push.segments.names import SegmentNames, segment_names
from holdfast.push.segments.time_formats import time_format
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import Store, StoreLocation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.model.arrow_stream import ArrowStream

_PROGRESS_MS = 500


def push_job_of(spec: str | os.PathLike[str] | Mapping[str, Any] | PushJob) -> PushJob:
    """A push job however it is given: a file, a mapping as one would read from it, or the value itself."""
    match spec:
        case PushJob():
            return spec
        case Mapping():
            return parse_push_job(spec, os.getcwd())
        case _:
            return load_push_job(spec)


def run_push_job(
    job: PushJob,
    *,
    spark: SparkSession | None = None,
    frame: DataFrame | ArrowStream | None = None,
    announce: Announce | None = None,
    master: str = "local[*]",
) -> PushReport:
    """Carry the job out. Without a session, one is started at `master`; rows in memory need none."""
    with stoppable():
        run = _prepare(job, SystemClock(), SystemHost(), announce or (lambda *_: None))
        session = getattr(frame, "sparkSession", spark)
        with _with_run_record(run), open_input(job, run.target, frame) as push_input:
            return run.carry_out(push_input, lambda: session or spark_session("holdfast push", master))


def plan_push_job(job: PushJob, *, frame: DataFrame | ArrowStream | None = None) -> PushPlan:
    """What the job would do. Nothing is written, built or waited for."""
    run = _prepare(job, SystemClock(), SystemHost(), lambda *_: None)
    with open_input(job, run.target, frame, holds=False) as push_input:
        example = run.example(push_input)
        opening = run.opening(run.target, push_input, (example,))
        if run.mode is Mode.ADD:
            check_room(run.target, expected_bytes=push_input.size_bytes)
        else:
            check_start(run.target, opening, expected_bytes=push_input.size_bytes, waits=False)
        return PushPlan(
            table=run.target.table,
            mode=run.mode,
            source=push_input.source,
            expected_bytes=push_input.size_bytes,
            replaced=opening.segments_from,
            example=example,
            gates=run.gates,
            deep_store=run.location.uri,
            warnings=job.warnings,
        )


def _prepare(job: PushJob, clock: Clock, host: Host, announce: Announce) -> _Run:
    if len(job.controllers) > 1 and not (job.output and job.copies):
        raise InvalidRequest(
            "several controllers each need a copy of the segments of their own",
            controllers=", ".join(job.controllers),
            hint="set outputDirURI, and copyToDeepStoreForMetadataPush to true",
        )
    retry = RetryPolicy(job.attempts, job.retry_ms)
    targets = tuple(open_target(url, job.token, job.table, retry) for url in job.controllers)
    first = targets[0]
    mode = mode_of(job, first.config, first.schema)
    run_ms, run = clock.now_ms(), clock.unique()
    # What is built in the deep store is the service's, which is the only one to read it there.
    location = location_of(job.output or first.deep_store, is_private=not job.output)
    return _Run(
        job=job,
        targets=targets,
        mode=mode,
        record=RunRecord(run=run, owner=host.owner(run), started_ms=run_ms, scope=scope_of(job, mode)),
        names=segment_names(
            job.naming, first.config, first.schema, run_ms=None if mode is Mode.ADD else run_ms, run=run
        ),
        location=location,
        store=open_store(location),
        clock=clock,
        host=host,
        announce=announce,
    )


@contextmanager
def _with_run_record(run: _Run) -> Iterator[None]:
    """Let others know of the run while the block runs, and take back what dead ones left.

    The record stays if the run could not tidy up: the next one then does.
    """
    timer = run.clock.every_ms(
        max(1000, run.job.lease_ms // 3), run.beat, name=heartbeat_thread(run.record.run)
    )
    try:
        write_record(run.store, run.target.table, run.record)
        try:
            if not run.job.output:
                check_shared(run.target, run.record.run)
            run.cleaned += clean_up(run.targets, run.store, run.host, run.record, run.discard)
            yield
        except BaseException as error:
            with ignore_signals():
                run.take_back(error)
            raise
        run.forget()
    finally:
        timer.stop()


@dataclass(kw_only=True)
class _Run:
    """One run of a job, and what it has done so far."""

    job: PushJob
    targets: tuple[PushTarget, ...]
    mode: Mode
    record: RunRecord
    names: SegmentNames
    location: StoreLocation
    store: Store
    clock: Clock
    host: Host
    announce: Announce
    building: Future[list[BuiltSegment]] | None = None
    """What Spark builds, if anything."""
    pushes: list[Replacement] = field(default_factory=list)
    ended: dict[str, int | None] = field(default_factory=dict)
    """The epoch of each push that was published, by controller."""
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    cleaned: list[CleanedUp] = field(default_factory=list)

    @property
    def target(self) -> PushTarget:
        """The table that decides about columns and names; others, if there are any, get the same."""
        return self.targets[0]

    @property
    def gates(self) -> tuple[Mapping[str, Any], ...]:
        return all_gates(self.job, self.target.config)

    def example(self, push_input: PushInput) -> str:
        return self.names.name(0, 0, None, next(iter(push_input.files), ""))

    def opening(self, target: PushTarget, push_input: PushInput, names: tuple[str, ...]) -> Opening:
        return Opening(
            segments_from=segments_to_replace(target, self.job, self.mode),
            segments_to=names,
            is_whole=self.mode is Mode.WHOLE,
            has_gates=bool(self.gates),
            lease_ms=self.job.lease_ms,
            source={**push_input.source, PUSH_RUN: self.record.run},
            note=self.job.note,
        )

    def carry_out(self, push_input: PushInput, session: Callable[[], SparkSession]) -> PushReport:
        for target in self.targets:
            if self.mode is Mode.ADD:
                check_room(target, expected_bytes=push_input.size_bytes)
            else:
                opening = self.opening(target, push_input, (self.example(push_input),))
                check_start(target, opening, expected_bytes=push_input.size_bytes)
        with self._stage("build"):
            built = self._build(push_input, session)
        check_built(self.job, built)
        if not built and not self._may_be_empty():
            return self._report(push_input, built, (), ())
        if self.mode is Mode.ADD:
            with self._stage("upload"):
                for target in self.targets:
                    self._upload(target, built, "")
            self._warn_of_stale(built)
            return self._report(push_input, built, (), ())
        return self._replace(push_input, built)

    def _replace(self, push_input: PushInput, built: list[BuiltSegment]) -> PushReport:
        size = sum(one.size_bytes for one in built)
        names = tuple(one.name for one in built)
        with self._stage("upload"):
            for target in self.targets:
                push = Replacement(target, self.opening(target, push_input, names), run=self.record.run)
                self.pushes.append(push)
                push.start(expected_bytes=size)
                self._upload(target, built, push.lease_token)
        with self._stage("gates"):
            results = [push.validate(self.gates) if self.gates else () for push in self.pushes]
        with self._stage("publish"):
            for push in self.pushes:
                self._publish(push, push_input, built)
        return self._report(push_input, built, self.pushes[0].opening.segments_from, results[0])

    def _warn_of_stale(self, built: list[BuiltSegment]) -> None:
        """Without consistent push, segments of earlier pushes go only where a new one has their name."""
        stale = set(visible_segments(self.target)).difference(one.name for one in built)
        if self.target.config.refresh and stale:
            self.warnings.append(
                f"{len(stale)} segments of earlier pushes are still seen: set consistentDataPush to true"
            )

    def beat(self) -> None:
        for push in tuple(self.pushes):
            if push.target.client.url not in self.ended:
                push.beat()

    def take_back(self, error: BaseException) -> None:
        """Undo everything that was not published; what cannot be undone now is left to the next run."""
        is_tidy = True
        for push in self.pushes:
            url = push.target.client.url
            if url in self.ended:
                error.add_note(f"the push to {url} was published, and stays")
                is_tidy = False
                continue
            if push.is_ending and isinstance(error, OutcomeUnknown):
                is_tidy = False
                continue
            try:
                if not push.give_up():
                    error.add_note(f"the push {push.entry_id} was published before it could be taken back")
                    is_tidy = False
            except HoldfastError as problem:
                error.add_note(f"the push {push.entry_id} is still open: {problem}")
                is_tidy = False
        if self.building is not None and not self.building.done():
            error.add_note("Spark has not stopped yet: files that it still writes are left to the next run")
            is_tidy = False
        try:
            self.discard(self.record)
        except HoldfastError as problem:
            error.add_note(f"files of the run are left to the next one: {problem}")
            is_tidy = False
        if is_tidy:
            self.forget()

    def forget(self) -> None:
        """Remove the record: there is nothing that a later run would have to take back."""
        with suppress(HoldfastError):  # It will find nothing.
            remove_record(self.store, self.target.table, self.record.run)

    def _build(self, push_input: PushInput, session: Callable[[], SparkSession]) -> list[BuiltSegment]:
        if push_input.rows is not None:
            from holdfast.engines.arrow.segments import build_in_process

            request = self._request({})
            return build_in_process(
                push_input.rows, request, self.location, rules=self.target.rules, columns=self.job.columns
            )
        if push_input.frame is None:
            return []
        files = files_by_key(self.job, self.mode, push_input.files)
        return self._build_on_spark(push_input.frame, session(), files)

    def _build_on_spark(
        self, frame: Callable[[SparkSession], DataFrame], spark: SparkSession, files: Mapping[str, InputFile]
    ) -> list[BuiltSegment]:
        # Loaded here because Spark is large, and a plan needs none of it.
        from holdfast.engines.spark.jobs import Jobs, inheriting, task_counts
        from holdfast.engines.spark.segments import build_on_spark, fit_frame, frame_program

        jobs = Jobs()
        progress = self.clock.every_ms(
            _PROGRESS_MS, lambda: self.announce("build", *task_counts(spark)), name="holdfast-push-progress"
        )
        fields = tuple(self.target.schema.fields.values())
        separator = self.job.input.list_separator if isinstance(self.job.input, FileInput) else ";"
        try:
            request, tasks = self._request(files), self.job.parallelism
            asked: Any = {"columns": self.job.columns, "separator": separator, "by_file": bool(files)}
            if self.target.rules:
                rows, program = frame_program(frame(spark), self.target.rules, fields, **asked)
                request = replace(request, program=program)
            else:
                rows = fit_frame(frame(spark), fields, **asked)
            build = inheriting(
                spark, lambda: build_on_spark(rows, request, self.location, tasks=tasks, jobs=jobs)
            )
            # A signal that cut off a call to the JVM would break the connection.
            self.building = start_in_thread(build, name="holdfast-push-build")
            built = wait_or_cancel(self.building, cancel=lambda: jobs.cancel(spark))
        finally:
            progress.stop()
        counted = {one.path for one in built}
        # Attempts of tasks that failed, or that another attempt overtook.
        others = [p for p in run_files(self.store, self.target.table, self.record.run) if p not in counted]
        self.store.delete_all(others)
        return built

    def _request(self, files: Mapping[str, InputFile]) -> SegmentRequest:
        schema, config = self.target.schema, self.target.config
        defaults = {column.name: column.default for column in columns_of(schema.raw)}
        fields = tuple((one, defaults[one.name]) for one in schema.fields.values())
        time_field = schema.fields.get(config.time_column or "")
        return SegmentRequest(
            table=self.target.table,
            run=self.record.run,
            names=self.names,
            fields=fields,
            time=None if time_field is None else (time_field.name, time_format(time_field)),
            most_rows=self.job.sizing.rows,
            most_bytes=self.job.sizing.bytes or (None if files else SEGMENT_BYTES),
            files=files,
        )

    def _may_be_empty(self) -> bool:
        """Whether an input without rows is to be pushed; if it is just nothing to do, it is not."""
        if self.job.fail_on_empty or (self.mode is not Mode.ADD and not self.job.allow_empty):
            raise Refused(
                "the input has no rows",
                table=self.target.table,
                hint="set allow_empty: true if the table is to be emptied",
            )
        self.warnings.append("the input has no rows")
        return self.mode is not Mode.ADD

    def _upload(self, target: PushTarget, built: list[BuiltSegment], lease_token: str) -> None:
        upload_segments(
            target,
            built,
            uri_of=self._address,
            created_ms=self.record.started_ms,
            copies=self.job.copies,
            lease_token=lease_token,
            announce=lambda done: self.announce("upload", done, len(built)),
        )

    def _address(self, path: str) -> str:
        """How the service finds a file that was built."""
        uri = self.store.uri(path)
        return f"file://{quote(uri)}" if uri.startswith("/") else uri

    def _publish(self, push: Replacement, push_input: PushInput, built: list[BuiltSegment]) -> None:
        with ExitStack() as stack:
            if push_input.lake is not None and push_input.instant is not None:
                push_record = Push(
                    table=push.target.table,
                    controller=push.target.client.url,
                    entry_id=push.entry_id,
                    instant=push_input.instant,
                    lake=push_input.lake.location.uri,
                    segments=len(built),
                    rows=sum(one.rows for one in built),
                    is_whole=self.mode is Mode.WHOLE,
                )
                warnings = stack.enter_context(record_push(push_input.lake, push_record, push.target.client))
            else:
                warnings = stack.enter_context(nullcontext([]))
            published = push.end()
            self.ended[push.target.client.url] = published.epoch
        self.warnings += warnings
        if published.late:
            self.warnings.append(f"brokers have not switched yet: {', '.join(published.late)}")
        if push is not self.pushes[0]:
            self.warnings.append(f"published at {push.target.client.url} as {push.entry_id}")

    def discard(self, record: RunRecord) -> int:
        """Delete the files of a run that became no segments; how many."""
        left = run_files(self.store, self.target.table, record.run)
        if not self.job.output:
            return len(discard_files(self.target, left))
        if not self.job.copies:
            if record.scope.adds_only:
                return 0  # An upload that is not waited for any more may still make segments of them.
            # Of a push that was taken back, what is no segment by now becomes none.
            used = frozenset[str]().union(*map(segment_addresses, self.targets))
            left = [path for path in left if self._address(path) not in used]
        self.store.delete_all(left)
        return len(left)

    def _report(
        self,
        push_input: PushInput,
        built: list[BuiltSegment],
        replaced: tuple[str, ...],
        gates: tuple[GateResult, ...],
    ) -> PushReport:
        if self.job.output and self.job.copies:
            self.discard(self.record)
        return PushReport(
            table=self.target.table,
            entry_id=self.pushes[0].entry_id if self.pushes else "",
            segments=tuple(one.name for one in built),
            replaced=replaced,
            rows=sum(one.rows for one in built),
            bytes=sum(one.size_bytes for one in built),
            gates=gates,
            epoch=self.ended.get(self.target.client.url),
            source=MappingProxyType(dict(push_input.source)),
            seconds=MappingProxyType(dict(self.seconds)),
            warnings=(*self.job.warnings, *map(str, self.cleaned), *self.warnings),
        )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self.announce(name, 0, 0)
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - began, 3)
