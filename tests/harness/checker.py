"""The invariants, read through the public reader and a raw listing.

Numbers are those of docs/internals/invariants.md.
"""

from __future__ import annotations

from holdfast.format.commits import decode_commit
from holdfast.format.ledger_entries import EntryKind, decode_entry
from holdfast.format.rollbacks import decode_rollback_metadata
from holdfast.model.instant import Action, State
from holdfast.model.names import (
    CHECKPOINT_FOLDER,
    LEDGER_FOLDER,
    PARTITION_METAFILE,
    PROPERTIES_FILE,
    in_partition,
    instant_file,
)
from holdfast.read.arrow_rows import read_rows, selected_schema
from holdfast.read.snapshot import snapshot
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import load_timeline


class Violation(AssertionError):
    """An invariant does not hold."""


def visible_ids(table: OpenTable) -> frozenset[str]:
    """The keys a reader sees now; a key seen twice is a violation."""
    found = snapshot(table)
    if found.schema is None:
        return frozenset()
    read = read_rows(table.store, found, selected_schema(found.schema, columns=["id"], meta_columns=False))
    ids = read.column("id").to_pylist()
    if len(ids) != len(set(ids)):
        raise Violation(f"I9: a key is seen twice: {sorted(ids)}")
    return frozenset(ids)


def whole_ledger(store: Store) -> LedgerState:
    """Every entry from the first slot on, without the help of checkpoints."""
    state = LedgerState()
    for path in store.paths(LEDGER_FOLDER):
        entry, _, digest = decode_entry(store.read(path))
        if (entry.slot, entry.previous) != (state.slot + 1, state.digest):
            raise Violation(f"the ledger breaks off at {path}")
        if entry.kind is EntryKind.BEGIN and state.newest is not None and entry.instant <= state.newest:
            raise Violation(f"I8: {entry.instant} begins after {state.newest}")
        state = state.after(entry, digest)
    return state


def check_at_any_time(table: OpenTable) -> None:
    """What must hold even while writers run or lie dead."""
    timeline = load_timeline(table.store)
    state = whole_ledger(table.store)
    for instant in timeline.completed_commits:
        metadata = decode_commit(
            table.store.read(instant_file(instant.time, instant.action, State.COMPLETED))
        )
        for stats in metadata.partition_to_write_stats.values():
            for stat in stats:
                stored = table.store.stat(stat.path)
                if stored is None or stored.size != stat.file_size_in_bytes:
                    raise Violation(f"I3: commit {instant.time} names {stat.path}, stored: {stored}")
        if instant.time in state.aborted:
            raise Violation(f"I4: {instant.time} is completed although aborted")
        if instant.time not in state.committed:
            raise Violation(f"I4: {instant.time} is completed although undecided")
    both = state.committed.keys() & state.aborted.keys()
    if both:
        raise Violation(f"I4: two outcomes for {sorted(both)}")
    published = [instant.time for instant in timeline.completed_commits]
    in_ledger = sorted(state.committed, key=lambda time: state.committed[time].slot)
    if published != in_ledger[: len(published)]:
        raise Violation(f"I7: published {published}, decided {in_ledger}")


def check_at_rest(table: OpenTable) -> None:
    """What must hold after recovery, with no live writer."""
    check_at_any_time(table)
    timeline = load_timeline(table.store)
    state = whole_ledger(table.store)
    pending = [instant for instant in timeline.instants if not instant.is_completed]
    if pending:
        raise Violation(f"I17: still pending: {pending}")
    if state.begun:
        raise Violation(f"I17: undecided: {sorted(state.begun)}")
    if set(state.committed) != {instant.time for instant in timeline.completed_commits}:
        raise Violation("I1: the timeline does not show what the ledger decided")
    for time, aborted in state.aborted.items():
        done = instant_file(aborted.rollback, Action.ROLLBACK, State.COMPLETED)
        metadata = decode_rollback_metadata(table.store.read(done))
        if metadata.commits != (time,):
            raise Violation(f"I10: rollback {aborted.rollback} removed {metadata.commits}, not {time}")
    orphans = set(table.store.paths("")) - _referenced(table)
    if orphans:
        raise Violation(f"I2: nothing refers to {sorted(orphans)}")
    if table.store.leftovers():
        raise Violation(f"I2: left over: {table.store.leftovers()}")


def _referenced(table: OpenTable) -> set[str]:
    store: Store = table.store
    timeline = load_timeline(store)
    known = {PROPERTIES_FILE, *store.paths(LEDGER_FOLDER), *store.paths(CHECKPOINT_FOLDER)}
    for instant in timeline.instants:
        known |= {instant_file(instant.time, instant.action, state) for state in State}
    for instant in timeline.completed_commits:
        metadata = decode_commit(store.read(instant_file(instant.time, instant.action, State.COMPLETED)))
        for partition, stats in metadata.partition_to_write_stats.items():
            known.add(in_partition(partition, PARTITION_METAFILE))
            known |= {stat.path for stat in stats}
    return known
