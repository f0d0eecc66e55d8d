"""The Spark workloads on few rows: they run, and all variants come to the same table."""

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROWS = 20_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def results(tmp_path, spark, data):
    from bench.framework import run_workload
    from bench.processes import ProcessMeter

    def measured(workload, **size):
        return run_workload(
            workload(lambda: spark, data, rows=ROWS, **size),
            ProcessMeter(),
            rounds=1,
            workspace=tmp_path / "workspace",
            settle=lambda: None,
            announce=lambda _step: None,
        )

    return measured


def files_written(result, variant):
    return result.counted[0][variant].written.files


def test_an_upsert_with_every_index_leaves_the_rows_that_spark_and_deltalake_leave(results):
    from bench.workloads.upsert import upsert

    result = results(upsert, percent=10, groups=64)

    assert result.facts["file groups"] == 64
    for index in ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM", "BUCKET"):
        assert files_written(result, f"Holdfast {index}") == 64
    assert result.counted[0]["Holdfast SIMPLE"].usage.workers_peak_bytes > 0
    usages = {name: run.usage for name, run in result.counted[0].items()}
    assert usages["deltalake"].driver_peak_bytes > usages["Holdfast SIMPLE"].driver_peak_bytes
    assert len(result.goals) == 3


def test_an_upsert_without_partitions_changes_every_group_with_every_index(results):
    from bench.workloads.unpartitioned import unpartitioned

    result = results(unpartitioned, percent=10)

    for index in ("SIMPLE", "BLOOM", "BUCKET"):
        assert files_written(result, f"Holdfast {index}") == 64


def test_an_upsert_of_one_group_writes_one_file(results):
    from bench.workloads.touched_groups import touched_groups

    result = results(touched_groups)

    assert files_written(result, "Holdfast, 1 % of all groups") > 32
    assert files_written(result, "Holdfast, 1 % of one group") == 1
    assert files_written(result, "Holdfast, half of one group") == 1


def test_a_delete_leaves_the_rows_that_spark_and_deltalake_leave(results):
    from bench.workloads.delete import delete

    result = results(delete)

    assert files_written(result, "Holdfast SIMPLE") > 32
    assert files_written(result, "Holdfast BUCKET") > 32


def test_an_overwrite_writes_one_partition_and_leaves_the_rows_that_the_others_leave(results):
    from bench.workloads.overwrite import overwrite

    result = results(overwrite)

    assert result.facts["partitions"] == 20
    assert files_written(result, "Holdfast") >= 1


def test_a_change_read_gives_the_rows_of_one_commit(results):
    from bench.workloads.change_read import change_read

    result = results(change_read, commits=4)

    assert result.facts["commits"] == 4
    assert files_written(result, "Holdfast, one commit") == 0


def test_merge_on_read_leaves_the_rows_that_copy_on_write_leaves(results):
    from bench.workloads.merge_on_read import compaction, scattered_upsert, worn_read

    upserted = results(scattered_upsert)
    read = results(worn_read)
    compacted = results(compaction)

    assert files_written(upserted, "copy-on-write") == 64
    assert read.facts["upserts"] == 10
    assert files_written(read, "merge-on-read") == 0
    assert files_written(compacted, "merge-on-read") == 64


def test_a_copy_shares_data_files_and_nothing_else_with_its_source(tmp_path: Path):
    from bench.workloads.prepared import link_copy

    source, copy = tmp_path / "source", tmp_path / "copy"
    (source / "city=a").mkdir(parents=True)
    (source / "city=a" / "data.parquet").write_bytes(b"rows")
    (source / "log").write_bytes(b"one")

    link_copy(source, copy)

    (copy / "log").write_bytes(b"another")
    assert (source / "log").read_bytes() == b"one"
    assert (copy / "city=a" / "data.parquet").samefile(source / "city=a" / "data.parquet")
    shutil.rmtree(copy)
    assert (source / "city=a" / "data.parquet").read_bytes() == b"rows"
