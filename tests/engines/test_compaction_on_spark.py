"""Compactions on Spark: one task for each file slice."""

import pyarrow as pa
import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.errors import TableDamaged

LOGS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
CITIES = ("paris", "rome", "oslo")


def trips(fare, count=300):
    return pa.table(
        {
            "id": [f"t{number}" for number in range(count)],
            "city": [CITIES[number % 3] for number in range(count)],
            "ts": pa.array([int(fare)] * count, pa.int64()),
            "fare": [fare] * count,
        }
    )


@pytest.fixture
def table(tmp_path):
    made = holdfast.create_table(
        str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city", ordering="ts",
        table_type="MERGE_ON_READ",
    )  # fmt: skip
    made.bulk_insert(trips(1.0))
    made.upsert(trips(2.0, 200), options=LOGS)
    made.upsert(trips(3.0, 100), options=LOGS)
    return made


@pytest.mark.spark
def test_a_compaction_on_spark_changes_no_row(spark, table):
    before = table.to_arrow(meta_columns=True).drop_columns(["_hoodie_file_name"]).sort_by("id")
    time = table.schedule_compaction()

    commit = table.compact(spark)

    assert commit.instant == time
    assert commit.files_written == 3
    after = table.to_arrow(meta_columns=True)
    assert after.drop_columns(["_hoodie_file_name"]).sort_by("id").equals(before)
    assert all(name.endswith(f"_{time}.parquet") for name in after["_hoodie_file_name"].to_pylist())
    theirs = hudi_snapshot(table.path.removeprefix("file://"))
    assert sorted(theirs["fare"].to_pylist()) == sorted(before["fare"].to_pylist())
    assert table.verify().is_clean


@pytest.mark.spark
def test_what_a_task_meets_is_named_and_nothing_is_left(spark, table, tmp_path):
    (log, *_) = sorted((tmp_path / "trips" / "city=oslo").glob(".*.log.1_*"))
    content = log.read_bytes()
    log.write_bytes(content[:-100] + b"\0" * 100)

    with pytest.raises(TableDamaged) as refusal:
        table.compact(spark)

    assert log.name in str(refusal.value)
    assert table.compactions() == []
    log.write_bytes(content)
    assert table.compact(spark) is not None


@pytest.mark.spark
def test_a_write_on_spark_compacts_inline(spark, table):
    options = {**LOGS, "hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    commit = table.upsert(spark.createDataFrame(trips(4.0, 50).to_pandas()), options=options)

    assert commit.post_commit_errors == ()
    assert len(table.compactions()) == 1
    assert table.to_arrow()["fare"].to_pylist().count(4.0) == 50
