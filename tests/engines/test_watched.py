"""When an engine is ended and started anew, and when not; without Spark."""

import threading
import time

import pytest

pytestmark = pytest.mark.spark

PATIENCE_S = 0.2


class Engine:
    """As much of a session as a look asks for."""

    def __init__(self):
        self.answers = threading.Event()
        self.answers.set()

    @property
    def version(self):
        self.answers.wait(20)
        return "4"


class Jobs:
    def __init__(self, tasks=0):
        self.tasks = tasks

    def cancel(self, _session):
        """Tasks go on."""

    def tasks_at_work(self, _session):
        return self.tasks


@pytest.fixture
def engines():
    """Those that were started, the newest one last."""
    return []


@pytest.fixture
def watch(engines):
    from holdfast.engines.spark.watched import WatchedSession

    def start():
        engines.append(Engine())
        return engines[-1]

    return lambda **settings: WatchedSession(start, patience_s=PATIENCE_S, **settings)


def eventually(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def a_thread(seconds):
    thread = threading.Thread(target=time.sleep, args=(seconds,), daemon=True)
    thread.start()
    return thread


def test_one_that_does_not_answer_is_replaced(watch, engines):
    ended = []
    watched = watch(end=lambda: ended.append(1))
    watched.look()
    eventually(lambda: watched._look is None)
    assert (len(engines), watched.is_well()) == (1, True)

    engines[0].answers.clear()
    watched.look()
    eventually(lambda: watched.is_well() and len(engines) == 2)
    assert ended == [1]
    assert watched.session is engines[1]


def test_tasks_of_a_query_that_was_stopped_are_waited_for_and_then_ended(watch, engines):
    watched = watch(end=lambda: None)
    honest = Jobs(tasks=1)
    watched.see_off(watched.session, honest, a_thread(0))
    honest.tasks = 0
    eventually(lambda: watched._look is None)
    assert len(engines) == 1

    watched.see_off(watched.session, Jobs(tasks=1), a_thread(0))
    eventually(lambda: len(engines) == 2 and watched._look is None)
    assert watched.is_well()


def test_work_without_tasks_has_more_time(watch, engines):
    """Such as planning."""
    watched = watch(end=lambda: None)
    watched.see_off(watched.session, Jobs(), a_thread(2 * PATIENCE_S))
    eventually(lambda: watched._look is None)
    assert len(engines) == 1

    watched.see_off(watched.session, Jobs(), a_thread(30))
    begun = time.monotonic()
    eventually(lambda: len(engines) == 2 and watched._look is None)
    assert time.monotonic() - begun >= 5 * PATIENCE_S


def test_one_of_somebody_else_is_only_watched(watch, engines):
    watched = watch()
    watched.see_off(watched.session, Jobs(tasks=1), a_thread(0))
    eventually(lambda: watched._look is None)
    assert (len(engines), watched.is_well()) == (1, True)

    engines[0].answers.clear()
    watched.look()
    eventually(lambda: not watched.is_well())
    engines[0].answers.set()
    watched.look()
    eventually(watched.is_well)
    assert len(engines) == 1


def test_a_query_of_an_engine_that_is_gone_does_not_end_the_next_one(watch, engines):
    watched = watch(end=lambda: None)
    watched.see_off(Engine(), Jobs(tasks=1), a_thread(30))
    eventually(lambda: watched._look is None)
    assert (len(engines), watched.is_well()) == (1, True)


def test_a_start_that_fails_is_tried_again(engines):
    from holdfast.engines.spark.watched import WatchedSession

    def start():
        engines.append(Engine())
        if len(engines) == 2:
            raise OSError
        return engines[-1]

    watched = WatchedSession(start, end=lambda: None, patience_s=PATIENCE_S)
    engines[0].answers.clear()
    watched.look()
    eventually(lambda: len(engines) == 2 and watched._look is None)
    assert not watched.is_well()
    watched.look()
    eventually(lambda: watched.is_well() and watched.session is engines[2])
