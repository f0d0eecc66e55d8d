"""Ends in the background: one for each push, and what became of each."""

import threading
from dataclasses import replace

import pytest

from holdfast.errors import Refused, StorageUnavailable
from holdfast.push.calls import (
    Changes,
    PublishResult,
)
from holdfast.server.end_jobs import EndJob, EndJobs
from holdfast.server.errors import TooMany

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
        return PublishResult(entry_ids=("e1",), changes=CHANGES, epoch=7)

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
    again = jobs.begin(asked(2), lambda: PublishResult(entry_ids=("e1",), changes=CHANGES, epoch=1))
    assert wait(jobs, again).state == "DONE"


def test_a_bug_does_not_leave_a_job_running(jobs, caplog):
    failed = wait(jobs, jobs.begin(asked(1), lambda: 1 / 0))

    assert (failed.state, failed.error_code) == ("FAILED", "INTERNAL")
    assert "division" not in failed.error


def test_an_error_of_storage_is_told_without_where_the_files_are(jobs):
    def end():
        raise StorageUnavailable("the file cannot be read", path="/secret/place")

    failed = wait(jobs, jobs.begin(asked(1), end))

    assert (failed.state, failed.error) == ("FAILED", "the file cannot be read")


def test_so_many_ends_run_at_a_time_and_so_many_of_one_user():
    """Each is a thread that may wait for an hour."""
    jobs, go_on = EndJobs(most=3, share=2), threading.Event()

    def end():
        assert go_on.wait(10)
        return PublishResult(entry_ids=("e1",), changes=CHANGES, epoch=7)

    def begin(number, actor):
        return jobs.begin(replace(asked(number, f"e{number}"), actor=actor), end)

    begun = [begin(1, "eve"), begin(2, "eve")]
    for number, actor in ((3, "eve"), (4, "bob"), (5, "ann")):
        if actor == "bob":
            begun.append(begin(number, actor))
            continue
        with pytest.raises(TooMany):
            begin(number, actor)
    go_on.set()

    assert [wait(jobs, job).state for job in begun] == ["DONE"] * 3
    assert wait(jobs, begin(6, "eve")).state == "DONE"
