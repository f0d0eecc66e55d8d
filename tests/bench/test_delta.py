"""The process that runs deltalake for the benchmarks."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.workloads.delta import delta, delta_process


@pytest.fixture
def stored(tmp_path):
    def store(name, **columns):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table(columns), path)
        return path

    return store


@pytest.fixture
def table(tmp_path, stored):
    """Three trips in two cities, in two commits."""
    path = tmp_path / "table"
    first = stored("first", trip_id=["a", "b"], city=["x", "y"], ts=[1, 1])
    second = stored("second", trip_id=["c"], city=["x"], ts=[1])
    delta("append", path, commits=[str(first), str(second)], has_changes=True)
    return path


def trips_in(table):
    rows = [row for file in delta("files", table) for row in pq.ParquetFile(file).read().to_pylist()]
    return {row["trip_id"]: row["ts"] for row in rows}


def test_an_append_adds_one_file_to_each_city(table):
    assert len(delta("files", table)) == 3


def test_an_upsert_updates_and_inserts(table, stored):
    rows = stored("new", trip_id=["a", "d"], city=["x", "y"], ts=[2, 2])

    delta("upsert", table, rows=rows)

    assert trips_in(table) == {"a": 2, "b": 1, "c": 1, "d": 2}


def test_a_delete_needs_only_keys_and_cities(table, stored):
    delta("delete", table, rows=stored("keys", trip_id=["b"], city=["y"]))

    assert trips_in(table) == {"a": 1, "c": 1}


def test_an_overwrite_replaces_one_city(table, stored):
    rows = stored("new", trip_id=["e"], city=["x"], ts=[3])

    delta("overwrite", table, rows=rows, partition="x")

    assert trips_in(table) == {"b": 1, "e": 3}


def test_a_change_read_counts_the_rows_of_one_commit(table):
    assert delta("count", table) == 3
    assert delta("changes", table, version=1) == 1


def test_nothing_happens_before_the_process_is_told(table, stored):
    process = delta_process("delete", table, rows=stored("keys", trip_id=["b"], city=["y"]))
    before = trips_in(table)

    process.act()
    process.end()

    assert len(before) == 3
    assert len(trips_in(table)) == 2


def test_a_process_that_fails_is_told(tmp_path):
    with pytest.raises(RuntimeError, match=r"delta_process\.py ended with 1"):
        delta("count", tmp_path / "nothing")
