"""Locks keep their numbered promises, whatever they are made of; ZooKeeper has tests of its own."""

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import holdfast
from concurrency.lock_user import FORMS, LOCK_FILE, real_lock, unsynced
from harness.tiers import by_tier
from holdfast.clock import SystemClock
from holdfast.concurrency.locks.file import FileForm
from holdfast.concurrency.locks.in_process import InProcessLock
from holdfast.concurrency.locks.lease import LeaseForm, LeaseLock, LockWait
from holdfast.concurrency.locks.lock import NO_LOCK, Lock
from holdfast.concurrency.locks.open import open_lock
from holdfast.concurrency.locks.storage import PATH, StorageForm
from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings
from holdfast.errors import Fenced, LockTimeout, StorageUnavailable
from holdfast.host import Liveness, Owner
from holdfast.storage.memory import MemoryStore

PROCESSES = 4
ROUNDS = by_tier("HOLDFAST_LOCK_ROUNDS", sample=60, full=250)
"""Of each process."""


@dataclass
class ManualClock:
    """Stands still until it is moved; then whatever is due every so often runs."""

    now: int = 1_700_000_000_000
    timers: list["ManualTimer"] = field(default_factory=list)
    names: int = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def every_ms(self, interval_ms: int, action: Callable[[], None], *, name: str) -> "ManualTimer":
        timer = ManualTimer(self, action, interval_ms, self.now + interval_ms)
        self.timers.append(timer)
        return timer

    def unique(self) -> str:
        self.names += 1
        return f"{self.names:032x}"

    def pause(self, seconds: float) -> None:
        """Time passes, and every timer that is due runs."""
        end = self.now + max(1, round(seconds * 1000))
        while due := [timer for timer in self.timers if timer.due <= end]:
            timer = min(due, key=lambda timer: timer.due)
            self.now = timer.due
            timer.due += timer.interval_ms
            timer.action()
        self.now = end


@dataclass(eq=False)
class ManualTimer:
    clock: ManualClock
    action: Callable[[], None]
    interval_ms: int
    due: int

    def stop(self) -> None:
        with suppress(ValueError):
            self.clock.timers.remove(self)


@dataclass(frozen=True)
class FarHost:
    """A host of which the others know nothing."""

    name: str

    def owner(self, token: str) -> Owner:
        return Owner(self.name, "boot", 1, "1", token)

    def liveness(self, owner: Owner) -> Liveness:
        return Liveness.ALIVE if owner.host == self.name else Liveness.UNKNOWN


class FailingStore(MemoryStore):
    """Refuses to overwrite while it is told to."""

    is_failing = False

    def replace(self, path: str, content: bytes, version: str) -> bool:
        if self.is_failing:
            raise StorageUnavailable("storage refused", path=path)
        return super().replace(path, content, version)


@dataclass
class Arena:
    """One store and one clock that writers on different hosts share."""

    form: LeaseForm
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.store = FailingStore(self.clock)

    def lock(self, host: str, *, patience_ms: int = 0) -> LeaseLock:
        patience = LockWait(
            total_ms=patience_ms,
            pause_ms=1000,
            pause_ms_max=4000,
            report_every_ms=60_000,
            wait=self.clock.pause,
        )
        return LeaseLock(
            self.store,
            self.form,
            place=self.form.path,
            clock=self.clock,
            host=FarHost(host),
            patience=patience,
        )

    def abandon(self, host: str) -> None:
        """Take the lock and die: nothing is renewed and nothing given back."""
        hold = self.lock(host).hold()
        hold.__enter__()
        self.clock.timers.clear()
        self._kept = hold

    def is_free(self) -> bool:
        try:
            with self.lock("asker").hold():
                return True
        except LockTimeout:
            return False


@pytest.fixture(params=sorted(FORMS))
def arena(request: pytest.FixtureRequest) -> Arena:
    return Arena(FORMS[request.param])


def start_user(root: Path, form: str, *task: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(Path(__file__).with_name("lock_user.py")), str(root), form, *task]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# Promise 1: one at a time


@pytest.mark.parametrize("form", sorted(FORMS))
def test_k5_79_processes_are_never_inside_the_lock_together(form, tmp_path):
    (tmp_path / "counter").write_text("0")

    users = [start_user(tmp_path, form, "count", str(ROUNDS)) for _ in range(PROCESSES)]
    collisions = [user.communicate()[0].strip() for user in users]

    assert collisions == ["0"] * PROCESSES
    assert int((tmp_path / "counter").read_text()) == PROCESSES * ROUNDS


@pytest.mark.parametrize("form", sorted(FORMS))
def test_threads_of_one_process_are_never_inside_the_lock_together(form, tmp_path):
    store = unsynced(tmp_path)
    counter = [0]

    def run(_: int) -> None:
        lock = real_lock(store, form)
        for _ in range(25):
            with lock.hold():
                count = counter[0]
                time.sleep(0)
                counter[0] = count + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))

    assert counter == [100]


def test_threads_hold_an_in_process_lock_in_the_order_in_which_they_asked():
    clock = SystemClock()
    order: list[int] = []
    threads = []

    def run(number: int) -> None:
        with InProcessLock("a table", clock=clock, patience_ms=10_000).hold():
            order.append(number)

    with InProcessLock("a table", clock=clock, patience_ms=10_000).hold():
        for number in range(8):
            threads.append(threading.Thread(target=run, args=(number,)))
            threads[-1].start()
            time.sleep(0.005)
    for thread in threads:
        thread.join()

    assert order == list(range(8))


def test_in_process_locks_of_two_tables_do_not_meet():
    clock = SystemClock()

    with (
        InProcessLock("one", clock=clock, patience_ms=0).hold(),
        InProcessLock("two", clock=clock, patience_ms=0).hold(),
    ):
        pass


def test_an_in_process_lock_that_is_held_names_the_thread():
    lock = InProcessLock("a table", clock=SystemClock(), patience_ms=20)

    with lock.hold(), pytest.raises(LockTimeout, match="holder: thread MainThread of this process"):
        lock.hold().__enter__()

    with lock.hold():
        pass


def test_of_two_who_found_the_lock_expired_only_one_gets_it(arena):
    """The rival comes in between: after the first has judged, before it acts."""
    arena.abandon("gone")
    arena.clock.pause(400)
    rivals = [arena.lock("rival", patience_ms=20_000).hold()]
    entered = []

    class Interrupted(FailingStore):
        def replace(self, path: str, content: bytes, version: str) -> bool:
            if rivals:
                rival = rivals.pop()
                entered.append((rival, rival.__enter__()))
            return super().replace(path, content, version)

    arena.store.__class__ = Interrupted

    with pytest.raises(LockTimeout, match="rival"):
        arena.lock("first", patience_ms=20_000).hold().__enter__()

    rival, hold = entered[0]
    hold.refuse_if_lost()
    rival.__exit__(None, None, None)


# Promise 2: the dead let go


def test_k5_81_a_lock_is_granted_when_its_holder_has_been_silent_for_long_enough(arena):
    arena.abandon("killed")
    valid_for_ms = arena.form.valid_for_ms
    arena.clock.pause((valid_for_ms - 2000) / 1000)
    assert not arena.is_free()

    with arena.lock("heir", patience_ms=20_000).hold() as hold:
        hold.refuse_if_lost()


def test_k5_81_the_killed_holder_that_wakes_up_is_refused_and_leaves_the_lock_alone(arena):
    with arena.lock("sleeper").hold() as sleeping:
        asleep, arena.clock.timers = arena.clock.timers, []
        arena.clock.pause(400)
        with arena.lock("heir", patience_ms=20_000).hold() as held:
            arena.clock.timers += asleep

            with pytest.raises(Fenced, match="the lock was lost"):
                sleeping.refuse_if_lost()

            held.refuse_if_lost()


def test_a_file_lock_without_expiry_is_never_taken_from_somebody_unknown():
    arena = Arena(FileForm(LOCK_FILE))
    arena.abandon("elsewhere")

    arena.clock.pause(100 * 24 * 3600)

    with pytest.raises(LockTimeout, match="holder: process 1 on elsewhere, age_ms: 8640"):
        arena.lock("other", patience_ms=20_000).hold().__enter__()


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_lock_of_a_process_of_this_machine_that_was_killed_is_granted_at_once(form, tmp_path):
    user = start_user(tmp_path, form, "hold")
    assert user.stdout.readline() == "holding\n"
    lock = real_lock(unsynced(tmp_path), form, patience_ms=0)
    with pytest.raises(LockTimeout, match=f"process {user.pid} on"):
        lock.hold().__enter__()

    user.kill()
    user.communicate()

    with lock.hold() as hold:
        hold.refuse_if_lost()


# Promise 3: only one's own


def test_k5_80_giving_back_does_not_free_what_another_has_taken(arena):
    with arena.lock("first").hold():
        arena.clock.timers.clear()
        arena.clock.pause(400)
        heir = arena.lock("heir", patience_ms=20_000).hold()
        heir.__enter__()
    assert not arena.is_free()

    heir.__exit__(None, None, None)
    assert arena.is_free()


def test_k5_80_who_does_not_get_the_lock_leaves_it_as_it_is(arena):
    with arena.lock("holder").hold() as hold:
        before = arena.store.read(arena.form.path)

        assert not arena.is_free()

        assert arena.store.read(arena.form.path) == before
        hold.refuse_if_lost()


def test_a_claim_that_took_effect_although_the_storage_failed_is_given_back(arena):
    class LosesAnswers(FailingStore):
        def create(self, path: str, content: bytes) -> bool:
            super().create(path, content)
            if path == arena.form.path:
                raise StorageUnavailable("storage did not answer", path=path)
            return True

    arena.store.__class__ = LosesAnswers
    with pytest.raises(StorageUnavailable):
        arena.lock("unlucky").hold().__enter__()
    arena.store.__class__ = FailingStore

    assert arena.is_free()


def test_a_claim_whose_success_the_storage_denies_is_held(arena):
    class Denies(FailingStore):
        def create(self, path: str, content: bytes) -> bool:
            super().create(path, content)
            return False

    arena.store.__class__ = Denies

    with arena.lock("writer").hold() as hold:
        hold.refuse_if_lost()


# Renewal and loss


def test_a_lock_that_is_renewed_does_not_expire(arena):
    with arena.lock("holder").hold() as hold:
        for _ in range(20):
            arena.clock.pause(100)
            assert not arena.is_free()
            hold.refuse_if_lost()

    assert arena.is_free()


def test_k5_82_a_holder_that_cannot_renew_is_refused_before_the_lock_is_granted_to_another(arena):
    with arena.lock("holder").hold() as hold:
        arena.store.is_failing = True
        refused_at = granted_at = 0
        started = arena.clock.now
        while not granted_at:
            arena.clock.pause(0.1)
            if not refused_at:
                try:
                    hold.refuse_if_lost()
                except Fenced:
                    refused_at = arena.clock.now - started
            if arena.clock.now - started > arena.form.valid_for_ms - 5000:
                arena.store.is_failing = False
                timers, arena.clock.timers = arena.clock.timers, []
                granted_at = arena.clock.now - started if _is_granted(arena) else 0
                arena.clock.timers = timers
                arena.store.is_failing = True
        arena.store.is_failing = False

    assert refused_at < granted_at
    assert refused_at >= arena.form.valid_for_ms - 1000


def _is_granted(arena: Arena) -> bool:
    """Whether another would get the lock, who looks twice at it."""
    try:
        with arena.lock("other", patience_ms=1).hold():
            return True
    except LockTimeout:
        return False


def test_a_lock_that_was_lost_is_logged_once_and_ends_the_work_only_if_asked(arena, caplog):
    with caplog.at_level(logging.WARNING), arena.lock("holder").hold() as hold:
        arena.store.delete(arena.form.path)
        arena.clock.pause(100)
        arena.clock.pause(100)

        with pytest.raises(Fenced):
            hold.refuse_if_lost()

    assert [record.message for record in caplog.records] == ["lock.lost"]


def test_renewal_goes_on_after_a_failure(arena, caplog):
    with caplog.at_level(logging.WARNING), arena.lock("holder").hold() as hold:
        arena.store.is_failing = True
        arena.clock.pause(31)
        arena.store.is_failing = False
        arena.clock.pause(400)

        hold.refuse_if_lost()

    assert {record.message for record in caplog.records} == {"lock.not_renewed"}


def test_a_lock_that_cannot_be_given_back_does_not_fail_the_work(arena, caplog):
    class RefusesDelete(FailingStore):
        def delete(self, path: str) -> None:
            raise StorageUnavailable("storage refused", path=path)

    with caplog.at_level(logging.WARNING), arena.lock("holder").hold():
        arena.store.__class__ = RefusesDelete
        arena.store.is_failing = True

    assert [record.message for record in caplog.records] == ["lock.not_released"]


def test_no_lock_is_never_lost():
    lock: Lock = NO_LOCK

    with lock.hold() as hold, lock.hold():
        hold.refuse_if_lost()


# Hudi's own


def test_hudis_lock_file_is_respected_and_ours_is_where_hudi_looks():
    """Hudi's file holds the thread and the stack that took it; it counts while it is there."""
    arena = Arena(FileForm(LOCK_FILE))
    arena.store.create(LOCK_FILE, b'{"lockCreateTime":"2024-01-01 00:00:00.000","lockThreadName":"main"}')
    with pytest.raises(LockTimeout, match="holder: a writer that is not Holdfast's"):
        arena.lock("ours").hold().__enter__()

    arena.store.delete(LOCK_FILE)

    with arena.lock("ours").hold():
        assert arena.store.stat(".hoodie/lock") is not None
    assert arena.store.stat(".hoodie/lock") is None


def test_hudis_lock_file_that_is_still_empty_is_respected():
    arena = Arena(FileForm(LOCK_FILE, valid_for_ms=60_000))
    arena.store.create(LOCK_FILE, b"")

    assert not arena.is_free()


def test_hudis_lock_file_expires_by_its_age():
    arena = Arena(FileForm(LOCK_FILE, valid_for_ms=60_000))
    arena.store.create(LOCK_FILE, b"")

    arena.clock.pause(61)

    with arena.lock("ours", patience_ms=5000).hold():
        pass


def test_the_lock_object_has_hudis_three_fields_and_no_other():
    arena = Arena(StorageForm(300_000, 30_000))

    with arena.lock("ours").hold():
        held = json.loads(arena.store.read(PATH))
    released = json.loads(arena.store.read(PATH))

    assert list(held) == ["expired", "validUntil", "owner"]
    assert held == {"expired": False, "validUntil": held["validUntil"], "owner": held["owner"]}
    assert held["validUntil"] - arena.clock.now == 300_000
    assert isinstance(held["owner"], str)
    assert released == {**held, "expired": True}


@pytest.mark.parametrize(
    ("expired", "valid_for_ms", "is_granted"),
    [(False, 1, False), (False, -400, False), (False, -600, True), (True, 100_000, True)],
)
def test_hudis_lock_object_is_respected_until_it_is_released_or_expired(expired, valid_for_ms, is_granted):
    """Clocks may differ by half a second."""
    arena = Arena(StorageForm(300_000, 30_000))
    until = arena.clock.now + 1000 + valid_for_ms
    content = {"expired": expired, "validUntil": until, "owner": "6b5ad1ea-44a0-4c9c-9b3a-5d3a0c9d5f7e"}
    arena.store.create(PATH, json.dumps(content).encode())

    arena.clock.pause(1)

    assert _is_granted(arena) is is_granted


IMPATIENT = LockSettings(
    provider=LockProvider.FILE, wait_ms=20, client_retries=0, retry_wait_ms=5, retry_wait_ms_max=5
)


@pytest.mark.parametrize("folder", ["", "table/.hoodie/locks", "link/.hoodie/locks", "locks", "linked-locks"])
@pytest.mark.parametrize("provider", [LockProvider.FILE, LockProvider.IN_PROCESS])
def test_a_table_that_is_reached_through_a_link_has_one_lock(provider, folder, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "table")
    (tmp_path / "locks").mkdir()
    (tmp_path / "linked-locks").symlink_to(tmp_path / "locks")
    holdfast.create_table(str(tmp_path / "table"), name="trips", record_key="id", partition_by="city")
    chosen = str(tmp_path / folder) if folder else ""
    settings = replace(IMPATIENT, provider=provider, file_folder=chosen)
    tables = [holdfast.open_table(str(tmp_path / name))._opened for name in ("table", "link")]

    for one, other in (tables, reversed(tables)):
        with (
            open_lock(one, settings).hold(),
            ThreadPoolExecutor(1) as pool,
            pytest.raises(LockTimeout),
        ):
            pool.submit(_hold_once, open_lock(other, settings)).result()


def _hold_once(lock: Lock) -> None:
    with lock.hold():
        pass


def test_two_names_of_one_lock_folder_are_one_lock(tmp_path):
    (tmp_path / "locks").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "locks")
    holdfast.create_table(str(tmp_path / "table"), name="trips", record_key="id", partition_by="city")
    table = holdfast.open_table(str(tmp_path / "table"))._opened
    locks = [
        open_lock(table, replace(IMPATIENT, file_folder=str(tmp_path / name))) for name in ("locks", "linked")
    ]

    with locks[0].hold(), pytest.raises(LockTimeout):
        _hold_once(locks[1])
