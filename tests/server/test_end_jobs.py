"""Ends in the background: one for each push, and what became of each."""

import threading

import pytest

from holdfast.errors import Refused
from holdfast.push.reports import Changes, Switched
from holdfast.server.end_jobs import EndJob, EndJobs

CHANGES = Changes(table="orders_OFFLINE")


@pytest.fixture
def jobs():
    return EndJobs()


def asked(number, entry="e1"):
    return EndJob(id=f"j{number}", table="orders_OFFLINE", entry_id=entry)


def wait(jobs, job):
    ended = threading.Event()
    while jobs.find(job.id).state == "RUNNING":
        ended.wait(0.001)
    return jobs.find(job.id)


def test_a_push_that_is_being_ended_is_not_ended_twice(jobs):
    go_on = threading.Event()
    calls = []

    def end():
        calls.append(1)
        assert go_on.wait(10)
        return Switched(entry_ids=("e1",), changes=CHANGES, epoch=7)

    first, second = jobs.begin(asked(1), end), jobs.begin(asked(2), end)
    other = jobs.begin(asked(3, "e2"), end)

    assert (first.id, second.id, other.id) == ("j1", "j1", "j3")
    go_on.set()
    assert [wait(jobs, job).state for job in (first, other)] == ["DONE", "DONE"]
    assert wait(jobs, first).epoch == 7
    assert len(calls) == 2


def test_a_refusal_is_kept_with_its_code(jobs):
    def end():
        raise Refused("segments were not uploaded", code="TO_NOT_UPLOADED")

    failed = wait(jobs, jobs.begin(asked(1), end))

    assert (failed.state, failed.error_code) == ("FAILED", "TO_NOT_UPLOADED")
    again = jobs.begin(asked(2), lambda: Switched(entry_ids=("e1",), changes=CHANGES, epoch=1))
    assert wait(jobs, again).state == "DONE"


def test_a_bug_does_not_leave_a_job_running(jobs, caplog):
    failed = wait(jobs, jobs.begin(asked(1), lambda: 1 / 0))

    assert (failed.state, failed.error_code) == ("FAILED", "INTERNAL")
    assert "division" not in failed.error
