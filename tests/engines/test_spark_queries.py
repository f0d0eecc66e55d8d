"""The Spark engine answers from the same routing as DuckDB, with the same rows."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.serving import ORDERS, Tables, code_of, orders, rows_of
from holdfast.model.segment import Segment
from holdfast.push.queries.broker import Broker
from holdfast.push.queries.routing import Router
from holdfast.storage.local import LocalStore

pytestmark = pytest.mark.spark

PATIENT = {"timeoutMs": "120000"}


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


@pytest.fixture
def broker(tables, spark, readers):
    from holdfast.engines.spark.queries import SparkEngine
    from holdfast.engines.spark.watched import WatchedSession

    watched = WatchedSession(lambda: spark)
    router = Router(tables.catalog, broker="b")
    router.start()
    yield Broker(router, SparkEngine(watched, LocalStore(str(tables.folder)), readers), readers=readers)
    router.close()


def test_only_the_files_of_the_snapshot_are_read(tables, broker):
    table = tables.create()
    tables.push(table, [], {"a": orders([1], snapshot=1)})
    tables.push(table, ["a"], {"b": orders([2, 3], snapshot=2), "c": orders([4], snapshot=2, city="Bergen")})
    tables.start(table, ["b", "c"], {"d": orders([9], snapshot=3)})
    broker.router.refresh()

    def ask(sql):
        return rows_of(broker.answer(sql, PATIENT))

    assert ask("SELECT snapshot, count(*), sum(amount) FROM orders GROUP BY snapshot") == [[2, 3, 9.0]]
    assert ask("SELECT city, max(id) FROM orders WHERE id > 2 GROUP BY city ORDER BY city") == [
        ["Bergen", 4.0],
        ["Oslo", 3.0],
    ]
    assert ask("SELECT $segmentName, count(*) FROM orders GROUP BY $segmentName ORDER BY $segmentName") == [
        ["b", 2],
        ["c", 1],
    ]
    assert ask("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id + 1 ORDER BY a.id") == [[3], [4]]


def test_a_mistake_an_empty_table_and_a_deadline_are_told_as_with_duckdb(tables, broker):
    tables.create({**ORDERS, "schemaName": "empty"})
    table = tables.create()
    tables.push(table, [], {"a": orders(range(2000))})
    broker.router.refresh()

    assert rows_of(broker.answer("SELECT id, city FROM empty", PATIENT)) == []
    assert code_of(broker.answer("SELECT nothing FROM empty")) == 710
    assert code_of(broker.answer("SELECT city, count(*) FROM empty GROUP BY id", PATIENT)) == 700
    slow = "SELECT count(*) FROM orders a, orders b, orders c WHERE a.id + b.id > c.id"
    assert code_of(broker.answer(slow, {"timeoutMs": "1500"})) == 250


def test_segments_with_other_columns_or_types_are_read_with_the_rest(tables, broker):
    """Those that fit together are one scan; a whole number that became longer does not."""
    table = tables.create()
    plain = orders([1, 2])
    without_city = orders([3]).drop_columns(["city"])
    shorter = orders([4])
    shorter = shorter.set_column(0, "id", shorter["id"].cast("int32"))
    broker.router.refresh()

    tables.push(table, [], {"a": plain, "b": without_city})
    broker.router.refresh()
    query = "SELECT id, city FROM orders ORDER BY id"
    assert rows_of(broker.answer(query, PATIENT)) == [[1, "Oslo"], [2, "Oslo"], [3, "null"]]
    tables.push(table, ["a", "b"], {"c": plain, "d": shorter})
    broker.router.refresh()

    assert rows_of(broker.answer(query, PATIENT)) == [[1, "Oslo"], [2, "Oslo"], [4, "Oslo"]]


@pytest.mark.parametrize("folder", ["plain", "a[b]", "{a,b}", "a*?"])
def test_the_folder_of_the_segments_is_no_pattern(tmp_path, folder):
    """Spark takes every path for one."""
    from holdfast.engines.spark.queries import SparkEngine

    engine = SparkEngine(None, LocalStore(str(tmp_path / folder)), None)
    stored = Segment(name="a", crc=1, docs=1, size_bytes=1, uri="orders/a__1.parquet")
    elsewhere = replace(stored, uri=f"file://{tmp_path}/{folder}/b.parquet")

    escaped = "".join(f"\\{one}" if one in "[]{}*?" else one for one in folder)
    assert engine._uri(stored) == f"file://{tmp_path}/{escaped}/orders/a__1.parquet"
    assert engine._uri(elsewhere) == f"file://{tmp_path}/{escaped}/b.parquet"


def test_honest_load_leaves_the_engine_alone_and_what_never_ends_does_not():
    """On two cores: long queries on both, beside looks; then a stuck task, which leaves one of them free."""
    program = Path(__file__).with_name("watched_queries.py")
    ran = subprocess.run(
        [sys.executable, str(program), "local[2]"], stdout=subprocess.PIPE, text=True, timeout=500, check=True
    )

    told = json.loads(ran.stdout)
    anew = {"goes_on": True, "replaced": True, "answers": 3, "well": True}
    assert told["busy"] == {
        "longer_than_patience": True,
        "stopped_is_gone": True,
        "answered": True,
        "was_well": True,
        "same": True,
    }
    assert told["stuck"] == anew
    assert told["planned"] == anew
    assert told["silent"] == anew
