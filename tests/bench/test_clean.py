"""The workloads of cleaning on few files: they run, and every variant finds and leaves the same."""

import pytest
from bench.framework import run_workload, summaries
from bench.processes import ProcessMeter
from bench.workloads.clean import Versions, clean_deletion, clean_increment, clean_plan


@pytest.fixture
def measured(tmp_path):
    def run(workload):
        return run_workload(
            workload,
            ProcessMeter(),
            rounds=1,
            workspace=tmp_path / "workspace",
            settle=lambda: None,
            announce=lambda _step: None,
        )

    return run


def test_a_plan_dooms_what_no_retained_commit_needs(measured):
    size = Versions(partitions=3, groups=6, versions=13)

    result = measured(clean_plan(size, seconds=20.0))

    assert result.facts == {"files": 78, "file groups": 6, "partitions": 3, "doomed": 12}
    assert set(result.counted[0]) == {"os.walk", "draft", "draft and encode", "plan_clean()"}
    assert all(summary.median.usage.driver_peak_bytes > 0 for summary in summaries(result))


def test_an_incremental_plan_is_made_beside_few_partitions_and_beside_many(measured):
    result = measured(clean_increment(few=2, many=5, groups_per_partition=3))

    assert result.facts["partitions"] == "2 and 5"
    assert set(result.counted[0]) == {"few partitions", "many partitions", "many partitions, whole table"}


def test_a_clean_leaves_the_files_that_plain_deletes_leave(measured):
    result = measured(clean_deletion(files=40, partitions=2))

    assert result.facts["files"] == 40
    assert set(result.counted[0]) == {"os.remove, sync folders", "os.remove, no sync", "carry out"}
