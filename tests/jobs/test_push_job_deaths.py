"""Push jobs that are killed or interrupted at each of their steps, and run again."""

import signal

import pytest

from harness.push_client import make_table
from harness.push_jobs import ROWS, Holder, JobProcess, push, retention, seen, stored_files

GATES = [{"min_rows": 1}]
MOMENTS = [
    ("dry startReplaceSegments", "before"),
    ("dry startReplaceSegments", "after"),
    ("startReplaceSegments", "before"),
    ("startReplaceSegments", "after"),
    ("batchUpload", "before"),
    ("batchUpload", "after"),
    ("validateReplaceSegments", "before"),
    ("validateReplaceSegments", "after"),
    ("endReplaceSegments", "before"),
    ("endReplaceSegments", "after"),
]
PUBLISHED = ("endReplaceSegments", "after")


def _held(proxy, table, call, moment):
    """A job that has got as far as this call."""
    holder = proxy.watch = Holder(call, moment)
    job = JobProcess(proxy.url, table.name, 2, gates=GATES)
    holder.wait()
    return job, holder


@pytest.mark.parametrize(("call", "moment"), MOMENTS)
def test_a_killed_job_is_made_up_for_by_the_next(running, table, proxy, call, moment):
    push(running.controller_url, table.name, 1)
    job, holder = _held(proxy, table, call, moment)

    job.kill()
    job.ended()
    holder.release()
    before = seen(table)
    assert before in ([(1, ROWS)], [(2, ROWS)]), "one snapshot or the other, never a mixture"
    assert (call, moment) != PUBLISHED or before == [(2, ROWS)]
    report = push(running.controller_url, table.name, 3)

    assert seen(table) == [(3, ROWS)]
    assert any("had been killed" in warning for warning in report.warnings)
    retention(table)
    assert len(stored_files(table)) == 6, "two snapshots, and nothing of the killed run"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("call", "moment"), [one for one in MOMENTS if one[1] == "before"])
def test_an_interrupted_job_takes_back_what_it_began(running, table, proxy, call, moment, number):
    push(running.controller_url, table.name, 1)
    job, holder = _held(proxy, table, call, moment)

    job.signal(number)
    code, _, _ = job.ended()

    assert code != 0
    assert "IN_PROGRESS" not in table.states()
    assert seen(table) == [(1, ROWS)]
    retention(table)
    assert len(stored_files(table)) == 3
    # Only now: a start that arrives when its caller is gone is for the next job to take back.
    holder.release()


def test_a_job_that_is_interrupted_after_it_was_published_stays_published(running, table, proxy):
    push(running.controller_url, table.name, 1)
    job, holder = _held(proxy, table, *PUBLISHED)

    job.signal(signal.SIGTERM)
    code, _, complaint = job.ended()
    holder.release()

    assert code != 0
    assert "was published" in complaint
    assert seen(table) == [(2, ROWS)]


def test_what_nobody_runs_again_is_left_to_retention(client, running, proxy):
    short = {"lineageEntryCleanupRetentionPeriod": "0s", "deletedSegmentsRetentionPeriod": "0d"}
    table = make_table(client, consistent=True, segments=short)
    push(running.controller_url, table.name, 1)
    job, holder = _held(proxy, table, "validateReplaceSegments", "before")
    job.kill()
    job.ended()
    holder.release()

    retention(table)

    assert "IN_PROGRESS" not in table.states()
    assert seen(table) == [(1, ROWS)]
    assert len([name for name in stored_files(table) if name.endswith(".parquet")]) == 3
