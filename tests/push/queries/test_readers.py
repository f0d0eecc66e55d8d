"""Statements are read where reading can be ended: no text stops the queries of others."""

import errno
import os
import signal
import threading
import time

import pytest

from holdfast.push.queries.engine import Cancellation
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.options import MAX_NESTING, read_statement
from holdfast.push.queries.processes import ProcessPool
from holdfast.push.queries.reader import Admit, Asked, Reading, Setup
from holdfast.push.queries.readers import StatementReaders

TYPES = ("INT", "DATE", "DECIMAL", "VARCHAR", "TIMESTAMP", "STRUCT", "JSON", "LONG", "STRING", "BYTES")


def soon(seconds=20.0):
    return time.monotonic() + seconds


@pytest.mark.parametrize("name", TYPES)
def test_calls_that_are_named_like_types_are_read_in_one_pass(name, readers):
    """Each pair of brackets once doubled the time: thirty of them were an hour, and 158 bytes."""
    nested = "SELECT " + f"{name}(" * MAX_NESTING + "1" + ")" * MAX_NESTING + " FROM t"
    before = readers.pids

    with pytest.raises(QueryFailed) as failed:
        readers.tables(read_statement(nested, {}, max_timeout_ms=1000).sql, deadline_s=soon())

    assert "not supported" in str(failed.value)
    assert readers.pids == before


def test_a_type_is_still_a_type_where_one_is_meant(readers):
    sql = "SELECT CAST(a AS DECIMAL(10, 2)), TIMESTAMP '2024-01-01 00:00:00', date FROM t"

    assert readers.tables(sql, deadline_s=soon()) == ("t",)


def test_deep_nesting_is_refused_before_anything_is_read():
    deep = "SELECT " + "(" * (MAX_NESTING + 1) + "1" + ")" * (MAX_NESTING + 1)

    with pytest.raises(QueryFailed, match="nested too deeply"):
        read_statement(deep, {}, max_timeout_ms=1000)


def test_a_statement_that_was_read_is_remembered(readers, monkeypatch):
    sql = "SELECT remembered FROM t"
    readers.tables(sql, deadline_s=soon())

    assert readers.tables(sql, deadline_s=time.monotonic() - 1) == ("t",)


@pytest.fixture
def own_readers():
    started = StatementReaders(within_s=0.3)
    started.start()
    yield started
    started.close()


def test_a_reader_that_does_not_answer_is_ended_and_others_are_read_meanwhile(own_readers):
    for pid in own_readers.pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()

    with pytest.raises(QueryFailed) as failed:
        own_readers.tables("SELECT 1 FROM t", deadline_s=soon(600))

    assert failed.value.code is QueryError.SQL_PARSING
    assert time.monotonic() - began < 5
    for pid in own_readers.pids:
        os.kill(pid, signal.SIGCONT)
    assert own_readers.tables("SELECT 1 FROM t", deadline_s=soon(60)) == ("t",)


@pytest.mark.parametrize(
    "sql", ["SELECT CAST(1 AS NULLABLE<INT>)", "SELECT CAST(a AS NULLABLE<STRING>) FROM t"]
)
def test_a_bug_of_the_parser_is_told_and_costs_no_reader(sql, readers):
    """The parser looks the type up in a dictionary that does not have it."""
    before = readers.pids

    with pytest.raises(QueryFailed, match="cannot be read") as failed:
        readers.tables(sql, deadline_s=soon())

    assert failed.value.code is QueryError.SQL_PARSING
    assert readers.pids == before


def test_a_reader_that_ends_is_told_as_one_that_ended():
    readers = StatementReaders(within_s=60)
    readers.start()
    try:
        for pid in readers.pids:
            os.kill(pid, signal.SIGSTOP)
        ending = threading.Timer(0.3, lambda: [os.kill(pid, signal.SIGKILL) for pid in readers.pids])
        ending.start()

        with pytest.raises(QueryFailed, match="ended") as failed:
            readers.tables("SELECT 1 FROM t", deadline_s=soon(120))

        ending.join()
        assert failed.value.code is QueryError.SQL_PARSING
    finally:
        readers.close()


def test_waiting_for_a_reader_counts_against_the_deadline(own_readers):
    held = [
        own_readers._processes.take((), deadline_s=soon(60), cancellation=Cancellation())
        for _ in own_readers.pids
    ]
    began = time.monotonic()

    with pytest.raises(QueryFailed) as failed:
        own_readers.tables("SELECT 1 FROM t", deadline_s=soon(0.2))

    assert failed.value.code is QueryError.QUERY_SCHEDULING_TIMEOUT
    assert time.monotonic() - began < 5
    for one in held:
        own_readers._processes.give_back(one)


def test_a_query_that_waited_past_its_deadline_is_not_begun(tables, broker):
    broker.router.refresh()

    answer = broker.answer("SELECT 1 AS late", {"timeoutMs": "500"}, began_s=time.monotonic() - 2)

    assert answer["exceptions"][0]["errorCode"] == QueryError.QUERY_SCHEDULING_TIMEOUT


def test_a_statement_that_waited_past_its_deadline_is_not_checked(broker):
    late = broker.check("SELECT 1 AS late", began_s=time.monotonic() - 20)

    assert late is not None
    assert late["errorCode"] == QueryError.QUERY_SCHEDULING_TIMEOUT


@pytest.mark.parametrize(
    ("sql", "options", "seconds"),
    [
        ("SELECT 1", {}, 10),
        ("SELECT 1", {"TIMEOUTMS": "700"}, 0.7),
        ("SET timeoutMs = 300; SELECT 1", {"timeoutMs": "700"}, 0.3),
        ("SELECT 1 OPTION(timeoutms=400)", {}, 0.4),
        ("SELECT 'timeoutMs'", {}, 10),
        ("SELECT timeoutMs FROM (", {}, 10),
        ("SELECT 1", {"timeoutMs": "never"}, 10),
    ],
)
def test_the_deadline_of_a_statement_is_known_before_its_turn(broker, sql, options, seconds):
    assert broker.deadline_s(sql, options, 100.0) == pytest.approx(100 + seconds)


def test_a_process_that_cannot_be_started_for_a_while_is_started_later():
    """A machine that is short of processes for a moment must not cost the broker one for ever."""

    class Short(ProcessPool):
        failures = 0

        def _launch(self):
            if self.failures:
                self.failures -= 1
                raise BlockingIOError(errno.EAGAIN, "no more processes")
            return super()._launch()

    pool = Short("holdfast.push.queries.reader", Setup(64 << 20), 1)
    pool.start()
    pool.failures = 1
    try:
        os.kill(*pool.pids, signal.SIGKILL)
        os.waitid(os.P_PID, *pool.pids, os.WEXITED | os.WNOWAIT)

        reader = pool.take((), deadline_s=soon(60), cancellation=Cancellation())
        answer, _ = reader.ask(
            Asked(Admit("SELECT 1 FROM t")), Reading, deadline_s=soon(), cancellation=Cancellation()
        )

        assert (answer.tables, pool.failures) == (("t",), 0)
    finally:
        pool.close()
