"""The switch's workload on few segments: it runs, and every variant leaves the same table."""

from bench.framework import run_workload
from bench.processes import ProcessMeter
from bench.workloads.switch import switch


def test_end_and_revert_do_what_the_lists_alone_would(tmp_path):
    result = run_workload(
        switch(segments=50),
        ProcessMeter(),
        rounds=1,
        workspace=tmp_path / "workspace",
        settle=lambda: None,
        announce=lambda _step: None,
    )

    assert len(result.counted[0]) == 8
    assert {goal.variant for goal in result.goals} == {"end of many", "revert of many"}
