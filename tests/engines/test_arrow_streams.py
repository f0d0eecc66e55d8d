"""Rows of other libraries are written as they are: pandas, Polars, DuckDB, streams and batches of pyarrow."""

import datetime as dt

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import InvalidRequest, SchemaMismatch, TableDamaged

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "city": ["oslo", None, "bergen"],
        "at": pa.array([dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)]),
    }
)


@pytest.fixture
def table(tmp_path):
    return holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")


class OnlyStream:
    """Nothing but the one method."""

    def __init__(self, rows):
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return self._rows.__arrow_c_stream__(requested_schema)


GIVEN = {
    "a stream": OnlyStream,
    "a reader": lambda rows: rows.to_reader(),
    "a batch": lambda rows: rows.to_batches()[0],
    "pandas": lambda rows: rows.to_pandas(),
    "large types": lambda rows: rows.set_column(1, "city", rows["city"].cast(pa.large_string())),
    "views": lambda rows: rows.set_column(1, "city", rows["city"].cast(pa.string_view())),
    "dictionaries": lambda rows: rows.set_column(1, "city", rows["city"].dictionary_encode()),
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("verb", ["insert", "bulk_insert", "upsert", "insert_overwrite_table"])
def test_every_verb_takes_rows_of_any_library(table, kind, verb):
    commit = getattr(table, verb)(GIVEN[kind](ROWS))

    assert commit.records_written == 3
    assert table.to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()


def test_a_relation_of_duckdb_is_rows(table):
    with duckdb.connect() as connection:
        table.insert(connection.sql("SELECT range AS id, 'city ' || range AS city FROM range(5)"))
        table.delete(connection.sql("SELECT 3::BIGINT AS id"))

    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 4]


def test_a_frame_of_polars_is_rows(table):
    polars = pytest.importorskip("polars")

    table.insert(polars.from_arrow(ROWS))

    assert table.to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()


def test_one_table_is_written_from_another_without_a_detour(table, tmp_path):
    table.insert(ROWS)
    other = holdfast.create_table(str(tmp_path / "other"), name="other", record_key="id")

    other.insert(table.to_batches(columns=["id", "city"]))

    assert other.to_arrow().column_names == ["id", "city"]
    assert other.to_arrow().num_rows == 3


def test_what_pandas_calls_rows_by_is_no_column_unless_it_has_a_name(table):
    frame = ROWS.to_pandas()

    table.insert(frame[frame.id > 1])
    table.insert(frame[frame.id == 1].set_index("id"))

    assert table.schema().names == ["id", "city", "at"]
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_a_type_that_cannot_be_stored_is_named_whoever_brings_it(table):
    with pytest.raises(SchemaMismatch, match="waited"):
        table.insert(pd.DataFrame({"id": [1], "waited": [pd.Timedelta(1)]}))
    assert table.timeline() == []


@pytest.mark.parametrize("given", [[{"id": 1}], {"id": [1]}, None, "rows"])
def test_what_offers_no_rows_is_refused_with_a_way(table, given):
    with pytest.raises(InvalidRequest, match="from_pylist"):
        table.insert(given)
    with pytest.raises(InvalidRequest, match="from_pylist"):
        holdfast.write(given, table.path, {"hoodie.table.name": "t"})


def test_rows_that_break_off_are_refused_and_nothing_is_written(table):
    def broken():
        yield from ROWS.to_batches()
        raise ValueError("the source has gone")

    def damaged():
        yield from ROWS.to_batches()
        raise TableDamaged("a data file is missing", file="f")

    with pytest.raises(InvalidRequest, match="the source has gone"):
        table.insert(OnlyStream(pa.RecordBatchReader.from_batches(ROWS.schema, broken())))
    with pytest.raises(InvalidRequest, match="cannot be read as Arrow"):
        table.insert(pd.DataFrame({"id": [1, "x"]}))
    with pytest.raises((TableDamaged, InvalidRequest), match="a data file is missing"):
        table.insert(pa.RecordBatchReader.from_batches(ROWS.schema, damaged()))
    assert table.timeline() == []


def test_a_job_of_hudi_may_bring_a_frame_of_pandas(tmp_path):
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}

    holdfast.write(ROWS.to_pandas(), str(tmp_path / "t"), options)

    assert holdfast.open_table(str(tmp_path / "t")).to_arrow().num_rows == 3
