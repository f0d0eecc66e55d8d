"""The protocol as jobs speak it: repeated calls, services that see nothing, several at once."""

import io
import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

from harness.push_client import Client, make_table
from harness.push_jobs import ROWS, job_of, rows_of, seen
from holdfast.config.server import Downloads, Listener, ServerSettings
from holdfast.errors import (
    Conflict,
    GateFailed,
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    StorageUnavailable,
)
from holdfast.host import SystemHost
from holdfast.jobs.push.replacement import RetryPolicy, check_shared, open_target, upload_segments
from holdfast.jobs.push.run import run_push_job
from holdfast.jobs.push.run_records import RunRecord, Scope, write_record
from holdfast.push.segments.build import BuiltSegment
from holdfast.push.segments.deep_store import RUNS, segment_of_file
from holdfast.push.uploads.archives import unpack_batch
from holdfast.server.run import serving
from holdfast.storage.local import LocalStore


@pytest.mark.parametrize("error", [StorageUnavailable("x"), OutcomeUnknown("x"), HoldfastError("500")])
def test_a_call_that_fails_for_a_while_is_repeated_each_time_after_twice_as_long(error):
    waits, answers = [], iter([error, error, "done"])

    def call():
        answer = next(answers)
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    assert RetryPolicy(3, 1000, waits.append).until_answered(call) == "done"
    assert waits == [1, 2]


def test_a_refusal_is_not_repeated():
    calls = []

    def call():
        calls.append(1)
        raise Conflict("no")

    with pytest.raises(Conflict):
        RetryPolicy(5, 1, lambda _: None).until_answered(call)
    assert calls == [1]


def test_a_deep_store_that_the_service_does_not_share_is_noticed_before_anything_is_built(running, table):
    target = open_target(running.controller_url, "", table.name, RetryPolicy())

    with pytest.raises(InvalidRequest, match="does not see"):
        check_shared(target, "run1")


def test_segments_that_do_not_fit_one_write_of_the_store_are_registered_in_smaller_batches(running, table):
    class Small:
        """A service whose store takes three segments in a write."""

        def __init__(self):
            self.took = []

        def upload(self, path, name, content, **more):
            found = [one.description.name for one in unpack_batch(io.BytesIO(content)).values()]
            if len(found) > 3:
                raise InvalidRequest("the record is too large for the store", code="RECORD_TOO_LARGE")
            self.took.append(found)

    client, counts = Small(), []
    target = replace(open_target(running.controller_url, "", table.name, RetryPolicy()), client=client)
    built = [
        BuiltSegment(name=f"s{number}", path=f"s{number}", rows=1, size_bytes=1, crc=1)
        for number in range(10)
    ]

    upload_segments(target, built, uri_of=lambda path: path, created_ms=1, announce=counts.append)

    assert [name for batch in client.took for name in batch] == [one.name for one in built]
    assert counts == [2, 4, 6, 8, 10]


@contextmanager
def _service(folder, output):
    """A service of its own that may read what jobs build in a folder."""
    output.mkdir(exist_ok=True)
    settings = ServerSettings(
        store=f"sqlite:///{folder}/push.db", deep_store=str(folder / "segments"),
        controller=Listener(port=0), broker=Listener(port=0), downloads=Downloads(roots=(str(output),)),
    )  # fmt: skip
    with serving(settings) as running:
        yield running


def test_what_became_no_segment_is_not_left_where_segments_are_served_from(tmp_path):
    with _service(tmp_path / "service", tmp_path / "output") as running:
        table = make_table(Client(running), consistent=True, quota={"storage": "1M"})
        job = job_of(running.controller_url, table.name, output=str(tmp_path / "output"))
        store = LocalStore(str(tmp_path / "output"))
        mine = SystemHost().owner("run8")
        gone = RunRecord(run="run8", owner=replace(mine, boot="another"), started_ms=1, scope=Scope())
        write_record(store, table.typed, gone)
        store.put(f"{table.name}/left__run8-0.parquet", b"left")

        first = run_push_job(job, frame=rows_of(1))
        noise = pa.table({"id": range(3), "city": [os.urandom(1_000_000).hex() for _ in range(3)]})
        with pytest.raises(InvalidRequest, match="quota"):
            run_push_job(job, frame=noise)
        with pytest.raises(GateFailed):
            run_push_job(replace(job, gates=[{"max_rows": 1}]), frame=rows_of(2))

        files = list((tmp_path / "output").rglob("*.parquet"))
        assert sorted(segment_of_file(file.name) or "" for file in files) == sorted(first.segments)
        assert len(table.segments()) == 2 * len(first.segments), "served, and rejected by a gate"
        assert list(store.paths(RUNS)) == []
        assert seen(table) == [(1, ROWS)]


def test_several_controllers_each_get_a_copy(tmp_path):
    output = tmp_path / "output"
    with ExitStack() as stack:
        tables = []
        for name in ("first", "second"):
            running = stack.enter_context(_service(tmp_path / name, output))
            tables.append(make_table(Client(running), "orders", consistent=True))
        urls = tuple(table.client.running.controller_url for table in tables)
        job = job_of(urls[0], "orders", output=f"{output}", copies=True)
        both = replace(job, controllers=urls)

        with pytest.raises(InvalidRequest, match="several controllers"):
            run_push_job(replace(both, copies=False), frame=rows_of(1))
        report = run_push_job(both, frame=rows_of(1))

        assert [seen(table) for table in tables] == [[(1, ROWS)]] * 2
        assert list(output.rglob("*.parquet")) == []
        assert any(urls[1] in warning for warning in report.warnings)
