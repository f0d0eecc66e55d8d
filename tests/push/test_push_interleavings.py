"""Controllers, retention and brokers at the same time, in every order up to a bound."""

import os
from functools import partial

import pytest

from harness.explorer import random_schedules, sampled, schedules
from harness.tiers import by_tier
from push.push_scenarios import SCENARIOS

SEED = int(os.environ.get("HOLDFAST_SEED", "20261116"))
RANDOM = by_tier("HOLDFAST_SCHEDULES", sample=2, full=6)
STRIDE = by_tier("HOLDFAST_ASLEEP_STRIDE", sample=9, full=3)
SWITCHES = int(os.environ.get("HOLDFAST_PUSH_SWITCHES", "1"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_whoever_meets_whom_nothing_is_lost_or_mixed(name):
    scenario = SCENARIOS[name]

    runs = sum(1 for _ in schedules(scenario.run, switches=SWITCHES))

    assert runs > len(scenario.actors)


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_actor_that_sleeps_for_ever_breaks_nothing(name):
    scenario = SCENARIOS[name]

    for _ in sampled(partial(scenario.run, asleep=0), every=STRIDE):
        pass


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_random_schedule_breaks_anything(name):
    scenario = SCENARIOS[name]

    for switches in (2, 3, 5):
        for _ in random_schedules(scenario.run, switches=switches, count=RANDOM, seed=SEED + switches):
            pass
