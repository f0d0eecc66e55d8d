"""Statements that try to leave the sandbox: each is refused, and the worker behind is walled in by itself.

The first table goes through the broker. The second hands the same kind of
statement straight to a worker, as if the gate had a hole.
"""

import os
import signal
import threading
import time

import pytest

from harness.serving import code_of, orders, rows_of
from holdfast.model.segment import Segment
from holdfast.push.queries.admission import admit
from holdfast.push.queries.engine import Cancellation, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.options import MAX_SQL_BYTES, read_statement
from holdfast.push.queries.scopes import View

REFUSED = {
    QueryError.SQL_PARSING,
    QueryError.TABLE_DOES_NOT_EXIST,
    QueryError.QUERY_VALIDATION,
    QueryError.UNKNOWN_COLUMN,
}

PROBES = [
    # Files and the network through functions
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_ndjson_objects('/etc/passwd')",
    "SELECT * FROM parquet_metadata('/tmp/x.parquet')",
    "SELECT * FROM parquet_schema('/tmp/x.parquet')",
    "SELECT * FROM parquet_file_metadata('/tmp/x.parquet')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM read_parquet('https://example.org/x.parquet')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM orders, read_text('/etc/passwd')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('orders')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT json_serialize_sql('SELECT 1')",
    "SELECT getenv('HOME')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM pragma_version()",
    "SELECT current_setting('home_directory')",
    "SELECT * FROM which_secret('s3://x', 's3')",
    "SELECT version()",
    "SELECT * FROM range(10)",
    "SELECT unnest(range(10))",
    "SELECT * FROM generate_series(1, 1000000000)",
    "SELECT * FROM seq_scan('orders')",
    "SELECT nextval('s')",
    "SELECT write_log('x')",
    "SELECT getvariable('x')",
    # Paths and Python variables as tables
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM '/tmp/x.parquet'",
    'SELECT * FROM "file.csv"',
    "SELECT * FROM sys",
    "SELECT * FROM globals",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM table0",
    "SELECT * FROM a.b.c.orders",
    # Other statements
    "COPY orders TO '/tmp/x.csv'",
    "COPY (SELECT 1) TO '/tmp/x.parquet' (FORMAT parquet, USE_TMP_FILE false)",
    "COPY orders FROM '/etc/passwd'",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.db' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH x",
    "USE x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CREATE TABLE x (a INT)",
    "CREATE TABLE x AS SELECT 1",
    "CREATE VIEW x AS SELECT 1",
    "CREATE OR REPLACE MACRO sum(x) AS 0",
    "CREATE SECRET s (TYPE s3)",
    "DROP VIEW table0",
    "ALTER TABLE orders ADD COLUMN x INT",
    "INSERT INTO orders VALUES (1)",
    "UPDATE orders SET id = 1",
    "DELETE FROM orders",
    "MERGE INTO orders USING orders AS o ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE orders",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN SELECT 1",
    "DESCRIBE orders",
    "SHOW TABLES",
    "SUMMARIZE orders",
    "VALUES (1)",
    "TABLE orders",
    "PIVOT orders ON city USING count(*)",
    "SET memory_limit = '100GB'",
    "RESET memory_limit",
    # Queries that hide something
    "WITH x AS (INSERT INTO orders VALUES (1) RETURNING id) SELECT * FROM x",
    "WITH x AS (DELETE FROM orders RETURNING id) SELECT * FROM x",
    "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT count(*) FROM x",
    "SELECT * INTO x FROM orders",
    "SELECT id FROM orders; DROP TABLE orders",
    "SELECT id FROM orders; SELECT 1",
    "SELECT 1; SET threads = 100",
    "SELECT * FROM orders FOR UPDATE",
    "SELECT * FROM orders TABLESAMPLE 10 PERCENT",
    "SELECT * FROM orders, LATERAL (SELECT 1)",
    "SELECT * FROM orders ASOF JOIN orders o ON orders.id >= o.id",
    "SELECT * EXCLUDE (id) FROM orders",
    "SELECT COLUMNS('.*') FROM orders",
    "SELECT $1 FROM orders",
    "SELECT ? FROM orders",
    "SELECT :x FROM orders",
    "SELECT @x FROM orders",
    "SELECT id::VARCHAR FROM orders QUALIFY row_number() OVER () = 1",
    "SELECT [x FOR x IN [1, 2]] FROM orders",
    "SELECT list_transform([1], x -> x) FROM orders",
    "SELECT {'a': 1} FROM orders",
    "SELECT INTERVAL 1 DAY FROM orders",
    "SELECT id FROM orders ORDER BY ALL",
    "SELECT id FROM orders GROUP BY ALL",
    "SELECT id FROM orders LIMIT (SELECT 1)",
    "SELECT id FROM orders LIMIT 50%",
    "SELECT main.sum(id) FROM orders",
    'SELECT "sum"(id), "read_text"(\'/etc/passwd\') FROM orders',
    "SELECT CAST(id AS STRUCT(a INT)) FROM orders",
    "SELECT TRY_CAST(id AS INT) FROM orders",
    "SELECT id FROM orders AS OF VERSION 3",
    "SELECT id AT TIME ZONE 'UTC' FROM orders",
    "SELECT UNNEST(id) FROM orders",
    "SELECT 'a' COLLATE nocase FROM orders",
    "SELECT id FROM orders WHERE id GLOB '*'",
    "SELECT id FROM orders WHERE city SIMILAR TO '.*'",
    "SELECT /*+ hint */ pg_sleep(10) FROM orders",
    "",
    ";",
    "--",
    "\0",
    "SELECT '\0'",
]


@pytest.fixture
def filled(tables, broker):
    table = tables.create()
    tables.upload(table, {"orders_0": orders([1, 2, 3])})
    broker.router.refresh()
    return broker


def test_there_are_enough_probes():
    assert len(PROBES) == len(set(PROBES)) >= 70


@pytest.mark.parametrize("sql", PROBES)
def test_a_probe_is_refused_and_the_table_is_as_before(filled, sql):
    answer = filled.answer(sql)

    assert code_of(answer) in REFUSED, answer["exceptions"]
    assert "resultTable" not in answer
    assert "root:" not in str(answer)
    assert rows_of(filled.answer("SELECT count(*) FROM orders")) == [[3]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT '/etc/passwd' FROM orders",
        'SELECT "city" FROM "orders" -- DROP TABLE x; SELECT',
        "SELECT count(*) /* ; DROP */ FROM orders;",
        'SELECT city AS "x""; DROP TABLE y" FROM orders',
        "SELECT city AS \"'); ATTACH 'z\" FROM orders ORDER BY 1",
        "SELECT count(*) FROM orders WHERE city = '''; DROP TABLE orders; --'",
    ],
)
def test_what_only_looks_dangerous_is_answered(filled, sql):
    assert len(rows_of(filled.answer(sql))) >= 1


def test_a_statement_is_bounded_in_size_and_depth(filled):
    began = time.monotonic()

    for sql in (
        "SELECT " + "1 + " * MAX_SQL_BYTES + "1",
        "SELECT " + "(" * 10_000 + "1" + ")" * 10_000,
        "SELECT " + "abs(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "CASE WHEN true THEN " * 2_000 + "1" + " END" * 2_000,
        "SELECT " + "-" * 1 + " - " * 20_000 + "1",
        "SELECT " + "NOT " * 15_000 + "true",
        "SELECT 1" + " UNION ALL SELECT 1" * 3_000,
        "SELECT " + ",".join(["1"] * 30_000),
        "SELECT * FROM " + ",".join(f"orders o{number}" for number in range(5_000)),
        "SELECT " + "(SELECT " * 2_000 + "1" + ")" * 2_000,
        "SELECT 1 WHERE " + "1 = 1 AND " * 6_000 + "true",
    ):
        answer = filled.answer(sql, {"timeoutMs": "2000"})
        assert answer["exceptions"] == [] or code_of(answer) in {*REFUSED, 250, 200, 245, 240}, answer[
            "exceptions"
        ]

    assert time.monotonic() - began < 60
    assert rows_of(filled.answer("SELECT count(*) FROM orders")) == [[3]]


# As if the gate had a hole


@pytest.fixture(scope="module")
def segment(deep_store):
    import pyarrow.parquet as pq

    path = deep_store / "hole.parquet"
    pq.write_table(orders([1, 2, 3]), path)
    return Segment(name="hole", crc=0, docs=3, size_bytes=path.stat().st_size, uri="hole.parquet")


def run(pool, segment, sql, *, within_s=10.0, max_rows=1000):
    work = Work(
        sql=sql,
        views=((View(name="t", table="t", columns=(), has_segment_names=True), (segment,)),),
        max_rows=max_rows,
    )
    return pool.run(work, deadline_s=time.monotonic() + within_s, cancellation=Cancellation())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_csv('/proc/self/environ')",
        "SELECT * FROM '{folder}/other.parquet'",
        "SELECT * FROM read_parquet('{folder}/../*/*.parquet')",
        "COPY (SELECT 1) TO '{folder}/new.csv'",
        "COPY (SELECT 1 AS a) TO '{folder}/hole.parquet' (FORMAT parquet, USE_TMP_FILE false)",
        "ATTACH '{folder}/new.db' AS x",
        "EXPORT DATABASE '{folder}/export'",
        "SET threads = 8",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/etc/passwd']",
        "SET lock_configuration = false",
        "PRAGMA enable_profiling = 'json'",
        "SET profiling_output = '{folder}/profile'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM read_parquet('http://127.0.0.1:1/x.parquet')",
        "CREATE SECRET s (TYPE s3)",
        "CALL enable_logging(storage = 'file', storage_config = {{'path': '{folder}/log'}})",
        "SELECT * FROM orders_frame",
    ],
)
def test_the_worker_itself_reads_only_its_segments_and_writes_nothing(pool, segment, deep_store, sql):
    before = {path: path.read_bytes() for path in deep_store.rglob("*") if path.is_file()}

    with pytest.raises(QueryFailed):
        run(pool, segment, sql.format(folder=deep_store))

    assert {path: path.read_bytes() for path in deep_store.rglob("*") if path.is_file()} == before
    assert run(pool, segment, "SELECT count(*) FROM t").to_pylist() == [{"count_star()": 3}]


def test_what_one_query_leaves_behind_is_gone_for_the_next(pool, segment):
    run(pool, segment, "SELECT 1")
    for _ in range(3):
        try:
            run(pool, segment, "CREATE OR REPLACE MACRO sum(x) AS 0")
        except QueryFailed:
            continue

    answers = [run(pool, segment, "SELECT sum(2) AS s").to_pylist() for _ in range(6)]

    assert answers == [[{"s": 2}]] * 6


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(1000000000) a, range(1000000000) b",
        "SELECT len(range(400000000)::VARCHAR)",
        "SELECT * FROM (WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT 1 FROM x) SELECT count(*) FROM x)",
        "SELECT " + " + ".join(["(SELECT count(*) FROM range(30000) a, range(30000) b)"] * 30),
    ],
)
def test_a_query_ends_at_its_deadline_and_the_pool_goes_on(pool, segment, sql):
    began = time.monotonic()

    with pytest.raises(QueryFailed) as failed:
        run(pool, segment, sql, within_s=0.7)

    assert failed.value.code in (
        QueryError.EXECUTION_TIMEOUT,
        QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED,
        QueryError.QUERY_EXECUTION,
    )
    assert time.monotonic() - began < 4
    assert run(pool, segment, "SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat('x', 3000000000))",
        "SELECT list(repeat('x', 10000) || i) FROM range(10000000) t(i)",
        "SELECT max(length(s)) FROM (SELECT string_agg(repeat('y', 100000), '') AS s FROM range(100000))",
    ],
)
def test_a_query_that_wants_too_much_memory_fails_and_the_pool_goes_on(pool, segment, sql):
    with pytest.raises(QueryFailed) as failed:
        run(pool, segment, sql)

    assert failed.value.code in (
        QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED,
        QueryError.QUERY_EXECUTION,
        QueryError.SQL_RUNTIME,
    )
    assert run(pool, segment, "SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]


def test_an_answer_has_at_most_so_many_rows_and_bytes(pool, segment):
    for sql in ("SELECT * FROM range(1001)", "SELECT repeat('x', 100000) || i FROM range(200) t(i)"):
        with pytest.raises(QueryFailed) as failed:
            run(pool, segment, sql)
        assert failed.value.code is QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED

    assert run(pool, segment, "SELECT * FROM range(1000)").num_rows == 1000


@pytest.fixture
def rested(pool):
    """All workers are up and idle."""
    until = time.monotonic() + 60
    while pool.ready < 3 and time.monotonic() < until:
        time.sleep(0.05)
    assert pool.ready == 3
    return pool


def test_killed_workers_are_replaced(rested, segment):
    pool, victims = rested, rested.pids

    for pid in victims:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    answers = [run(pool, segment, "SELECT count(*) AS n FROM t", within_s=60).to_pylist() for _ in range(5)]
    assert answers == [[{"n": 3}]] * 5
    assert not set(victims) & set(pool.pids)


def test_a_stopped_worker_is_killed_after_the_deadline(rested, segment):
    pool, stopped = rested, rested.pids
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)

    with pytest.raises(QueryFailed) as failed:
        run(pool, segment, "SELECT 1", within_s=0.5)

    assert failed.value.code is QueryError.EXECUTION_TIMEOUT
    for pid in stopped:
        if pid in pool.pids:
            os.kill(pid, signal.SIGCONT)
    assert run(pool, segment, "SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]


def test_a_cancelled_query_ends_soon(rested):
    cancellation = Cancellation()
    threading.Timer(0.3, cancellation.set).start()
    work = Work(sql="SELECT sum(i % 7) FROM range(100000000000) t(i)", views=(), max_rows=1)
    began = time.monotonic()

    with pytest.raises(QueryFailed) as failed:
        rested.run(work, deadline_s=began + 20, cancellation=cancellation)

    assert failed.value.code is QueryError.QUERY_CANCELLATION
    assert time.monotonic() - began < 3


def test_the_gate_itself_reads_every_statement_it_admits_once():
    statement = read_statement("SELECT 1 FROM t", {}, max_timeout_ms=1000)

    assert admit(statement.sql) is admit(statement.sql)
