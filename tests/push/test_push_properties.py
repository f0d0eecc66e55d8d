"""Promises of the replacement protocol, checked over random histories of calls."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.push_rules import APPEND, PLAIN, REFRESH, PureTable
from harness.tiers import by_tier
from holdfast.config.push_rules import PINOT
from holdfast.errors import HoldfastError
from holdfast.model.lineage import EntryState
from holdfast.push.replacement.snapshots import rollback_snapshots, snapshots
from holdfast.push.retention.decide import plan_retention

NAMES = [f"v{number}" for number in range(9)]
HOUR_MS = 3_600_000
RUNS = by_tier("HOLDFAST_PUSH_RUNS", sample=40, full=150)

names = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3)
choice = st.integers(0, 1_000_000)


class PushHistory(RuleBasedStateMachine):
    """One table, somebody who pushes, somebody who goes back, retention, and a broker that may lag."""

    @initialize(
        config=st.sampled_from([PLAIN, REFRESH, APPEND]), snapshots=st.integers(1, 4), seeded=st.booleans()
    )
    def begin(self, config, snapshots, seeded):
        self.table = PureTable(config=replace(config, retained_snapshots=snapshots))
        if seeded:
            self.table.upload("v0")
        self.broker_catches_up()

    # Somebody pushes

    @rule(news=names, whole=st.booleans(), pick=choice, force=st.booleans())
    def start(self, news, whole, pick, force):
        seen = sorted(self.table.seen)
        sources = seen if whole else seen[pick % (len(seen) + 1) :]
        before = self.table.seen

        entry = self.attempt(self.table.start, " ".join(sources), " ".join(news), force=force)

        assert self.table.seen == before, "a start shows nothing and hides nothing"
        if entry is not None:
            assert self.table.state_of(entry) is EntryState.IN_PROGRESS

    @rule(name=st.sampled_from(NAMES), crc=st.integers(1, 2))
    def upload(self, name, crc):
        before = self.table.seen
        mentioned = any(
            name in (*entry.segments_from, *entry.segments_to) for entry in self.table.state.lineage.entries
        )

        done = self.attempt(self.table.upload, name, crc=crc)

        if done is not None:
            expected = before if mentioned and name not in before else before | {name}
            if not any(name in entry.hidden for entry in self.table.state.lineage.entries):
                expected = before | {name}
            assert self.table.seen == expected, "L5: only what no entry names is seen at once"

    @precondition(lambda self: self.open_entries())
    @rule(pick=choice)
    def upload_what_a_push_declared(self, pick):
        entry = self.picked(self.open_entries(), pick)
        before = self.table.seen

        self.attempt(self.table.upload, " ".join(entry.segments_to))

        assert self.table.seen == before, "L5: an open push shows nothing"

    @precondition(lambda self: self.open_entries())
    @rule(pick=choice, fewer=st.booleans())
    def end(self, pick, fewer):
        entry = self.picked(self.open_entries(), pick)
        chosen = entry.segments_to[:1] if fewer else entry.segments_to
        before = self.table.seen

        done = self.attempt(self.table.end, entry.id, " ".join(chosen) if fewer else "")

        if done is not None:
            expected = (before - set(entry.segments_from)) | set(chosen)
            assert self.table.seen == expected, "L1: one side goes as a whole, the other comes as a whole"
        else:
            assert self.table.seen == before

    @rule(news=names, force=st.booleans())
    def push(self, news, force):
        """A whole push in one go: histories of single calls seldom get far."""
        sources = " ".join(sorted(self.table.seen))
        entry = self.attempt(self.table.start, sources, " ".join(news), force=force)
        if entry and self.attempt(self.table.upload, " ".join(news)) and self.attempt(self.table.end, entry):
            assert self.table.seen == set(news)

    # Somebody goes back

    @precondition(lambda self: self.table.state.lineage.entries)
    @rule(pick=choice, force=st.booleans())
    def revert(self, pick, force):
        entry = self.picked(self.table.state.lineage.entries, pick)
        before = self.table.seen

        done = self.attempt(self.table.revert, entry.id, force=force)

        if done is not None and entry.state is EntryState.COMPLETED:
            expected = (before - set(entry.segments_to)) | set(entry.segments_from)
            assert self.table.seen == expected, "L4: the whole snapshot before"
        else:
            assert self.table.seen == before

    @rule(pick=choice)
    def rollback(self, pick):
        snapshot = self.picked(rollback_snapshots(self.table.state), pick)
        if not snapshot.position:
            return

        done = self.attempt(self.table.rollback, steps=snapshot.position)

        if done is not None:
            assert self.table.seen == snapshot.segments, "L4: exactly the snapshot that was listed"

    @rule(pick=choice)
    def redo(self, pick):
        possible = [each for each in snapshots(self.table.state) if each.position < 0]
        if not possible:
            return
        snapshot = self.picked(possible, pick)

        done = self.attempt(self.table.redo, snapshot.entry_id)

        if done is not None:
            assert self.table.seen == snapshot.segments, "a redo shows exactly what was listed"

    # Upkeep

    @rule(names=names)
    def delete(self, names):
        before = self.table.seen

        done = self.attempt(self.table.delete, " ".join(names))

        assert self.table.seen == (before - set(names) if done else before)

    @rule(hours=st.sampled_from([0, 1, 5, 25]))
    def retention(self, hours):
        table = self.table
        table.now += hours * HOUR_MS
        before = table.state
        needed = self.reachable(before)
        plan = plan_retention(before, now_ms=table.now, rules=table.rules, known=table.files)
        assert not needed & set(plan.decision.removed), "L6: nobody can reach what retention removes"

        seen = table.seen
        table.retention()

        assert table.seen == seen, "retention changes nothing that queries see"

    @rule()
    def broker_catches_up(self):
        self.table.brokers = (self.table.epoch,)
        self.served = {self.table.files[name].uri for name in self.table.seen}

    @rule()
    def everything_settles(self):
        """L7, L12: without pushes, storage returns to the snapshots that the table keeps."""
        table = self.table
        for _ in range(4):
            table.now += 25 * HOUR_MS
            self.broker_catches_up()
            table.retention()
        kept = rollback_snapshots(table.state)
        assert not any(entry.state is not EntryState.COMPLETED for entry in table.state.lineage.entries)
        assert table.all == set().union(*(each.segments for each in kept))
        assert table.disk == {table.files[name].uri for name in table.all}

    @rule()
    def retention_runs_twice(self):
        """L7: no more snapshots than the table keeps, however young they are."""
        table = self.table
        for _ in range(2):
            table.retention()
        if table.config.refresh and not self.open_entries():
            # What queries see is one of the number, if they see anything.
            kept = [one for one in snapshots(table.state) if one.segments]
            assert len(kept) <= max(1, table.config.retained_snapshots)

    # What always holds

    @invariant()
    def every_segment_has_its_file(self):
        if hasattr(self, "table"):
            assert {self.table.files[name].uri for name in self.table.all} <= self.table.disk

    @invariant()
    def a_broker_that_lags_still_finds_its_files(self):
        if hasattr(self, "served"):
            assert self.served <= self.table.disk, "L3"

    @invariant()
    def nothing_visible_waits_for_deletion(self):
        if hasattr(self, "table"):
            waiting = {n for pending in self.table.state.push.deletions for n in pending.segments}
            assert not waiting & self.table.all

    @invariant()
    def details_belong_to_entries(self):
        if hasattr(self, "table"):
            ids = {entry.id for entry in self.table.state.lineage.entries}
            assert set(self.table.state.push.details) <= ids

    # Helpers

    def attempt(self, call, *arguments, **options):
        before = self.table.state
        try:
            return call(*arguments, **options)
        except HoldfastError as refusal:
            code = refusal.facts.get("code")
        assert code, "a refusal has a code"
        assert self.table.state is before, "L10"
        return None

    def open_entries(self):
        entries = self.table.state.lineage.entries if hasattr(self, "table") else ()
        return [entry for entry in entries if entry.state is EntryState.IN_PROGRESS]

    def picked(self, among, pick):
        return among[pick % len(among)]

    def reachable(self, state):
        """What queries, open pushes and every revert that its window still allows need."""
        needed = set(self.table.seen)
        for entry in state.lineage.entries:
            age = self.table.now - entry.changed_at_ms
            details = state.details_of(entry.id)
            if entry.state is EntryState.IN_PROGRESS and age <= state.config.entry_retention_ms:
                needed.update(entry.segments_from, entry.segments_to)
            elif entry.state is EntryState.COMPLETED and not details.finalised:
                kept = rollback_snapshots(state)[
                    : max(1, state.config.retained_snapshots - self.redoable(state))
                ]
                is_kept = not state.config.refresh or any(entry.id in each.steps for each in kept)
                if age <= state.config.replaced_retention_ms and is_kept:
                    needed.update(name for name in entry.segments_from if name in state.segments)
        return needed

    def redoable(self, state):
        return sum(each.position < 0 for each in snapshots(state))


PushHistory.TestCase.settings = settings(
    max_examples=RUNS,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestPushHistory = PushHistory.TestCase


def test_the_histories_find_what_pinot_does_not_prevent():
    """The same histories under Pinot's own rules must break a promise, or they promise nothing."""

    class StrictHistory(PushHistory):
        @initialize(config=st.sampled_from([PLAIN, REFRESH]))
        def begin(self, config):
            self.table = PureTable(config=config, rules=PINOT)
            self.broker_catches_up()

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            StrictHistory,
            settings=settings(PushHistory.TestCase.settings, max_examples=300, phases=[Phase.generate]),
        )
