"""The broker's workload on few rows: it runs, and both sides give the same answer."""

import pytest


@pytest.mark.parametrize("name", ["one row", "count", "group by", "filter", "top ten"])
def test_a_query_gives_the_answer_of_duckdb_alone(tmp_path, name):
    from bench.framework import run_workload
    from bench.processes import ProcessMeter
    from bench.workloads.broker import broker

    result = run_workload(
        broker(name, rows=4_000, segments=2),
        ProcessMeter(),
        rounds=1,
        workspace=tmp_path / "workspace",
        settle=lambda: None,
        announce=lambda _step: None,
    )

    assert set(result.counted[0]) == {
        "DuckDB",
        "Holdfast broker",
        "Holdfast broker over HTTP",
        "DuckDB and 30 %, or 5 ms",
    }
