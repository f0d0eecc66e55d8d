"""The workload of starting the service: it runs, and its goal is in seconds."""

from bench.framework import Unit, run_workload
from bench.processes import ProcessMeter
from bench.workloads.serve import serve


def test_a_service_is_started_and_stopped(tmp_path):
    result = run_workload(
        serve(),
        ProcessMeter(),
        rounds=1,
        workspace=tmp_path / "workspace",
        settle=lambda: None,
        announce=lambda _step: None,
    )

    assert set(result.counted[0]) == {"its packages alone", "holdfast serve"}
    assert [(goal.variant, goal.unit) for goal in result.goals] == [("holdfast serve", Unit.SECONDS)]
