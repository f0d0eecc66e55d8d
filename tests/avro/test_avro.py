"""Avro files as the input of push jobs and pipelines, read by Spark's own package."""

from decimal import Decimal

import pytest
from pyspark.sql import functions as f

import holdfast
from harness.push_client import make_table
from harness.push_jobs import job_of
from holdfast.config.pipeline import Destination, Pipeline, Source
from holdfast.config.push_job import FileInput
from holdfast.errors import InvalidRequest
from holdfast.jobs.pipeline import run_pipeline
from holdfast.jobs.push.run import run_push_job

pytestmark = pytest.mark.spark


@pytest.fixture
def trips(spark):
    """Trips with types that only a format with a schema can tell."""
    return spark.range(6).select(
        f.col("id").cast("int").alias("id"),
        f.concat(f.lit("city-"), f.col("id") % 2).alias("city"),
        f.lit(7).alias("snapshot"),
        (f.col("id") / 4).cast("decimal(9,2)").alias("fare"),
        f.timestamp_micros(f.col("id") * 1_000_000).alias("ts"),
    )


def test_avro_files_are_pushed(spark, client, trips, tmp_path):
    trips.select("id", "city", "snapshot").coalesce(1).write.format("avro").save(str(tmp_path / "in"))
    table = make_table(client, consistent=True)
    files = FileInput(folder=str(tmp_path / "in"), format="avro", include="glob:**/*.avro")

    report = run_push_job(job_of(client.running.controller_url, table.name, input=files), spark=spark)

    answer = client.sql(f"SELECT id, city, snapshot FROM {table.name} ORDER BY id LIMIT 10")
    assert [tuple(row) for row in answer["resultTable"]["rows"]] == [
        (n, f"city-{n % 2}", 7) for n in range(6)
    ]
    assert report.source["input.files"] == "1"


def test_new_avro_files_are_taken_into_a_lake_table_with_their_types(spark, trips, tmp_path):
    inbox = str(tmp_path / "in")
    pipeline = Pipeline(
        name="trips",
        source=Source(format="avro", path=f"{inbox}/*.avro"),
        transform="SELECT * FROM source",
        transform_line=1,
        destination=Destination(
            path=str(tmp_path / "lake"),
            name="trips",
            record_key=("id",),
            partition_by=("city",),
            ordering="ts",
        ),
    )
    trips.where("id < 4").coalesce(1).write.format("avro").save(inbox)
    run_pipeline(pipeline, spark=spark)
    trips.where("id >= 3").coalesce(1).write.format("avro").mode("append").save(inbox)
    run_pipeline(pipeline, spark=spark)

    rows = holdfast.open_table(str(tmp_path / "lake")).to_arrow()
    assert sorted(zip(rows["id"].to_pylist(), rows["fare"].to_pylist(), strict=True)) == [
        (n, Decimal(n * 25) / 100) for n in range(6)
    ]
    assert str(rows.schema.field("fare").type) == "decimal128(9, 2)"
    assert str(rows.schema.field("ts").type).startswith("timestamp[us")


def test_a_file_that_is_not_avro_is_named(spark, client, tmp_path):
    # Some words of Spark's complaint about a package that is missing, which this one is not about.
    file = tmp_path / "in" / "failed to find data source avro.avro"
    file.parent.mkdir()
    file.write_text("id,city\n1,oslo\n")
    table = make_table(client, consistent=True)
    files = FileInput(folder=str(file.parent), format="avro")

    with pytest.raises(InvalidRequest) as caught:
        run_push_job(job_of(client.running.controller_url, table.name, input=files), spark=spark)

    assert file.name in str(caught.value)
    assert "needs Spark's package" not in str(caught.value)
    assert table.segments() == set()
