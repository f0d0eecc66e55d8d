"""Two processes may stand at the same step at once, and either may sleep there as long as it likes."""

import os
from functools import partial

import pytest

from harness.explorer import random_schedules, returning, sampled, schedules
from harness.tiers import by_tier
from holdfast.model.reports import Commit
from interleavings.scenarios import SCENARIOS

SEED = int(os.environ.get("HOLDFAST_SEED", "20261115"))
RANDOM_SCHEDULES = by_tier("HOLDFAST_SCHEDULES", sample=1, full=6)
# Of the schedules with one switch, of those with a way back, and of those in which an actor never wakes;
# 1 takes all.
SWITCH_STRIDE = by_tier("HOLDFAST_SWITCH_STRIDE", sample=24, full=3)
RETURN_STRIDE = by_tier("HOLDFAST_RETURN_STRIDE", sample=12, full=5)
ASLEEP_STRIDE = by_tier("HOLDFAST_ASLEEP_STRIDE", sample=24, full=3)


def _share(stride):
    return "all" if stride == 1 else f"one of {stride}"


@pytest.fixture(scope="module")
def explored(request):
    counts = {"one": 0, "back": 0, "asleep": 0, "random": 0}
    yield counts
    request.config.summary_lines.append(
        f"interleavings: {len(SCENARIOS)} scenarios, {counts['one']} schedules with one switch "
        f"({_share(SWITCH_STRIDE)}), "
        f"{counts['back']} with rivals that overtake each other (one of {RETURN_STRIDE} steps each), "
        f"{counts['asleep']} with an actor that never wakes ({_share(ASLEEP_STRIDE)}), "
        f"{counts['random']} with two to five switches (seed {SEED})"
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_schedule_with_one_switch_breaks_an_invariant(scenario, explored):
    for _ in sampled(scenario.run, every=SWITCH_STRIDE):
        explored["one"] += 1


@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if s.are_rivals], ids=lambda scenario: scenario.name
)
def test_rivals_that_overtake_each_other_break_no_invariant(scenario, explored):
    for _ in returning(scenario.run, every=RETURN_STRIDE):
        explored["back"] += 1


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_an_actor_that_sleeps_for_ever_breaks_no_invariant(scenario, explored):
    for _ in sampled(partial(scenario.run, asleep=0), every=ASLEEP_STRIDE):
        explored["asleep"] += 1


@pytest.mark.parametrize(
    "scenario", [s for s in SCENARIOS if s.begins_with_a_writer], ids=lambda scenario: scenario.name
)
def test_whoever_decides_knows_what_was_decided_before_and_is_not_yet_shown(scenario):
    scenario.run_interrupted()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_random_schedule_breaks_an_invariant(scenario, explored):
    for switches in (2, 3, 5):
        seed = SEED + switches
        for _ in random_schedules(scenario.run, switches=switches, count=RANDOM_SCHEDULES, seed=seed):
            explored["random"] += 1


def test_a_rollback_leaves_a_living_writer_alone():
    scenario = next(s for s in SCENARIOS if s.name == "writer and rollback that leaves it alone")

    answers = [run.outcomes[0] for run in schedules(scenario.run, switches=1)]

    assert all(isinstance(answer, Commit) for answer in answers)
