"""Plans are values: what is carried out was shown, or the plan is refused."""

from dataclasses import replace

import pytest

from harness.world import SimulatedHost, WrongClock, memory_world, rows, table_of
from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import PlanOutdated, UnknownInstant
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Liveness
from holdfast.model.instant import Action
from holdfast.model.names import CLOCK_FILE
from holdfast.read.savepoints import savepoints
from holdfast.services.clean import clean as clean_module
from holdfast.services.clean.clean import execute_clean, plan_clean
from holdfast.services.drop import execute_drop, plan_drop
from holdfast.services.rehearsals import rehearse
from holdfast.services.restore.plan import plan_restore
from holdfast.services.restore.restore import execute_restore, rehearse_restore
from holdfast.services.rollback.plan import plan_rollback_of
from holdfast.services.rollback.recovery import execute_recovery, plan_recovery
from holdfast.services.rollback.rollback import roll_back_failed_writes
from holdfast.services.rollback.undo import execute_rollback
from holdfast.services.savepoints import create_savepoint, delete_savepoint, execute_deletion
from holdfast.services.status import Outlook, table_status
from holdfast.timeline.ledger import Decision
from holdfast.timeline.timeline import load_timeline

NO_CLEAN = WriteSettings(clean=CleanSettings(automatic=False))
NEWEST_ONLY = WriteSettings(clean=CleanSettings(commits_retained=1))
SHARED = WriteSettings(
    concurrency_mode=ConcurrencyMode.OPTIMISTIC,
    failed_writes_policy=FailedWritesPolicy.LAZY,
    clean=CleanSettings(automatic=False),
)
HOUR_MS = 3_600_000


@pytest.fixture
def world():
    """Four commits that all change one row."""
    world = memory_world()
    world.create()
    for number in range(4):
        _change(world, number)
    return world


def _change(world, number):
    return world.write("upsert", table_of([("a", "paris", float(number))]), NO_CLEAN)


def _data_files(world):
    return {path for path in world.store.paths("") if path.endswith(".parquet")}


def _dies(world, *ids, settings=NO_CLEAN):
    """A write that dies when its files are there; its instant."""
    known = set(world.commit_times())
    world.die_after(lambda world: world.write("insert", rows(*ids), settings), last="upload")
    [time] = {i.time for i in load_timeline(world.store).pending_writes} - known
    return time


def test_a_clean_deletes_exactly_what_its_plan_shows(world):
    plan = plan_clean(world.open(), NEWEST_ONLY)

    report = execute_clean(world.open(), plan, NEWEST_ONLY)

    assert plan.doomed
    assert set(report.deleted) == {file.path for file in plan.doomed}


def test_a_clean_that_would_delete_more_by_now_is_refused(world):
    plan = plan_clean(world.open(), NEWEST_ONLY)
    _change(world, 9)
    before = _data_files(world)

    with pytest.raises(PlanOutdated, match="the table changed after the plan was shown"):
        execute_clean(world.open(), plan, NEWEST_ONLY)

    assert _data_files(world) == before
    execute_clean(world.open(), plan_clean(world.open(), NEWEST_ONLY), NEWEST_ONLY)
    assert len(_data_files(world)) == 2


def test_a_commit_between_the_look_and_the_decision_of_a_clean_is_noticed(world, monkeypatch):
    plan = plan_clean(world.open(), NEWEST_ONLY)
    _change(world, 9)
    before = _data_files(world)
    monkeypatch.setattr(clean_module, "plan_clean", lambda table, settings: plan)

    with pytest.raises(PlanOutdated):
        execute_clean(world.open(), plan, NEWEST_ONLY)

    assert _data_files(world) == before


def test_a_clean_may_delete_less_than_its_plan_shows(world):
    plan = plan_clean(world.open(), NEWEST_ONLY)
    create_savepoint(world.open(), world.commit_times()[1])

    report = execute_clean(world.open(), plan, NEWEST_ONLY)

    assert set(report.deleted) < {file.path for file in plan.doomed}


@pytest.mark.parametrize("make_plan", [plan_restore, rehearse_restore])
def test_a_restore_that_would_take_back_another_commit_is_refused(world, make_plan):
    target = world.commit_times()[1]
    plan = make_plan(world.open(), target)
    _change(world, 9)
    times = world.commit_times()

    with pytest.raises(PlanOutdated):
        execute_restore(world.open(), plan)

    assert world.commit_times() == times
    report = execute_restore(world.open(), make_plan(world.open(), target))
    assert [one.rolled_back for one in report.rolled_back] == times[:1:-1]


def test_a_write_that_was_committed_since_is_not_taken_back_as_a_failed_one(world):
    time = _dies(world, "x")
    plan = plan_rollback_of(world.open(), time)
    standing = replace(plan, instant=world.commit_times()[-1])

    with pytest.raises(PlanOutdated):
        execute_rollback(world.open(), standing)

    assert standing.instant in world.commit_times()
    assert execute_rollback(world.open(), plan).rolled_back == time


def test_only_the_failed_writes_of_the_plan_are_rolled_back(world):
    first = _dies(world, "x", settings=SHARED)
    plan = plan_recovery(world.open())
    second = _dies_beside(world)

    reports = execute_recovery(world.open(), plan)

    assert [doomed.write.time for doomed in plan.doomed] == [first]
    assert [report.rolled_back for report in reports] == [first]
    assert second in world.open().ledger.read().begun


def _dies_beside(world):
    table = world.open()
    time = load_timeline(world.store).newest
    later = type(time)(str(int(time) + 5000))
    owner = world.host.owner("another")
    table.ledger.append(
        lambda _: Decision(kind=EntryKind.BEGIN, instant=later, action=Action.COMMIT, owner=owner)
    )
    return later


def test_a_table_that_was_written_since_is_not_dropped(world):
    plan = plan_drop(world.open())
    _change(world, 9)

    with pytest.raises(PlanOutdated):
        execute_drop(world.open(), plan)

    assert len(world.commit_times()) == 5
    execute_drop(world.open(), plan_drop(world.open()))
    assert world.store.paths("") == []


def test_a_savepoint_that_was_replaced_since_is_not_deleted(world):
    time = world.commit_times()[0]
    planned = create_savepoint(world.open(), time, user="ana")
    delete_savepoint(world.open(), time)
    with pytest.raises(UnknownInstant):
        execute_deletion(world.open(), planned)
    create_savepoint(world.open(), time, user="ben")

    with pytest.raises(PlanOutdated):
        execute_deletion(world.open(), planned)

    [standing] = savepoints(world.open())
    assert standing.user == "ben"
    execute_deletion(world.open(), standing)
    assert savepoints(world.open()) == []


class TestWhoIsAliveIsJudgedByStoragesClock:
    """A write of another machine has just beaten, and this machine's clock is an hour ahead."""

    @pytest.fixture
    def hasty(self, world):
        self.time = _dies(world, "x", settings=SHARED)
        host = SimulatedHost(1, Liveness.UNKNOWN)
        return replace(world, clock=WrongClock(world.clock, HOUR_MS), host=host)

    def test_by_the_plan_of_a_recovery(self, hasty):
        plan = plan_recovery(hasty.open())

        assert plan.doomed == ()
        assert [write.time for write in plan.running] == [self.time]

    def test_by_a_dry_run(self, hasty):
        rehearsed = rehearse(hasty.open(), roll_back_failed_writes)

        assert rehearsed.result == ()
        assert not [path for path in rehearsed.vanishing if path.endswith(".parquet")]
        assert hasty.store.stat(CLOCK_FILE) is None

    def test_by_the_plan_of_a_drop(self, hasty):
        assert len(plan_drop(hasty.open()).writers) == 1

    def test_as_by_the_run_itself(self, hasty):
        assert roll_back_failed_writes(hasty.open()) == ()


class TestALedgerThatIsOlderThanTheTimeline:
    """As in a copy of a table in use: the newest commit is shown, and the ledger has only its BEGIN."""

    @pytest.fixture
    def copied(self, world):
        before = world.copy()
        time = _change(world, 9).instant
        content = {path: world.store.read(path) for path in world.store.paths("")}
        begin = next(
            path for path in sorted(content.keys() - set(before.store.paths(""))) if "/ledger/" in path
        )
        for path, said in content.items():
            if "/ledger/" not in path or path == begin:
                before.store.put(path, said)
        assert time in before.open().ledger.read().begun
        return before

    def test_a_commit_that_is_shown_is_not_planned_to_be_rolled_back(self, copied):
        plan = plan_recovery(copied.open())

        assert (plan.doomed, plan.running) == ((), ())

    def test_a_commit_that_is_shown_is_not_pending(self, copied):
        status = table_status(copied.open())

        assert status.pending == ()
        assert status.warnings == ()


def test_the_status_says_what_becomes_of_pending_instants_and_who_blocks(world):
    time = _dies(world, "x")

    [gone] = table_status(world.open()).pending
    alive = replace(world, host=SimulatedHost(0, Liveness.ALIVE)).open()
    [running] = table_status(alive).blocked_by

    assert (gone.time, gone.outlook, gone.blocks_writers) == (time, Outlook.FAILED, False)
    assert (running.time, running.outlook) == (time, Outlook.RUNNING)
    assert running.silent_ms is not None
    assert running.silent_ms >= 0
