"""The explorer finds defects that are planted on purpose; one that it missed would make it worthless."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from harness.explorer import schedules
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.port import Check, Create, Remove, Replace
from holdfast.push.retention import decide as retention
from holdfast.push.retention import orphans, upkeep
from holdfast.push.state import transactions
from holdfast.push.uploads import decide as uploads
from holdfast.push.uploads import register
from push.push_scenarios import SCENARIOS


def _without_version_check(patch):
    """Whoever writes last wins."""
    write = MemoryMetastore.write

    def forgiving(self, changes):
        found = {change.path: self.read(change.path) for change in changes}
        forced = []
        for change in changes:
            record = found[change.path]
            match change:
                case Check():
                    continue
                case Remove() if record is None:
                    continue
                case Remove():
                    forced.append(Remove(change.path, record.version))
                case Create() | Replace() if record is None:
                    forced.append(Create(change.path, change.data))
                case Create() | Replace():
                    forced.append(Replace(change.path, change.data, record.version))
        write(self, forced)

    patch.setattr(MemoryMetastore, "write", forgiving)


def _without_deciding_again(patch):
    """After a lost race the old decision is written over the new state."""
    run_group = transactions.Transactions.run_group

    def stubborn(self, decisions, **options):
        made = {}

        def once(table, decide):
            def decided(state):
                if table not in made:
                    made[table] = decide(state)
                step = made[table]
                after = step.decision.after
                # The audit's chain would notice by itself.
                push = replace(
                    after.push,
                    audit_count=state.push.audit_count,
                    audit_head=state.push.audit_head,
                    writes=state.push.writes,
                )
                return replace(step, decision=replace(step.decision, after=replace(after, push=push)))

            return decided

        return run_group(self, {table: once(table, decide) for table, decide in decisions.items()}, **options)

    patch.setattr(transactions.Transactions, "run_group", stubborn)


def _without_waiting_for_brokers(patch):
    patch.setattr(upkeep, "ready_deletions", lambda state, _epochs: state.push.deletions)


def _announcements_before_state(patch):
    """A broker that comes in between is not waited for."""

    def finish(self, table, *, by=None):
        epochs = [broker.epoch for broker in self._catalog.broker_epochs(table).values()]
        state = self._catalog.load(table)
        deleted = []
        for pending in retention.ready_deletions(state, epochs):
            for path in pending.files:
                self._retire(path, pending)
            self._record_deletion(table, (), pending.files, by=by)
            deleted += self._delete_batch(table, pending, pending.segments, by=by)
        return tuple(deleted)

    patch.setattr(upkeep.Upkeep, "finish_deletions", finish)


def _deleting_by_name(patch):
    """The file is looked up by name, without a look whether the name still waits."""
    patch.setattr(upkeep, "_still_waiting", lambda _state, pending: frozenset(pending.segments))


def _orphans_without_fence(patch):
    patch.setattr(orphans.Orphans, "_fence_off", lambda _self, _table, _doomed: True)


def _orphans_looked_at_once(patch):
    """What was registered between the look and the fence is deleted."""
    found = orphans.Orphans._among
    looks: dict[orphans.Orphans, list[str]] = {}

    def once(self, table, paths):
        return looks.setdefault(self, found(self, table, paths))

    patch.setattr(orphans.Orphans, "_among", once)


def _registered_without_looking_again(patch):
    """What was checked before the bytes were copied is not checked when they are registered."""
    check, decide = register.check_upload, register.Registrar._decide

    def careless(self, state, **options):
        patch.setattr(register, "check_upload", lambda *_arguments, **_options: None)
        try:
            return decide(self, state, **options)
        finally:
            patch.setattr(register, "check_upload", check)

    patch.setattr(register.Registrar, "_decide", careless)


def _files_deleted_before_the_decision(patch):
    """The segments' files go when retention has decided, before it has won."""
    plan = retention.plan_retention

    def eager(self, table, *, by, dry_run):
        state = self._catalog.load(table)
        decision = plan(state, now_ms=self._clock.now_ms(), rules=self._rules).decision
        for name, segment in self._catalog.segments(table, decision.removed).items():
            assert name
            self._deep_store.retire(segment.uri, until_ms=None)
        return decided(self, table, by=by, dry_run=dry_run)

    decided = upkeep.Upkeep._plan_and_save
    patch.setattr(upkeep.Upkeep, "_plan_and_save", eager)


def _overwritten_files(patch):
    """One path for all uploads of a segment."""
    put = register._Files._put

    def same_path(self, payload):
        clock = self._clock
        self._clock = _OneToken()
        try:
            return put(self, payload)
        except FileExistsError:
            from holdfast.push.segments.deep_store import SegmentFile

            path = f"orders/{payload.name}__token.parquet"
            self._deep_store._store.put(path, payload.file.getvalue())
            return SegmentFile(path, payload.size_bytes, "")
        finally:
            self._clock = clock

    patch.setattr(register._Files, "_put", same_path)


class _OneToken:
    def unique(self):
        return "token"


def _reads_without_seqlock(patch):
    """The records of a table are read one after the other, and taken for one moment."""
    from holdfast.push.state.catalog import Catalog
    from holdfast.push.state.records import lineage_path

    load = Catalog._load_once

    def torn(self, table):
        # The lineage as it was before the segments were read.
        early = self.metastore.read(lineage_path(table))
        state = load(self, table)
        while state is None:
            state = load(self, table)
        return replace(state, lineage=self._records.lineage(table, early))

    patch.setattr(Catalog, "_load_once", torn)


def _old_file_forgotten(patch):
    """An upload over a name that waits for deletion leaves it on the list."""
    patch.setattr(uploads, "_without_registered", lambda state, _added: state.push.deletions)


@dataclass(frozen=True)
class Defect:
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: str
    switches: int = 1


DEFECTS = [
    Defect(_without_version_check, "push x push"),
    Defect(_without_deciding_again, "revert x retention"),
    Defect(_without_deciding_again, "end x forced revert"),
    Defect(_without_waiting_for_brokers, "broker x delete, retention"),
    Defect(_without_waiting_for_brokers, "broker x refresh, retention"),
    Defect(_announcements_before_state, "retention x broker x delete", switches=2),
    Defect(_deleting_by_name, "upload again x retention"),
    Defect(_orphans_without_fence, "upload x orphan scan"),
    Defect(_orphans_looked_at_once, "upload x orphan scan", switches=2),
    Defect(_registered_without_looking_again, "upload x upload, end"),
    Defect(_files_deleted_before_the_decision, "revert x retention"),
    Defect(_overwritten_files, "upload x upload, end"),
    Defect(_reads_without_seqlock, "broker x push"),
    Defect(_old_file_forgotten, "upload again x retention"),
]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda each: f"{each.plant.__name__[1:]}: {each.scenario}")
def test_a_planted_defect_is_found(defect, monkeypatch):
    scenario = SCENARIOS[defect.scenario]
    scenario.start()  # Before the defect is there.
    defect.plant(monkeypatch)

    with pytest.raises((AssertionError, FileNotFoundError)):
        for _ in schedules(scenario.run, switches=defect.switches):
            pass
