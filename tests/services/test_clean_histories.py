"""Any history: whoever may still read a commit reads it as it was, however often the table was cleaned."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from harness.checker import check_at_rest, visible_rows
from harness.cleaning import clean
from harness.world import World, memory_world, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, SnapshotExpired
from holdfast.services.leases import lease
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.timeline.timeline import load_timeline
from holdfast.writes import operations

CITIES = ("oslo", "paris", "rome")
BY_HAND = WriteSettings(clean=CleanSettings(automatic=False))


@dataclass
class History:
    """A table, what each of its commits showed, and which of them may be gone."""

    world: World
    shown: dict[str, frozenset] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    savepoints: set[str] = field(default_factory=set)
    leases: dict[str, ExitStack] = field(default_factory=dict)
    number: int = 0

    @property
    def commits(self) -> list[str]:
        return [commit.time for commit in load_timeline(self.world.store).completed_commits]

    def write(self, operation: str, city: str, key: str) -> None:
        self.number += 1
        self.world.write(operation, table_of([(f"{city}-{key}", city, float(self.number))]), BY_HAND)
        self.shown[self.commits[-1]] = visible_rows(self.world.open())

    def drop(self, city: str) -> None:
        if all(row[1] != city for row in visible_rows(self.world.open())):
            return
        operations.delete_partitions(self.world.open(), [f"city={city}"], BY_HAND)
        self.shown[self.commits[-1]] = visible_rows(self.world.open())

    def clean(self, settings: CleanSettings) -> None:
        commits = self.commits
        clean(self.world.open(), settings)
        if settings.policy is CleanPolicy.KEEP_LATEST_COMMITS:
            # The commit before the earliest that is retained is whole, too: its versions serve until then.
            certain = commits[-settings.commits_retained - 1 :]
        else:
            certain = commits[-1:]
        self.gone |= set(commits) - set(certain) - self.savepoints - self.leases.keys()

    def undo(self) -> None:
        commits = self.commits
        if len(commits) < 2:
            return
        try:
            undo(self.world.open())
        except SnapshotExpired:
            assert commits[-2] in self.gone
        except Refused:
            assert commits[-1] in self.savepoints | self.leases.keys()

    def protect(self, number: int, *, with_lease: bool) -> None:
        commits = self.commits
        time = commits[number % len(commits)]
        try:
            if with_lease and time not in self.leases:
                stack = ExitStack()
                stack.enter_context(lease(self.world.open(), "reader", 3600, as_of=time))
                self.leases[time] = stack
            elif not with_lease:
                create_savepoint(self.world.open(), time)
                self.savepoints.add(time)
        except SnapshotExpired:
            assert time in self.gone
        else:
            self.gone.discard(time)

    def let_go(self, *, with_lease: bool) -> None:
        if with_lease and self.leases:
            self.leases.pop(min(self.leases)).close()
        elif not with_lease and self.savepoints:
            time = min(self.savepoints)
            delete_savepoint(self.world.open(), time)
            self.savepoints.discard(time)

    def check(self) -> None:
        table = self.world.open()
        commits = self.commits
        assert visible_rows(table) == self.shown[commits[-1]]
        for time in set(commits) - self.gone:
            assert visible_rows(table, as_of=time) == self.shown[time]


_steps = st.one_of(
    st.tuples(st.just("upsert"), st.sampled_from(CITIES), st.sampled_from("xy")),
    st.tuples(st.just("insert_overwrite"), st.sampled_from(CITIES), st.sampled_from("xy")),
    st.tuples(st.just("drop"), st.sampled_from(CITIES)),
    st.tuples(st.just("clean"), st.integers(1, 3)),
    st.tuples(st.just("clean versions"), st.integers(1, 2)),
    st.tuples(st.just("undo")),
    st.tuples(st.sampled_from(("savepoint", "lease")), st.integers(0, 9)),
    st.tuples(st.sampled_from(("delete savepoint", "end lease"))),
)


def _take(history: History, step: tuple, *, incremental: bool) -> None:
    match step:
        case ("upsert" | "insert_overwrite" as operation, city, key):
            history.write(operation, city, key)
        case ("drop", city):
            history.drop(city)
        case ("clean", commits):
            history.clean(CleanSettings(commits_retained=commits, incremental=incremental))
        case ("clean versions", versions):
            policy = CleanPolicy.KEEP_LATEST_FILE_VERSIONS
            history.clean(CleanSettings(policy=policy, versions_retained=versions, incremental=incremental))
        case ("undo",):
            history.undo()
        case ("savepoint" | "lease" as kind, number):
            history.protect(number, with_lease=kind == "lease")
        case (kind,):
            history.let_go(with_lease=kind == "end lease")


def _begun() -> History:
    history = History(memory_world())
    history.world.create()
    for city in CITIES:
        history.write("upsert", city, "x")
    return history


@checks(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_steps, min_size=5, max_size=14))
def test_whoever_may_read_a_commit_reads_it_as_it_was(steps):
    history = _begun()

    for step in steps:
        _take(history, step, incremental=True)
        history.check()

    for stack in history.leases.values():
        stack.close()
    check_at_rest(history.world.open())


_plain_steps = st.one_of(
    st.tuples(st.just("upsert"), st.sampled_from(CITIES), st.sampled_from("xy")),
    st.tuples(st.just("insert_overwrite"), st.sampled_from(CITIES), st.sampled_from("xy")),
    st.tuples(st.just("clean"), st.just(2)),
)


@checks(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_plain_steps, min_size=5, max_size=14))
def test_incremental_and_full_cleaning_end_with_the_same_files(steps):
    left = []
    for incremental in (True, False):
        history = _begun()
        for step in (*steps, ("clean", 2)):
            _take(history, step, incremental=incremental)
        order = {time: number for number, time in enumerate(history.commits)}
        files = [path for path in history.world.store.paths("") if path.endswith(".parquet")]
        left.append(sorted((path.split("/")[0], order[path[-25:-8]]) for path in files))

    assert left[0] == left[1]


def test_the_checks_above_can_fail():
    history = _begun()
    for number in range(4):
        history.write("upsert", "paris", "xy"[number % 2])
    history.clean(CleanSettings(commits_retained=1))
    history.gone.clear()

    with pytest.raises(SnapshotExpired):
        history.check()
