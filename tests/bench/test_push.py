"""The workloads of pushing on few rows: they run, and the broker answers with what was pushed."""

import pytest
from bench.framework import run_workload
from bench.processes import ProcessMeter
from bench.workloads.push import push, push_switch


def _run(workload, folder):
    return run_workload(
        workload,
        ProcessMeter(),
        rounds=1,
        workspace=folder / "workspace",
        settle=lambda: None,
        announce=lambda _step: None,
    )


def test_a_switch_is_timed_until_the_broker_answers_from_it(tmp_path):
    result = _run(push_switch(rows=10), tmp_path)

    assert set(result.counted[0]) == {"query", "end to answer"}


@pytest.mark.spark
def test_a_push_is_compared_with_a_plain_write(spark, tmp_path):
    result = _run(push(lambda: spark, tmp_path / "data", rows=2000), tmp_path)

    assert set(result.counted[0]) == {"Spark, plain Parquet", "Holdfast push"}
