"""Processes that sleep at one exact moment and wake at another, which no random schedule would meet."""

from __future__ import annotations

import datetime as dt

from harness.cleaning import clean
from harness.faults import InterruptedStore, StoreWrapper
from harness.world import SimulatedClock, SimulatedHost, memory_world, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import Action, InstantTime, time_at
from holdfast.model.names import LEDGER_FOLDER, PLANS_FOLDER
from holdfast.storage.memory import MemoryStore
from holdfast.timeline.ledger import Decision, Ledger

_BY_HAND = WriteSettings(clean=CleanSettings(automatic=False))
_ONE_VERSION = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)
_ALL_VERSIONS = CleanSettings(commits_retained=100, keep_min=101, keep_max=102)


def wake_while_entries_are_deleted() -> None:
    """A process that read the ledger's beginning decides something in the middle of its trimming.

    What it finds behind its last entry is a hole, and not the ledger's end. Its decision must be in
    the ledger that everybody else reads.
    """
    store = MemoryStore()
    sleeper = Ledger(store, SimulatedClock())
    _write_and_commit(sleeper, 1)
    woken: list[InstantTime] = []

    class Waking(StoreWrapper):
        def delete_all(self, paths):
            doomed = list(paths)
            stuck = self.inner.delete_all(doomed)
            if not woken and any(path.startswith(LEDGER_FOLDER) for path in doomed):
                woken.append(_instant(99))
                sleeper.append(lambda _: _decision(EntryKind.BEGIN, 99))
            return stuck

    trimming = Ledger(Waking(store), SimulatedClock(), checkpoint_after=6)
    for number in range(2, 30):
        _write_and_commit(trimming, number)

    assert woken, "nothing was trimmed"
    assert set(woken) <= set(Ledger(store, SimulatedClock()).read().begun), "a decision was lost in a hole"


def sweep_between_a_plan_and_its_decision() -> None:
    """A clean has stored its plan and is about to decide on it, when another sweeps old plans.

    The other finds nothing to clean, so it is in nobody's way. The first must find its plan again.
    """
    world = memory_world()
    world.create()
    for fare in range(1, 5):
        world.write("upsert", table_of([("a", "paris", float(fare))]), _BY_HAND)
    others = []

    def another() -> None:
        others.append(world.store.paths(PLANS_FOLDER))
        assert clean(world.open(), _ALL_VERSIONS) is None

    report = clean(world.on(InterruptedStore(world.store, LEDGER_FOLDER, another)).open(), _ONE_VERSION)

    assert others != [[]], "no plan was waiting for its decision"
    assert report is not None, "a plan was swept that was decided on"
    assert len(report.deleted) == 3
    assert world.store.paths(PLANS_FOLDER) == []


def _write_and_commit(ledger: Ledger, number: int) -> None:
    ledger.append(lambda _: _decision(EntryKind.BEGIN, number))
    state = ledger.append(lambda _: _decision(EntryKind.COMMIT, number))
    ledger.checkpoint_if_due(state, shown={})


def _decision(kind: EntryKind, number: int) -> Decision:
    owner = SimulatedHost().owner("token")
    return Decision(kind=kind, instant=_instant(number), action=Action.COMMIT, owner=owner)


def _instant(number: int) -> InstantTime:
    return time_at(number, dt.UTC)
