"""What many of anything cost: a tiny run of every history and act, and what counts as slower."""

import pytest
from bench.many import ACTS, HISTORIES, Cost, Took, costs, run
from click.testing import CliRunner

import holdfast


def took(*seconds):
    return [Took(wall=one, cpu=one / 2) for one in seconds]


def test_every_act_is_timed_after_every_history(tmp_path):
    for number, history in enumerate(HISTORIES):
        folder = tmp_path / str(number)
        folder.mkdir()

        found = list(costs(folder, history, few=1, many=3, turns=2))

        assert [(cost.history, cost.act) for cost in found] == [(history, act) for act in ACTS]
        assert all(len(side) == 2 for cost in found for side in (cost.few, cost.many))
        assert all(one.wall > 0 and one.cpu > 0 for cost in found for one in (*cost.few, *cost.many))


def test_the_history_that_is_measured_has_as_much_behind_it_as_it_says(tmp_path):
    list(costs(tmp_path, "commits with a savepoint", few=1, many=4, turns=1))

    few, many = (holdfast.open_table(str(tmp_path / f"{length} recovery")) for length in ("few", "many"))
    assert len(many.timeline()) - len(few.timeline()) == 3
    assert len(many.savepoints()) == len(few.savepoints()) == 1


@pytest.mark.parametrize(
    ("few", "many", "is_slower"),
    [
        ((1.0, 1.0, 1.0), (1.4, 1.4, 1.4), False),
        ((1.0, 1.0, 1.0), (1.6, 1.6, 1.6), True),
        # The usual act costs the same, and what comes now and then does not.
        ((1.0, 1.0, 1.0), (1.0, 1.0, 9.0), True),
        ((1.0, 1.0, 9.0), (1.0, 1.0, 9.0), False),
    ],
)
def test_the_median_and_the_mean_must_both_hold(few, many, is_slower):
    assert Cost("commits", "undo", took(*few), took(*many)).is_slower is is_slower


def test_time_that_passes_counts_as_well_as_time_that_is_worked():
    slept = Cost("commits", "undo", took(1.0), [Took(wall=2.0, cpu=0.5)])

    assert slept.ratios() == {"wall median": 2.0, "wall mean": 2.0, "cpu median": 1.0, "cpu mean": 1.0}
    assert slept.is_slower


@pytest.mark.parametrize("limit", [1000.0, 0.0])
def test_a_run_prints_every_ratio_and_fails_above_the_limit(tmp_path, monkeypatch, limit):
    monkeypatch.setattr("bench.many._RATIO_MAX", limit)

    ran = CliRunner().invoke(run, ["--few", "1", "--many", "2", "--turns", "1", "--data", str(tmp_path)])

    assert ran.exit_code == (1 if limit == 0.0 else 0), ran.output
    assert ran.output.count("after commits with a savepoint") == len(ACTS)
    assert len(ran.output.splitlines()) == 1 + len(ACTS) * len(HISTORIES)
    assert list((tmp_path).iterdir()) == []
