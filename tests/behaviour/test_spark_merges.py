"""Merging writes on Spark: the same rows and counts as without it, by whichever route rows travel."""

import datetime as dt
import os
import random
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import functions as f

import holdfast
from harness.checker import check_at_rest
from harness.hudi_reader import check_alike, hudi_snapshot
from holdfast.config.write import WriteSettings
from holdfast.engines.spark import routing, writer
from holdfast.engines.spark.keys import bucket_of_row, partition_path_of, record_key_of
from holdfast.engines.spark.routing import route_rows
from holdfast.engines.spark.types import spark_schema_of
from holdfast.errors import InvalidRequest, SchemaMismatch, TableDamaged
from holdfast.files.partition_column import partition_column
from holdfast.model.instant import Action
from holdfast.table.view import load_view
from holdfast.timeline.timeline import load_timeline
from holdfast.writes import transaction
from holdfast.writes.layout import file_groups
from holdfast.writes.merge_task import REMOVES, TARGET, MergeRequest, bucket_column
from holdfast.writes.task import TaskRequest, require_keys

pytestmark = pytest.mark.spark
classic = pytest.mark.skipif(
    "SPARK_REMOTE" in os.environ, reason="a remote session does not let one look inside"
)

TAKES_ARROW = int(pyspark.__version__.split(".")[0]) >= 4
TRIPS = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
CITIES = ("berlin", "lima", "oslo")
INDEX = "hoodie.index.type"
MOVES = "hoodie.simple.index.update.partition.path"
BLOOM_MOVES = "hoodie.bloom.index.update.partition.path"
COMBINES = "hoodie.combine.before.insert"
MAX_FILE = "hoodie.parquet.max.file.size"
FILLS_MISSING = "hoodie.write.set.null.for.missing.columns"
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
BUCKETS = {INDEX: "BUCKET", "hoodie.bucket.index.num.buckets": "3"}
INDEXES = {
    "SIMPLE": {INDEX: "SIMPLE"},
    "BLOOM": {INDEX: "BLOOM"},
    "GLOBAL_SIMPLE": {INDEX: "GLOBAL_SIMPLE"},
    "GLOBAL_BLOOM, staying": {INDEX: "GLOBAL_BLOOM", BLOOM_MOVES: "false"},
    "BUCKET": BUCKETS,
}
ROUTES = {
    "by partition": INDEXES["SIMPLE"],
    "anywhere": {INDEX: "GLOBAL_BLOOM"},
    "by bucket": BUCKETS,
}
MOVING = {INDEX: "GLOBAL_SIMPLE"}
APPENDS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
COUNTS = ("operation", "action", "records_inserted", "records_updated", "records_deleted", "partitions")


@pytest.fixture(autouse=True)
def no_rows_change(monkeypatch):
    """All rows here are the same however often they are computed, so none are kept to be routed again."""
    monkeypatch.setattr(
        writer, "_rows_in_cache", lambda rows: pytest.fail("rows that did not change were kept")
    )


def table_of(rows, schema=TRIPS):
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table([pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema)


def trips(chance, count, *, keys=20):
    """Rows with repeated keys in any city; no two of one time, so that one of each key is the newest."""
    times = chance.sample(range(10_000), count)
    return table_of([(f"k{chance.randrange(keys):03}", chance.choice(CITIES), t, t / 4) for t in times])


def frame_of(spark, rows):
    """The same rows as a DataFrame of two slices."""
    schema = spark_schema_of(rows.schema)
    if TAKES_ARROW:  # Evaluated without Python workers.
        return spark.createDataFrame(rows, schema)
    return spark.createDataFrame([tuple(row.values()) for row in rows.to_pylist()], schema)


class Twins:
    """One table written from DataFrames and one from Arrow tables. They must stay alike."""

    def __init__(self, spark, folder, **settings):
        given = {"name": "trips", "record_key": "id", "partition_by": "city", "ordering": "ts"} | settings
        self.spark = spark
        self.folder = folder / "by-spark"
        self.by_spark = holdfast.create_table(str(self.folder), **given)
        self.by_arrow = holdfast.create_table(str(folder / "by-arrow"), **given)

    def begin(self, rows, options=None, operation="upsert"):
        """Put the same rows into both, without Spark."""
        for table in (self.by_spark, self.by_arrow):
            getattr(table, operation)(rows, options=options)

    def write(self, operation, rows, options=None):
        """Write to both; the commit that Spark made."""
        commit = getattr(self.by_spark, operation)(frame_of(self.spark, rows), options=options)
        return self._alike(commit, getattr(self.by_arrow, operation)(rows, options=options))

    def delete_partitions(self, paths, options=None):
        commit = self.by_spark.delete_partitions(paths, options=options)
        return self._alike(commit, self.by_arrow.delete_partitions(paths, options=options))

    def _alike(self, commit, expected):
        assert {name: getattr(commit, name) for name in COUNTS} == {
            name: getattr(expected, name) for name in COUNTS
        }
        assert stored(self.by_spark) == stored(self.by_arrow)
        if self.by_spark.files():
            check_alike(self.by_spark.to_arrow(), hudi_snapshot(self.folder))
        check_at_rest(self.by_spark._opened)
        return commit


def stored(table):
    """Every row with its key and partition, in one order."""
    rows = table.to_arrow(meta_columns=True)
    kept = [n for n in rows.column_names if not n.startswith("_hoodie_") or n in _SAID_BY_ROWS]
    return sorted(map(repr, rows.select(kept).to_pylist()))


_SAID_BY_ROWS = ("_hoodie_record_key", "_hoodie_partition_path", "_hoodie_is_deleted")


@pytest.mark.parametrize("options", INDEXES.values(), ids=INDEXES)
def test_a_table_written_by_spark_is_the_one_written_without_it(spark, tmp_path, options):
    chance = random.Random(7)
    twins = Twins(spark, tmp_path)

    twins.begin(trips(chance, 30), options)
    commit = twins.write("upsert", trips(chance, 40), options)
    assert commit.records_updated > 0
    assert commit.records_inserted > 0
    assert twins.write("delete", trips(chance, 12), options).records_deleted > 0
    assert twins.write("delete", trips(chance, 12).drop_columns(["ts", "fare"]), options).records_deleted > 0
    added = table_of([(f"n{i}", CITIES[i % 3], i, 1.0) for i in range(9)])
    files = len(twins.by_spark.files())
    assert twins.write("insert", added, options).records_inserted == 9
    if options is not BUCKETS:
        assert len(twins.by_spark.files()) == files, "new rows go to small file groups"
    twins.write("insert_overwrite", table_of([("o1", "oslo", 1, 1.0), ("o2", "oslo", 2, 2.0)]), options)
    twins.delete_partitions(["city=lima"], options)
    twins.write("upsert", trips(chance, 25), options)
    twins.write("insert_overwrite_table", trips(chance, 10), options | {COMBINES: "true"})
    read = [tuple(row) for row in twins.by_spark.read(spark).collect()]
    assert sorted(read) == sorted(tuple(row.values()) for row in twins.by_arrow.to_arrow().to_pylist())


@pytest.mark.parametrize("options", INDEXES.values(), ids=INDEXES)
def test_a_merge_on_read_table_written_by_spark_is_the_one_written_without_it(spark, tmp_path, options):
    chance = random.Random(8)
    twins = Twins(spark, tmp_path, table_type="MERGE_ON_READ")
    options = options | APPENDS
    twins.begin(table_of([(f"k{n:03}", city, 5, 1.0) for n, city in enumerate(CITIES * 10)]), options)

    for times in ((1, 9), (6, 12), (3, 9)):
        rows = [
            (f"k{n:03}", CITIES[n % 3], chance.randint(*times), n / 8) for n in chance.sample(range(30), 8)
        ]
        twins.write("upsert", table_of(rows), options)
        assert twins.write("delete", table_of(rows[:3]).select(["id", "city"]), options).records_deleted > 0
    assert logs(twins.by_spark)
    twins.write("upsert", trips(chance, 20), options)
    twins.write("insert_overwrite", table_of([("o1", "oslo", 1, 1.0), ("o2", "oslo", 2, 2.0)]), options)
    read = [tuple(row) for row in twins.by_spark.read(spark).collect()]
    assert sorted(read) == sorted(tuple(row.values()) for row in twins.by_arrow.to_arrow().to_pylist())


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE"])
def test_keys_that_spark_looks_for_are_found_under_log_files(spark, tmp_path, index):
    """The newest of a key is in a log file, which decides on what is older, gone or moves."""
    twins = Twins(spark, tmp_path, table_type="MERGE_ON_READ")
    made_of_many(twins, 4, 50)
    options = {INDEX: index, MAX_FILE: "2048", **APPENDS}
    logged = [("lima-0-001", "lima", 20, 2.0), ("lima-1-002", "lima", 20, 2.0)]
    gone = table_of([("lima-2-003", "lima", 10, 1.0), ("lima-3-004", "lima", 10, 1.0)]).select(["id", "city"])
    for table in (twins.by_spark, twins.by_arrow):
        table.upsert(table_of(logged), options=APPENDS)
        table.delete(gone, options=APPENDS)
    assert len(logs(twins.by_spark)) == 4

    rows = [
        *[("lima-0-001", "lima", 15, 9.0), ("lima-1-002", "lima", 21, 3.0), ("lima-2-003", "lima", 1, 3.0)],
        *[("lima-0-005", "lima", 11, 3.0), ("lima-1-002", "oslo", 19, 9.0), ("lima-3-004", "oslo", 1, 3.0)],
    ]
    if index == "GLOBAL_SIMPLE":
        rows = [row for row in rows if row[:2] != ("lima-1-002", "lima")]
    commit = twins.write("upsert", table_of(rows), options)
    updated, inserted = (1, 2) if index == "GLOBAL_SIMPLE" else (2, 3)
    assert (commit.records_updated, commit.records_inserted) == (updated, inserted)
    # A key is one record wherever it is, if the index is global.
    assert twins.write("delete", gone, options).records_deleted == (2 if index == "GLOBAL_SIMPLE" else 1)


def test_log_files_are_merged_by_spark_where_a_type_changes(spark, tmp_path):
    twins = Twins(spark, tmp_path, table_type="MERGE_ON_READ")
    narrow = pa.schema([*TRIPS, ("n", pa.int32())])
    twins.begin(table_of([(f"k{n}", city, 1, 1.0, n) for n, city in enumerate(CITIES * 3)], narrow))
    twins.begin(table_of([("k0", "berlin", 2, 2.0, 7), ("k1", "lima", 2, 2.0, 7)], narrow), APPENDS)
    assert len(logs(twins.by_spark)) == 2

    wide = pa.schema([*TRIPS, ("n", pa.int64()), ("extra", pa.string())])
    commit = twins.write("upsert", table_of([("k2", "oslo", 2, 2.0, 2**40, "x")], wide), APPENDS)

    assert (commit.records_updated, commit.files_written) == (1, 3)


def logs(table):
    return [
        file for file in Path(table.path).rglob(".*.log.*") if file.is_file() and ".hoodie" not in file.parts
    ]


@pytest.mark.parametrize("options", INDEXES.values(), ids=INDEXES)
def test_the_look_up_takes_the_same_file_groups_as_without_spark(spark, tmp_path, options):
    twins = Twins(spark, tmp_path)
    for city in CITIES:
        twins.begin(table_of([(f"{city}-{i}", city, i, 1.0) for i in range(5)]), options)
    rows = table_of([("berlin-1", "berlin", 9, 2.0), ("lima-22", "lima", 9, 2.0)])

    report = twins.by_spark.upsert(frame_of(spark, rows), options=options).index

    assert report == twins.by_arrow.upsert(rows, options=options).index
    assert (report.pruned_by_range + report.pruned_by_bloom > 0) == ("BLOOM" in options[INDEX])


@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
@pytest.mark.parametrize("moves", ["true", "false"])
def test_a_key_that_is_in_two_partitions_is_found_in_both(spark, tmp_path, index, moves):
    twins = Twins(spark, tmp_path)
    twins.begin(table_of([("a", "berlin", 1, 1.0), ("a", "lima", 1, 1.0), ("b", "lima", 1, 1.0)]))
    options = {INDEX: index, MOVES if index == "GLOBAL_SIMPLE" else BLOOM_MOVES: moves}

    twins.write("upsert", table_of([("a", "oslo", 2, 2.0), ("b", "lima", 2, 2.0)]), options)

    assert len(stored(twins.by_spark)) == (2 if moves == "true" else 3)
    assert twins.write("delete", table_of([("a",)], TRIPS.remove(3).remove(2).remove(1)), options)
    assert len(stored(twins.by_spark)) == 1


@pytest.mark.parametrize("moves", ["true", "false"])
def test_an_older_row_neither_changes_a_record_nor_takes_it_elsewhere(spark, tmp_path, moves):
    twins = Twins(spark, tmp_path)
    twins.begin(table_of([(key, "lima", 5, 1.0) for key in ("old", "same", "null")]))
    options = {INDEX: "GLOBAL_SIMPLE", MOVES: moves}

    rows = [("old", "oslo", 4, 2.0), ("same", "oslo", 5, 2.0), ("null", "oslo", None, 2.0)]
    twins.write("upsert", table_of(rows), options)

    cities = dict(zip(*twins.by_spark.to_arrow(columns=["id", "fare"]).to_pydict().values(), strict=True))
    assert cities == {"old": 1.0, "same": 2.0, "null": 1.0}


def test_of_one_key_in_several_partitions_of_a_batch_the_newest_counts_with_a_global_index(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    options = {INDEX: "GLOBAL_SIMPLE"}
    twins.begin(table_of([("a", "lima", 1, 1.0)]))

    rows = [("a", "oslo", 3, 3.0), ("a", "lima", 2, 2.0), ("b", "lima", 2, 2.0), ("b", "oslo", 1, 1.0)]
    twins.write("upsert", table_of(rows), options)

    kept = twins.by_spark.to_arrow(columns=["id", "city"]).sort_by("id").to_pylist()
    assert kept == [{"id": "a", "city": "oslo"}, {"id": "b", "city": "lima"}]


@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_rows_that_are_marked_as_deleted_remove_their_keys(spark, tmp_path, options):
    twins = Twins(spark, tmp_path)
    schema = TRIPS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    twins.begin(table_of([(f"k{i}", CITIES[i % 3], 5, 1.0, False) for i in range(9)], schema), options)

    rows = [("k0", "berlin", 6, 1.0, True), ("k1", "lima", 4, 1.0, True), ("k2", "oslo", 6, 2.0, None)]
    twins.write("upsert", table_of([*rows, ("none", "oslo", 1, 1.0, True)], schema), options)

    assert twins.by_spark.to_arrow().num_rows == 8


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_of_a_new_key_a_newer_removal_wins_also_where_keys_are_located(spark, tmp_path, index):
    twins = Twins(spark, tmp_path)
    made_of_many(twins, 4, 50)
    removal = TRIPS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    rows = [("new", "lima", 2, 1.0, True), ("new", "lima", 1, 1.0, False), ("other", "lima", 1, 1.0, False)]

    commit = twins.write("upsert", table_of(rows, removal), {INDEX: index, MAX_FILE: "2048"})

    assert (commit.records_inserted, commit.records_deleted) == (1, 0)


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_rows_need_not_say_whether_they_are_deleted(spark, tmp_path, index):
    twins = Twins(spark, tmp_path)
    schema = TRIPS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    twins.begin(table_of([(f"k{i}", CITIES[i % 3], 5, 1.0, False) for i in range(9)], schema))

    options = {INDEX: index, FILLS_MISSING: "true"}
    assert twins.write("upsert", table_of([("k1", "lima", 6, 2.0)]), options).records_updated == 1


@pytest.fixture
def wide_texts(spark):
    """A session that sends texts with offsets of eight bytes."""
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(name, "true")
    yield
    spark.conf.set(name, "false")


@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_keys_are_found_however_the_session_sends_texts(spark, tmp_path, wide_texts, options):
    twins = Twins(spark, tmp_path, properties={URL_ENCODE: "true"})
    rows = trips(random.Random(5), 20)

    twins.begin(rows, options)
    assert twins.write("upsert", rows, options).records_inserted == 0


@classic
@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_workers_run_the_interpreter_of_the_driver(spark, tmp_path, options):
    """Also for what is computed of keys and partitions, on a session that somebody else made."""
    table = holdfast.create_table(
        str(tmp_path), name="t", record_key="id", partition_by="city", properties={URL_ENCODE: "true"}
    )
    rows = frame_of(spark, trips(random.Random(5), 20))
    context = spark.sparkContext
    before, context.pythonExec = context.pythonExec, "no-such-python"
    try:
        table.bulk_insert(rows.dropDuplicates(["id"]), options=options)
        table.upsert(rows, options=options)
        assert context.pythonExec == "no-such-python"
    finally:
        context.pythonExec = before


def test_a_delete_with_a_global_index_needs_no_partition(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    options = {INDEX: "GLOBAL_BLOOM"}
    twins.begin(table_of([(f"k{i}", CITIES[i % 3], 1, 1.0) for i in range(9)]))
    keys = pa.table({"id": ["k1", "k5", "unknown"]})

    assert twins.write("delete", keys, options).records_deleted == 2
    with pytest.raises(SchemaMismatch, match="city"):
        twins.by_spark.delete(frame_of(spark, keys))


def test_an_empty_frame_is_a_commit_that_changes_nothing(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    twins.begin(trips(random.Random(1), 9))
    before = stored(twins.by_spark)

    for options in ROUTES.values():
        if options is not BUCKETS:
            assert twins.write("upsert", TRIPS.empty_table(), options).files_written == 0
            twins.write("delete", TRIPS.empty_table(), options)
    twins.write("insert_overwrite", TRIPS.empty_table())

    assert stored(twins.by_spark) == before
    twins.write("insert_overwrite_table", TRIPS.empty_table())
    assert stored(twins.by_spark) == []


def test_missing_columns_new_ones_and_wider_types_are_taken_in(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    narrow = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int32()), ("n", pa.int32())])
    twins.begin(table_of([(f"k{i}", CITIES[i % 3], 1, i) for i in range(9)], narrow))
    wide = pa.schema(
        [
            ("n", pa.int64()),
            ("note", pa.string()),
            ("ts", pa.int64()),
            ("city", pa.string()),
            ("id", pa.string()),
        ]
    )

    for index in ("SIMPLE", "GLOBAL_SIMPLE"):
        rows = table_of([(2**40, "x", 2**33, "lima", "k1"), (1, None, 7, "lima", "new")], wide)
        twins.write("upsert", rows, {INDEX: index})
    without_n = wide.remove(0)
    rows = table_of([("late", 2**34, "lima", "k1"), ("late", 2**34, "oslo", "new 2")], without_n)
    with pytest.raises(SchemaMismatch, match="n"):
        twins.by_spark.upsert(frame_of(spark, rows))
    for index in ("SIMPLE", "GLOBAL_SIMPLE"):
        twins.write("upsert", rows, {INDEX: index, FILLS_MISSING: "true"})


def test_rows_of_a_lineage_with_seeded_chance_are_those_that_are_written(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    rows = (
        spark.range(0, 400, 1, 3)
        .withColumn("city", f.concat(f.lit("c"), (f.rand(7) * 4).cast("int")))
        .withColumn("id", f.concat(f.lit("k"), f.monotonically_increasing_id()))
        .withColumn("fare", f.randn(9))
        .orderBy("fare")
    )
    table.upsert(rows)

    for options in ROUTES.values():
        if options is not BUCKETS:
            commit = table.upsert(rows, options=options)
            assert (commit.records_updated, commit.records_inserted) == (400, 0)

    assert sorted(table.read(spark).collect()) == sorted(rows.collect())


# What Spark computes of a row must be what tasks compute of it.

_MOMENTS = [
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1883, 11, 18, 12, 3, 58, 1, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 1, 30, 0, 123_456, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    None,
]
_LOCAL = [moment and moment.replace(tzinfo=None) for moment in _MOMENTS]
VALUES = {
    "string": (pa.string(), ["a", "São Paulo", "東京 \U0001f600", "a=b:c%d", "x,y", "__null__", "", None]),
    "byte": (pa.int8(), [-128, 0, 127, None]),
    "short": (pa.int16(), [-(2**15), 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), 0, 2**31 - 1, None]),
    "long": (pa.int64(), [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "timestamp": (pa.timestamp("us", "UTC"), _MOMENTS),
    "timestamp without zone": (pa.timestamp("us"), _LOCAL),
    "decimal": (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-0.05"), Decimal("1234567.80"), None]),
    "decimal, no scale": (pa.decimal128(20, 0), [Decimal(0), Decimal(-(10**19)), Decimal(10), None]),
    "decimal, large scale": (pa.decimal128(38, 18), [Decimal("1E-8"), Decimal("-12345678901234567.5"), None]),
}  # fmt: skip


def settings_of(path, record_key, partition_by, properties):
    return holdfast.create_table(
        str(path), name="t", record_key=record_key, partition_by=partition_by, properties=properties
    ).settings


@pytest.fixture(params=["America/New_York", "UTC"])
def zone(spark, request):
    """The session's zone, which must change nothing."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def repeated(values, kind, length=8):
    return pa.array([values[n % len(values)] for n in range(length)], kind)


def check_spelling(spark, rows, tables):
    """Spark's partition paths, record keys and buckets against those of tasks, for many settings at once."""
    write = WriteSettings.from_options(BUCKETS)
    frame = frame_of(spark, rows.append_column("row", pa.array(range(rows.num_rows), pa.int32())))
    asked = [f.col("row")]
    for name, settings in tables.items():
        asked.append(partition_path_of(frame, settings).alias(f"{name}, path"))
        asked.append(record_key_of(frame, settings).alias(f"{name}, key"))
        asked.append(bucket_of_row(frame, settings, write).alias(f"{name}, bucket"))
    said = sorted(frame.select(*asked).collect(), key=lambda row: row["row"])
    for name, settings in tables.items():
        expected = {
            "path": partition_column(rows, settings).dictionary_decode().to_pylist(),
            "key": require_keys(rows, settings).to_pylist(),
            "bucket": bucket_column(rows, settings, write).tolist(),
        }
        for part, values in expected.items():
            assert [row[f"{name}, {part}"] for row in said] == values, name


def test_keys_and_partitions_of_every_type_are_spelled_as_in_tasks(spark, tmp_path, zone):
    columns = {"text": repeated(["x", "y", None], pa.string())}
    tables = {}
    for number, (name, (kind, values)) in enumerate(VALUES.items()):
        some, all_ = f"some_{number}", f"all_{number}"
        columns[some] = repeated([value for value in values if value not in (None, "")], kind)
        columns[all_] = repeated(values, kind)
        folder = tmp_path / str(number)
        tables[name] = settings_of(folder / "a", some, some, {})
        plain = {HIVE_STYLE: "false"}
        tables[f"{name}, plain"] = settings_of(folder / "b", [some, all_], [all_, "text"], plain)
        tables[f"{name}, escaped"] = settings_of(folder / "c", [some, all_], all_, {URL_ENCODE: "true"})

    check_spelling(spark, pa.table(columns), tables)


_TIMED = "hoodie.keygen.timebased."
MOMENTS = {
    "milliseconds": (pa.int64(), "EPOCHMILLISECONDS", [0, -1, 1_711_848_600_123, None]),
    "seconds": (pa.int32(), "UNIX_TIMESTAMP", [0, -1, 1_711_848_600, None]),
    "timestamp": (pa.timestamp("us", "UTC"), "EPOCHMICROSECONDS", [*_MOMENTS[2:4], None]),
    "timestamp without zone": (pa.timestamp("us"), "EPOCHMICROSECONDS", [*_LOCAL[2:4], None]),
    "text": (pa.string(), "DATE_STRING", ["2024-03-31 01:30", "1969-12-31 23:59", None]),
}


def test_partitions_made_from_moments_are_spelled_as_in_tasks(spark, tmp_path, zone):
    columns = {"id": repeated(range(8), pa.int64()), "city": repeated(["x", None, "y"], pa.string())}
    tables = {}
    for number, (name, (kind, unit, values)) in enumerate(MOMENTS.items()):
        at = f"at_{number}"
        columns[at] = repeated(values, kind)
        given = {
            _TIMED + "timestamp.type": unit,
            _TIMED + "output.dateformat": "yyyy/MM-dd HH",
            _TIMED + "output.timezone": "Asia/Kathmandu",
        }
        if unit == "DATE_STRING":
            given[_TIMED + "input.dateformat"] = "yyyy-MM-dd HH:mm"
        for generator, partition_by in (("TIMESTAMP", at), ("CUSTOM", ["city:SIMPLE", f"{at}:TIMESTAMP"])):
            properties = given | {"hoodie.table.keygenerator.type": generator}
            folder = tmp_path / f"{generator}-{number}"
            tables[f"{name}, {generator}"] = settings_of(folder, "id", partition_by, properties)

    check_spelling(spark, pa.table(columns), tables)


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_BLOOM"])
def test_records_are_found_again_by_keys_and_partitions_of_every_type(spark, tmp_path, index):
    schema = pa.schema([(f"k{n}", kind) for n, (kind, _) in enumerate(VALUES.values())])
    longest = max(len(values) for _, values in VALUES.values())
    columns = [[values[n % len(values)] for n in range(longest)] for _, values in VALUES.values()]
    rows = pa.table([pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema)
    rows = rows.append_column("v", pa.array(range(longest), pa.int64()))
    twins = Twins(
        spark, tmp_path, record_key=schema.names, partition_by=["k5", "k6"], ordering="v",
        properties={URL_ENCODE: "true"},
    )  # fmt: skip
    options = {INDEX: index}

    twins.write("upsert", rows)
    assert twins.write("upsert", rows, options).records_updated == longest
    assert twins.write("delete", rows.slice(0, 3), options).records_deleted == 3


def test_a_record_whose_key_columns_are_all_null_is_refused(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="t", record_key=["id", "city"])

    with pytest.raises(InvalidRequest, match="no key"):
        table.upsert(frame_of(spark, table_of([("a", None, 1, 1.0), (None, None, 1, 1.0)])))


# Routes.


def route_of(table, frame, counts, options):
    """How the rows of an upsert would travel."""
    opened = table._opened
    view = load_view(opened.store, load_timeline(opened.store))
    task = TaskRequest(
        instant=table.timeline()[-1].time,
        action=Action.COMMIT,
        schema=table.schema(),
        field_ids={},
        table=table.settings,
        write=WriteSettings.from_options(options),
    )
    request = MergeRequest(
        task=task,
        groups=file_groups(view.latest()),
        looks_up=True,
        combines=True,
        removes=False,
        written_with=view.schemas,
    )
    return route_rows(frame, counts, opened, request)


class Executions:
    """The SQL executions of a session, by their plans as Spark explains them."""

    def __init__(self, spark):
        self._bus = spark.sparkContext._jsc.sc().listenerBus()
        self._store = spark._jsparkSession.sharedState().statusStore()
        self._seen = self._count()

    def plans(self):
        """Those since this was made."""
        count = self._count()
        executions = self._store.executionsList(self._seen, count - self._seen)
        return [executions.apply(n).physicalPlanDescription() for n in range(executions.size())]

    def _count(self):
        self._bus.waitUntilEmpty()
        return self._store.executionsCount()


_OPERATOR = re.compile(r"^\((\d+)\) (\w+).*\n((?:(?:Input|Output|Arguments).*\n?)*)", re.MULTILINE)


def operators(plan):
    """The operators that were executed, last first, each with what is said of its columns."""
    tree = plan.partition("\n\n(")[0].partition("== Initial Plan ==")[0]
    said = {found[1]: (found[2], found[3]) for found in _OPERATOR.finditer(plan)}
    return [said[number] for number in re.findall(r"\((\d+)\)", tree) if number in said]


def columns_through(plans, operator):
    """What is said of the columns that pass through operators of this name."""
    return [said for plan in plans for name, said in operators(plan) if name == operator]


def made_of_many(twins, groups, rows_each, city="lima"):
    """Several file groups in one partition, with disjoint ranges of keys."""
    for n in range(groups):
        rows = [(f"{city}-{n}-{i:03}", city, 10, 1.0) for i in range(rows_each)]
        twins.begin(table_of(rows), operation="bulk_insert")
    assert len(twins.by_spark.files()) >= groups


@pytest.mark.parametrize(("index", "partition_by"), [("SIMPLE", None), ("BLOOM", "city")])
def test_keys_of_a_crowded_partition_are_located_by_a_join(spark, tmp_path, index, partition_by):
    twins = Twins(spark, tmp_path, partition_by=partition_by)
    made_of_many(twins, 4, 50)
    if partition_by:
        twins.begin(table_of([(f"o{i}", "oslo", 10, 1.0) for i in range(20)]))
    options = {INDEX: index, MAX_FILE: "2048"}
    rows = table_of(
        [
            *[("lima-0-001", "lima", 11, 2.0), ("lima-3-002", "lima", 9, 2.0), ("lima-new", "lima", 1, 2.0)],
            *[("o1", "oslo", 11, 2.0), ("o-new", "oslo", 1, 2.0), ("lima-0-001", "lima", 12, 3.0)],
        ]
    )
    counts = {"city=lima": 4, "city=oslo": 2} if partition_by else {"": 6}

    frame = frame_of(spark, rows)
    assert TARGET in route_of(twins.by_spark, frame, counts, options).rows.columns
    assert TARGET not in route_of(twins.by_spark, frame, counts, {}).rows.columns

    commit = twins.write("upsert", rows, options)
    # Without partitions nothing of oslo is there yet; an older row of lima changes nothing.
    assert (commit.records_updated, commit.records_inserted) == ((2, 2) if partition_by else (1, 3))
    if index == "BLOOM":
        assert commit.index.pruned_by_range >= 2
    assert twins.write("upsert", rows, options).records_inserted == 0
    deleted = twins.write(
        "delete", table_of([("lima-2-004", "lima", 11, 1.0), ("o2", "oslo", 1, 1.0)]), options
    )
    assert deleted.records_deleted == 1


@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
def test_with_a_global_index_only_partitions_that_share_a_key_are_joined(spark, tmp_path, index):
    twins = Twins(spark, tmp_path)
    twins.begin(table_of([(f"{city}-{i}", city, 10, 1.0) for city in CITIES for i in range(5)]))
    options = {INDEX: index}
    stay = [("berlin-1", "berlin", 11, 2.0), ("lima-1", "lima", 11, 2.0), ("new", "rome", 11, 2.0)]
    moved = [*stay, ("lima-2", "oslo", 11, 2.0)]
    counts = {f"city={city}": 1 for city in ("berlin", "lima", "rome")}

    route = route_of(twins.by_spark, frame_of(spark, table_of(stay)), counts, options)
    assert TARGET not in route.rows.columns
    counts["city=oslo"] = 1
    route = route_of(twins.by_spark, frame_of(spark, table_of(moved)), counts, options)
    targets = {row["id"]: row[TARGET] for row in route.rows.where(~f.col(REMOVES)).collect()}
    for frame in route.held:
        frame.unpersist()
    assert targets["berlin-1"] is None, "its task looks for it"
    assert targets["lima-1"].startswith("city=lima/")
    assert targets["lima-2"].startswith("city=oslo/")

    commit = twins.write("upsert", table_of(moved), options)
    assert (commit.records_updated, commit.records_inserted, commit.records_deleted) == (2, 2, 1)


@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_keys_that_are_too_many_for_every_task_are_joined_all_the_same(spark, tmp_path, monkeypatch, index):
    monkeypatch.setattr(routing, "_BROADCAST_SHARE", 0)
    twins = Twins(spark, tmp_path)
    made_of_many(twins, 4, 50)
    options = {INDEX: index, MAX_FILE: "2048"}
    rows = table_of(
        [
            *[("lima-0-001", "lima", 11, 2.0), ("lima-3-002", "lima", 9, 2.0), ("new", "lima", 1, 2.0)],
            # With a global index the first moves, and of the new key one stays.
            *[("lima-0-001", "oslo", 12, 3.0), ("new", "oslo", 2, 3.0)],
        ]
    )

    commit = twins.write("upsert", rows, options)
    counts = (commit.records_updated, commit.records_inserted, commit.records_deleted)
    assert counts == ((1, 3, 0) if index == "SIMPLE" else (0, 2, 1))
    keys = rows.slice(0, 3).select(["id", "city"])
    assert twins.write("delete", keys, options).records_deleted == 3


_UNSENT = {"SIMPLE, joined": {INDEX: "SIMPLE", MAX_FILE: "2048"}, "GLOBAL_SIMPLE, joined": MOVING}


@pytest.mark.parametrize("options", {**INDEXES, **_UNSENT}.values(), ids=[*INDEXES, *_UNSENT])
def test_what_a_write_saw_and_left_is_told_on_every_route(spark, tmp_path, monkeypatch, options):
    """A key to be removed that is not there, and a row that is older than the stored one."""
    told = []
    claim_of = transaction.claim_of

    def noted(request, contents, payload):
        left = contents.written.unchanged
        told.append((left.absent_from, {partition for partition, _ in left.kept}))
        return claim_of(request, contents, payload)

    monkeypatch.setattr(transaction, "claim_of", noted)
    payload = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    twins = Twins(spark, tmp_path, properties={"hoodie.compaction.payload.class": payload})
    if options in INDEXES.values():
        twins.begin(table_of([("lima-0-001", "lima", 10, 1.0), ("o1", "oslo", 10, 1.0)]), options)
    else:
        made_of_many(twins, 4, 50)
        twins.begin(table_of([("o1", "oslo", 10, 1.0)]), operation="bulk_insert")
    told.clear()
    # With a global index the last one would move, were it not older.
    city = "berlin" if "GLOBAL" in options[INDEX] else "oslo"

    twins.write("delete", table_of([("lima-0-001", "lima", 11, 2.0), ("absent", "lima", 11, 2.0)]), options)
    twins.write("upsert", table_of([("lima-new", "lima", 11, 2.0), ("o1", city, 9, 2.0)]), options)
    twins.write("delete", table_of([("lima-new", "lima", 11, 2.0)]), options)

    by_spark = told[::2]
    assert by_spark == told[1::2], "the same as without Spark"
    assert [len(left) for left, _ in by_spark] == [1, 0, 0]
    assert [partitions for _, partitions in by_spark] == [set(), {"city=oslo"}, set()]


@pytest.mark.parametrize(
    ("looks", "is_clear"),
    [(lambda key: f.regexp_replace(key, "^x", ""), True), (lambda key: f.substring(key, -3, 3), False)],
    ids=["new ones like stored ones", "stored ones of several files"],
)
def test_keys_with_the_same_hash_are_told_apart(spark, tmp_path, monkeypatch, looks, is_clear):
    monkeypatch.setattr(routing, "_key_hash", lambda: f.xxhash64(looks(f.col("_holdfast_key"))))
    by_key = []
    route_by_key = routing._Router._route_by_key
    monkeypatch.setattr(
        routing._Router, "_route_by_key", lambda *given: by_key.append(given) or route_by_key(*given)
    )
    twins = Twins(spark, tmp_path)
    made_of_many(twins, 4, 50)
    made_of_many(twins, 4, 50, city="oslo")
    options = {INDEX: "SIMPLE", MAX_FILE: "2048"}
    rows = table_of(
        [
            *[("lima-0-001", "lima", 11, 2.0), ("lima-3-002", "lima", 9, 2.0)],
            ("oslo-1-001", "oslo", 11, 2.0),
            # New ones like a stored key of this partition, that comes or not, of another one, and like none.
            *[("xlima-0-001", "lima", 11, 2.0), ("xlima-0-009", "lima", 11, 2.0)],
            *[("xlima-0-003", "oslo", 11, 2.0), ("xlima-0-004", "rome", 11, 2.0), ("777", "lima", 11, 2.0)],
        ]
    )

    commit = twins.write("upsert", rows, options)
    assert (commit.records_updated, commit.records_inserted) == (2, 5)
    assert bool(by_key) is not is_clear
    assert twins.write("upsert", rows, options).records_inserted == 0
    assert twins.write("delete", rows.slice(2), options).records_deleted == 6


def test_a_file_whose_rows_name_another_one_is_damaged(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    made_of_many(twins, 4, 50)
    found = {path: pq.read_table(path, partitioning=None) for path in twins.by_spark.files()}
    path, rows = next(one for one in found.items() if "lima-0-001" in one[1]["id"].to_pylist())
    names = pa.array(["other.parquet"] * rows.num_rows)
    at = rows.schema.get_field_index("_hoodie_file_name")
    pq.write_table(rows.set_column(at, rows.schema.field(at), names), path)

    new = frame_of(spark, table_of([("lima-0-001", "lima", 11, 2.0)]))
    with pytest.raises(TableDamaged, match=r"another file.*other\.parquet"):
        twins.by_spark.upsert(new, options={INDEX: "SIMPLE", MAX_FILE: "2048"})


def test_a_file_that_cannot_be_read_when_keys_are_looked_for_is_named(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    made_of_many(twins, 4, 50)
    path = twins.by_spark.files()[0]
    Path(path).write_bytes(b"x" * Path(path).stat().st_size)

    new = frame_of(spark, table_of([("lima-0-001", "lima", 11, 2.0)]))
    with pytest.raises(TableDamaged, match=f"cannot be read.*{Path(path).name}"):
        twins.by_spark.upsert(new, options={INDEX: "SIMPLE", MAX_FILE: "2048"})


def test_new_rows_of_one_partition_are_spread_over_many_files(spark, tmp_path):
    twins = Twins(spark, tmp_path)
    options = {MAX_FILE: str(16 * 1024), "hoodie.copyonwrite.record.size.estimate": "256"}
    rows = table_of([(f"k{i:05}", "lima", i, i / 4) for i in range(1000)])

    first = twins.write("upsert", rows, options)
    assert first.files_written >= 16
    assert twins.write("upsert", rows, options).records_updated == 1000
    files = {path.rpartition("/")[2].partition("_")[0] for path in twins.by_spark.files()}

    more = table_of([(f"m{i:05}", "lima", i, i / 4) for i in range(200)])
    assert twins.write("insert", more, options).records_inserted == 200
    after = {path.rpartition("/")[2].partition("_")[0] for path in twins.by_spark.files()}
    assert files <= after
    assert len(after - files) < 4, "small file groups are filled first"


@classic
@pytest.mark.parametrize("operation", ["upsert", "delete", "insert"])
@pytest.mark.parametrize(
    "options",
    [*ROUTES.values(), MOVING, {INDEX: "SIMPLE", MAX_FILE: "2048"}],
    ids=[*ROUTES, "to where the key is", "by file group"],
)
def test_rows_are_shuffled_once_and_only_keys_come_to_the_driver(spark, tmp_path, operation, options):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    rows = table_of([(f"r{number}", ("lima", "oslo")[number % 2], 10, 1.0) for number in range(50)])
    table.upsert(rows, options=options)
    # With a global index, keys that come for two partitions are reduced to one first.
    twice = table_of([(f"r{number}", "oslo", 11, 1.0) for number in range(0, 20, 2)])
    frame = frame_of(spark, pa.concat_tables([rows, twice])).withColumn("fare", f.col("fare") + 1)
    if options is MOVING:
        frame = frame.replace({"lima": "oslo", "oslo": "lima"}, subset="city")

    executions = Executions(spark)
    getattr(table, operation)(frame, options=options)
    plans = executions.plans()

    shuffled = [said for said in columns_through(plans, "Exchange") if "_holdfast_bundle#" in said]
    assert len(shuffled) == 1
    assert [said for said in columns_through(plans, "Exchange") if "fare#" in said] == (
        [] if operation == "delete" else shuffled
    )
    assert not [said for said in columns_through(plans, "BroadcastExchange") if "fare#" in said]
    results = [operators(plan)[0] for plan in plans]
    assert results, "the write was executed"
    assert not [said for _, said in results if "fare#" in said]
