"""The broker as a whole: one snapshot per answer, limits, rights, and Pinot's shape of everything."""

import json
import random
import threading
import time

import pyarrow as pa
import pytest

from harness.push_faults import MetastoreWrapper
from harness.serving import ORDERS, code_of, orders, rows_of
from holdfast.clock import SystemClock
from holdfast.model.lineage import EntryState
from holdfast.push.queries.broker import Broker, BrokerSettings
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.queries.routing import Router
from holdfast.push.state.catalog import Catalog
from holdfast.storage.store import StoreLocation

ITEMS = {**ORDERS, "schemaName": "items"}


def test_an_answer_has_pinots_keys_in_pinots_order(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": orders([1, 2]), "b": orders([3])})
    broker.router.refresh()

    answer = broker.answer("SELECT count(*) FROM orders", {"clientQueryId": "mine"}, request_id="7")

    assert list(answer)[:4] == ["resultTable", "numRowsResultSet", "partialResult", "exceptions"]
    assert answer["resultTable"] == {
        "dataSchema": {"columnNames": ["count(*)"], "columnDataTypes": ["LONG"]},
        "rows": [[3]],
    }
    expected = {
        "requestId": "7",
        "clientRequestId": "mine",
        "brokerId": "Broker_localhost_8099",
        "totalDocs": 3,
        "numServersQueried": 1,
        "numServersResponded": 1,
        "numSegmentsQueried": 2,
        "tablesQueried": ["orders"],
        "snapshotEpoch": 1,
        "snapshotEpochs": {"orders": 1},
        "partialResult": False,
    }
    assert {key: answer[key] for key in expected} == expected
    assert json.loads(json.dumps(answer)) == answer


def test_a_table_that_the_broker_has_not_heard_of_is_looked_up(tables, pool, readers):
    """Nothing tells this router of changes."""
    router = Router(tables.catalog, broker="Broker_localhost_8099")
    router.refresh()
    broker = Broker(router, pool, readers=readers)
    tables.push(tables.create(), [], {"a": orders([1, 2])})

    assert rows_of(broker.answer("SELECT count(*) FROM orders")) == [[2]]
    assert rows_of(broker.answer("SELECT count(*) FROM orders", {"minSnapshotEpoch": "1"})) == [[2]]
    assert code_of(broker.answer("SELECT count(*) FROM others")) == QueryError.TABLE_DOES_NOT_EXIST
    router.close()


def test_a_table_that_the_broker_has_not_heard_of_is_not_open_to_everybody(tables, pool, readers):
    """Tables are found in any case, rights are given by the name a table has."""
    router = Router(tables.catalog, broker="Broker_localhost_8099")
    router.refresh()
    tables.push(tables.create(), [], {"a": orders([1, 2])})

    class Reader:
        name = "reader"

        def may_read(self, table):
            return table == "ORDERS"

    answer = Broker(router, pool, readers=readers).answer("SELECT count(*) FROM ORDERS", principal=Reader())

    assert code_of(answer) == QueryError.ACCESS_DENIED
    router.close()


class Recorded(MetastoreWrapper):
    """Remembers which records were looked at."""

    def __init__(self, inner):
        super().__init__(inner)
        self.looked_at = []

    def read(self, path):
        self.looked_at.append(path)
        return super().read(path)

    def children(self, path):
        self.looked_at.append(path)
        return super().children(path)


@pytest.fixture
def recorded(tables):
    return Recorded(tables.metastore)


@pytest.fixture
def unaware(recorded, pool, readers):
    """A broker that is told of no changes."""
    router = Router(Catalog(recorded), broker="Broker_localhost_8099")
    router.refresh()
    yield Broker(router, pool, readers=readers)
    router.close()


def test_whoever_may_not_read_a_table_cannot_tell_by_the_time_it_takes_whether_it_exists(
    tables, recorded, unaware
):
    class Nobody:
        name = "nobody"

        def may_read(self, table):
            return False

    tables.create()
    recorded.looked_at.clear()

    for name in ("orders", "others"):
        answer = unaware.answer(f"SELECT count(*) FROM {name}", principal=Nobody())
        assert code_of(answer) == QueryError.ACCESS_DENIED
    assert recorded.looked_at == []


def test_queries_of_a_table_that_is_being_deleted_do_not_look_at_all_the_others(tables, recorded, unaware):
    table, other = tables.create(), tables.create(ITEMS)
    assert rows_of(unaware.answer("SELECT count(*) FROM orders")) == [[0]]
    tables.catalog.begin_delete(table, now_ms=1)
    unaware.router.refresh()
    recorded.looked_at.clear()

    answer = unaware.answer("SELECT count(*) FROM orders")

    assert code_of(answer) == QueryError.TABLE_DOES_NOT_EXIST
    assert [path for path in recorded.looked_at if other in path] == []


def test_a_table_that_was_made_anew_is_found_although_the_old_one_was_known(tables, unaware):
    table = tables.create()
    assert rows_of(unaware.answer("SELECT count(*) FROM orders")) == [[0]]
    tables.catalog.begin_delete(table, now_ms=1)
    unaware.router.refresh()
    assert code_of(unaware.answer("SELECT count(*) FROM orders")) == QueryError.TABLE_DOES_NOT_EXIST

    tables.catalog.finish_delete(table)
    tables.catalog.delete_schema("orders")
    tables.push(tables.create(), [], {"a": orders([1, 2])})

    assert rows_of(unaware.answer("SELECT count(*) FROM orders")) == [[2]]


def test_queries_during_switches_and_reverts_are_never_mixed(tables, broker):
    """Every snapshot's rows carry its number, and snapshot n has n rows in each of its two segments."""
    table = tables.create()
    tables.push(table, [], {"v1_0": orders([0], snapshot=1), "v1_1": orders([0], snapshot=1)})
    broker.router.refresh()
    stop = threading.Event()
    wrong, seen = [], []
    queries = (
        "SELECT snapshot, count(*) FROM orders GROUP BY snapshot",
        """SELECT a.snapshot, count(DISTINCT b.$segmentName) FROM orders a
           JOIN orders b ON a.id = b.id AND a.snapshot <> b.snapshot GROUP BY a.snapshot""",
        """SELECT snapshot, count(*) FROM
           (SELECT snapshot FROM orders UNION ALL SELECT snapshot FROM orders) u GROUP BY snapshot""",
    )

    def ask(seed):
        chance = random.Random(seed)
        last = 0
        while not stop.is_set():
            at = chance.randrange(3)
            answer = broker.answer(queries[at], {"minSnapshotEpoch": str(last)})
            if answer["exceptions"]:
                wrong.append(answer["exceptions"])
                continue
            epoch, rows = answer["snapshotEpoch"], answer["resultTable"]["rows"]
            if epoch < last:
                wrong.append((epoch, last))
            last = epoch
            factor = (2, 0, 4)[at]
            if rows != ([[rows[0][0], factor * rows[0][0]]] if factor else []):
                wrong.append((at, rows))
            seen.append(epoch)

    askers = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    for asker in askers:
        asker.start()
    names, until = ["v1_0", "v1_1"], time.monotonic() + 8
    number = 1
    while time.monotonic() < until:
        number += 1
        rows = orders(range(number), snapshot=number)
        fresh = {f"v{number}_0": rows, f"v{number}_1": rows}
        entry = tables.push(table, names, fresh)
        if number % 3 == 0:
            tables.turn((table, entry, EntryState.REVERTED))
        else:
            names = list(fresh)
    stop.set()
    for asker in askers:
        asker.join()

    assert wrong == []
    assert len(seen) > 30
    assert len(set(seen)) > 5


def test_a_running_query_keeps_its_files_and_a_deletion_waits_for_it(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": orders(range(1000), snapshot=1)})
    broker.router.refresh()
    answers = []
    slow = "SELECT count(*) FROM orders a, orders b, orders c WHERE a.id + b.id > c.id"
    asker = threading.Thread(target=lambda: answers.append(broker.answer(slow, {"timeoutMs": "60000"})))
    asker.start()
    while not broker.running():
        time.sleep(0.005)

    tables.push(table, ["a"], {"b": orders([1], snapshot=2)})
    broker.router.refresh()

    announced = tables.catalog.broker_epochs(table)["Broker_localhost_8099"]
    assert (announced.epoch, announced.applied) == (1, 2)
    assert rows_of(broker.answer("SELECT snapshot FROM orders")) == [[2]]
    [running] = broker.running()
    assert broker.cancel(running["requestId"])
    asker.join()
    assert code_of(answers[0]) == 503
    assert not broker.cancel("nobody")


def test_a_missing_segment_fails_the_query_unless_a_part_is_asked_for(tables, broker, deep_store):
    table = tables.create()
    tables.push(table, [], {"a": orders([1]), "b": orders([2])})
    tables.catalog.forget(table, ["b"])
    broker.router.refresh()

    whole = broker.answer("SELECT count(*) FROM orders")
    part = broker.answer("SELECT count(*) FROM orders", {"allowPartial": "true"})

    assert code_of(whole) == 305
    assert "resultTable" not in whole
    assert code_of(part) == 305
    assert part["partialResult"] is True
    assert part["resultTable"]["rows"] == [[1]]


def test_a_file_that_is_gone_is_an_error_and_not_a_smaller_answer(tables, broker, deep_store):
    table = tables.create()
    tables.push(table, [], {"a": orders([1]), "b": orders([2])})
    broker.router.refresh()
    (deep_store / tables.catalog.segment(table, "b").uri).unlink()

    assert code_of(broker.answer("SELECT sum(amount) FROM orders")) == 235


def test_whoever_may_not_read_a_table_learns_nothing_of_it(tables, broker):
    class Reader:
        name = "bob"

        def may_read(self, table):
            return table == "items"

    tables.create()
    tables.create(ITEMS)
    broker.router.refresh()

    for sql in (
        "SELECT * FROM orders",
        "SELECT * FROM nowhere",
        "SELECT i.id FROM items i JOIN orders o ON i.id = o.id",
        "SELECT id FROM items WHERE id IN (SELECT id FROM ORDERS_offline)",
        "WITH items2 AS (SELECT * FROM orders) SELECT count(*) FROM items2",
        "SELECT id FROM items UNION SELECT id FROM orders",
    ):
        assert code_of(broker.answer(sql, {}, Reader())) == 180, sql
    assert rows_of(broker.answer("SELECT * FROM items", {}, Reader())) == []


def test_queries_per_second_are_limited_by_table(tables, pool, readers):
    class Clock(SystemClock):
        now = 0

        def monotonic_ms(self):
            return self.now

    tables.create(quota={"maxQueriesPerSecond": "2"})
    tables.create(ITEMS)
    clock = Clock()
    router = Router(tables.catalog, broker="b")
    router.start()
    broker = Broker(router, pool, readers=readers, clock=clock)
    try:
        codes = [broker.answer("SELECT id FROM orders")["exceptions"] for _ in range(3)]
        assert codes[:2] == [[], []]
        assert codes[2][0]["errorCode"] == 429
        assert rows_of(broker.answer("SELECT id FROM items")) == []
        clock.now = 500
        assert broker.answer("SELECT id FROM orders")["exceptions"] == []
        assert code_of(broker.answer("SELECT id FROM orders")) == 429
    finally:
        router.close()


def test_a_database_puts_its_name_before_tables(tables, broker):
    tables.create({**ORDERS, "schemaName": "shop.orders"})
    broker.router.refresh()

    assert rows_of(broker.answer("SELECT id FROM orders", database="shop")) == []
    assert rows_of(broker.answer("SELECT id FROM shop.orders")) == []
    assert rows_of(broker.answer("SELECT o.id FROM shop.orders o")) == []
    assert code_of(broker.answer("SELECT id FROM orders")) == 190
    assert code_of(broker.answer("SELECT id FROM orders", database="default")) == 190


def test_options_come_from_the_statement_and_the_request(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": pa.table({"id": pa.array([None], pa.int64())})})
    broker.router.refresh()

    def value(sql, options=None):
        return rows_of(broker.answer(sql, options))[0][0]

    assert value("SELECT id FROM orders") == -(2**63)
    assert value("SET enableNullHandling = true; SELECT id FROM orders") is None
    assert value("SELECT id FROM orders OPTION(ENABLENULLHANDLING='true')") is None
    assert value("SELECT id FROM orders", {"enablenullhandling": "true"}) is None
    assert value("SET enableNullHandling=false; SELECT id FROM orders option(enableNullHandling=true)") == -(
        2**63
    )
    assert value(
        "SELECT id FROM orders OPTION(enableNullHandling=false)", {"enableNullHandling": "true"}
    ) == -(2**63)
    assert value("SELECT id FROM orders OPTION(preserveType='true')", {"unknown": "x"}) == -(2**63)
    assert code_of(broker.answer("SET timeoutMs = 'soon'; SELECT id FROM orders")) == 700
    assert code_of(broker.answer("SELECT id FROM orders", {"timeoutMs": "0"})) == 700
    assert (
        code_of(broker.answer("SELECT id FROM orders", {"minSnapshotEpoch": "5", "timeoutMs": "100"})) == 400
    )


def test_hidden_and_older_snapshots_are_queried_without_a_switch(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": orders([1], snapshot=1)})
    opened = tables.start(table, ["a"], {"b": orders([2, 3], snapshot=2)})
    broker.router.refresh()

    hidden = broker.answer("SELECT DISTINCT snapshot FROM orders", {"snapshotEntryId": opened})
    gone = broker.answer("SELECT count(*) FROM orders", {"asOfEpoch": "99"})

    assert rows_of(hidden) == [[2]]
    assert rows_of(broker.answer("SELECT DISTINCT snapshot FROM orders")) == [[1]]
    assert code_of(gone) == 700
    assert "kept: " in gone["exceptions"][0]["message"]


def test_gates_ask_about_any_segments_under_the_name_snapshot(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": orders([1])})
    tables.start(table, ["a"], {"b": orders([2, 3])})
    broker.router.refresh()

    assert broker.ask(table, "SELECT count(*) FROM snapshot", frozenset({"b"})) == 2
    assert broker.ask(table, "SELECT count(*) FROM snapshot", frozenset({"a", "b"})) == 3
    assert broker.ask(table, 'SELECT count(*) FROM snapshot WHERE "city" IS NULL', frozenset({"b"})) == 0
    for sql in (
        "SELECT id FROM snapshot",
        "SELECT 1, 2",
        "SELECT count(*) FROM orders",
        "DROP TABLE snapshot",
    ):
        with pytest.raises(QueryFailed):
            broker.ask(table, sql, frozenset({"b"}))


def test_a_statement_can_be_checked_without_being_run(broker):
    assert broker.check("SELECT a FROM b") is None
    assert broker.check("DROP TABLE b")["errorCode"] == 150


def test_a_deadline_holds_from_the_first_moment(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": orders(range(3000))})
    broker.router.refresh()
    began = time.monotonic()

    answer = broker.answer(
        "SELECT count(*) FROM orders a, orders b, orders c WHERE a.id + b.id > c.id", {"timeoutMs": "400"}
    )

    assert code_of(answer) == 250
    assert time.monotonic() - began < 3


def test_without_help_from_the_kernel_segments_are_read_through_arrow(tables, deep_store, readers):
    """The same answers, with DuckDB not allowed to open any file."""
    table = tables.create()
    tables.push(table, [], {"a": orders([1, 2]), "b": orders([3], city="Bergen").drop(["amount"])})
    router = Router(tables.catalog, broker="b")
    router.start()
    pool = WorkerPool(
        StoreLocation(str(deep_store), {}), PoolSettings(workers=1, spares=0, threads=1, confine=False)
    )
    pool.start()
    broker = Broker(router, pool, readers=readers)
    try:
        assert rows_of(
            broker.answer("SELECT city, count(*), sum(amount) FROM orders GROUP BY city ORDER BY city")
        ) == [
            ["Bergen", 1, 0.0],
            ["Oslo", 2, 3.0],
        ]
        assert rows_of(broker.answer("SELECT $segmentName FROM orders WHERE id = 3")) == [["b"]]
        assert rows_of(broker.answer("SELECT count(*) FROM orders WHERE $segmentName = 'a'")) == [[2]]
        for sql in ("SELECT * FROM read_text('/etc/hostname')", f"COPY (SELECT 1) TO '{deep_store}/x.csv'"):
            with pytest.raises(QueryFailed):
                pool.run(
                    Work(sql=sql, views=(), max_rows=9),
                    deadline_s=time.monotonic() + 5,
                    cancellation=Cancellation(),
                )
    finally:
        router.close()
        pool.close()


def test_error_codes_have_names_and_statuses():
    assert QueryError.TABLE_DOES_NOT_EXIST.title == "TableDoesNotExistError"
    assert {code.http_status for code in QueryError} <= {400, 403, 404, 408, 429, 500, 503}


def test_an_answer_that_would_take_too_much_of_the_process_is_refused(tables, pool, readers):
    """One row of a list may be millions of values."""
    table = tables.create()
    tables.push(table, [], {"a": orders(range(3000))})
    router = Router(tables.catalog, broker="Broker_localhost_8099")
    router.refresh()
    broker = Broker(router, pool, readers=readers, settings=BrokerSettings(max_answer_bytes=100_000))

    listed = broker.answer("SELECT arrayagg(id, 'LONG') FROM orders")
    small = broker.answer("SELECT arrayagg(id, 'LONG') FROM orders WHERE id < 10")

    assert code_of(listed) == QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED
    assert len(rows_of(small)[0][0]) == 10
    router.close()
