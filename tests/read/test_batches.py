"""Rows without Spark: in batches, filtered, and handed to pandas, Polars and DuckDB."""

import datetime as dt
import decimal
import importlib.util
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import lake
from holdfast.errors import InvalidRequest, SnapshotExpired, TableDamaged
from holdfast.read.filters import parse_filter

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "city": pa.array([("bergen", "oslo", None)[number % 3] for number in range(1000)]),
        "fare": pa.array([number / 10 for number in range(1000)]),
        "at": pa.array([START + dt.timedelta(hours=number) for number in range(1000)]),
        "big": pa.array(["x" * 1000] * 1000),
    }
)  # fmt: skip


@pytest.fixture
def table(tmp_path):
    """Rows in two files."""
    table = holdfast.create_table(str(tmp_path / "orders"), name="orders", record_key="id")
    table.bulk_insert(ROWS.slice(0, 600))
    table.bulk_insert(ROWS.slice(600))
    return table


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        yield connection


def ids(rows):
    return sorted(rows["id"].to_pylist())


def test_batches_have_all_rows_in_the_schema_of_the_table(table):
    reader = table.to_batches()

    assert reader.schema.equals(table.to_arrow().schema)
    assert ids(reader.read_all()) == list(range(1000))
    assert sorted(batch.num_rows for batch in table.to_batches()) == [400, 600]


def test_a_filter_sees_what_log_files_made_of_rows(tmp_path, connection):
    """Statistics of a base file would rule out the row that a log file changed."""
    table = holdfast.create_table(
        str(tmp_path / "stock"), name="stock", record_key="id", table_type="MERGE_ON_READ"
    )
    table.bulk_insert(ROWS)
    logs = {"holdfast.mor.max.log.ratio": "1000"}
    table.upsert(ROWS.slice(5, 1).set_column(2, "fare", pa.array([5000.0])), options=logs)
    table.delete(ROWS.select(["id"]).slice(7, 1), options=logs)
    assert len(table.files()) == 3  # a base file, two log files

    assert ids(table.to_arrow(filter=pc.field("fare") > 1000)) == [5]
    assert ids(table.to_arrow(filter=pc.field("id") < 10)) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    stock = table.to_duckdb(connection)
    assert stock.filter("fare > 1000").fetchall()[0][0] == 5
    assert stock.aggregate("count(id)").fetchall() == [(999,)]


def test_one_column_is_read_without_the_others(table, connection):
    """The pages of the others are destroyed, and nobody notices."""
    for path in table.files():
        _spoil(Path(path), "big")

    assert ids(table.to_batches(columns=["id"]).read_all()) == list(range(1000))
    assert ids(table.to_arrow(columns=["id"], filter=pc.field("fare") >= 0)) == list(range(1000))
    relation = table.to_duckdb(connection)
    assert relation.aggregate("sum(id)").fetchall() == [(499500,)]
    with pytest.raises(TableDamaged):
        table.to_batches().read_all()


def _spoil(path, column):
    content = bytearray(path.read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(0)
    [chunk] = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column]
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(content)


def test_a_reader_that_stops_reads_no_further_file(table):
    first, second = (Path(path) for path in table.files())
    reader = table.to_batches()
    reader.read_next_batch()
    second.unlink()
    first.unlink()

    with pytest.raises(TableDamaged, match="missing"):
        reader.read_next_batch()


def test_what_is_read_later_is_of_the_moment_of_the_call(table, connection):
    reader, dataset = table.to_batches(), table.to_dataset()
    relation = table.to_duckdb(connection)
    table.delete_partitions([""]) if table.settings.partition_by else table.insert_overwrite_table(
        ROWS.slice(0, 1)
    )

    assert len(reader.read_all()) == 1000
    assert dataset.count_rows() == 1000
    assert relation.count("*").fetchall() == [(1000,)]
    assert len(table.to_arrow()) == 1


def test_an_error_of_a_reader_is_ours(tmp_path):
    table = holdfast.create_table(str(tmp_path / "orders"), name="orders", record_key="id")
    for _ in range(4):
        table.insert_overwrite_table(ROWS)
    reader = table.to_batches(as_of=table.timeline()[0])
    table.clean({"hoodie.cleaner.policy": "KEEP_LATEST_COMMITS", "hoodie.cleaner.commits.retained": "1"})

    with pytest.raises(SnapshotExpired):
        reader.read_all()


FILTERS = {
    "equal": (pc.field("id") == 7, lambda row: row["id"] == 7),
    "range": ((pc.field("id") > 590) & (pc.field("id") <= 610), lambda row: 590 < row["id"] <= 610),
    "other columns": (
        (pc.field("city") == "oslo") | (pc.field("fare") > 99),
        lambda row: row["city"] == "oslo" or row["fare"] > 99,
    ),
    "null": (pc.field("city").is_null(), lambda row: row["city"] is None),
    "not null": (~pc.field("city").is_null(), lambda row: row["city"] is not None),
    "not equal": (pc.field("city") != "oslo", lambda row: row["city"] not in ("oslo", None)),
    "in": (pc.field("id").isin([1, 999, 5000]), lambda row: row["id"] in (1, 999)),
    "computed": (pc.field("id") * 2 == 10, lambda row: row["id"] == 5),
    "moment": (pc.field("at") < pa.scalar(START + dt.timedelta(hours=3)), lambda row: row["id"] < 3),
    "none": (pc.field("id") < 0, lambda row: False),
    "constant": (pc.scalar(True), lambda row: True),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_gives_the_rows_for_which_it_is_true(table, name):
    expression, expected = FILTERS[name]
    wanted = [row["id"] for row in ROWS.to_pylist() if expected(row)]

    assert ids(table.to_arrow(filter=expression)) == wanted
    assert ids(table.to_batches(columns=["id"], filter=expression).read_all()) == wanted
    assert table.to_arrow(filter=expression).schema.equals(table.to_arrow().schema)
    assert table.to_dataset().count_rows(filter=expression) == len(wanted)
    assert ids(table.to_dataset(filter=expression).to_table(columns=["id"])) == wanted
    assert ids(table.to_dataset(columns=["id"]).to_table(filter=expression)) == wanted


def test_a_filter_on_the_commit_finds_its_rows(table):
    instant = table.timeline()[-1].time

    found = table.to_arrow(columns=["id"], filter=pc.field("_hoodie_commit_time") == instant)

    assert ids(found) == list(range(600, 1000))


def test_filters_follow_columns_that_changed(tmp_path):
    """A column that came later is null before; a number that became wider is compared as it is handed on."""
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")
    table.insert(pa.table({"id": pa.array([1, 2], pa.int64()), "n": pa.array([1.1, 2.5], pa.float32())}))
    table.insert(
        pa.table(
            {"id": pa.array([3], pa.int64()), "n": pa.array([1.1], pa.float64()), "more": pa.array(["x"])}
        )
    )

    assert ids(table.to_arrow(filter=pc.field("n") == 1.1)) == [1, 3]
    assert ids(table.to_arrow(filter=pc.field("more").is_null())) == [1, 2]
    assert ids(table.to_arrow(filter=pc.field("more") == "x")) == [3]
    assert table.to_arrow(columns=["more"]).num_rows == 3
    assert table.to_batches(columns=["more"]).read_all().num_rows == 3
    assert table.to_batches(columns=["more"], filter=pc.field("id") < 3).read_all().num_rows == 2


def test_numbers_that_are_none_are_kept_by_what_is_true_of_them(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")
    table.insert(pa.table({"id": pa.array([1, 2], pa.int64()), "n": [5.0, float("nan")]}))

    assert ids(table.to_arrow(filter=pc.field("n") != 5.0)) == [2]
    assert ids(table.to_arrow(filter=~(pc.field("n") <= 5.0))) == [2]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("city = 'oslo'", "pyarrow expression"),
        (pc.field("nope") == 1, "nope"),
        (pc.field("id") + 1, "bool"),
        (pc.field("id") == "x", "equal"),
        (pc.field(0) == 1, "places"),
    ],
)
def test_what_is_no_filter_of_the_table_is_refused(table, given, told):
    for call in (table.to_arrow, table.to_batches, table.to_dataset):
        with pytest.raises(InvalidRequest, match=told):
            call(filter=given)


def test_a_filter_that_fails_on_a_row_is_told_as_such(table):
    with pytest.raises(InvalidRequest, match="fails on a row"):
        table.to_arrow(filter=pc.scalar(1) / pc.field("id") == 1)


def test_a_column_that_is_not_there_is_named(table):
    for call in (table.to_batches, table.to_pandas, table.to_dataset):
        with pytest.raises(InvalidRequest, match="nope"):
            call(columns=["nope"])


def _file(tmp_path, groups):
    """A file whose row groups are given, as what a filter looks at."""
    with pq.ParquetWriter(tmp_path / "f.parquet", groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    return pq.ParquetFile(tmp_path / "f.parquet")


def test_statistics_rule_out_row_groups(tmp_path):
    groups = [
        pa.table({"n": pa.array([low, None, low + 9], pa.int32()), "s": [f"{low:03}", None, "x"]})
        for low in range(0, 100, 10)
    ]
    file = _file(tmp_path, [*groups, pa.table({"n": pa.nulls(2, pa.int32()), "s": ["a", "b"]})])
    fields = [pa.field("n", pa.int64()), pa.field("s", pa.string()), pa.field("later", pa.int64())]

    def chosen(test):
        return parse_filter(test, fields).select_groups(file)

    assert chosen(pc.field("n") == 55) == [5]
    assert chosen((pc.field("n") >= 85) & (pc.field("s") < "085")) == [8]
    assert chosen(pc.field("n").is_null()) == list(range(11))
    assert chosen(pc.field("n").is_valid()) == list(range(10))
    assert chosen(pc.field("n") > 1000) == []
    assert chosen(~(pc.field("n") < 1000)) == []
    assert chosen(pc.field("later") == 1) == []
    assert chosen(pc.field("later").is_null() & (pc.field("n") < 15)) == [0, 1]


VALUES = st.one_of(st.none(), st.integers(-3, 3))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_row_is_lost_whatever_a_filter_asks(tmp_path_factory, data):
    """What is chosen by statistics, filtered, is what a filter of all rows gives."""
    kinds = data.draw(
        st.lists(
            st.sampled_from([pa.int32(), pa.string(), pa.float64(), pa.date32(), pa.decimal128(5, 1)]),
            min_size=3, max_size=3,
        )
    )  # fmt: skip
    groups = data.draw(
        st.lists(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=3), min_size=1, max_size=4)
    )
    names = ["a", "ab", "abc"]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    made = [
        pa.table([[_as(row[at], kind) for row in group] for at, kind in enumerate(kinds)], schema=schema)
        for group in groups
    ]
    test = data.draw(_tests(names, kinds))
    file = _file(tmp_path_factory.mktemp("f"), made)
    wanted = parse_filter(test, schema)

    chosen = file.read_row_groups(wanted.select_groups(file), columns=names)

    assert repr(wanted.match(chosen).to_pylist()) == repr(pa.concat_tables(made).filter(test).to_pylist())


def _as(value, kind):
    if value is None:
        return None
    if pa.types.is_floating(kind):
        return float("nan") if value == 3 else float(value)
    if pa.types.is_string(kind):
        return str(value)
    if pa.types.is_date32(kind):
        return dt.date(2026, 1, 10 + value)
    return decimal.Decimal(value) if pa.types.is_decimal(kind) else value


def _tests(names, kinds):
    def leaf(at, value, way):
        column, given = pc.field(names[at]), pa.scalar(_as(value, kinds[at]), kinds[at])
        return {
            "==": column == given, "!=": column != given, "<": column < given, ">=": column >= given,
            "null": column.is_null(), "valid": column.is_valid(),
        }[way]  # fmt: skip

    leaves = st.builds(
        leaf,
        st.integers(0, 2), st.integers(-3, 3), st.sampled_from(["==", "!=", "<", ">=", "null", "valid"]),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda x, y: x & y, inner, inner),
            st.builds(lambda x, y: x | y, inner, inner),
            st.builds(lambda x: ~x, inner),
        ),
        max_leaves=5,
    )


def test_duckdb_reads_a_table_lazily_and_as_often_as_it_likes(table, connection):
    relation = table.to_duckdb(connection, columns=["id", "city"], filter=pc.field("id") < 500)

    cities = relation.filter("city IS NOT NULL").aggregate("city, count(*) AS n").order("city").fetchall()

    assert cities == [("bergen", 167), ("oslo", 167)]
    assert connection.sql("SELECT max(id) FROM relation WHERE city = 'oslo'").fetchall() == [(499,)]
    assert relation.columns == ["id", "city"]
    orders = table.to_dataset()
    assert connection.sql("SELECT count(*) FROM orders WHERE id BETWEEN 10 AND 19").fetchall() == [(10,)]
    assert orders.schema.names == ROWS.column_names
    with pytest.raises(InvalidRequest, match="duckdb"):
        table.to_duckdb("memory")


def test_pandas_gets_columns_and_rows(table):
    frame = table.to_pandas(columns=["id", "fare"], filter=pc.field("id") > 997)

    assert frame.to_dict("list") == {"id": [998, 999], "fare": [99.8, 99.9]}


def test_polars_gets_columns_and_rows(table):
    polars = pytest.importorskip("polars")

    frame = table.to_polars(columns=["id", "fare"], filter=pc.field("id") > 997)

    assert frame.to_dict(as_series=False) == {"id": [998, 999], "fare": [99.8, 99.9]}
    lazy = polars.scan_pyarrow_dataset(table.to_dataset())
    assert lazy.filter(polars.col("id") < 3).select("id").collect()["id"].to_list() == [0, 1, 2]
    assert lazy.head(5).collect().height == 5


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_package_says_what_to_install(table, monkeypatch, name):
    monkeypatch.setattr(
        lake, "find_spec", lambda asked: None if asked == name else importlib.util.find_spec(asked)
    )

    with pytest.raises(InvalidRequest, match=f"pip install {name}"):
        getattr(table, f"to_{name}")()


def test_a_table_as_a_dataset_refuses_what_only_files_can(table):
    dataset = table.to_dataset()

    assert "columns=['id'" in repr(dataset)
    assert dataset.head(3).num_rows == 3
    assert dataset.filter(pc.field("id") < 4).to_table(filter=pc.field("id") > 1)["id"].to_pylist() == [2, 3]
    assert ids(pa.Table.from_batches(dataset.to_batches(columns=["id"]))) == list(range(1000))
    for refused in (dataset.get_fragments, dataset.take, dataset.join, dataset.sort_by):
        with pytest.raises(InvalidRequest, match="not a dataset of files"):
            refused()
    with pytest.raises(InvalidRequest, match="in a list"):
        dataset.to_table(columns={"x": pc.field("id")})
