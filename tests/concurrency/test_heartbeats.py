"""Heartbeats: they neither die nor hang, a writer learns early that it lost, no wrong clock kills another."""

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
import pytest

from harness.faults import RecordingStore, StoreWrapper
from harness.world import START_MS, SimulatedHost, World, abort, rows
from holdfast.clock import SystemClock
from holdfast.concurrency.heartbeats import (
    Beat,
    Heartbeat,
    HeartbeatState,
    decode_beat,
    heartbeats,
    judge,
)
from holdfast.config.choices import FailedWritesPolicy, Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.errors import Fenced, InvalidOption, StorageUnavailable
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Liveness, Owner
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import CLOCK_FILE, HEARTBEAT_FOLDER, heartbeat_path
from holdfast.storage.memory import MemoryStore
from holdfast.timeline.ledger import Decision
from holdfast.writes import operations

INTERVAL_MS = 60_000
MISSES = 2
TIMEOUT_MS = INTERVAL_MS * MISSES
TICK_MS = INTERVAL_MS // 4
SHARED = WriteSettings(failed_writes_policy=FailedWritesPolicy.LAZY)
MINUTE_MS = 60_000

INSTANT = InstantTime("20990101000000000")
PATH = heartbeat_path(INSTANT)
OWNER = Owner("elsewhere", "boot", 7, "1", "token")
UNKNOWN = SimulatedHost(1, Liveness.UNKNOWN)


@dataclass
class ManualClock:
    """Time stands until it is moved."""

    now: int = START_MS
    elapsed: int = 0
    tick: Callable[[], None] = lambda: None

    def now_ms(self):
        return self.now

    def monotonic_ms(self):
        return self.elapsed

    def every_ms(self, interval_ms, action, *, name):
        self.tick = action
        return self

    def stop(self):
        self.tick = lambda: None

    def unique(self):
        return uuid.uuid4().hex

    def sleep(self, ms):
        """Time passes and nothing runs."""
        self.now += ms
        self.elapsed += ms

    def run(self, ms):
        """Time passes tick by tick."""
        for _ in range(ms // TICK_MS):
            self.sleep(TICK_MS)
            self.tick()
            eventually(lambda: not any(not worker.is_hung for worker in workers()))


@dataclass
class Worker:
    thread: threading.Thread

    @property
    def is_hung(self):
        return getattr(self.thread, "is_hung", False)


def workers():
    return [Worker(t) for t in threading.enumerate() if t.name.startswith("holdfast-beat-")]


def eventually(is_so):
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.0005)


class SickStore(StoreWrapper):
    """Puts of a heartbeat hang until released, or fail, as long as there is an illness left."""

    def __init__(self, inner):
        super().__init__(inner)
        self.fails = 0
        self.hangs = 0
        self.release = threading.Event()

    def _change(self, verb, path, act):
        if path.startswith(HEARTBEAT_FOLDER) and verb == "put":
            if self.hangs > 0:
                self.hangs -= 1
                threading.current_thread().is_hung = True
                self.release.wait(30)
                threading.current_thread().is_hung = False
            if self.fails > 0:
                self.fails -= 1
                raise StorageUnavailable("the store is sick", path=path)
        return act()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(clock):
    store = SickStore(MemoryStore(clock))
    yield store
    store.release.set()
    eventually(lambda: not workers())


@pytest.fixture
def table(store, clock):
    return World(store, clock, UNKNOWN).create()


@contextmanager
def beating(table, on_lost=lambda: None, **settings):
    settings = {"interval_ms": INTERVAL_MS, "misses": MISSES, **settings}
    with Heartbeat(table, OWNER, on_lost=on_lost, **settings) as heartbeat:
        heartbeat.beat_for(INSTANT)
        yield heartbeat


def begin(table, owner=OWNER):
    decision = Decision(kind=EntryKind.BEGIN, instant=INSTANT, action=Action.COMMIT, owner=owner)
    table.ledger.append(lambda _state: decision)


def stored_beat(table):
    return decode_beat(table.store.read(PATH))


def state_of(table, owner=OWNER, timeout_ms=TIMEOUT_MS):
    return judge(table, {INSTANT: owner}, timeout_ms=timeout_ms)[INSTANT].state


# The writer's side


def test_the_first_beat_is_there_when_the_call_returns_and_says_who_how_often_and_how_patient(table):
    with beating(table):
        assert stored_beat(table) == Beat(OWNER, 0, INTERVAL_MS, MISSES)


def test_a_first_beat_that_fails_is_told_to_the_writer(table, store):
    store.fails = 1

    with pytest.raises(StorageUnavailable), beating(table):
        pass


@pytest.mark.parametrize(("misses", "pace_ms"), [(1, INTERVAL_MS // 2), (2, INTERVAL_MS), (5, INTERVAL_MS)])
def test_a_healthy_writer_never_looks_expired(table, clock, misses, pace_ms):
    with beating(table, misses=misses) as heartbeat:
        for _ in range(40):
            clock.run(TICK_MS)
            assert clock.now - table.store.stat(PATH).modified_ms < pace_ms
            assert state_of(table, timeout_ms=INTERVAL_MS * misses) is HeartbeatState.ALIVE
        heartbeat.refuse_if_lost()

    assert stored_beat(table).sequence >= 10


def test_k4_57_an_interval_of_999_ms_is_refused():
    with pytest.raises(InvalidOption, match="at least 1000"):
        WriteSettings(heartbeat_interval_ms=999)


def test_k4_58_a_heartbeat_deleted_by_hand_comes_back_and_nobody_is_taken_for_dead(table, clock):
    begin(table)
    with beating(table) as heartbeat:
        table.store.delete(PATH)

        assert state_of(table) is HeartbeatState.MISSING
        clock.run(INTERVAL_MS)

        assert stored_beat(table).sequence == 1
        assert state_of(table) is HeartbeatState.ALIVE
        heartbeat.refuse_if_lost()


def test_k4_59_beats_go_on_while_one_put_hangs_for_ten_minutes(table, store, clock, caplog):
    with beating(table) as heartbeat:
        store.hangs = 1
        clock.run(10 * MINUTE_MS)

        assert len(workers()) == 1
        assert stored_beat(table).sequence >= 10
        assert state_of(table) is HeartbeatState.ALIVE
        heartbeat.refuse_if_lost()
    assert "heartbeat.missed" in caplog.messages


def test_hanging_puts_pile_up_only_so_far_and_the_writer_is_stopped_all_the_same(table, store, clock):
    lost = threading.Event()
    with beating(table, lost.set, misses=10) as heartbeat:
        store.hangs = 1000
        clock.run(INTERVAL_MS)
        assert len(workers()) == 1
        clock.run(INTERVAL_MS // 2)
        assert len(workers()) > 1

        clock.run(8 * MINUTE_MS)
        assert len(workers()) == 8
        heartbeat.refuse_if_lost()
        clock.run(2 * MINUTE_MS)

        assert lost.wait(10)
        with pytest.raises(Fenced, match="the heartbeat of this write has expired"):
            heartbeat.refuse_if_lost()
        store.release.set()


def test_a_late_beat_counts_from_when_it_began(table, store, clock):
    with beating(table) as heartbeat:
        store.hangs = 1000
        clock.run(INTERVAL_MS)
        store.hangs = 0
        store.fails = 1000
        clock.run(INTERVAL_MS // 2)
        store.fails = 0
        store.release.set()
        eventually(lambda: not workers())
        store.fails = 1000

        clock.run(INTERVAL_MS + INTERVAL_MS // 2)
        heartbeat.refuse_if_lost()
        clock.run(TICK_MS)
        with pytest.raises(Fenced):
            heartbeat.refuse_if_lost()


def test_stopping_does_not_wait_for_a_put_that_hangs(table, store, clock):
    with beating(table, interval_ms=1000) as heartbeat:
        store.hangs = 1
        clock.sleep(1000)
        clock.tick()
        eventually(lambda: any(worker.is_hung for worker in workers()))

        began = time.monotonic()
        heartbeat.stop()

        assert time.monotonic() - began < 5


def test_stopping_waits_for_a_beat_under_way_and_none_comes_after(table, store, clock):
    with beating(table) as heartbeat:
        store.hangs = 1
        clock.sleep(INTERVAL_MS)
        clock.tick()
        eventually(lambda: any(worker.is_hung for worker in workers()))
        threading.Timer(0.05, store.release.set).start()

        heartbeat.stop()

        assert stored_beat(table).sequence == 1
        assert workers() == []


class SlowRows(ArrowRows):
    """Rows whose merge takes as long as it is told, on the clock of the test."""

    takes_ms = 0
    meanwhile = staticmethod(lambda table: None)

    def prepare(self, schema, table, **how):
        prepared = super().prepare(schema, table, **how)
        return type(self)(prepared.table, prepared.cancellation)

    def merge(self, table, request):
        self.meanwhile(table)
        for _ in range(self.takes_ms // TICK_MS):
            table.clock.run(TICK_MS)
            self.cancellation.refuse_if_cancelled()
        return super().merge(table, request)


def insert(table, takes_ms, meanwhile):
    kind = type("Rows", (SlowRows,), {"takes_ms": takes_ms, "meanwhile": staticmethod(meanwhile)})
    return operations.write(table, Operation.INSERT, kind(rows("a", city="x")), SHARED)


def test_k4_60_a_write_succeeds_although_three_beats_in_a_row_fail(table, store, caplog):
    def fall_sick(table):
        store.fails = 3

    commit = insert(table, 5 * MINUTE_MS, fall_sick)

    assert commit.records_inserted == 1
    assert store.fails == 0
    assert caplog.messages.count("heartbeat.missed") == 3


def test_k4_61_a_write_whose_beats_fail_too_long_ends_within_an_interval_and_not_at_its_commit(
    table, store, clock, caplog
):
    def fall_sick(table):
        store.fails = 1_000_000

    with pytest.raises(Fenced, match="the heartbeat of this write has expired"):
        insert(table, 60 * MINUTE_MS, fall_sick)

    assert TIMEOUT_MS < clock.elapsed <= TIMEOUT_MS + INTERVAL_MS
    assert caplog.messages.count("heartbeat.lost") == 1
    assert World(store, clock, UNKNOWN).open().ledger.read().begun == {}


def test_a_write_that_another_process_aborts_ends_within_an_interval(table, clock):
    def think_it_dead(table):
        [instant] = table.ledger.read().begun
        abort(table, instant)

    with pytest.raises(Fenced, match=r"rolled back by another process.*thought dead"):
        insert(table, 60 * MINUTE_MS, think_it_dead)

    assert clock.elapsed <= INTERVAL_MS


def test_a_writer_that_slept_finds_out_at_its_first_tick(table, clock):
    lost = threading.Event()
    with beating(table, lost.set) as heartbeat:
        clock.sleep(10 * MINUTE_MS)
        heartbeat.refuse_if_lost()

        clock.tick()

        assert lost.wait(10)
        with pytest.raises(Fenced, match=r"expired.*age_ms: 600000.*suspended"):
            heartbeat.refuse_if_lost()
        assert stored_beat(table).sequence == 0


def test_a_lost_writer_beats_no_more_and_is_told_to_stop_until_it_does(table, clock, caplog):
    begin(table)
    calls = []

    def fail_to_stop():
        calls.append(clock.elapsed)
        raise RuntimeError("the JVM is gone")

    with beating(table, fail_to_stop):
        abort(table, INSTANT)
        clock.run(10 * TICK_MS)
        assert len(calls) == 9
        sequence = stored_beat(table).sequence
    clock.run(10 * TICK_MS)

    assert len(calls) == 9
    assert sequence == 0
    assert caplog.messages.count("heartbeat.lost") == 1


def test_a_ledger_that_cannot_be_read_does_not_end_the_beats(table, store, clock, caplog):
    class Unreadable(StoreWrapper):
        def _look(self, verb, path, act):
            raise OSError("no ledger today")

    with beating(replace(table, store=Unreadable(store))) as heartbeat:
        clock.run(10 * MINUTE_MS)
        heartbeat.refuse_if_lost()

    assert stored_beat(table).sequence >= 10
    assert "heartbeat.missed" in caplog.messages


def test_a_timer_outlives_what_its_action_raises(caplog):
    calls = []

    def fail():
        calls.append(1)
        raise RuntimeError("once more")

    timer = SystemClock().every_ms(1, fail, name="holdfast-test-timer")
    eventually(lambda: len(calls) > 3)
    timer.stop()

    assert "timer.failed" in caplog.messages
    assert not any(thread.name == "holdfast-test-timer" for thread in threading.enumerate())


# Judging others


def test_exactly_the_timeout_is_not_expired_and_a_millisecond_more_is(table, clock):
    with beating(table):
        clock.sleep(TIMEOUT_MS)
        assert state_of(table) is HeartbeatState.ALIVE
        clock.sleep(1)
        assert state_of(table) is HeartbeatState.EXPIRED


def test_the_more_patient_of_writer_and_observer_counts(table, clock):
    with beating(table, interval_ms=1000):
        clock.sleep(TIMEOUT_MS)
        assert state_of(table, timeout_ms=TIMEOUT_MS) is HeartbeatState.ALIVE
        assert state_of(table, timeout_ms=1000) is HeartbeatState.EXPIRED
    with beating(table):
        clock.sleep(TIMEOUT_MS)
        assert state_of(table, timeout_ms=1000) is HeartbeatState.ALIVE


@pytest.mark.parametrize("skew_ms", [10 * MINUTE_MS, -10 * MINUTE_MS])
def test_k4_65_an_observer_with_a_wrong_clock_kills_no_healthy_writer(table, clock, skew_ms):
    with beating(table):
        observer = replace(table, clock=ManualClock(START_MS + skew_ms, skew_ms))

        assert state_of(observer) is HeartbeatState.ALIVE


@pytest.mark.parametrize("skew_ms", [10 * MINUTE_MS, -10 * MINUTE_MS])
def test_k4_66_a_dead_writer_is_found_although_storage_has_a_wrong_clock(clock, skew_ms):
    storage_clock = ManualClock(START_MS + skew_ms)
    table = World(MemoryStore(storage_clock), clock, UNKNOWN).create()
    with beating(table):
        pass

    seen = []
    for _ in range(3):
        seen.append(state_of(table))
        storage_clock.sleep(MINUTE_MS)
        clock.sleep(MINUTE_MS)
    storage_clock.sleep(1)

    assert seen == [HeartbeatState.ALIVE] * 3
    assert state_of(table) is HeartbeatState.EXPIRED


@pytest.mark.parametrize("has_beat", [True, False])
def test_a_process_that_is_gone_is_not_waited_for(table, store, has_beat):
    if has_beat:
        with beating(table):
            pass
    here = replace(table, host=SimulatedHost(1, Liveness.GONE))

    assert state_of(here) is HeartbeatState.EXPIRED
    assert (store.stat(PATH) is not None) == has_beat


def test_a_stopped_process_is_judged_by_its_age_like_any_other(table, clock):
    here = replace(table, host=SimulatedHost(1, Liveness.ALIVE))
    with beating(here):
        clock.sleep(TIMEOUT_MS + 1)

        assert state_of(here) is HeartbeatState.EXPIRED


@pytest.mark.parametrize("owner", [OWNER, None])
def test_a_missing_heartbeat_proves_nothing_and_ages_from_when_it_was_missed(table, clock, owner):
    assert state_of(table, owner) is HeartbeatState.MISSING
    assert (stored_beat(table).owner, stored_beat(table).sequence) == (owner, -1)

    clock.sleep(TIMEOUT_MS)
    assert state_of(table, owner) is HeartbeatState.ALIVE
    clock.sleep(1)
    assert state_of(table, owner) is HeartbeatState.EXPIRED


def test_the_owner_of_a_heartbeat_is_known_where_the_ledger_knows_none(table):
    with beating(table):
        [status] = judge(table, {INSTANT: None}, timeout_ms=TIMEOUT_MS).values()

    assert (status.owner, status.age_ms, status.sequence) == (OWNER, 0, 0)


def test_the_empty_heartbeat_of_another_program_is_judged_by_its_age(table, store, clock):
    store.put(PATH, b"")
    clock.sleep(TIMEOUT_MS)
    assert state_of(table, None) is HeartbeatState.ALIVE
    clock.sleep(1)
    assert state_of(table, None) is HeartbeatState.EXPIRED
    assert store.read(PATH) == b""


def test_who_suspects_nobody_touches_nothing(table, store):
    recording = RecordingStore(store)

    assert judge(replace(table, store=recording), {}, timeout_ms=TIMEOUT_MS) == {}

    assert recording.changes == []


def test_judging_leaves_nothing_but_the_heartbeats_that_were_missing(table, store):
    before = set(store.paths(""))

    state_of(table)

    assert set(store.paths("")) == before | {PATH}


def test_two_who_ask_storage_for_its_time_at_once_both_get_it(table, store):
    class Meddled(StoreWrapper):
        times = 2

        def _look(self, verb, path, act):
            if (verb, path) == ("stat", CLOCK_FILE) and self.times:
                self.times -= 1
                self.inner.delete(CLOCK_FILE)
            return act()

    assert state_of(replace(table, store=Meddled(store))) is HeartbeatState.MISSING

    hopeless = Meddled(store)
    hopeless.times = 1000
    with pytest.raises(StorageUnavailable, match="keeps vanishing"):
        state_of(replace(table, store=hopeless))


@pytest.mark.parametrize(
    "content",
    [b"", b"null", b"[]", b"{}", b"\xff\xfe", b'{"owner":null}', b'{"owner":7,"sequence":0,"interval_ms":1}'],
)
def test_what_is_not_a_beat_of_ours_says_nothing(content):
    assert decode_beat(content) is None


def test_a_damaged_beat_is_a_beat_or_nothing(damaged):
    for content in damaged(msgspec.json.encode(Beat(OWNER, 3, INTERVAL_MS, MISSES))):
        assert isinstance(decode_beat(content), Beat | None)


# Showing them


def test_every_heartbeat_and_every_undecided_instant_without_one_is_shown_and_nothing_is_changed(
    table, store, clock
):
    foreign = InstantTime("20980101000000000")
    store.put(heartbeat_path(foreign), b"")
    store.put(f"{HEARTBEAT_FOLDER}/.{foreign}.crc", b"crc")
    clock.sleep(TIMEOUT_MS + 1)
    begin(table)
    recording = RecordingStore(store)

    shown = heartbeats(replace(table, store=recording))
    with beating(table):
        shown += heartbeats(table)[1:]

    assert [(s.instant, s.owner, s.age_ms, s.state, s.sequence) for s in shown] == [
        (foreign, None, TIMEOUT_MS + 1, HeartbeatState.EXPIRED, None),
        (INSTANT, OWNER, None, HeartbeatState.MISSING, None),
        (INSTANT, OWNER, 0, HeartbeatState.ALIVE, 0),
    ]
    assert recording.changes == []
