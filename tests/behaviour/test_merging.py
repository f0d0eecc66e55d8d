"""What a merge does to the files of a table: which it writes, what they say, how much memory it takes."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.format.bloom import decode_bloom
from holdfast.format.commits import decode_commit
from holdfast.model.names import parse_base_file

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}
BLOOM = {"hoodie.index.type": "BLOOM"}
SMALL_ROW_GROUPS = {"hoodie.parquet.max.file.size": "4194304"}
COMBINE = {"hoodie.combine.before.insert": "true"}
NEW_GROUPS = {"hoodie.parquet.small.file.limit": "0"}
SOON_ARCHIVED = {
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}


@pytest.fixture
def table(tmp_path):
    return holdfast.create_table(
        str(tmp_path / "table"), name="trips", record_key="id", partition_by="city", ordering="ts"
    )


def trips(*ids, ts=1, fare=1.0, city="paris", **columns):
    count = len(ids)
    return pa.table(
        {"id": list(ids), "city": [city] * count, "ts": pa.array([ts] * count, pa.int64())}
        | {"fare": [fare] * count}
        | {name: [value] * count for name, value in columns.items()}
    )


def by_id(table):
    ours, theirs = table.to_arrow(meta_columns=True), hudi_snapshot(table.path)
    order = [("id", "ascending"), ("_hoodie_commit_seqno", "ascending")]
    assert ours.sort_by(order).to_pylist() == theirs.sort_by(order).to_pylist()
    return {row["id"]: row for row in ours.to_pylist()}


def stats_of(table, commit):
    path = Path(table.path) / ".hoodie" / f"{commit.instant}.{commit.action}"
    by_partition = decode_commit(path.read_bytes()).partition_to_write_stats
    return [stat for stats in by_partition.values() for stat in stats]


def file_ids(table):
    return sorted(parse_base_file(Path(file).name).file_id for file in table.files())


def test_every_kind_of_change_is_counted_once(table):
    table.insert(trips("updated", "removed", "outdone", "kept", _hoodie_is_deleted=False))
    rows = [
        trips("updated", ts=2, fare=2.0, _hoodie_is_deleted=False),
        trips("removed", ts=1, _hoodie_is_deleted=True),
        trips("outdone", ts=0, fare=9.0, _hoodie_is_deleted=False),
        trips("new", _hoodie_is_deleted=False),
        trips("never there", _hoodie_is_deleted=True),
    ]

    commit = table.upsert(pa.concat_tables(rows))

    counts = (commit.records_inserted, commit.records_updated, commit.records_deleted, commit.records_written)
    assert counts == (1, 1, 1, 4)
    assert {key: row["fare"] for key, row in by_id(table).items()} == {
        "updated": 2.0,
        "outdone": 1.0,
        "kept": 1.0,
        "new": 1.0,
    }


def test_the_commit_says_of_each_file_what_changed_and_what_was_before(table):
    first = table.insert(trips("a", "b", "c"))
    second = table.upsert(pa.concat_tables([trips("a", "d", ts=2), trips("e", city="rome")]))

    stats = {stat.partition_path: stat for stat in stats_of(table, second)}

    (before,) = stats_of(table, first)
    merged, created = stats["city=paris"], stats["city=rome"]
    assert (before.prev_commit, created.prev_commit) == ("null", "null")
    assert (merged.prev_commit, merged.file_id) == (first.instant, before.file_id)
    assert (merged.num_writes, merged.num_update_writes, merged.num_inserts, merged.num_deletes) == (
        4,
        1,
        1,
        0,
    )
    assert merged.file_size_in_bytes == (Path(table.path) / merged.path).stat().st_size


def test_rows_that_are_copied_keep_their_time_and_number_and_get_the_new_file_name(table):
    table.insert(trips("a", "b", "c"))
    before = by_id(table)

    commit = table.upsert(trips("b", "d", ts=2))

    after = by_id(table)
    for kept in ("a", "c"):
        for column in ("_hoodie_commit_time", "_hoodie_commit_seqno"):
            assert after[kept][column] == before[kept][column]
    assert {after[key]["_hoodie_commit_time"] for key in ("b", "d")} == {commit.instant}
    (name,) = {row["_hoodie_file_name"] for row in after.values()}
    assert name != before["a"]["_hoodie_file_name"]
    assert [name] == [Path(file).name for file in table.files()]
    assert len({row["_hoodie_commit_seqno"] for row in after.values()}) == 4


def test_rows_that_are_left_by_a_delete_keep_all_their_values(table):
    table.insert(trips("a", "b", "c"))
    before = by_id(table)

    table.delete(trips("b").select(["id", "city"]))

    after = by_id(table)
    (file,) = table.files()
    assert after == {key: before[key] | {"_hoodie_file_name": Path(file).name} for key in ("a", "c")}
    assert pq.read_table(file)["_hoodie_record_key"].to_pylist() == ["a", "c"]


def test_a_key_column_that_is_not_spelled_as_the_keys_stays_so(table):
    """Where another program stored the column in another spelling, a delete does not make them one."""
    table.insert(trips("a", "b", "c"))
    (file,) = table.files()
    stored = pq.read_table(file)
    capitals = stored.set_column(stored.column_names.index("id"), "id", pc.utf8_upper(stored["id"]))
    pq.write_table(capitals.cast(stored.schema), file, store_schema=False)

    table.delete(trips("b").select(["id", "city"]))

    (file,) = table.files()
    left = pq.read_table(file)
    assert left["_hoodie_record_key"].to_pylist() == ["a", "c"]
    assert left["id"].to_pylist() == ["A", "C"]


def test_a_file_in_which_nothing_changes_is_not_written(table):
    table.insert(trips("a", "b", ts=5))
    files = table.files()

    outdone = table.upsert(trips("a", ts=4))
    absent = table.delete(trips("z").select(["id", "city"]))

    assert (outdone.files_written, absent.files_written) == (0, 0)
    assert table.files() == files


def test_of_equal_orders_the_later_row_wins_and_null_is_the_least(table):
    table.insert(pa.concat_tables([trips("tie", "null"), trips("empty", ts=None)]))

    table.upsert(
        pa.concat_tables(
            [
                trips("tie", fare=2.0),
                trips("tie", fare=3.0),
                trips("null", ts=None),
                trips("empty", ts=None, fare=2.0),
            ]
        )
    )

    assert {key: row["fare"] for key, row in by_id(table).items()} == {"tie": 3.0, "null": 1.0, "empty": 2.0}


def test_not_a_number_is_the_greatest_order(tmp_path):
    """As Java orders doubles."""
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", ordering="ts")
    table.upsert(pa.table({"id": ["a", "a", "b"], "ts": [math.nan, math.inf, math.nan], "v": [1, 2, 3]}))

    table.upsert(pa.table({"id": ["a", "b"], "ts": [math.inf, math.nan], "v": [4, 5]}))

    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == {"a": 1, "b": 5}


def test_keys_that_were_inserted_twice_are_updated_and_removed_together(table):
    """As in Hudi an insert looks for no keys, so that a file group may hold one twice."""
    table.insert(trips("twice", "twice", "once"))
    assert hudi_snapshot(table.path).num_rows == 3

    updated = table.upsert(trips("twice", ts=2, fare=2.0))
    fares = table.to_arrow().sort_by("id")["fare"].to_pylist()
    removed = table.delete(trips("twice").select(["id", "city"]))

    assert (updated.records_updated, fares) == (2, [1.0, 2.0, 2.0])
    assert removed.records_deleted == 2
    assert by_id(table).keys() == {"once"}


ADDING = ("insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table")


@pytest.mark.parametrize("operation", ADDING)
def test_combined_inserts_keep_the_greatest_of_each_key(operation, table):
    rows = pa.concat_tables([trips("a", ts=2, fare=2.0), trips("a", ts=1), trips("b")])

    commit = getattr(table, operation)(rows, options=COMBINE)

    assert commit.records_inserted == 2
    assert {key: row["fare"] for key, row in by_id(table).items()} == {"a": 2.0, "b": 1.0}


@pytest.mark.parametrize("operation", ADDING)
def test_with_a_global_index_inserts_combine_across_partitions(operation, table):
    rows = pa.concat_tables([trips("a", ts=2, fare=2.0), trips("a", city="rome"), trips("b", city="oslo")])

    getattr(table, operation)(rows, options=COMBINE | {"hoodie.index.type": "GLOBAL_SIMPLE"})

    assert table.to_arrow().num_rows == 2
    assert {key: row["city"] for key, row in by_id(table).items()} == {"a": "paris", "b": "oslo"}


@pytest.mark.parametrize("operation", [*ADDING, "upsert"])
def test_rows_marked_as_deleted_are_not_added(operation, table):
    rows = pa.concat_tables([trips("a", _hoodie_is_deleted=False), trips("b", _hoodie_is_deleted=True)])

    commit = getattr(table, operation)(rows)

    assert (by_id(table).keys(), commit.records_inserted) == ({"a"}, 1)


def test_a_file_group_that_lost_all_rows_takes_new_ones(table):
    table.insert(trips("a", "b"))
    emptied = table.delete(trips("a", "b").select(["id", "city"]))
    assert (emptied.records_deleted, emptied.records_written, by_id(table)) == (2, 0, {})

    table.insert(trips("c"))

    assert by_id(table).keys() == {"c"}
    assert len(file_ids(table)) == 1


def test_new_rows_fill_small_file_groups_first(table):
    table.insert(trips("a"))
    first = file_ids(table)

    table.insert(trips("b"))
    table.upsert(trips("c"))
    assert file_ids(table) == first
    table.insert(trips("d"), options=NEW_GROUPS)
    assert len(file_ids(table)) == 2
    table.bulk_insert(trips("e"))

    assert len(file_ids(table)) == 3
    assert by_id(table).keys() == set("abcde")


@pytest.mark.parametrize("operation", ["insert", "upsert"])
def test_new_rows_fill_small_file_groups_whose_commits_are_archived(operation, table):
    oldest = table.insert(trips("a", city="oslo"))
    for number in range(6):
        table.insert(trips(f"p{number}"), options=SOON_ARCHIVED)
    assert oldest.instant not in [instant.time for instant in table.timeline()]

    getattr(table, operation)(trips("b", city="oslo"))

    (file,) = (file for file in table.files() if "city=oslo" in file)
    assert sorted(pq.read_table(file)["id"].to_pylist()) == ["a", "b"]


def test_a_file_group_is_written_once_though_rows_come_to_it_and_leave_it(tmp_path):
    """With a global index one row leaves a partition, while others are changed in it and come to it."""
    table = holdfast.create_table(
        str(tmp_path), name="t", record_key="id", partition_by="city", ordering="ts"
    )
    table.insert(pa.concat_tables([trips("goes", "stays"), trips("comes", city="rome")]))
    rows = [trips("goes", ts=2, city="rome"), trips("stays", ts=2, fare=2.0), trips("comes", ts=2)]

    commit = table.upsert(pa.concat_tables(rows), options={"hoodie.index.type": "GLOBAL_SIMPLE"})

    counts = (commit.records_inserted, commit.records_updated, commit.records_deleted, commit.files_written)
    assert counts == (2, 1, 2, 2)
    places = {key: row["_hoodie_partition_path"] for key, row in by_id(table).items()}
    assert places == {"goes": "city=rome", "stays": "city=paris", "comes": "city=paris"}


def java_bucket(key: str, count: int) -> int:
    """Java's hash of a list with one text in it, without its sign."""
    code = 0
    units = key.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (code * 31 + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return ((31 + code) & 0x7FFFFFFF) % count


def test_each_bucket_is_one_file_group_that_says_its_number(table):
    ids = [f"trip {number}" for number in range(20)] + ["ü", "𝄞"]
    table.upsert(trips(*ids[:12]), options=BUCKETS)
    table.bulk_insert(trips(*ids[12:]), options=BUCKETS)

    commit = table.upsert(trips(*ids, ts=2), options=BUCKETS)

    assert (commit.records_updated, commit.records_inserted) == (len(ids), 0)
    assert len(file_ids(table)) == len({java_bucket(key, 4) for key in ids})
    for key, row in by_id(table).items():
        assert int(row["_hoodie_file_name"][:8]) == java_bucket(key, 4)


def test_the_bloom_index_reads_keys_of_those_files_alone_that_may_hold_one(table):
    for ids in (["a1", "a9"], ["b1", "b9"], ["c1", "c9"]):
        table.bulk_insert(trips(*ids))

    found = table.upsert(trips("b9", ts=2), options={**BLOOM, **NEW_GROUPS})
    within = table.upsert(trips("c5"), options={**BLOOM, **NEW_GROUPS})
    plain = table.upsert(trips("a9", ts=2), options=NEW_GROUPS)

    assert (found.index.file_groups, found.index.pruned_by_range, found.index.pruned_by_bloom) == (3, 2, 0)
    assert (within.index.file_groups, within.index.pruned_by_range, within.index.pruned_by_bloom) == (3, 2, 1)
    assert (plain.index.pruned_by_range, plain.index.pruned_by_bloom) == (0, 0)
    assert (found.records_updated, within.records_inserted, plain.records_updated) == (1, 1, 1)


def test_the_footer_of_a_merged_file_knows_all_its_keys(table):
    table.insert(trips("m", "n"))
    table.upsert(trips("n", "a", "\uffee", "𝄞", ts=2))
    table.delete(trips("m").select(["id", "city"]))
    table.upsert(trips(*(f"many {number}" for number in range(500)), ts=2))

    (file,) = table.files()
    entries = {name.decode(): value.decode() for name, value in pq.read_metadata(file).metadata.items()}
    keys = pq.read_table(file)["_hoodie_record_key"].combine_chunks()

    bloom = decode_bloom(entries["org.apache.hudi.bloomfilter"], entries["hoodie_bloom_filter_type_code"])
    assert len(keys) == 504
    assert bloom.might_contain(keys).all()
    least, greatest = (entries[f"hoodie_{end}_record_key"].encode("utf-16-be") for end in ("min", "max"))
    assert all(least <= key.encode("utf-16-be") <= greatest for key in keys.to_pylist())
    assert not bloom.might_contain(pa.array([f"absent {number}" for number in range(100)])).any()


def many_row_groups(folder: Path, groups: int) -> tuple[holdfast.Table, pq.FileMetaData]:
    """A table of one file with so many row groups of about a mebibyte."""
    table = holdfast.create_table(str(folder), name="t", record_key="id")
    rows = groups * 1024
    ids = pc.binary_join_element_wise(
        "key ", pc.utf8_lpad(pa.array(range(rows)).cast(pa.string()), 8, "0"), ""
    )
    text = pa.array(["x" * 1024]).take(pa.array([0] * rows))
    table.bulk_insert(pa.table({"id": ids, "text": text}), options=SMALL_ROW_GROUPS)
    (file,) = table.files()
    return table, pq.read_metadata(file)


POOLS = []
"""Pools are never freed: what was allocated in one may outlive its use."""


def peak_of(act: Callable[[], object]) -> int:
    """The most bytes that Arrow held at a time meanwhile."""
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    POOLS.append(counting)
    pa.set_memory_pool(counting)
    try:
        act()
    finally:
        pa.set_memory_pool(usual)
    return counting.max_memory()


@pytest.mark.parametrize("added", [0, 10], ids=["updates", "updates and new rows"])
def test_a_merge_holds_a_row_group_and_not_the_file(added, tmp_path):
    peaks = {}
    for groups in (10, 40):
        table, metadata = many_row_groups(tmp_path / str(groups), groups)
        assert metadata.num_row_groups >= groups * 0.75
        ids = [f"key {number * 1024:08d}" for number in range(groups)] + [f"new {n}" for n in range(added)]
        rows = pa.table({"id": ids, "text": ["y"] * len(ids)})
        peaks[groups] = peak_of(partial(table.upsert, rows, options=SMALL_ROW_GROUPS))
        changed = table.to_arrow().filter(pc.field("text") == "y")
        assert sorted(changed["id"].to_pylist()) == ids

    assert peaks[40] < 1.5 * peaks[10], "memory grows with the file"
    assert peaks[40] < 40 * 1024 * 1024 / 4, "more than a few row groups were held"


def test_a_delete_holds_a_row_group_and_not_the_file(tmp_path):
    peaks = {}
    for groups in (10, 40):
        table, _ = many_row_groups(tmp_path / str(groups), groups)
        ids = pa.table({"id": [f"key {number * 1024:08d}" for number in range(groups)]})
        peaks[groups] = peak_of(partial(table.delete, ids, options=SMALL_ROW_GROUPS))
        assert table.to_arrow(columns=["id"]).num_rows == groups * 1023

    assert peaks[40] < 1.5 * peaks[10], "memory grows with the file"
    assert peaks[40] < 40 * 1024 * 1024 / 4, "more than a few row groups were held"
