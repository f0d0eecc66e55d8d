"""Signals while something runs on a thread beside the one that gets them."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from holdfast.jobs.process import (
    Terminated,
    start_in_thread,
    stoppable,
    wait_or_cancel,
)


class Work:
    """Goes on until it is let go."""

    def __init__(self):
        self.let_go = threading.Event()
        self.cancels = 0
        self.send = lambda: os.kill(os.getpid(), signal.SIGTERM)

    def run(self):
        threading.Timer(0.1, self.send).start()
        assert self.let_go.wait(60)
        return "done"

    def end_at_second_cancel(self):
        self.cancels += 1
        if self.cancels == 1:
            raise RuntimeError("the server does not answer")
        self.let_go.set()

    def wait_with_the_work(self):
        self.cancels += 1
        self.let_go.wait(60)


@pytest.fixture
def work():
    work = Work()
    yield work
    work.let_go.set()


def test_what_runs_beside_gives_its_result_or_its_error():
    assert wait_or_cancel(start_in_thread(lambda: 7, name="seven"), cancel=lambda: None) == 7
    with pytest.raises(ZeroDivisionError):
        wait_or_cancel(start_in_thread(lambda: 1 // 0, name="nothing"), cancel=lambda: None)


def _interrupted(work, **options):
    """The work, after a signal came while it was waited for."""
    with stoppable():
        running = start_in_thread(work.run, name="work")
        with pytest.raises(Terminated):
            wait_or_cancel(running, **options)
    return running


def test_an_interruption_is_raised_in_time_although_neither_work_nor_cancelling_ends(work):
    began = time.monotonic()

    running = _interrupted(work, cancel=work.wait_with_the_work, patience_s=0.5)

    assert time.monotonic() - began < 20
    assert work.cancels == 1
    assert not running.done(), "whoever takes back can see that it goes on"


def test_a_signal_that_the_system_gives_to_another_thread_is_obeyed_in_time(work):
    work.send = lambda: signal.raise_signal(signal.SIGTERM)  # To the thread that raises it.
    late = threading.Timer(20, work.let_go.set)
    late.start()

    _interrupted(work, cancel=work.end_at_second_cancel)

    assert late.is_alive(), "it was not waited until the work had ended by itself"
    late.cancel()


def test_an_error_of_cancelling_is_logged_and_cancelling_goes_on_until_the_work_has_ended(work, caplog):
    with caplog.at_level(logging.WARNING):
        running = _interrupted(work, cancel=work.end_at_second_cancel)

    assert running.result() == "done"
    assert work.cancels == 2
    assert [record.cause for record in caplog.records] == ["the server does not answer"]


def test_a_process_ends_although_what_runs_beside_does_not():
    code = "import time; from holdfast.jobs.process import start_in_thread as begin;"
    code += "begin(lambda: time.sleep(300), name='work')"

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
