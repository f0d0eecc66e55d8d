"""A snapshot that somebody can name does not change; one that an older write may still change is refused."""

from __future__ import annotations

import datetime as dt

import pytest

from harness.checker import visible_rows
from harness.faults import InterruptedStore
from harness.world import (
    SimulatedClock,
    SimulatedHost,
    World,
    WrongClock,
    memory_world,
    row_list,
    table_of,
)
from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy
from holdfast.config.push_job import PushJob, TableInput
from holdfast.config.write import WriteSettings
from holdfast.errors import Conflict, TableDamaged, UnknownInstant, WriterActive
from holdfast.format.avro import encode_container
from holdfast.format.avro_payloads import hudi_schema
from holdfast.format.replace_requests import encode_replace_request
from holdfast.host import Liveness
from holdfast.jobs.push.inputs import _read_commit
from holdfast.model.instant import Action, InstantTime, State, time_at
from holdfast.model.names import LEDGER_FOLDER, instant_file
from holdfast.read.changes import change_schema, changes, read_changes
from holdfast.read.snapshot import snapshot_slices
from holdfast.services.leases import lease
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.savepoints import create_savepoint
from holdfast.table import settled
from holdfast.table.settled import find_undecided_writes, read_settled
from holdfast.timeline.timeline import Timeline, load_timeline

SHARED = WriteSettings(
    concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=FailedWritesPolicy.LAZY
)
FIRST, OLDER, YOUNGER = ("a", "paris", 0.0), ("b", "rome", 111.0), ("c", "oslo", 222.0)


@pytest.fixture
def world():
    world = memory_world()
    world.host = SimulatedHost(others=Liveness.UNKNOWN)
    world.create()
    world.write("bulk_insert", table_of([FIRST]))
    return world


def add(world, row):
    return world.write("bulk_insert", table_of([row]), SHARED).instant


def while_older_runs(world, act):
    """What `act` gives, of the commit of a write that began after one that is not decided yet."""
    found = []

    def younger():
        found.append(act(add(world, YOUNGER)))

    add(world.on(InterruptedStore(world.store, LEDGER_FOLDER, younger, passes=1)), OLDER)
    return found[0]


def dies_decided(world):
    """The older of two writers dies decided, before anybody can see it; the commit of the younger."""
    world.die_after(lambda world: while_older_runs(world, lambda time: time), last=LEDGER_FOLDER)
    return world.commit_times()[-1]


def rows_at(world, time):
    return visible_rows(world.open(), as_of=time)


def changed(world, since, until=None):
    table = world.open()
    found = changes(table, since=since, until=until)
    schema = change_schema(found.snapshot.schema, columns=None, meta_columns=False)
    return set(row_list(read_changes(table.store, found, schema)))


def leased(world, as_of=None):
    with lease(world.open(), "reader", 60, as_of=as_of) as held:
        return held.instant


NAMING = {
    "savepoint of the newest": lambda world, _: create_savepoint(world.open()),
    "savepoint": lambda world, time: create_savepoint(world.open(), time),
    "lease": leased,
    "as of": rows_at,
    "files": lambda world, time: snapshot_slices(world.open(), time),
    "changes": lambda world, time: changed(world, "20200101000000000", time),
}


@pytest.mark.parametrize("name", NAMING.values(), ids=NAMING)
def test_a_snapshot_that_an_older_write_may_still_change_is_refused_and_the_writer_named(world, name):
    def act(time):
        with pytest.raises(WriterActive, match="an older write is not decided") as raised:
            name(world, time)
        return time, raised.value

    younger, told = while_older_runs(world, act)

    first, older, newest = world.commit_times()
    assert newest == younger
    assert (told.facts["snapshot"], told.facts["write"]) == (younger, older)
    assert "process 0 on simulated" in str(told)
    assert f"the newest snapshot that does not change any more is {first}" in told.hint
    name(world, younger)


def test_a_lease_without_a_moment_holds_the_newest_snapshot_that_does_not_change_any_more(world):
    def act(_):
        with lease(world.open(), "reader", 60) as held:
            return held.instant, rows_at(world, held.instant)

    instant, rows = while_older_runs(world, act)

    assert instant == world.commit_times()[0]
    assert rows == rows_at(world, instant) == {FIRST}
    assert leased(world) == world.commit_times()[-1]


def test_a_restore_to_a_savepoint_gives_the_rows_that_were_there_when_it_was_made(world):
    def act(_):
        first = world.commit_times()[0]
        create_savepoint(world.open(), first)
        return first, rows_at(world, first)

    saved, rows = while_older_runs(world, act)
    restore(world.open(), saved)

    assert visible_rows(world.open()) == rows == {FIRST}


def test_a_read_of_now_needs_no_settling(world):
    seen = while_older_runs(world, lambda _: visible_rows(world.open()))

    assert seen == {FIRST, YOUNGER}


def test_changes_are_read_up_to_the_newest_snapshot_that_does_not_change_any_more(world):
    first = world.commit_times()[0]

    seen = while_older_runs(world, lambda younger: (changed(world, first), changed(world, younger)))

    assert seen == (set(), set())
    assert changed(world, first) == {OLDER, YOUNGER}


def test_an_older_write_that_is_decided_and_not_shown_counts(world):
    """Its writer began before the younger one, and died when it was decided."""
    younger = dies_decided(world)
    assert load_timeline(world.store).pending_writes[0].time < younger

    with pytest.raises(WriterActive, match=r"did not finish it: holdfast rollbacks run PATH"):
        rows_at(world, younger)
    assert changed(world, world.commit_times()[0]) == set()
    recover(world.open())

    assert rows_at(world, younger) == {FIRST, OLDER, YOUNGER}


@pytest.mark.parametrize("name", NAMING.values(), ids=NAMING)
def test_a_snapshot_that_lacks_a_commit_of_which_no_file_is_left_is_not_named(world, name):
    lost, newest = add(world, OLDER), add(world, YOUNGER)
    for state in State:
        world.store.delete(instant_file(lost, Action.COMMIT, state))

    with pytest.raises(TableDamaged, match=f"shows nothing of it .instant: {lost}"):
        name(world, newest)
    with pytest.raises(TableDamaged, match="shows nothing of it"):
        changed(world, "20200101000000000")


def test_what_is_decided_right_after_a_look_at_the_timeline_counts(world):
    """The timeline did not show yet that it had begun, and the ledger tells that it is decided."""
    dies_decided(world)
    shown, table = load_timeline(world.store), world.open()
    before = Timeline(tuple(one for one in shown.instants if one.is_completed))

    undecided = find_undecided_writes(table, before, table.ledger.read())

    assert undecided == [shown.pending_writes[0].time]


def test_the_write_of_a_dead_process_is_undecided_until_it_is_rolled_back(world):
    def dies(world):
        add(world, OLDER)

    world.die_after(dies, last="upload")
    younger = add(world, YOUNGER)
    gone = World(world.store, world.clock, SimulatedHost(others=Liveness.GONE))

    with pytest.raises(WriterActive, match="did not finish it: holdfast rollbacks run PATH"):
        create_savepoint(gone.open())
    recover(gone.open())

    assert create_savepoint(gone.open()).instant == younger
    assert rows_at(world, younger) == {FIRST, YOUNGER}


def check_named(world, instant, rows):
    assert rows_at(world, instant) == rows, f"I20: the snapshot of {instant} has changed"


def test_a_lease_that_forgets_commits_that_are_decided_and_not_shown_is_found(world, monkeypatch):
    def only_begun(table, timeline, state):
        return sorted(state.begun)

    dies_decided(world)
    monkeypatch.setattr(settled, "find_undecided_writes", only_begun)
    with lease(world.open(), "reader", 60) as held:
        rows = rows_at(world, held.instant)
    recover(world.open())

    with pytest.raises(AssertionError, match="I20"):
        check_named(world, held.instant, rows)


def test_a_savepoint_that_does_not_wait_is_found(world, monkeypatch):
    monkeypatch.setattr(settled, "find_undecided_writes", lambda *_: [])

    def act(_):
        saved = create_savepoint(world.open()).instant
        return saved, rows_at(world, saved)

    saved, rows = while_older_runs(world, act)

    with pytest.raises(AssertionError, match="I20"):
        check_named(world, saved, rows)


def test_changes_that_ignore_writes_that_are_undecided_or_not_shown_are_found(world, monkeypatch):
    """Whoever goes on from the newest commit that it saw must not miss one."""
    monkeypatch.setattr(settled, "find_undecided_writes", lambda *_: [])
    first = world.commit_times()[0]

    running = world.copy()
    assert while_older_runs(running, lambda _: changed(running, first)) == {YOUNGER}
    younger = dies_decided(world)
    seen = changed(world, first)
    recover(world.open())

    assert seen | changed(world, younger) == {YOUNGER}, "the older one is missed"


def pending(world, action, content=b""):
    """An instant of another program, older than the commit that follows."""
    time = InstantTime(str(int(world.commit_times()[-1]) + 1))
    world.store.create(instant_file(time, action, State.REQUESTED), content)
    world.clock.now += 10
    never = WriteSettings(failed_writes_policy=FailedWritesPolicy.NEVER)
    return time, world.write("bulk_insert", table_of([YOUNGER]), never).instant


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT])
def test_pending_writes_of_other_programs_count(world, action):
    time, younger = pending(world, action, encode_replace_request())

    with pytest.raises(WriterActive, match="another program") as raised:
        create_savepoint(world.open(), younger)

    assert raised.value.facts["write"] == time
    assert leased(world) == world.commit_times()[0]


_CLUSTERING_REQUEST = encode_container(
    hudi_schema("HoodieRequestedReplaceMetadata"),
    {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": []}},
)


@pytest.mark.parametrize(
    ("action", "content"),
    [(Action.COMPACTION, b""), (Action.REPLACECOMMIT, _CLUSTERING_REQUEST)],
)
def test_pending_services_that_change_no_row_do_not_count(world, action, content):
    _, younger = pending(world, action, content)

    assert create_savepoint(world.open()).instant == younger
    assert read_settled(world.open()).undecided is None


@pytest.mark.parametrize("holds", [True, False])
def test_a_push_from_a_table_records_a_snapshot_that_does_not_change_any_more(world, holds):
    job = PushJob(table="rides", controllers=("http://nobody",))

    def pushed(as_of):
        with _read_commit(world.open(), job, TableInput(path="", as_of=as_of), holds=holds) as instant:
            return instant

    def act(younger):
        with pytest.raises(WriterActive):
            pushed(younger)
        return pushed(None)

    assert while_older_runs(world, act) == world.commit_times()[0]
    assert pushed(None) == pushed(world.commit_times()[-1]) == world.commit_times()[-1]


def test_a_write_that_is_being_committed_is_waited_for(world):
    time, younger = pending(world, Action.COMMIT)
    waited = []

    class Clock(SimulatedClock):
        def wait_ms(self, duration_ms):
            waited.append(duration_ms)
            if len(waited) == 3:
                world.store.delete(instant_file(time, Action.COMMIT, State.REQUESTED))

    patient = World(world.store, Clock(world.clock.now), world.host)

    assert create_savepoint(patient.open()).instant == younger
    assert waited == [25, 50, 100]


def now(world, *, ahead_ms=0):
    """What a program's clock shows."""
    return dt.datetime.fromtimestamp((world.clock.now + ahead_ms) / 1000, dt.UTC)


def on_slow_clock(world, by_ms):
    return World(world.store, WrongClock(world.clock, -by_ms), world.host)


def read_and_go_on(world, behind_ms=3_000):
    """Changes up to now, and from there, around a commit of a writer whose clock is behind."""
    since = world.commit_times()[-1]
    world.clock.now += 10_000
    moment = now(world)
    seen = changed(world, since, moment)
    add(on_slow_clock(world, behind_ms), YOUNGER)
    return seen | changed(world, moment)


def read_around_a_begin(world):
    """Rows as of now, twice: when a writer has looked at its clock and not begun yet, and at the end."""
    seen = []

    def look():
        world.clock.now += 50
        moment = now(world)
        seen.append(moment)
        seen.append(rows_at(world, moment))

    try:
        add(world.on(InterruptedStore(world.store, LEDGER_FOLDER, look)), YOUNGER)
    finally:
        seen.append(rows_at(world, seen[0]))
    return seen[1:]


def test_whoever_goes_on_from_a_moment_misses_no_commit_of_a_slow_clock(world):
    assert read_and_go_on(world) == {YOUNGER}


def test_a_moment_that_a_write_may_yet_begin_at_is_waited_for(world):
    """Until then the writer has begun, or lost its right to: here it looked at its clock long before."""
    with pytest.raises(Conflict, match="too long to begin"):
        read_around_a_begin(world)

    assert visible_rows(world.open()) == {FIRST}
    assert rows_at(world, now(world)) == {FIRST}


def test_a_moment_up_to_the_newest_instant_is_not_waited_for(world):
    newest = add(world, YOUNGER)
    before = world.clock.now

    rows_at(world, newest)

    assert world.clock.now - before < 100


def test_a_moment_that_is_named_twice_has_the_same_rows(world):
    moment = now(world)
    seen = rows_at(world, moment)
    add(on_slow_clock(world, 3_000), YOUNGER)

    assert rows_at(world, moment) == seen == {FIRST}


def test_a_moment_that_is_still_to_come_is_refused(world):
    for act in (rows_at, snapshot_files_at, lambda world, time: changed(world, "20200101000000000", time)):
        with pytest.raises(
            UnknownInstant, match=f"newest instant of the table is {world.commit_times()[-1]}"
        ):
            act(world, now(world, ahead_ms=60_000))


def snapshot_files_at(world, moment):
    return snapshot_slices(world.open(), time_at(round(moment.timestamp() * 1000), dt.UTC))


def test_a_moment_that_is_named_too_early_is_found(world, monkeypatch):
    """Likewise: nothing that a writer may still begin at is waited for."""
    monkeypatch.setattr(settled, "_is_past", lambda *_: True)

    assert read_and_go_on(world.copy()) == set(), "a commit is missed"
    first, second = read_around_a_begin(world)
    assert first != second, "I20: the snapshot has changed"
