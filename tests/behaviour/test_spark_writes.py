"""Writes on Spark: what arrives in the table, and what hudi-rs and Spark read of it."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as f
from pyspark.sql import types as t

import holdfast
from harness.checker import check_at_rest
from harness.hudi_reader import hudi_changes, hudi_schema, hudi_snapshot
from holdfast.errors import InvalidRequest, SchemaMismatch, StorageUnavailable

pytestmark = pytest.mark.spark

TRIPS = "trip_id string, city string, ts long, fare double"


def trips(spark, first, count, *, slices=2):
    """Rows spread over five cities and some tasks."""
    return spark.range(first, first + count, 1, slices).select(
        f.format_string("trip-%06d", "id").alias("trip_id"),
        f.concat(f.lit("city-"), (f.col("id") % 5).cast("string")).alias("city"),
        f.col("id").alias("ts"),
        (f.col("id") / 4).alias("fare"),
    )


def table_by_bare_values(path):
    """A table whose folders are called as the cities are, so that not every value can be one."""
    return holdfast.create_table(
        str(path),
        name="trips",
        record_key="trip_id",
        partition_by="city",
        properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
    )


def everything(spark):
    """One column of every type, with values, extremes and nulls at every level."""
    schema = t.StructType(
        [
            t.StructField("id", t.LongType()),
            t.StructField("a_bool", t.BooleanType()),
            t.StructField("a_byte", t.ByteType()),
            t.StructField("a_short", t.ShortType()),
            t.StructField("an_int", t.IntegerType()),
            t.StructField("a_float", t.FloatType()),
            t.StructField("a_double", t.DoubleType()),
            t.StructField("a_string", t.StringType()),
            t.StructField("a_binary", t.BinaryType()),
            t.StructField("a_small_decimal", t.DecimalType(9, 2)),
            t.StructField("a_large_decimal", t.DecimalType(38, 18)),
            t.StructField("a_date", t.DateType()),
            t.StructField("a_timestamp", t.TimestampType()),
            t.StructField("a_local_timestamp", t.TimestampNTZType()),
            t.StructField("an_array", t.ArrayType(t.IntegerType())),
            t.StructField("a_map", t.MapType(t.StringType(), t.DoubleType())),
            t.StructField(
                "a_struct",
                t.StructType(
                    [
                        t.StructField("inner", t.StringType()),
                        t.StructField("deep", t.StructType([t.StructField("x", t.ShortType())])),
                    ]
                ),
            ),
            t.StructField("structs", t.ArrayType(t.StructType([t.StructField("n", t.LongType())]))),
        ]
    )
    full = (
        1, True, 127, -32768, 2**31 - 1, 1.5, -2.25, "schön \U0001f600", b"\x00\xff", Decimal("1234567.89"),
        Decimal("12345678901234567890.123456789012345678"), dt.date(1969, 12, 31),
        dt.datetime(2024, 2, 29, 12, 30, 15, 123456), dt.datetime(2024, 2, 29, 12, 30, 15, 654321),
        [1, None, 3], {"k": 1.0, "n": None}, ("in", (7,)), [(1,), None, (None,)],
    )  # fmt: skip
    empty = (2, *([None] * 17))
    hollow = (3, False, 0, 0, 0, 0.0, 0.0, "", b"", Decimal(0), Decimal(0), dt.date(1970, 1, 1),
              dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1), [], {}, (None, None), [])  # fmt: skip
    return spark.createDataFrame([full, empty, hollow], schema)


def rows_of(frame):
    return sorted(frame.collect(), key=lambda row: row[0])


@pytest.mark.parametrize(
    ("partition_by", "properties", "partition"),
    [
        (None, {}, ""),
        ("city", {}, "city=city-0"),
        ("city", {"hoodie.datasource.write.hive_style_partitioning": "false"}, "city-0"),
        (["city", "ts"], {}, "city=city-0/ts=0"),
    ],
    ids=["not partitioned", "hive style", "plain", "two columns"],
)
def test_what_spark_wrote_is_what_spark_and_hudi_read(spark, tmp_path, partition_by, properties, partition):
    table = holdfast.create_table(
        str(tmp_path), name="trips", record_key="trip_id", partition_by=partition_by, properties=properties
    )
    written = trips(spark, 0, 50)

    commit = table.bulk_insert(written)

    assert commit.records_written == 50
    assert partition in commit.partitions
    assert rows_of(table.read(spark)) == rows_of(written)
    seen = hudi_snapshot(tmp_path)
    assert sorted(seen["trip_id"].to_pylist()) == [row.trip_id for row in rows_of(written)]
    assert set(seen["_hoodie_partition_path"].to_pylist()) == set(commit.partitions)
    check_at_rest(table._opened)


def test_composite_keys_are_spelled_as_hudi_spells_them(spark, tmp_path):
    table = holdfast.create_table(
        str(tmp_path), name="trips", record_key=["trip_id", "ts"], partition_by="city"
    )

    table.insert(trips(spark, 7, 1))

    row = table.read(spark, meta_columns=True).first()
    assert row["_hoodie_record_key"] == "trip_id:trip-000007,ts:7"


def test_every_type_comes_back_as_it_went_in(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="all-types", record_key="id", ordering="an_int")
    written = everything(spark)

    table.insert(written)

    read = table.read(spark)
    assert rows_of(read) == rows_of(written)
    narrow = {"a_byte": t.IntegerType(), "a_short": t.IntegerType()}
    assert [field.dataType for field in read.schema][:6] == [
        narrow.get(field.name, field.dataType) for field in written.schema
    ][:6]
    assert table.to_arrow().sort_by("id").column("a_string").to_pylist() == ["schön \U0001f600", None, ""]


def test_hudi_reads_every_type_and_the_same_schema(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="all-types", record_key="id")

    table.insert(everything(spark))

    ours = table.to_arrow().sort_by("id")
    # hudi-rs knows no timestamps without a zone and shows them as if they were UTC.
    position = ours.schema.get_field_index("a_local_timestamp")
    as_utc = ours.column(position).cast(pa.timestamp("us", "UTC"))
    ours = ours.set_column(position, "a_local_timestamp", as_utc)
    theirs = hudi_snapshot(tmp_path).sort_by("id").select(ours.column_names)
    assert theirs.to_pylist() == ours.to_pylist()
    assert [(field.name, field.type) for field in hudi_schema(tmp_path)] == [
        (field.name, field.type) for field in ours.schema
    ]


def test_each_commit_can_be_read_as_it_was_and_by_what_it_changed(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    first = table.bulk_insert(trips(spark, 0, 20))
    second = table.insert(trips(spark, 20, 5))

    assert table.read(spark, as_of=first.instant).count() == 20
    assert table.read(spark).count() == 25
    assert hudi_snapshot(tmp_path, as_of=first.instant).num_rows == 20
    changed = hudi_changes(tmp_path, since=first.instant, until=second.instant)
    assert sorted(changed["trip_id"].to_pylist()) == [f"trip-{i:06d}" for i in range(20, 25)]


def test_columns_come_in_the_order_asked_for_with_meta_columns_first(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    table.insert(trips(spark, 0, 3))

    assert table.read(spark, columns=["fare", "city"]).columns == ["fare", "city"]
    with_meta = table.read(spark, columns=["fare"], meta_columns=True).columns
    assert with_meta[0] == "_hoodie_commit_time"
    assert with_meta[-1] == "fare"
    with pytest.raises(InvalidRequest, match="no such column"):
        table.read(spark, columns=["nope"])


def test_files_are_cut_at_the_size_limit(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id")
    limit = 64 * 1024

    commit = table.bulk_insert(
        trips(spark, 0, 20_000, slices=1),
        options={"hoodie.parquet.max.file.size": str(limit), "hoodie.index.bloom.fpp": "0.5"},
    )

    assert commit.files_written > 3
    assert all(Path(file).stat().st_size <= limit for file in table.files())
    assert table.read(spark).count() == 20_000
    assert hudi_snapshot(tmp_path).num_rows == 20_000


def test_a_task_that_fails_once_leaves_one_file_and_no_orphan(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    marks = tmp_path.parent / f"{tmp_path.name}-attempts"
    marks.mkdir()

    def fail_once(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and TaskContext.get().attemptNumber() == 0:
                (marks / str(TaskContext.get().partitionId())).touch()
                raise RuntimeError("this attempt dies with files written")

    source = trips(spark, 0, 2_000).sortWithinPartitions("city")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "300")
    failing = source.mapInArrow(fail_once, source.schema)

    commit = table.bulk_insert(failing)

    assert len(list(marks.iterdir())) == 2, "both tasks were to fail once"
    assert commit.records_written == 2_000
    assert commit.files_written == 10
    assert table.read(spark).count() == 2_000
    assert hudi_snapshot(tmp_path).num_rows == 2_000
    check_at_rest(table._opened)


def test_a_write_whose_tasks_keep_failing_is_taken_back_at_once(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    table.insert(trips(spark, 0, 10))
    broken = trips(spark, 10, 10).withColumn("fare", f.raise_error(f.lit("no fare")).cast("double"))

    with pytest.raises(Exception, match="no fare"):
        table.insert(broken)

    assert table.read(spark).count() == 10
    check_at_rest(table._opened)


def test_storage_that_refuses_a_task_is_tried_again_and_then_named(spark, tmp_path):
    """A file stands where the folder of a partition should be."""
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    table.insert(trips(spark, 0, 1))
    (tmp_path / "city=city-1").touch()

    with pytest.raises(StorageUnavailable, match="city-1"):
        table.insert(trips(spark, 1, 10))

    assert table.read(spark).count() == 1
    (tmp_path / "city=city-1").unlink()
    check_at_rest(table._opened)


def test_a_session_keeps_its_settings(spark, tmp_path):
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "1234")
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id")

    table.insert(trips(spark, 0, 3))

    assert spark.conf.get(name) == "1234"


@pytest.mark.parametrize("key", [None, ""], ids=["null", "empty"])
def test_a_record_without_a_key_is_refused_before_anything_is_written(spark, tmp_path, key):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    with pytest.raises(InvalidRequest, match="no key"):
        table.insert(spark.createDataFrame([("a", "x", 1, 1.0), (key, "y", 2, 2.0)], TRIPS))

    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("city", ["../up", "/rooted", "a//b", "..", ".hidden", "new\nline"])
def test_a_value_that_cannot_be_a_partition_is_refused_before_anything_is_written(spark, tmp_path, city):
    table = table_by_bare_values(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    with pytest.raises(InvalidRequest, match="partition"):
        table.insert(spark.createDataFrame([("a", "x", 1, 1.0), ("b", city, 2, 2.0)], TRIPS))

    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


IN_ONE_PASS = ["bulk_insert", "insert_overwrite", "insert_overwrite_table"]


@pytest.mark.parametrize("operation", IN_ONE_PASS)
def test_what_needs_one_pass_computes_the_rows_once(spark, tmp_path, operation):
    table = holdfast.create_table(
        str(tmp_path / "t"), name="trips", record_key="trip_id", partition_by="city"
    )
    table.insert(trips(spark, 0, 10))
    computed = tmp_path / "computed"
    computed.mkdir()

    def noted(batches):
        (computed / str(TaskContext.get().taskAttemptId())).touch()
        yield from batches

    commit = getattr(table, operation)(trips(spark, 10, 20, slices=2).mapInArrow(noted, TRIPS))

    assert commit.records_written == 20
    assert len(list(computed.iterdir())) == 2


@pytest.mark.parametrize("operation", IN_ONE_PASS)
@pytest.mark.parametrize(
    ("bad", "said"),
    [((None, "x", 2, 2.0), "no key"), (("", "x", 2, 2.0), "no key"), (("b", "../up", 2, 2.0), "partition")],
    ids=["null", "empty", "partition"],
)
def test_a_row_that_cannot_be_stored_is_met_in_the_one_pass_and_nothing_stays(
    spark, tmp_path, operation, bad, said
):
    table = table_by_bare_values(tmp_path)
    table.bulk_insert(spark.createDataFrame([("a", "x", 1, 1.0)], TRIPS))
    files = sorted(tmp_path.rglob("*.parquet"))
    rows = spark.createDataFrame([("c", "x", 3, 3.0)], TRIPS).coalesce(1)

    with pytest.raises(InvalidRequest, match=said):
        getattr(table, operation)(rows.union(spark.createDataFrame([bad], TRIPS).coalesce(1)))

    assert [row.trip_id for row in table.read(spark).collect()] == ["a"]
    assert [instant.action for instant in table.timeline()] == ["commit", "rollback"]
    assert sorted(tmp_path.rglob("*.parquet")) == files
    check_at_rest(table._opened)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_a_row_that_asks_to_be_removed_needs_a_key_too(spark, tmp_path, operation):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    rows = spark.createDataFrame(
        [("a", "x", 1, 1.0, False), (None, "x", 2, 2.0, True)], TRIPS + ", _hoodie_is_deleted boolean"
    )

    with pytest.raises(InvalidRequest, match="no key"):
        getattr(table, operation)(rows)


@pytest.mark.parametrize("url_encode", ["false", "true"])
@pytest.mark.parametrize("hive_style", ["false", "true"])
def test_unusual_partition_values_are_read_back_by_everybody(spark, tmp_path, hive_style, url_encode):
    table = holdfast.create_table(
        str(tmp_path),
        name="trips",
        record_key="trip_id",
        partition_by="city",
        properties={
            "hoodie.datasource.write.hive_style_partitioning": hive_style,
            "hoodie.datasource.write.partitionpath.urlencode": url_encode,
        },
    )
    cities = ["50%", "a/b", "São Paulo", "{curly}[1]*?", "a=b", "x:y", "東京", None, "", "back\\slash", "#1"]
    written = spark.createDataFrame([(f"t{i}", c, i, 1.0) for i, c in enumerate(cities)], TRIPS)

    table.insert(written)

    expected = {f"t{i}": c for i, c in enumerate(cities)}
    assert {row.trip_id: row.city for row in table.read(spark).collect()} == expected
    ours = table.to_arrow()
    assert dict(zip(ours["trip_id"].to_pylist(), ours["city"].to_pylist(), strict=True)) == expected
    theirs = hudi_snapshot(tmp_path)
    assert dict(zip(theirs["trip_id"].to_pylist(), theirs["city"].to_pylist(), strict=True)) == expected


def test_rows_that_do_not_fit_are_refused_with_column_found_and_expected(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")
    table.insert(trips(spark, 0, 3))
    files = table.files()

    for bad in (
        trips(spark, 3, 1).drop("trip_id"),
        trips(spark, 3, 1).withColumn("fare", f.lit("x")),
        trips(spark, 3, 1).withColumn("ts", f.lit(True)),
        trips(spark, 3, 1).drop("fare"),
    ):
        with pytest.raises(SchemaMismatch):
            table.insert(bad)

    assert table.files() == files
    assert len(table.timeline()) == 1


def test_a_write_of_no_rows_is_a_commit_of_no_files(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")

    commit = table.insert(trips(spark, 0, 0))

    assert (commit.records_written, commit.files_written) == (0, 0)
    assert table.read(spark).count() == 0
    assert table.read(spark).columns == ["trip_id", "city", "ts", "fare"]
    table.insert(trips(spark, 0, 4))
    assert hudi_snapshot(tmp_path).num_rows == 4


def test_insert_keeps_duplicate_keys_as_hudi_does(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")

    table.insert(trips(spark, 0, 3).union(trips(spark, 0, 3)))

    assert table.read(spark).count() == 6


def test_a_damaged_page_is_an_error_on_spark_and_never_a_wrong_row(spark, tmp_path):
    table = holdfast.create_table(
        str(tmp_path),
        name="trips",
        record_key="trip_id",
    )
    table.bulk_insert(
        trips(spark, 0, 5_000, slices=1), options={"hoodie.parquet.compression.codec": "uncompressed"}
    )
    path = table.files()[0]
    content = bytearray(Path(path).read_bytes())
    in_meta_column = content.find(b"trip-004000")
    in_data_column = content.find(b"trip-004000", in_meta_column + 1)
    content[in_data_column + 5] ^= 1
    Path(path).write_bytes(content)
    (tmp_path / f".{path.rpartition('/')[2]}.crc").unlink(missing_ok=True)

    with pytest.raises(Exception, match=r"(?i)crc|checksum"):
        table.read(spark).select("trip_id").collect()
    with pytest.raises(holdfast.errors.TableDamaged, match=path.rpartition("/")[2]):
        table.to_arrow()


def test_rows_can_also_come_as_an_arrow_table(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="trip_id", partition_by="city")

    table.insert(pa.table({"trip_id": ["a"], "city": ["x"], "ts": [1], "fare": [1.0]}))

    assert rows_of(table.read(spark)) == [("a", "x", 1, 1.0)]


def test_a_filter_finds_what_is_not_a_number(spark, tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")
    table.bulk_insert(pa.table({"id": ["a", "b"], "x": [1.0, float("nan")]}))

    found = table.read(spark).where("x > 50")

    assert [row.id for row in found.collect()] == ["b"], "Spark takes it for greater than every number"
