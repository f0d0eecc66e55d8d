"""What queries answer: types, nulls, Pinot's functions and names, through the whole broker."""

import datetime as dt
import decimal
import math
import sys

import msgspec
import pyarrow as pa
import pytest

from harness.serving import code_of, orders, rows_of
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.results import check_size, result_table
from holdfast.push.queries.scopes import Output

KINDS = {
    "schemaName": "kinds",
    "dimensionFieldSpecs": [
        {"name": "n", "dataType": "INT"},
        {"name": "long", "dataType": "LONG"},
        {"name": "text", "dataType": "STRING"},
        {"name": "flag", "dataType": "BOOLEAN"},
        {"name": "document", "dataType": "JSON"},
        {"name": "raw", "dataType": "BYTES"},
        {"name": "exact", "dataType": "BIG_DECIMAL"},
        {"name": "tags", "dataType": "STRING", "singleValueField": False},
        {"name": "numbers", "dataType": "INT", "singleValueField": False},
        {"name": "single", "dataType": "FLOAT"},
        {"name": "chosen", "dataType": "STRING", "defaultNullValue": "nobody"},
    ],
    "metricFieldSpecs": [{"name": "double", "dataType": "DOUBLE"}, {"name": "total", "dataType": "LONG"}],
    "dateTimeFieldSpecs": [
        {"name": "at", "dataType": "TIMESTAMP", "format": "TIMESTAMP", "granularity": "1:MILLISECONDS"},
        {"name": "day", "dataType": "TIMESTAMP", "format": "TIMESTAMP", "granularity": "1:DAYS"},
        {"name": "millis", "dataType": "LONG", "format": "1:MILLISECONDS:EPOCH", "granularity": "1:DAYS"},
    ],
}

AT = dt.datetime(2024, 2, 29, 13, 47, 5, 120_000)
MILLIS = 1_709_214_425_120


def kinds(*, nulls: bool = True) -> pa.Table:
    rows = {
        "n": pa.array([1, None, 3], pa.int32()),
        "long": pa.array([2**62, None, -1], pa.int64()),
        "text": pa.array(["Ærø's", None, ""], pa.string()),
        "flag": pa.array([True, None, False], pa.bool_()),
        "document": pa.array(['{"a": {"b": 7}}', None, "[]"], pa.string()),
        "raw": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "exact": pa.array([decimal.Decimal("12.3400"), None, decimal.Decimal(5)], pa.decimal128(20, 4)),
        "tags": pa.array([["a", "b"], None, []], pa.list_(pa.string())),
        "numbers": pa.array([[1, 2], None, [3]], pa.list_(pa.int32())),
        "single": pa.array([0.1, None, math.inf], pa.float32()),
        "chosen": pa.array(["x", None, "y"], pa.string()),
        "double": pa.array([1.5, None, math.nan], pa.float64()),
        "total": pa.array([10, None, 30], pa.int64()),
        "at": pa.array([AT, None, dt.datetime(1970, 1, 1)], pa.timestamp("us")),
        "day": pa.array([MILLIS, None, 0], pa.int64()),
        "millis": pa.array([MILLIS, None, 0], pa.int64()),
    }
    table = pa.table(rows)
    return table if nulls else table.slice(0, 1)


@pytest.fixture
def ask(tables, broker):
    table = tables.create(KINDS)
    tables.upload(table, {"kinds_0": kinds()})
    broker.router.refresh()

    def answer(sql, **options):
        return broker.answer(sql, {key: str(value) for key, value in options.items()})

    return answer


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        ("n", "INT", [1, -(2**31), 3]),
        ("long", "LONG", [2**62, -(2**63), -1]),
        ("text", "STRING", ["Ærø's", "null", ""]),
        ("flag", "BOOLEAN", [True, False, False]),
        ("document", "JSON", ['{"a": {"b": 7}}', "null", "[]"]),
        ("raw", "BYTES", ["00ff", "", ""]),
        ("exact", "BIG_DECIMAL", ["12.34", "0", "5"]),
        ("tags", "STRING_ARRAY", [["a", "b"], ["null"], []]),
        ("numbers", "INT_ARRAY", [[1, 2], [-(2**31)], [3]]),
        ("single", "FLOAT", [0.1, "-Infinity", "Infinity"]),
        ("chosen", "STRING", ["x", "nobody", "y"]),
        ("double", "DOUBLE", [1.5, 0.0, "NaN"]),
        ("total", "LONG", [10, 0, 30]),
        ("at", "TIMESTAMP", ["2024-02-29 13:47:05.12", "1970-01-01 00:00:00.0", "1970-01-01 00:00:00.0"]),
        ("day", "TIMESTAMP", ["2024-02-29 13:47:05.12", "1970-01-01 00:00:00.0", "1970-01-01 00:00:00.0"]),
    ],
)
def test_a_column_of_each_type_reads_as_pinot_writes_it(ask, column, kind, values):
    plain = ask(f"SELECT {column} FROM kinds")
    handled = ask(f"SELECT {column} FROM kinds", enableNullHandling="true")

    assert plain["resultTable"]["dataSchema"] == {"columnNames": [column], "columnDataTypes": [kind]}
    assert rows_of(plain) == [[value] for value in values]
    assert rows_of(handled) == [[values[0]], [None], [values[2]]]


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("n = -2147483648", 1),
        ("n <> 1", 2),
        ("n < 1", 1),
        ("NOT (n = 1)", 2),
        ("n IN (1, -2147483648)", 2),
        ("n BETWEEN -2147483648 AND 0", 1),
        ("5 > n", 3),
        ("text = 'null'", 1),
        ("text <> 'zzz'", 3),
        ("n IS NULL", 1),
        ("n IS NOT NULL", 2),
        ("total = 0", 1),
        ("total >= 0 AND text LIKE 'n%'", 1),
        ("chosen = 'nobody' OR n = 3", 2),
        ("at = 0", 2),
        (f"at = {MILLIS}", 1),
        (f"at > {MILLIS - 1}", 1),
        ("at >= '2024-01-01'", 1),
        ("at BETWEEN '2024-01-01 00:00:00' AND '2025-01-01 00:00:00'", 1),
        ("day < '1999-01-01'", 2),
        ("flag = 'true'", 1),
        ("flag", 1),
        ("tags = 'a'", 1),
        ("tags IN ('b', 'null')", 2),
        ("raw = '00ff'", 1),
        ("text = 'Ærø''s'", 1),
        ("REGEXP_LIKE(text, '^n.l')", 1),
        ("text LIKE '\\_%'", 0),
        ("millis >= FROMDATETIME('2024-02-29', 'yyyy-MM-dd')", 1),
        ("at >= CAST('2024-02-29 00:00:00' AS TIMESTAMP)", 1),
    ],
)
def test_a_filter_sees_the_default_in_place_of_null(ask, condition, count):
    assert rows_of(ask(f"SELECT count(*) FROM kinds WHERE {condition}")) == [[count]]


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("count(*)", "LONG", 3),
        ("count(n)", "LONG", 3),
        ("sum(total)", "DOUBLE", 40.0),
        ("min(total)", "DOUBLE", 0.0),
        ("max(n)", "DOUBLE", 3.0),
        ("max(at)", "DOUBLE", float(MILLIS)),
        ("avg(total)", "DOUBLE", 40 / 3),
        ("sumlong(total)", "LONG", 40),
        ("sumprecision(total)", "STRING", "40"),
        ("distinctcount(chosen)", "INT", 3),
        ("distinctcounthll(chosen)", "LONG", 3),
        ("count(DISTINCT total)", "LONG", 3),
        ("percentile(total, 50)", "DOUBLE", 10.0),
        ("percentile(total, 100)", "DOUBLE", 30.0),
        ("percentile95(total)", "DOUBLE", 30.0),
        ("minmaxrange(total)", "DOUBLE", 30.0),
        ("sum(total) FILTER (WHERE n = 3)", "DOUBLE", 30.0),
        ("max(text)", "STRING", "Ærø's"),
        ("sum(total) / count(*)", "DOUBLE", 40 / 3),
    ],
)
def test_an_aggregate_has_pinots_type_and_value(ask, expression, kind, value):
    answer = ask(f"SELECT {expression} FROM kinds")

    assert answer["resultTable"]["dataSchema"]["columnDataTypes"] == [kind]
    assert rows_of(answer) == [[pytest.approx(value) if isinstance(value, float) else value]]


@pytest.mark.parametrize(
    ("expression", "value", "handled"),
    [
        ("count(*)", 0, 0),
        ("sum(total)", 0.0, None),
        ("min(total)", "Infinity", None),
        ("max(total)", "-Infinity", None),
        ("avg(total)", "-Infinity", None),
        ("distinctcount(text)", 0, 0),
        ("percentile(total, 50)", "-Infinity", None),
    ],
)
def test_an_aggregate_of_nothing_is_what_pinot_makes_of_it(ask, expression, value, handled):
    sql = f"SELECT {expression} FROM kinds WHERE text = 'nowhere'"

    assert rows_of(ask(sql)) == [[value]]
    assert rows_of(ask(sql, enableNullHandling="true")) == [[handled]]


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("DATETRUNC('day', at)", "LONG", 1_709_164_800_000),
        ("DATE_TRUNC('week', at)", "LONG", 1_708_905_600_000),
        ("DATETRUNC('month', millis)", "LONG", 1_706_745_600_000),
        ("DATETRUNC('day', millis, 'MILLISECONDS', 'Europe/Oslo')", "LONG", 1_709_161_200_000),
        ("DATETRUNC('hour', millis, 'MILLISECONDS', 'UTC', 'HOURS')", "LONG", 1_709_211_600_000 // 3_600_000),
        (
            "CAST(DATE_TRUNC('day', CAST(millis AS TIMESTAMP)) AS TIMESTAMP)",
            "TIMESTAMP",
            "2024-02-29 00:00:00.0",
        ),
        ("ROUND(millis, 300000)", "LONG", 1_709_214_300_000),
        ("ROUND(-7, 2)", "LONG", -6),
        ("TODATETIME(millis, 'yyyy-MM-dd''T''HH:mm:ss.SSS')", "STRING", "2024-02-29T13:47:05.120"),
        ("TODATETIME(millis, 'HH:mm Z')", "STRING", "13:47 +0000"),
        ("TODATETIME(millis, 'HH:mm Z', 'America/St_Johns')", "STRING", "10:17 -0330"),
        ("TODATETIME(millis, '[Z] HH', 'Asia/Kolkata')", "STRING", "[+0530] 19"),
        ("FROMDATETIME('2024-02-29 15:47 +0200', 'yyyy-MM-dd HH:mm Z')", "LONG", 1709214420000),
        ("FROMDATETIME('20240229 13', 'yyyyMMdd HH')", "LONG", 1_709_211_600_000),
        (
            "DATETIMECONVERT(at, '1:MILLISECONDS:EPOCH', '1:DAYS:SIMPLE_DATE_FORMAT:yyyy-MM-dd', '1:DAYS')",
            "STRING",
            "2024-02-29",
        ),
        ("DATETIMECONVERT(millis, '1:MILLISECONDS:EPOCH', '1:HOURS:EPOCH', '1:HOURS')", "LONG", 474_781),
        ("TOEPOCHDAYS(at)", "LONG", 19_782),
        ("FROMEPOCHDAYS(19782)", "LONG", 1_709_164_800_000),
        ("TIMECONVERT(millis, 'MILLISECONDS', 'SECONDS')", "LONG", 1_709_214_425),
        ("YEAR(at)", "INT", 2024),
        ("EXTRACT(DAY FROM at)", "INT", 29),
        ("DAYOFWEEK(at)", "INT", 4),
        ("TIMESTAMPADD(DAY, 1, millis)", "LONG", MILLIS + 86_400_000),
        ("TIMESTAMPDIFF(DAY, 0, millis)", "LONG", 19_782),
        ("CAST(at AS LONG)", "LONG", MILLIS),
        ("CAST(at AS VARCHAR)", "STRING", "2024-02-29 13:47:05.12"),
        ("CAST(2.9 AS INT)", "INT", 2),
        ("CAST('12' AS LONG)", "LONG", 12),
        ("7 / 2", "DOUBLE", 3.5),
        ("n / 0", "DOUBLE", "Infinity"),
        ("n + 1", "LONG", 2),
        ("MOD(7, 4)", "LONG", 3),
        ("1.5", "DOUBLE", 1.5),
        ("-3", "INT", -3),
        ("'a''b'", "STRING", "a'b"),
        ("true", "BOOLEAN", True),
        ("SUBSTR('hello', 1, 3)", "STRING", "el"),
        ("SUBSTRING('hello', 1, 3)", "STRING", "hel"),
        ("CONCAT('a', 'b', '-')", "STRING", "a-b"),
        ("'a' || 'b'", "STRING", "ab"),
        ("STRPOS('hello', 'l')", "INT", 2),
        ("UPPER(text)", "STRING", "ÆRØ'S"),
        ("LENGTH(text)", "INT", 5),
        ("CASE WHEN n = 1 THEN 'one' ELSE 'more' END", "STRING", "one"),
        ("CASE n WHEN 1 THEN 5 END", "INT", 5),
        ("COALESCE(n, 9)", "INT", 1),
        ("JSON_EXTRACT_SCALAR(document, '$.a.b', 'INT')", "INT", 7),
        ("ARRAYLENGTH(tags)", "INT", 2),
        ("TRUNCATE(2.789, 1)", "DOUBLE", 2.7),
        ("ROUNDDECIMAL(2.789, 1)", "DOUBLE", 2.8),
        ("ROUNDDECIMAL(2.675, 2)", "DOUBLE", 2.68),
        ("ROUNDDECIMAL(-2.5)", "DOUBLE", -3.0),
        ("ROUNDDECIMAL(1e300, 2)", "DOUBLE", 1e300),
        ("$segmentName", "STRING", "kinds_0"),
        ('"$segmentName"', "STRING", "kinds_0"),
    ],
)
def test_an_expression_means_what_it_means_in_pinot(ask, expression, kind, value):
    answer = ask(f"SELECT {expression} FROM kinds WHERE n = 1")

    assert answer["exceptions"] == []
    assert answer["resultTable"]["dataSchema"]["columnDataTypes"] == [kind]
    assert rows_of(answer) == [[value]]


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("COUNT(*)", "count(*)"),
        ("SUM(Total)", "sum(total)"),
        ("DistinctCount(TEXT)", "distinctcount(text)"),
        ("DATE_TRUNC('day', at)", "datetrunc('day',at)"),
        ("N", "n"),
        ("kinds.N", "n"),
        ("n + 1", "plus(n,1)"),
        ("n AS Number", "Number"),
        ("count(DISTINCT n)", "count(distinct n)"),
    ],
)
def test_a_column_without_an_alias_has_the_name_pinot_gives_it(ask, item, name):
    answer = ask(
        f"SELECT {item} FROM KINDS GROUP BY n, at, text, total"
        if "(" not in item
        else f"SELECT {item} FROM kinds GROUP BY at"
    )

    assert answer["exceptions"] == []
    assert answer["resultTable"]["dataSchema"]["columnNames"] == [name]


def test_a_star_lists_columns_by_name(ask):
    answer = ask("SELECT * FROM kinds LIMIT 1")

    names = answer["resultTable"]["dataSchema"]["columnNames"]
    assert names == sorted(names)
    assert len(names) == 16


def test_ten_rows_come_unless_more_are_asked_for(tables, broker):
    table = tables.create()
    tables.upload(table, {"orders_0": orders(range(100))})
    broker.router.refresh()

    assert len(rows_of(broker.answer("SELECT id FROM orders"))) == 10
    assert len(rows_of(broker.answer("SELECT id FROM orders LIMIT 25"))) == 25
    assert rows_of(broker.answer("SELECT id FROM orders ORDER BY id LIMIT 90, 3")) == [[90], [91], [92]]
    assert rows_of(broker.answer("SELECT id FROM orders ORDER BY id DESC LIMIT 2 OFFSET 1")) == [[98], [97]]
    assert len(rows_of(broker.answer("SELECT id FROM orders LIMIT 2147483647"))) == 100
    assert len(rows_of(broker.answer("(SELECT id FROM orders LIMIT 3)"))) == 3
    assert rows_of(broker.answer("(SELECT id FROM orders) ORDER BY id DESC LIMIT 2")) == [[99], [98]]


def test_groups_joins_unions_and_subqueries_are_answered(tables, broker):
    table = tables.create()
    tables.upload(table, {"orders_0": orders([1, 2, 3]), "orders_1": orders([3, 4], city="Bergen")})
    broker.router.refresh()

    def ask(sql):
        return rows_of(broker.answer(sql))

    assert ask("SELECT city, count(*) FROM orders GROUP BY city HAVING count(*) > 2") == [["Oslo", 3]]
    assert ask("SELECT city AS c, sum(amount) AS s FROM orders GROUP BY c ORDER BY s DESC") == [
        ["Bergen", 7.0],
        ["Oslo", 6.0],
    ]
    assert ask("SELECT a.id FROM orders a JOIN orders b ON a.id = b.id AND a.city <> b.city") == [[3], [3]]
    assert ask(
        "SELECT a.city, b.city FROM orders a LEFT JOIN orders b ON a.id = b.id + 3 WHERE a.id = 4"
    ) == [["Bergen", "Oslo"]]
    assert ask(
        "SELECT DISTINCT id FROM orders WHERE id IN (SELECT id FROM orders WHERE city = 'Bergen') ORDER BY id"
    ) == [
        [3],
        [4],
    ]
    assert ask("WITH big AS (SELECT id FROM orders WHERE id > 2) SELECT count(*) FROM big") == [[3]]
    assert ask(
        "SELECT id FROM orders WHERE id = 1 UNION ALL SELECT id FROM orders WHERE id = 4 ORDER BY id"
    ) == [
        [1],
        [4],
    ]
    assert ask("SELECT max(n) FROM (SELECT city, count(*) AS n FROM orders GROUP BY city) t") == [[3.0]]
    assert ask(
        "SELECT id, ROW_NUMBER() OVER (PARTITION BY city ORDER BY id DESC) FROM orders WHERE id < 4 "
        "AND city = 'Oslo' ORDER BY 1"
    ) == [[1, 3], [2, 2], [3, 1]]
    assert ask(
        "SELECT count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE p.id = o.id + 1)"
    ) == [[4]]
    assert ask("SELECT $segmentName, count(*) FROM orders GROUP BY $segmentName ORDER BY $segmentName") == [
        ["orders_0", 3],
        ["orders_1", 2],
    ]
    assert ask("SELECT 1") == [[1]]


def test_segments_of_different_schemas_are_read_by_name(tables, broker):
    """The first has no `amount`, the second holds it as an integer, and both lack a column of the schema."""
    table = tables.create()
    first = orders([1]).drop(["amount"])
    second = pa.table({"amount": pa.array([7], pa.int32()), "ID": pa.array([2], pa.int64())})
    tables.upload(table, {"a": first, "b": second})
    broker.router.refresh()

    answer = broker.answer("SELECT id, amount, city FROM orders ORDER BY id")

    assert rows_of(answer) == [[1, 0.0, "Oslo"], [2, 7.0, "null"]]


def test_a_table_without_segments_gives_columns_and_no_rows(tables, broker):
    tables.create()
    broker.router.refresh()

    answer = broker.answer("SELECT id, city FROM orders")
    count = broker.answer("SELECT count(*), sum(amount) FROM orders")

    assert answer["exceptions"] == []
    assert answer["resultTable"] == {
        "dataSchema": {"columnNames": ["id", "city"], "columnDataTypes": ["LONG", "STRING"]},
        "rows": [],
    }
    assert answer["numServersQueried"] == 0
    assert rows_of(count) == [[0, 0.0]]


def test_explain_says_what_would_be_read_and_reads_nothing(tables, broker):
    table = tables.create()
    tables.upload(table, {"orders_0": orders([1])})
    broker.router.refresh()

    answer = broker.answer("EXPLAIN PLAN FOR SELECT count(*) FROM orders")

    assert answer["resultTable"]["dataSchema"]["columnNames"] == ["Operator", "Operator_Id", "Parent_Id"]
    assert "SCAN(table:orders, segments:1, epoch:1)" in str(rows_of(answer))


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT nothing FROM kinds", 710),
        ("SELECT n FROM nowhere", 190),
        ("SELECT FROM kinds", 150),
        ("SELECT n FROM kinds GROUP BY", 150),
        ("SELECT n, count(*) FROM kinds GROUP BY text", 700),
        ("SELECT CAST(text AS INT) FROM kinds", 160),
        ("SELECT n + tags FROM kinds", 160),
        ("SELECT a.n FROM kinds a JOIN kinds b ON n = 1", 700),
        ("SELECT percentile(n, 101) FROM kinds", 700),
        ("SELECT sum() FROM kinds", 700),
        ("SELECT DATETRUNC('fortnight', at) FROM kinds", 700),
        ("SELECT n FROM kinds UNION SELECT n, text FROM kinds", 700),
        ("SELECT n FROM kinds LIMIT n", 150),
    ],
)
def test_a_mistake_is_told_by_its_code_and_shows_no_path(ask, deep_store, sql, code):
    answer = ask(sql)

    assert code_of(answer) == code
    assert "resultTable" not in answer
    assert str(deep_store) not in str(answer)
    assert (answer["numServersQueried"], answer["numServersResponded"]) == (0, 0)


_TEXTS = ["plain", "", "\x01\x02\x1f", '"\\/', "\n\r\t\b\f", "Ærø", "λ", "東京", "😀" * 9, "\x7f\u2028"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(_TEXTS * 50),
        pa.array(_TEXTS * 50, pa.large_string()).slice(3, 470),
        pa.array([_TEXTS] * 50),
        pa.array([[], None, ["\x01" * 100]] * 50),
        pa.array([b"\x00\xff" * 50, b"", None] * 50),
        pa.array([2**63 - 1, -(2**63), None] * 100),
        pa.array([1.7976931348623157e308, -5e-324, math.nan] * 100),
        pa.array([decimal.Decimal("-0." + "1" * 37)] * 100),
        pa.array([AT] * 100, pa.timestamp("ns")),
        pa.array([True, None] * 100),
        pa.array([1.1] * 100, pa.float32()),
        pa.array([None] * 100),
    ],
    ids=lambda column: f"{column.type}-{len(column)}",
)
def test_no_answer_takes_more_in_json_than_was_reckoned(column):
    """Control characters take six bytes each in JSON, which were not counted."""
    answer = pa.table({"a": column})
    shown = result_table(answer, [Output("a", None)], null_handling=False)
    json_bytes = len(msgspec.json.encode(shown["rows"]))
    python_bytes = sum(map(_size, shown["rows"]))

    with pytest.raises(QueryFailed, match="too large") as refused:
        check_size(answer, answer.nbytes + json_bytes)

    assert refused.value.code is QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED
    with pytest.raises(QueryFailed):
        check_size(answer, python_bytes // 2)
    check_size(answer, 20 * (answer.nbytes + json_bytes) + len(column) * 300)


def _size(value):
    inside = sum(map(_size, value)) if isinstance(value, list) else 0
    return sys.getsizeof(value) + inside
