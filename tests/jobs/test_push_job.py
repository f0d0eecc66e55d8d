"""Push jobs against a real service, on rows in memory: what queries see, and what is left behind."""

import os
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.cutting_proxy import Cut
from harness.push_client import make_table
from harness.push_jobs import (
    ROWS,
    Holder,
    JobProcess,
    job_of,
    push,
    retention,
    rows_of,
    seen,
    stored_files,
)
from holdfast.config.choices import Operation
from holdfast.config.push_job import FileInput, TableInput
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.errors import (
    Conflict,
    Fenced,
    GateFailed,
    InvalidRequest,
    OutcomeUnknown,
    Refused,
    SchemaMismatch,
)
from holdfast.host import Owner, SystemHost
from holdfast.jobs.ingested import Register, files_origin
from holdfast.jobs.push.run import plan_push_job, run_push_job
from holdfast.jobs.push.run_records import RunRecord, Scope, write_record
from holdfast.jobs.source_files import SourceFile
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE, source_text
from holdfast.push.segments.deep_store import RUNS
from holdfast.storage.local import LocalStore
from holdfast.table.opened import open_at
from holdfast.writes import operations


def _deep_store(running):
    return LocalStore(running.service.controller.views.deep_store_uri)


def test_a_job_replaces_everything_that_queries_see(running, table):
    first = push(running.controller_url, table.name, 1)
    second = push(running.controller_url, table.name, 2)

    assert seen(table) == [(2, ROWS)]
    assert (second.rows, len(second.segments), second.replaced) == (ROWS, 3, first.segments)
    assert second.epoch == table.client.sql(f"SELECT count(*) FROM {table.name}")["snapshotEpoch"]
    assert table.states() == ["COMPLETED", "COMPLETED"]
    assert set(second.seconds) == {"build", "upload", "gates", "publish"}


def test_names_tell_the_run_and_the_order(running, table):
    report = push(running.controller_url, table.name, 1)

    start, run, *sequence = report.segments[0].rsplit("_", 2)
    assert (start, len(run), sequence) == (table.typed, 13, ["0"])
    assert report.segments[1:] == tuple(f"{start}_{run}_0_{number}" for number in (1, 2))


def test_a_dry_run_writes_nothing(running, table):
    push(running.controller_url, table.name, 1)
    before, files = table.records(), stored_files(table)

    plan = plan_push_job(job_of(running.controller_url, table.name), frame=rows_of(2))

    assert set(plan.replaced) == table.visible()
    assert (table.records(), stored_files(table)) == (before, files)


def test_a_push_of_a_commit_that_files_became_names_them_too(running, table, tmp_path):
    path = str(tmp_path / "lake")
    holdfast.create_table(path, name="orders", record_key="id")
    register = Register(open_at(path))
    files = [SourceFile(f"/inbox/{name}.csv", 1, 1) for name in ("monday", "tuesday")]
    origin = files_origin(register, files, register.read(), pipeline="orders")
    commit = operations.write(
        open_at(path), Operation.INSERT, ArrowRows(rows_of(1)), WriteSettings(), origin=origin
    )

    plan = plan_push_job(job_of(running.controller_url, table.name, input=TableInput(path=path)))

    assert plan.source == {
        LAKE_TABLE: path, LAKE_INSTANT: commit.instant, "input.folder": "/inbox", "input.files": "2",
        "input.names": "monday.csv, tuesday.csv",
    }  # fmt: skip
    assert source_text(plan.source) == f"{path} at {commit.instant}, made of 2 files of /inbox"


def test_columns_that_the_input_lacks_get_the_default_of_the_schema(running, table):
    run_push_job(job_of(running.controller_url, table.name), frame=pa.table({"id": [1], "other": [2]}))

    rows = table.client.sql(f"SELECT id, city, snapshot FROM {table.name}")["resultTable"]["rows"]
    assert rows == [[1, "null", 0]]


@pytest.mark.parametrize(
    ("rows", "column", "value_type"),
    [
        ({"id": ["x"]}, "id", "string"),
        ({"id": pa.array([2**63], pa.uint64())}, "id", "uint64"),
        ({"id": [1.5]}, "id", "double"),
    ],
)
def test_a_value_that_does_not_fit_fails_the_job_and_is_named(running, table, rows, column, value_type):
    push(running.controller_url, table.name, 1)

    with pytest.raises(SchemaMismatch) as caught:
        run_push_job(job_of(running.controller_url, table.name), frame=pa.table(rows))

    assert (caught.value.facts["column"], caught.value.facts["value_type"]) == (column, value_type)
    assert seen(table) == [(1, ROWS)]
    assert len(stored_files(table)) == 3


def test_an_input_without_rows_is_refused_unless_it_may_empty_the_table(running, table):
    push(running.controller_url, table.name, 1)
    empty = rows_of(2, rows=0)

    with pytest.raises(Refused, match="no rows"):
        run_push_job(job_of(running.controller_url, table.name), frame=empty)
    assert seen(table) == [(1, ROWS)]

    run_push_job(job_of(running.controller_url, table.name, allow_empty=True), frame=empty)
    assert seen(table) == []
    assert table.states()[-1] == "COMPLETED"


def test_a_push_that_does_not_fit_into_the_quota_is_refused_and_leaves_nothing(running, client):
    small = make_table(client, consistent=True, quota={"storage": "1K"})

    with pytest.raises(InvalidRequest, match="quota"):
        push(running.controller_url, small.name, 1)

    assert (small.segments(), small.states(), stored_files(small)) == (set(), [], [])


@pytest.mark.parametrize("settings", [{"consistent": True}, {"kind": "APPEND"}])
def test_what_will_not_fit_is_refused_before_anything_is_built(running, client, tmp_path, proxy, settings):
    small = make_table(client, quota={"storage": "1K"}, **settings)
    (tmp_path / "rows.parquet").write_bytes(b"x" * 100_000)
    job = job_of(proxy.url, small.name, input=FileInput(folder=str(tmp_path), format="parquet"))
    with pytest.raises(InvalidRequest, match="quota"):
        run_push_job(job)

    assert not {"startReplaceSegments", "batchUpload"} & set(proxy.calls)
    assert stored_files(small) == []


def test_columns_that_are_not_pushed_do_not_count_for_the_quota(running, client, tmp_path):
    small = make_table(client, consistent=True, quota={"storage": "10K"})
    noise = pa.array([os.urandom(50_000) for _ in range(ROWS)])
    pq.write_table(rows_of(1).append_column("noise", noise), tmp_path / "rows.parquet")
    folder = FileInput(folder=str(tmp_path), format="parquet")

    plan = plan_push_job(job_of(running.controller_url, small.name, input=folder))

    assert 0 < plan.expected_bytes < 5000


def test_what_hudi_adds_to_rows_does_not_count_for_the_quota(running, table, tmp_path):
    lake = holdfast.create_table(str(tmp_path / "lake"), name="orders", record_key="id")
    lake.insert(rows_of(1, rows=20_000))
    stored = sum((tmp_path / "lake" / file).stat().st_size for file in lake.files())

    plan = plan_push_job(
        job_of(running.controller_url, table.name, input=TableInput(path=str(tmp_path / "lake")))
    )

    assert 0 < plan.expected_bytes < stored / 2


# Gates


def test_a_gate_that_fails_leaves_readers_alone_and_the_rejected_rows_to_be_looked_at(running, table):
    push(running.controller_url, table.name, 1)
    gates = [{"min_rows": 1}, {"max_rows": 3}]

    with pytest.raises(GateFailed) as caught:
        push(running.controller_url, table.name, 2, gates=gates)

    facts = caught.value.facts
    assert (facts["gate"], facts["expected"], facts["found"]) == ("max_rows", "at most 3", f"{ROWS} rows")
    assert seen(table) == [(1, ROWS)]
    assert table.entries()[facts["entry"]]["state"] == "REVERTED"
    statement = f"SELECT count(*) FROM {table.name} WHERE snapshot = 2"
    looked_at = table.client.sql(statement, queryOptions=f"snapshotEntryId={facts['entry']}")
    assert looked_at["resultTable"]["rows"] == [[ROWS]]

    retention(table)
    assert seen(table) == [(1, ROWS)]
    assert len(stored_files(table)) == 3


def test_the_gates_of_the_table_hold_for_every_job(running, client):
    strict = make_table(client, consistent=True, gates=[{"max_rows": 3}])

    with pytest.raises(GateFailed):
        push(running.controller_url, strict.name, 1)
    push(running.controller_url, strict.name, 1, rows=2, gates=[{"min_rows": 2}])

    assert seen(strict) == [(1, 2)]


def test_the_push_after_a_rejected_one_goes_through(running, table):
    push(running.controller_url, table.name, 1)
    with pytest.raises(GateFailed):
        push(running.controller_url, table.name, 2, gates=[{"max_rows": 1}])

    push(running.controller_url, table.name, 3, gates=[{"min_rows": 1}])

    assert seen(table) == [(3, ROWS)]
    retention(table)
    assert len(stored_files(table)) == 6


# Answers that get lost


def test_an_end_whose_answer_is_lost_is_asked_about_and_not_reverted(running, table, proxy):
    push(running.controller_url, table.name, 1)
    lost = []

    def watch(call):
        if call.name == "endReplaceSegments" and call.moment == "after" and not lost:
            lost.append(call)
            raise Cut

    proxy.watch = watch
    report = push(proxy.url, table.name, 2)

    assert lost
    assert seen(table) == [(2, ROWS)]
    assert table.entries()[report.entry_id]["state"] == "COMPLETED"
    assert "revertReplaceSegments" not in proxy.calls


def test_an_end_that_nobody_answers_takes_nothing_back(running, table, proxy):
    push(running.controller_url, table.name, 1)
    is_cut = []

    def watch(call):
        if call.name == "endReplaceSegments" and call.moment == "after":
            is_cut.append(call)
        if is_cut:
            raise Cut

    proxy.watch = watch
    with pytest.raises(OutcomeUnknown, match="published"):
        push(proxy.url, table.name, 2)

    assert seen(table) == [(2, ROWS)]
    assert "revertReplaceSegments" not in proxy.calls
    push(running.controller_url, table.name, 3)
    assert seen(table) == [(3, ROWS)]
    assert [name for name in stored_files(table) if name.endswith(".json")] == []


@pytest.mark.parametrize("call", ["startReplaceSegments", "batchUpload", "validateReplaceSegments"])
def test_a_call_whose_answer_is_lost_is_made_again(running, table, proxy, call):
    lost = []

    def watch(made):
        if made.name == call and made.moment == "after" and not lost:
            lost.append(made)
            raise Cut

    proxy.watch = watch
    push(proxy.url, table.name, 1, gates=[{"min_rows": 1}])

    assert lost
    assert seen(table) == [(1, ROWS)]
    assert table.states().count("IN_PROGRESS") == 0
    retention(table)
    assert len(stored_files(table)) == 3


def test_whatever_fails_after_the_start_reverts_the_push(running, table, proxy):
    push(running.controller_url, table.name, 1)

    def watch(call):
        if call.name == "batchUpload":
            raise Cut

    proxy.watch = watch
    with pytest.raises(OutcomeUnknown):
        push(proxy.url, table.name, 2)

    assert seen(table) == [(1, ROWS)]
    assert table.states()[-1] == "REVERTED"
    assert len(stored_files(table)) == 3


def test_a_start_that_nobody_answers_leaves_no_push_open(running, table, proxy):
    push(running.controller_url, table.name, 1)

    def watch(call):
        if (call.name, call.moment) == ("startReplaceSegments", "after"):
            raise Cut

    proxy.watch = watch
    with pytest.raises(OutcomeUnknown):
        push(proxy.url, table.name, 2)

    assert "IN_PROGRESS" not in table.states()
    assert len(stored_files(table)) == 3
    assert seen(table) == [(1, ROWS)]


# Two at once


def test_of_two_jobs_at_once_one_wins_and_the_other_is_told_who(running, table, proxy):
    push(running.controller_url, table.name, 1)
    holder = proxy.watch = Holder("batchUpload", "before")
    first = JobProcess(proxy.url, table.name, 2)
    holder.wait()

    with pytest.raises(Conflict, match="another push job of the table is running"):
        push(running.controller_url, table.name, 3)
    assert seen(table) == [(1, ROWS)]

    holder.release()
    code, _, complaint = first.ended()
    assert (code, complaint) == (0, "")
    assert seen(table) == [(2, ROWS)]
    retention(table)
    assert len(stored_files(table)) == 6


def test_of_jobs_that_begin_together_none_is_lost_or_doubled(running, table):
    push(running.controller_url, table.name, 1)
    jobs = {number: JobProcess(running.controller_url, table.name, number) for number in (2, 3, 4)}

    codes = {number: job.ended() for number, job in jobs.items()}

    won = [number for number, (code, _, _) in codes.items() if code == 0]
    complaints = [complaint for code, _, complaint in codes.values() if code != 0]
    assert won
    assert all("Conflict" in complaint or "FROM_NOT_VISIBLE" in complaint for complaint in complaints)
    ((number, count),) = seen(table)
    assert (number in won, count) == (True, ROWS)
    assert "IN_PROGRESS" not in table.states()
    retention(table)
    assert len(stored_files(table)) == 6


def test_a_push_of_somebody_else_is_told_by_the_service(running, table):
    """Another client, without a record, holds a lease that outlives the patience of the job."""
    entry = table.started([], ["other"], lease=True)

    with pytest.raises(Conflict, match="another push is alive"):
        push(running.controller_url, table.name, 1, lease_ms=1000)

    assert table.entries()[entry]["state"] == "IN_PROGRESS"
    assert stored_files(table) == []


def test_a_job_that_was_taken_over_says_so_and_takes_nothing_back(running, table, proxy):
    push(running.controller_url, table.name, 1)

    def take_over(call):
        if (call.name, call.moment) == ("validateReplaceSegments", "before"):
            table.start(sorted(table.visible()), ["other"], forceCleanup=True, takeover=True)

    proxy.watch = take_over
    with pytest.raises((Conflict, Fenced, Refused)):
        push(proxy.url, table.name, 2, gates=[{"min_rows": 1}])

    assert table.states().count("IN_PROGRESS") == 1, "the one that took over"
    assert seen(table) == [(1, ROWS)]
    retention(table)
    assert len(stored_files(table)) == 3


def test_an_owner_that_cannot_be_judged_is_waited_for_until_its_lease_is_over(running, table):
    push(running.controller_url, table.name, 1)
    elsewhere = Owner("elsewhere", "boot", 1, "1", "run9")
    record = RunRecord(run="run9", owner=elsewhere, started_ms=1, scope=Scope())
    write_record(_deep_store(running), table.typed, record)
    entry = table.started(sorted(table.visible()), ["left"], lease=True, leaseMs=1500)

    push(running.controller_url, table.name, 2, lease_ms=3000)

    assert seen(table) == [(2, ROWS)]
    assert table.entries()[entry]["state"] == "REVERTED"


def test_the_record_of_a_run_is_there_while_it_runs_and_only_then(running, table):
    names = []
    root = _deep_store(running)

    run_push_job(
        job_of(running.controller_url, table.name),
        frame=rows_of(1),
        announce=lambda *_: names.append(tuple(root.paths(f"{RUNS}/{table.name}"))),
    )

    assert all(len(found) == 1 for found in names)
    assert root.paths(f"{RUNS}/{table.name}") == []


def test_a_record_of_another_boot_is_of_a_run_that_is_gone(running, table):
    mine = SystemHost().owner("run8")
    gone = replace(mine, boot="another boot")
    record = RunRecord(run="run8", owner=gone, started_ms=1, scope=Scope())
    write_record(_deep_store(running), table.typed, record)

    report = push(running.controller_url, table.name, 1)

    assert any("had been killed" in warning for warning in report.warnings)
    assert len(stored_files(table)) == 3


# Retention


def test_after_retention_two_snapshots_are_left(running, table):
    for number in range(1, 6):
        push(running.controller_url, table.name, number)

    retention(table)

    assert seen(table) == [(5, ROWS)]
    assert len(stored_files(table)) == 6


def test_rows_in_memory_are_transformed_and_filtered_as_the_table_asks(running, client):
    table = make_table(client, consistent=True)
    settings = client.get(f"/tables/{table.name}").json()["OFFLINE"]
    settings["ingestionConfig"] |= {
        "transformConfigs": [{"columnName": "city", "transformFunction": "upper(place)"}],
        "filterConfig": {"filterFunction": "id = 1"},
    }
    assert client.call("PUT", f"/tables/{table.name}", json=settings).status_code == 200
    rows = pa.table({"id": [0, 1, 2], "place": ["oslo"] * 3, "snapshot": [1] * 3})

    assert run_push_job(job_of(running.controller_url, table.name), frame=rows).rows == 2

    answer = client.sql(f"SELECT id, city FROM {table.name} ORDER BY id")
    assert answer["resultTable"]["rows"] == [[0, "OSLO"], [2, "OSLO"]]
