"""What must hold of a push service at any moment, and once everything has come to rest."""

from __future__ import annotations

from harness.push_world import ANN, DAY_MS, TABLE, PushWorld
from holdfast.errors import TableNotFound
from holdfast.model.lineage import EntryState
from holdfast.push.audit import check_chain
from holdfast.push.replacement.snapshots import rollback_snapshots, snapshots


def check_push_at_any_time(world: PushWorld, *, table: str = TABLE) -> None:
    """Whatever died, and wherever."""
    state = world.catalog.load(table)
    known = world.catalog.all_segments(table)
    files = world.files(table)
    assert state.segments <= known.keys(), "every segment has metadata"
    missing = {name for name in state.segments if known[name].uri not in files}
    assert not missing, f"L3: the files of {missing} are gone"
    for snapshot in snapshots(state):
        numbers = {n for name in snapshot.segments for n in world.rows_of(name, table=table)}
        assert len(numbers) <= 1, f"L1: snapshot {snapshot.position} mixes rows of {numbers}"
    leaving = {name for pending in state.push.deletions for name in pending.segments}
    assert not leaving & state.segments, "nothing in the table waits for deletion"
    ids = {entry.id for entry in state.lineage.entries}
    assert set(state.push.details) <= ids
    check_chain(world.metastore, table, state.push)


def check_push_at_rest(world: PushWorld, *, table: str = TABLE) -> None:
    """L7, L12: after everything has lapsed and been cleared, only the snapshots that are kept are left."""
    seen = world.rows(table)
    for _ in range(5):
        world.clock.now += 8 * DAY_MS
        world.controller.upkeep.run_retention(table)
    state = world.catalog.load(table)
    assert world.rows(table) == seen, "retention changes nothing that queries see"
    assert all(entry.state is EntryState.COMPLETED for entry in state.lineage.entries)
    kept = frozenset[str]().union(*(each.segments for each in rollback_snapshots(state)))
    assert state.segments == kept, f"left over: {state.segments - kept}"
    known = world.catalog.all_segments(table)
    assert known.keys() == state.segments, f"metadata left over: {known.keys() - state.segments}"
    assert world.files(table) == {segment.uri for segment in known.values()}, "files left over"
    assert not state.push.deletions
    assert list(world.deep_store.files_in_deleted_area(table)) == []
    check_push_at_any_time(world, table=table)
    # Segments of one snapshot hold the same rows here.
    codes = {finding.code for finding in world.controller.upkeep.doctor(table, by=ANN)} - {"SAME_BYTES"}
    assert not codes, codes


def check_table_is_gone(world: PushWorld, *, table: str = TABLE) -> None:
    try:
        world.catalog.load(table)
    except TableNotFound:
        assert world.files(table) == set()
        return
    raise AssertionError("the table is there")
