"""A reader with a lease among those who delete: what it was granted it can read, until it lets go."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache

import pytest

from harness.checker import visible_rows
from harness.cleaning import clean
from harness.explorer import random_schedules, run_schedule, schedules
from harness.tiers import by_tier
from harness.world import SimulatedHost, World, memory_world, row_list, rows
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Conflict, Fenced, HoldfastError, Refused, SnapshotExpired, UnknownInstant
from holdfast.host import Liveness
from holdfast.read.arrow_rows import read_rows, select_schema
from holdfast.read.snapshot import Snapshot, snapshot
from holdfast.services.leases import Lease, lease
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.timeline.timeline import load_timeline

SEED = int(os.environ.get("HOLDFAST_SEED", "20261115"))
RANDOM_SCHEDULES = by_tier("HOLDFAST_SCHEDULES", sample=4, full=25)
REFUSALS = (Conflict, Fenced, Refused, SnapshotExpired, UnknownInstant)

_WRITE = WriteSettings(clean=CleanSettings(automatic=False))
_NEWEST_ONLY = CleanSettings(commits_retained=1)
_ONE_VERSION = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)
_COMMITS = 3


@cache
def _start():
    """One row in three versions, and one that stays."""
    world = memory_world()
    world.create()
    world.write("insert", rows("a", "b"), _WRITE)
    for fare in range(1, _COMMITS):
        world.write("upsert", rows("a", fare=10.0 * fare), _WRITE)
    return world


@cache
def _rows_at(time):
    return visible_rows(_start().open(), as_of=time)


def _commit(world, number):
    return load_timeline(world.store).completed_commits[number].time


@dataclass(frozen=True)
class Held:
    """A lease that was granted and not given back, and the files that were planned under it."""

    holding: AbstractContextManager[Lease]
    """Kept, because a lease ends with the block that holds it."""
    instant: str
    found: Snapshot

    def check(self, store):
        """Read what was planned: whatever is missing breaks the promise."""
        schema = select_schema(self.found.schema, columns=None, meta_columns=False)
        try:
            read = frozenset(row_list(read_rows(store, self.found, schema)))
        except HoldfastError as error:
            raise AssertionError(f"I5: what is held as of {self.instant} cannot be read") from error
        if self.instant <= _commit(_start(), -1):
            assert read == _rows_at(self.instant), f"I5: other rows as of {self.instant}: {read}"


@dataclass(frozen=True)
class Reader:
    """Takes a lease, plans and reads, and does not let go."""

    number: int | None
    """Which commit; the newest if none is named."""

    def __call__(self, world):
        as_of = None if self.number is None else _commit(_start(), self.number)
        holding = lease(world.open(), "reader", 3600, as_of=as_of)
        try:
            granted = holding.__enter__()
        except REFUSALS as refused:
            return refused
        try:
            held = Held(holding, granted.instant, snapshot(world.open(), as_of=granted.instant))
        except HoldfastError as error:
            raise AssertionError(f"I5: what is held as of {granted.instant} cannot be planned") from error
        held.check(world.store)
        return held


def _refusable(act):
    def told(world):
        try:
            return act(world)
        except REFUSALS as refused:
            return refused

    return told


_clean = _refusable(lambda world: clean(world.open(), _NEWEST_ONLY))
_clean_versions = _refusable(lambda world: clean(world.open(), _ONE_VERSION))
_undo = _refusable(lambda world: undo(world.open()))
_restore = _refusable(lambda world: restore(world.open(), _commit(_start(), 0)))
_write = _refusable(lambda world: world.write("upsert", rows("a", fare=99.0), _WRITE))

SCENARIOS = {
    "oldest, clean": (Reader(0), _clean),
    "oldest, clean by versions": (Reader(0), _clean_versions),
    "newest, clean": (Reader(None), _clean),
    "oldest, two cleans": (Reader(0), _clean, _clean),
    "two readers, clean": (Reader(0), Reader(1), _clean),
    "newest, writer, clean": (Reader(None), _write, _clean),
    "newest, undo": (Reader(None), _undo),
    "newest, restore": (Reader(None), _restore),
    "middle, restore": (Reader(1), _restore),
    "oldest, restore, clean": (Reader(0), _restore, _clean),
    "two readers, undo": (Reader(2), Reader(2), _undo),
}


def _run(actors, schedule, *, asleep=None):
    start = _start().copy()

    def actor(index):
        host = SimulatedHost(index + 1, Liveness.UNKNOWN)
        return lambda store: actors[index](World(store, start.clock, host))

    run = run_schedule(start.store, [actor(n) for n in range(len(actors))], schedule, asleep=asleep)
    failures = [outcome for outcome in run.outcomes if isinstance(outcome, BaseException)]
    broken = [failure for failure in failures if not isinstance(failure, REFUSALS)]
    assert not broken, f"{schedule}: {broken!r}"
    for outcome in run.outcomes:
        if isinstance(outcome, Held):
            outcome.check(start.store)
            # Now, not in the middle of a later run, when its memory is collected.
            outcome.holding.__exit__(None, None, None)
    return run


@pytest.fixture(scope="module")
def explored(request):
    counts = {"one": 0, "asleep": 0, "random": 0, "granted": 0, "refused": 0}
    yield counts
    request.config.summary_lines.append(
        f"leases: {len(SCENARIOS)} scenarios, {counts['one']} schedules with one switch (all), "
        f"{counts['asleep']} with an actor that never wakes (all), {counts['random']} with two to five "
        f"switches (seed {SEED}), {counts['granted']} leases granted, {counts['refused']} refused"
    )


def _count(explored, actors, run, kind):
    explored[kind] += 1
    for actor, outcome in zip(actors, run.outcomes, strict=True):
        if isinstance(actor, Reader) and outcome is not None:
            explored["refused" if isinstance(outcome, BaseException) else "granted"] += 1


@pytest.mark.parametrize("actors", SCENARIOS.values(), ids=SCENARIOS)
def test_no_schedule_with_one_switch_breaks_a_lease(actors, explored):
    for run in schedules(lambda schedule: _run(actors, schedule), switches=1):
        _count(explored, actors, run, "one")


@pytest.mark.parametrize("actors", SCENARIOS.values(), ids=SCENARIOS)
def test_one_who_deletes_and_sleeps_for_ever_breaks_no_lease(actors, explored):
    asleep = len(actors) - 1
    for run in schedules(lambda schedule: _run(actors, schedule, asleep=asleep), switches=1):
        _count(explored, actors, run, "asleep")


@pytest.mark.parametrize("actors", SCENARIOS.values(), ids=SCENARIOS)
def test_no_random_schedule_breaks_a_lease(actors, explored):
    for switches in (2, 3, 5):
        for run in random_schedules(
            lambda schedule: _run(actors, schedule),
            switches=switches, count=RANDOM_SCHEDULES, seed=SEED + switches,
        ):  # fmt: skip
            _count(explored, actors, run, "random")
