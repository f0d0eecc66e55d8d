"""What differs between two snapshots, as it is shown before something is taken back."""

import pyarrow as pa

import holdfast
from holdfast.read.comparison import compare_snapshots
from holdfast.table.opened import open_at


def make(folder, **more):
    return holdfast.create_table(str(folder / "trips"), name="trips", record_key="id", **more)


def counts(table, before, after):
    rows = compare_snapshots(open_at(table.path), before, after).rows
    return rows.added, rows.removed, rows.changed


def test_rows_without_a_partition_and_nested_values_differ_only_where_they_do(tmp_path):
    table = make(tmp_path, partition_by="city")
    rows = pa.table(
        {
            "id": ["a", "b", "c"],
            "city": pa.array([None, None, "oslo"], pa.string()),
            "tags": [["x"], ["y"], None],
            "fare": [1.5, float("nan"), 3.5],
        }
    )
    first = table.upsert(rows)
    table.upsert(rows.set_column(2, "tags", pa.array([["x"], ["z"], None])))

    assert counts(table, None, first.instant) == (0, 0, 1)
    assert counts(table, first.instant, None) == (0, 0, 1)


def test_columns_that_were_widened_or_added_are_compared_both_ways(tmp_path):
    table = make(tmp_path)
    first = table.upsert(pa.table({"id": ["a", "b"], "n": pa.array([1, 2], pa.int32())}))
    table.upsert(
        pa.table({"id": ["b", "c"], "n": pa.array([5_000_000_000, 3], pa.int64()), "note": ["wide", "new"]})
    )

    assert counts(table, first.instant, None) == (1, 0, 1)
    assert counts(table, None, first.instant) == (0, 1, 1)
    assert counts(table, None, "") == (0, 3, 0)


def test_two_snapshots_that_are_one_share_all_files(tmp_path):
    table = make(tmp_path)
    table.insert(pa.table({"id": ["a"], "n": [1]}))

    found = compare_snapshots(open_at(table.path), None, None)

    assert (found.files_left, found.emptied) == (1, ())
    assert counts(table, None, None) == (0, 0, 0)
