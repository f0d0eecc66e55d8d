"""What writes of a merge-on-read table leave: log files or rewritten base files, and what hudi-rs reads."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.errors import InvalidOption
from holdfast.format.commits import decode_commit
from holdfast.format.delete_blocks import decode_deletes
from holdfast.format.log_blocks import BlockType, LogBlock, decode_blocks
from holdfast.format.row_positions import ROWS, decode_positions
from holdfast.model.names import parse_base_file, parse_log_file

APPENDS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
LATEST = {"hoodie.compaction.payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"}
INDEXES = {
    "SIMPLE": {},
    "BLOOM": {"hoodie.index.type": "BLOOM"},
    "GLOBAL_SIMPLE": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "GLOBAL_BLOOM": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "BUCKET": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
}


def make_table(folder, **settings):
    given = {"name": "trips", "record_key": "id", "partition_by": "city", "ordering": "ts"} | settings
    return holdfast.create_table(str(folder / "table"), table_type="MERGE_ON_READ", **given)


@pytest.fixture
def table(tmp_path):
    return make_table(tmp_path)


def trips(*ids, ts=1, fare=1.0, city="paris", **columns):
    count = len(ids)
    return pa.table(
        {"id": list(ids), "city": [city] * count, "ts": pa.array([ts] * count, pa.int64())}
        | {"fare": [fare] * count}
        | {name: [value] * count for name, value in columns.items()}
    )


def keys(*ids, city="paris", **columns):
    return pa.table(
        {"id": list(ids), "city": [city] * len(ids)} | {n: [v] * len(ids) for n, v in columns.items()}
    )


def seen(table):
    """Id → fare, as both readers see it."""
    ours, theirs = table.to_arrow(meta_columns=True), hudi_snapshot(table.path)
    order = [("id", "ascending")]
    names = [name for name in ours.column_names if name in theirs.column_names]
    # As texts, in which one that is not a number equals itself.
    assert str(ours.select(names).sort_by(order).to_pylist()) == str(
        theirs.select(names).sort_by(order).to_pylist()
    )
    return {row["id"]: row["fare"] for row in ours.to_pylist()}


def stats_of(table, commit):
    path = Path(table.path) / ".hoodie" / f"{commit.instant}.{commit.action}"
    by_partition = decode_commit(path.read_bytes()).partition_to_write_stats
    return [stat for stats in by_partition.values() for stat in stats]


def logs_of(table, commit):
    return [stat for stat in stats_of(table, commit) if ".log." in stat.path]


def blocks_of(table, stat) -> list[LogBlock]:
    return list(decode_blocks((Path(table.path) / stat.path).read_bytes()))


def is_appended(table, commit):
    """Whether all that the commit wrote are log files; it wrote something."""
    stats = stats_of(table, commit)
    assert stats
    return len(logs_of(table, commit)) == len(stats)


def test_a_new_table_says_what_hudi_says_of_its_type(table):
    properties = table.settings.properties

    assert properties["hoodie.table.type"] == "MERGE_ON_READ"
    assert properties["hoodie.compaction.payload.class"].endswith(".DefaultHoodieRecordPayload")
    assert properties["hoodie.compaction.record.merger.strategy"] == "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"


def test_an_update_and_a_delete_are_one_log_file(table):
    table.insert(trips("a", "b", "c", _hoodie_is_deleted=False))
    rows = [trips("b", ts=2, fare=2.0, _hoodie_is_deleted=False), trips("c", ts=3, _hoodie_is_deleted=True)]

    commit = table.upsert(pa.concat_tables(rows), options=APPENDS)

    assert commit.action == "deltacommit"
    assert (commit.records_written, commit.records_updated, commit.records_deleted) == (1, 1, 1)
    assert seen(table) == {"a": 1.0, "b": 2.0}
    (stat,) = stats_of(table, commit)
    data, delete = blocks_of(table, stat)
    assert (data.kind, delete.kind) == (BlockType.PARQUET_DATA, BlockType.DELETE)
    assert data.instant == delete.instant == commit.instant
    assert decode_deletes(delete.content, pa.int64()).orderings.to_pylist() == [3]


def test_the_statistics_of_a_log_file_are_those_that_hudi_writes(table):
    first = table.insert(trips("a", "b"))
    (base,) = stats_of(table, first)
    table.upsert(trips("a", ts=2), options=APPENDS)

    (stat,) = stats_of(table, table.upsert(trips("b", ts=2), options=APPENDS))

    name = parse_log_file(Path(stat.path).name)
    assert (name.file_id, name.base_instant, name.version) == (base.file_id, first.instant, 2)
    assert (stat.file_id, stat.prev_commit, stat.log_version, stat.log_offset) == (
        base.file_id, first.instant, 2, 0,
    )  # fmt: skip
    assert stat.base_file == Path(base.path).name
    assert [parse_log_file(log).version for log in stat.log_files] == [1, 2]
    assert (stat.num_writes, stat.num_update_writes, stat.num_inserts, stat.num_deletes) == (1, 1, 0, 0)
    assert stat.file_size_in_bytes == stat.total_write_bytes == (Path(table.path) / stat.path).stat().st_size
    assert stat.records_stats == {"val": None}


def test_a_block_says_where_its_rows_are_in_the_base_file(table):
    table.insert(trips("a", "b", "c", "d"))

    (stat,) = stats_of(table, table.upsert(trips("d", "b", ts=2), options=APPENDS))

    (data,) = blocks_of(table, stat)
    with pq.ParquetFile(pa.BufferReader(data.content)) as file:
        entries, ids = file.metadata.metadata, file.read(columns=["id"])["id"].to_pylist()
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    base = parse_log_file(Path(stat.path).name).base_instant
    assert decode_positions(entries, ROWS, base=base, count=2).tolist() == [1, 3]
    assert ids == ["b", "d"]


def test_new_keys_go_to_base_files(table):
    table.insert(trips("a", "b"))

    commit = table.upsert(trips("b", "new", ts=2, fare=2.0), options=APPENDS)

    assert not logs_of(table, commit)
    assert seen(table) == {"a": 1.0, "b": 2.0, "new": 2.0}


def test_a_write_appends_up_to_the_number_of_log_files(table):
    table.insert(trips("a", "b"))
    options = {**APPENDS, "holdfast.mor.max.logs": "2"}

    appended = [
        is_appended(table, table.upsert(trips("a", ts=ts, fare=ts * 1.0), options=options))
        for ts in range(2, 9)
    ]

    assert appended == [True, True, False, True, True, False, True]
    assert seen(table) == {"a": 8.0, "b": 1.0}


def test_a_write_appends_up_to_a_part_of_the_base_file(table):
    """By default a tenth: of a large file that is much, of a small one nothing."""
    ids = [f"k{number:06}" for number in range(40_000)]
    table.insert(trips(*ids))
    size = stats_of(table, table.upsert(trips(*ids[:200], ts=2, fare=2.0)))[0].total_write_bytes
    base = next(Path(file).stat().st_size for file in table.files() if file.endswith(".parquet"))

    options = {"holdfast.mor.max.logs": "1000"}
    appended = [
        is_appended(table, table.upsert(trips(*ids[:200], ts=ts), options=options)) for ts in range(3, 60)
    ]

    assert False in appended, "the base file was never rewritten"
    assert size * (appended.index(False) + 1) == pytest.approx(0.1 * base, rel=0.3)
    assert not is_appended(table, table.upsert(trips(*ids[:8_000], ts=99))), "a fifth of the rows"


@pytest.mark.parametrize("never", [{"holdfast.mor.max.logs": "0"}, {"holdfast.mor.max.log.ratio": "0"}])
def test_log_files_can_be_switched_off(table, never):
    table.insert(trips("a", "b"))

    commit = table.upsert(trips("a", ts=2, fare=2.0), options={**APPENDS, **never})

    assert not logs_of(table, commit)
    assert seen(table) == {"a": 2.0, "b": 1.0}


def test_options_of_log_files_are_refused_where_there_are_none(tmp_path):
    table = holdfast.create_table(str(tmp_path / "table"), name="t", record_key="id")

    for option, value in {**APPENDS, "hoodie.logfile.data.block.format": "avro"}.items():
        with pytest.raises(InvalidOption, match="merge-on-read") as refused:
            table.upsert(pa.table({"id": ["a"]}), options={option: value})
        assert refused.value.facts["option"] == option


@pytest.mark.parametrize("index", INDEXES, ids=str)
@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_every_index_finds_keys_under_log_files(tmp_path, index, block_format):
    table = make_table(tmp_path)
    options = {**APPENDS, **INDEXES[index], "hoodie.logfile.data.block.format": block_format}
    ids = [f"k{number}" for number in range(12)]
    table.insert(trips(*ids), options=options)
    table.upsert(trips("k1", "k2", "k3", ts=5, fare=2.0), options=options)
    table.delete(keys("k3", "k4"), options=options)

    late = table.upsert(trips("k1", "k0", ts=4, fare=9.0), options=options)
    again = table.delete(keys("k4", "k2"), options=options)

    assert late.records_updated == 1, "k0; k1 is older than what a log file has"
    assert again.records_deleted == 1, "k2; k4 is gone already"
    found = table.upsert(trips("k3", ts=1, fare=3.0), options=options)
    assert (found.records_inserted, found.records_updated) == (1, 0)
    assert seen(table) == dict.fromkeys(ids[5:], 1.0) | {"k0": 9.0, "k1": 2.0, "k3": 3.0}


def test_a_record_that_moves_is_deleted_by_a_log_file_where_it_was(table):
    options = {**APPENDS, **INDEXES["GLOBAL_SIMPLE"]}
    table.insert(pa.concat_tables([trips("a", "b"), trips("c", city="rome")]), options=options)
    table.upsert(trips("a", ts=2, fare=2.0), options=options)

    commit = table.upsert(trips("a", ts=3, fare=3.0, city="rome"), options=options)

    (log,) = logs_of(table, commit)
    assert (log.partition_path, log.num_deletes) == ("city=paris", 1)
    assert seen(table) == {"a": 3.0, "b": 1.0, "c": 1.0}
    late = table.upsert(trips("a", ts=2, fare=9.0, city="paris"), options=options)
    assert late.records_inserted == late.records_updated == 0


def test_what_log_files_took_away_comes_back_where_it_was(table):
    """Otherwise a program that looks for keys in base files alone finds it in two file groups."""
    options = {**APPENDS, "hoodie.parquet.small.file.limit": "0"}
    (base,) = stats_of(table, table.insert(trips("a", "b")))
    table.delete(keys("a"), options=options)

    commit = table.upsert(pa.concat_tables([trips("a", ts=0, fare=5.0), trips("new")]), options=options)

    homes = {stat.file_id: stat.num_inserts for stat in stats_of(table, commit)}
    assert homes.pop(base.file_id) == 1
    assert list(homes.values()) == [1]
    assert seen(table) == {"a": 5.0, "b": 1.0, "new": 1.0}


def test_an_older_row_of_a_table_without_event_time_is_not_left_to_log_files(tmp_path):
    """Readers order the rows of log files by the ordering column, whatever the payload class says."""
    table = make_table(tmp_path, properties=LATEST)
    table.insert(trips("a", "b", ts=5))

    later = table.upsert(trips("a", ts=6, fare=2.0), options=APPENDS)
    older = table.upsert(trips("a", ts=1, fare=3.0), options=APPENDS)

    assert (is_appended(table, later), is_appended(table, older)) == (True, False)
    assert seen(table) == {"a": 3.0, "b": 1.0}


def test_rows_without_an_order_are_not_left_to_log_files(table):
    """Hudi cannot read a null there."""
    table.insert(trips("a", "b", ts=None))

    commit = table.upsert(trips("a", ts=None, fare=2.0), options=APPENDS)

    assert not logs_of(table, commit)
    assert seen(table) == {"a": 2.0, "b": 1.0}


def test_deletes_of_rows_with_an_order_and_without_one_share_a_block(table):
    """hudi-rs refuses blocks in which only some deletes have an ordering value."""
    table.insert(pa.concat_tables([trips("a", ts=None), trips("b", "c")]))

    commit = table.delete(keys("a", "b"), options=APPENDS)

    assert is_appended(table, commit)
    assert seen(table) == {"c": 1.0}


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 3], pa.int32()),
        pa.array([1, 2, 3], pa.int64()),
        pa.array([0.5, 1.5, float("nan")], pa.float64()),
        pa.array([0.5, 1.5, 2.5], pa.float32()),
        pa.array(["a", "ü", "𝄞"]),
        pa.array([dt.date(1960, 1, 1), dt.date(2000, 1, 1), dt.date(2024, 1, 1)]),
        pa.array([dt.datetime(1960, 1, n) for n in (1, 2, 3)], pa.timestamp("us", tz="UTC")),
        pa.array([Decimal("-1.25"), Decimal("2.50"), Decimal("3.75")], pa.decimal128(10, 2)),
        pa.array([Decimal(10) ** 30, Decimal(10) ** 31, Decimal(10) ** 32], pa.decimal128(38, 2)),
        pa.array([False, True, True]),
    ],
    ids=lambda values: str(values.type),
)
def test_rows_of_every_type_of_ordering_column_are_updated_and_deleted(tmp_path, values):
    table = make_table(tmp_path)
    rows = trips("a", "b", "c", "d").drop_columns(["ts"])

    def at(number, fare, *ids):
        chosen = rows.filter(pa.array([each in ids for each in "abcd"]))
        chosen = chosen.set_column(2, "fare", pa.array([fare] * len(ids)))
        return chosen.append_column("ts", values.take(pa.array([number] * len(ids))))

    table.insert(at(1, 1.0, "a", "b", "c", "d"))
    table.upsert(at(2, 2.0, "a"), options=APPENDS)
    table.upsert(at(0, 9.0, "b"), options=APPENDS)
    table.delete(at(0, 0.0, "c").select(["id", "city", "ts"]), options=APPENDS)
    table.delete(at(2, 0.0, "d").select(["id", "city", "ts"]), options=APPENDS)

    assert seen(table) == {"a": 2.0, "b": 1.0, "c": 1.0}
    table.delete(keys("a"), options=APPENDS)
    assert seen(table) == {"b": 1.0, "c": 1.0}


def test_a_rewritten_base_file_keeps_who_wrote_each_row(table):
    table.insert(trips("a", "b", "c"))
    table.upsert(trips("b", ts=2, fare=2.0), options=APPENDS)
    before = table.to_arrow(meta_columns=True).sort_by("id").to_pylist()

    commit = table.upsert(trips("c", ts=2, fare=3.0), options={"holdfast.mor.max.logs": "0"})

    after = table.to_arrow(meta_columns=True).sort_by("id").to_pylist()
    for old, new in zip(before[:2], after[:2], strict=True):
        assert new["_hoodie_commit_time"] == old["_hoodie_commit_time"]
        assert new["_hoodie_commit_seqno"] == old["_hoodie_commit_seqno"]
    assert {parse_base_file(row["_hoodie_file_name"]).instant for row in after} == {commit.instant}
    assert seen(table) == {"a": 1.0, "b": 2.0, "c": 3.0}


def test_keys_that_a_base_file_has_twice_are_not_left_to_log_files(table):
    table.insert(pa.concat_tables([trips("a", "b"), trips("a")]))

    commit = table.upsert(trips("a", ts=2, fare=2.0), options=APPENDS)

    assert not logs_of(table, commit)


def test_columns_are_added_across_base_and_log_files(table):
    table.insert(trips("a", "b", "c"))
    table.upsert(trips("a", ts=2, fare=2.0), options=APPENDS)
    table.upsert(trips("b", ts=2, fare=2.0, extra="x"), options=APPENDS)

    assert seen(table) == {"a": 2.0, "b": 2.0, "c": 1.0}
    table.upsert(trips("c", ts=2, fare=3.0, extra="y"), options={"holdfast.mor.max.logs": "0"})
    assert seen(table) == {"a": 2.0, "b": 2.0, "c": 3.0}
    assert {row["id"]: row["extra"] for row in table.to_arrow().to_pylist()} == {
        "a": None,
        "b": "x",
        "c": "y",
    }


def test_log_files_of_older_types_are_merged_where_a_type_changes(table):
    """hudi-rs takes a block that lacks a column for one of a partial update, and then misses the type."""
    options = {**APPENDS, "hoodie.parquet.small.file.limit": "0"}
    table.insert(trips("a", "b", v=1))
    table.bulk_insert(pa.concat_tables([trips("c", v=1), trips("d", v=1, city="rome")]))
    table.bulk_insert(trips("e", v=1, city="oslo"))
    logged = [trips("a", ts=2, fare=2.0, v=2), trips("c", ts=2, fare=2.0, v=2)]
    logged += [trips("d", ts=2, fare=2.0, v=2, city="rome")]
    assert is_appended(table, table.upsert(pa.concat_tables(logged), options=options))

    commit = table.upsert(trips("b", ts=2, fare=3.0, v=2.5, extra="x"), options=options)

    assert (commit.records_updated, commit.records_deleted, commit.files_written) == (1, 0, 3)
    assert not logs_of(table, commit)
    assert seen(table) == {"a": 2.0, "b": 3.0, "c": 2.0, "d": 2.0, "e": 1.0}
    rows = {row["id"]: (row["v"], row["extra"]) for row in table.to_arrow().to_pylist()}
    assert rows == {"a": (2.0, None), "b": (2.5, "x"), "c": (2.0, None), "d": (2.0, None), "e": (1.0, None)}
    assert is_appended(table, table.upsert(trips("b", ts=3, v=1.0, extra="x"), options=options))


@pytest.mark.parametrize("verb", ["insert_overwrite", "bulk_insert", "insert", "insert_overwrite_table"])
def test_every_verb_that_changes_a_type_merges_what_log_files_it_leaves(table, verb):
    table.insert(pa.concat_tables([trips("a", "b", v=1), trips("c", v=1, city="rome")]))
    table.upsert(
        pa.concat_tables([trips("a", ts=2, v=2), trips("c", ts=2, v=2, city="rome")]), options=APPENDS
    )

    getattr(table, verb)(trips("n", fare=4.0, v=0.5, extra="x"), options=APPENDS)

    kept = {"bulk_insert": {"a", "b", "c"}, "insert": {"a", "b", "c"}, "insert_overwrite": {"c"}}
    assert seen(table).keys() == {"n"} | kept.get(verb, set())
    assert not table.verify().findings


def test_nested_columns_are_stored_in_both_block_formats(tmp_path):
    for number, block_format in enumerate(("parquet", "avro")):
        table = make_table(tmp_path / str(number))
        extra = {"place": {"x": 1, "tags": ["a", None]}, "names": [("k", 1), ("l", None)]}
        kinds = pa.schema(
            [
                ("place", pa.struct({"x": pa.int64(), "tags": pa.list_(pa.string())})),
                ("names", pa.map_(pa.string(), pa.int64())),
                ("raw", pa.binary()),
                ("day", pa.date32()),
                ("at", pa.timestamp("us", tz="UTC")),
                ("price", pa.decimal128(10, 2)),
            ]
        )
        extra |= {"raw": b"\x00\xff", "day": dt.date(2024, 2, 29), "price": Decimal("-1.25")}
        extra["at"] = dt.datetime(2024, 2, 29, 1, 2, 3, 4, dt.UTC)

        def rows(*ids, ts, kinds=kinds, extra=extra):
            base = trips(*ids, ts=ts)
            for field in kinds:
                base = base.append_column(field, pa.array([extra[field.name]] * len(ids), field.type))
            return base

        table.insert(rows("a", "b", ts=1))
        extra["price"] = Decimal("7.50")
        commit = table.upsert(
            rows("a", ts=2), options={**APPENDS, "hoodie.logfile.data.block.format": block_format}
        )

        (data,) = blocks_of(table, *logs_of(table, commit))
        assert data.kind == (BlockType.AVRO_DATA if block_format == "avro" else BlockType.PARQUET_DATA)
        first, second = table.to_arrow().sort_by("id").to_pylist()
        assert first["price"] == Decimal("7.50")
        assert {**first, "id": "b", "ts": 1, "price": Decimal("-1.25")} == second
        if block_format == "parquet":  # hudi-rs is not asked about Avro blocks with nested columns.
            assert len(hudi_snapshot(table.path)) == 2


def test_overwritten_and_deleted_partitions_lose_their_log_files(table):
    table.insert(pa.concat_tables([trips("a", "b"), trips("c", city="rome"), trips("d", city="oslo")]))
    table.upsert(pa.concat_tables([trips("a", ts=2), trips("c", ts=2, city="rome")]), options=APPENDS)

    table.insert_overwrite(trips("n", fare=4.0))
    table.delete_partitions(["city=rome"])

    assert seen(table) == {"n": 4.0, "d": 1.0}
    table.insert_overwrite_table(trips("only", fare=5.0))
    assert seen(table) == {"only": 5.0}
    assert not table.verify().findings


def test_inserts_fill_small_file_groups_that_have_log_files(table):
    table.insert(trips("a", "b"))
    table.upsert(trips("a", ts=2, fare=2.0), options=APPENDS)

    commit = table.insert(trips("c"))

    assert [stat.num_inserts for stat in stats_of(table, commit)] == [1]
    assert seen(table) == {"a": 2.0, "b": 1.0, "c": 1.0}
    table.bulk_insert(trips("d"))
    assert seen(table) == {"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0}
