"""The invariants, read through the public reader and a raw listing.

Numbers are those of docs/internals/invariants.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from msgspec import UNSET

from harness.faults import RememberingStore
from harness.world import Row, row_list
from holdfast.exports.advance import FORMATS
from holdfast.exports.manage import exports
from holdfast.files.partition_column import partition_column
from holdfast.format.cleans import decode_clean_plan
from holdfast.format.commits import NO_PREVIOUS_COMMIT, decode_commit, decode_extra_metadata
from holdfast.format.field_ids import FIELD_IDS, decode_field_ids
from holdfast.format.ledger_entries import Entry, EntryKind, decode_checkpoint, decode_entry
from holdfast.format.restores import decode_restore_metadata
from holdfast.format.rollbacks import decode_rollback_metadata
from holdfast.format.savepoints import decode_savepoint
from holdfast.model.instant import Action, InstantTime, State, end_of
from holdfast.model.names import (
    ABORTED_FOLDER,
    ARCHIVED_IN_PLACE,
    ARCHIVED_UNDONE,
    CHECKPOINT_FOLDER,
    CLOCK_FILE,
    DELTA_FOLDER,
    FIELD_IDS_RECORD,
    ICEBERG_FOLDER,
    LEASE_FOLDER,
    LEDGER_FLOOR,
    LEDGER_FOLDER,
    META_FOLDER,
    PARTITION_METAFILE,
    PROBE_FOLDER,
    PROPERTIES_FILE,
    SOURCES_FOLDER,
    STORAGE_FOLDER,
    ZONE_FILE,
    heartbeat_path,
    in_partition,
    instant_file,
    is_restore_archive,
    marker_folder,
    parse_base_file,
    partition_of,
)
from holdfast.read.arrow_rows import read_rows, select_schema
from holdfast.read.path_columns import path_columns
from holdfast.read.snapshot import snapshot
from holdfast.storage.store import Store, read_or_none
from holdfast.table.archive import read_archive
from holdfast.table.clean_plans import pending_cleans, plan_paths, read_clean_plan
from holdfast.table.field_ids import field_ids
from holdfast.table.markers import read_markers
from holdfast.table.opened import OpenTable
from holdfast.table.pending import AT_ONCE, pending_compactions
from holdfast.table.undone import read_undone
from holdfast.timeline.archived import ArchivedTimeline, archives
from holdfast.timeline.ledger import Aborted, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline, read_completed


class Violation(AssertionError):
    """An invariant does not hold."""


def visible_rows(table: OpenTable, *, as_of: str | None = None) -> frozenset[Row]:
    """The rows a reader sees, now or as of an instant; a key seen twice is a violation."""
    found = snapshot(table, as_of=as_of)
    if found.schema is None:
        return frozenset()
    read = read_rows(table.store, found, select_schema(found.schema, columns=None, meta_columns=False))
    rows = row_list(read)
    if len(rows) != len({key for key, *_ in rows}):
        raise Violation(f"I9: a key is seen twice: {sorted(rows)}")
    return frozenset(rows)


def visible_ids(table: OpenTable) -> frozenset[str]:
    """The keys alone."""
    return frozenset(key for key, *_ in visible_rows(table))


def whole_ledger(store: Store) -> LedgerState:
    """Every entry from the first slot on, without the help of checkpoints; or from where it was trimmed."""
    floor = 0 if isinstance(store, RememberingStore) else int(read_or_none(store, LEDGER_FLOOR) or 0)
    state = LedgerState() if floor == 0 else _checkpoint_above(store, floor)
    for path, content in ledger_files(store).items():
        if int(path.rpartition("/")[2]) <= state.slot:
            continue
        entry, _, digest = decode_entry(content)
        if (entry.slot, entry.previous) != (state.slot + 1, state.digest):
            raise Violation(f"the ledger breaks off at {path}")
        if entry.kind is EntryKind.BEGIN and state.newest is not None and entry.instant <= state.newest:
            _check_begun_again(entry, state)
        state = state.after(entry, digest)
    return state


def _check_begun_again(entry: Entry, state: LedgerState) -> None:
    """A compaction may be, until it is decided; its instant was given out when it was planned."""
    is_decided = entry.instant in state.committed or entry.instant in state.aborted
    if entry.action is not Action.COMPACTION or is_decided:
        raise Violation(f"I8: {entry.instant} begins after {state.newest}")


def ledger_files(store: Store) -> dict[str, bytes]:
    """The entries that are there, or all that ever were, if the store remembers them."""
    if isinstance(store, RememberingStore):
        return dict(sorted(store.remembered.items()))
    return {path: store.read(path) for path in store.paths(LEDGER_FOLDER)}


def _checkpoint_above(store: Store, floor: int) -> LedgerState:
    for path in store.paths(CHECKPOINT_FOLDER):
        if int(path.rpartition("/")[2]) >= floor:
            return decode_checkpoint(store.read(path), LedgerState)
    raise Violation(f"the ledger is trimmed up to {floor}, and no checkpoint says what was there")


def _is_counted(store: Store) -> bool:
    """Whether the ledger still has an entry for each commit."""
    return isinstance(store, RememberingStore) or store.stat(LEDGER_FLOOR) is None


def check_at_any_time(table: OpenTable) -> None:
    """What must hold even while writers run or lie dead."""
    timeline = load_timeline(table.store)
    state = whole_ledger(table.store)
    cleaned = _given_up(table.store, timeline, state)
    for instant in timeline.completed_commits:
        metadata = decode_commit(
            table.store.read(instant_file(instant.time, instant.action, State.COMPLETED))
        )
        if instant.time in state.aborted and state.aborted[instant.time].revoked_by is not None:
            continue  # Taken back, and not yet withdrawn.
        for stats in metadata.partition_to_write_stats.values():
            for stat in stats:
                stored = table.store.stat(stat.path)
                if stored is None and stat.path in cleaned:
                    continue
                if stored is None or stored.size != stat.file_size_in_bytes:
                    raise Violation(f"I3: commit {instant.time} names {stat.path}, stored: {stored}")
        if instant.time in state.aborted:
            raise Violation(f"I4: {instant.time} is completed although aborted")
        if instant.time not in state.committed and _is_counted(table.store):
            raise Violation(f"I4: {instant.time} is completed although undecided")
    _check_versions(table, timeline)
    _check_savepoints(table, timeline, state)
    both = state.committed.keys() & state.aborted.keys()
    if both:
        raise Violation(f"I4: two outcomes for {sorted(both)}")
    _check_archived(table, timeline, state)
    published = {instant.time for instant in timeline.completed_commits} - state.aborted.keys()
    decided = [time for time in state.committed if time in published or not state.is_archived(time)]
    in_ledger = sorted(decided, key=lambda time: state.committed[time].slot)
    if _is_counted(table.store) and published != set(in_ledger[: len(published)]):
        raise Violation(f"I7: published {sorted(published)}, decided {in_ledger}")
    _check_in_place(table)
    _check_field_ids(table, timeline)
    _check_birth(table, state)
    _check_exported_files(table)


def _check_exported_files(table: OpenTable) -> None:
    """No reader of another format meets a file that is not there."""
    for form in table.settings.export_formats:
        state = FORMATS[form].read(table.store)
        for path in [] if state is None else state.paths():
            if table.store.stat(path) is None:
                raise Violation(f"I27: the export to {form} names {path}, which is gone")


def check_exports_followed(table: OpenTable) -> None:
    """Every export shows what the timeline shows."""
    behind = [one for one in exports(table) if one.lag]
    if behind:
        raise Violation(f"I27: exports that did not follow: {behind}")


def _check_birth(table: OpenTable, state: LedgerState) -> None:
    """A table that came to be with a commit has the key that the commit's rows were written with."""
    entries = (decode_entry(content)[0] for content in ledger_files(table.store).values())
    born_with = next((entry.properties for entry in entries if entry.slot == state.birth), None)
    key = "hoodie.table.recordkey.fields"
    if born_with and table.settings.properties[key] != born_with[key]:
        raise Violation(
            f"I22: the table came to be with key {born_with[key]}, not {table.settings.record_key}"
        )


def _check_in_place(table: OpenTable) -> None:
    found = snapshot(table)
    columns = None if found.schema is None else path_columns(table, found, found.schema)
    for path in [] if columns is None else columns.split(found.paths)[0]:
        file = found.only(pa.array([each == path for each in found.paths]))
        rows = read_rows(table.store, file, found.schema)
        named = set(partition_column(rows, table.settings).to_pylist())
        if named - {partition_of(path)}:
            raise Violation(f"I19: {path} has rows of {sorted(named)}")


def _check_field_ids(table: OpenTable, timeline: Timeline) -> None:
    """A column has one number in all commits and in the record, and no other column has it."""
    told = [
        decode_field_ids(ids)
        for commit in timeline.completed_commits
        if (ids := decode_extra_metadata(read_completed(table.store, commit)).get(FIELD_IDS))
    ]
    told.append(field_ids(table.store, Timeline(())))  # What the record alone says.
    pairs = {pair for ids in told for pair in ids.items()}
    if len({path for path, _ in pairs}) < len(pairs) or len({number for _, number in pairs}) < len(pairs):
        raise Violation(f"I26: two numbers of one column, or one of two: {sorted(pairs)}")


def _given_up(store: Store, timeline: Timeline, state: LedgerState) -> set[str]:
    """The files that a clean deletes or has deleted."""
    shown = {instant.time for instant in timeline.instants if instant.action is Action.CLEAN}
    plans = [read_clean_plan(store, clean) for clean in shown | state.cleans.keys()]
    archived = read_archive(store)
    stored = [archived.content(i.time, Action.CLEAN, State.REQUESTED) for i in archived.timeline.instants]
    plans += [decode_clean_plan(content) for content in stored if content is not None]
    return {path for plan in plans if plan is not None for path in plan_paths(plan)}


def _check_archived(table: OpenTable, timeline: Timeline, state: LedgerState) -> None:
    """What was decided and is not on the timeline any more is in the archive, whole."""
    archived = read_archive(table.store, table.settings)
    if not archived.is_whole:
        raise Violation("I12: an archive cannot be read")
    _check_archived_once(table.store)
    shown = {instant.time for instant in timeline.instants}
    kept = {instant.time for instant in archived.timeline.instants if instant.is_completed}
    for time in (*state.committed, *(one.rollback for one in state.aborted.values() if not one.restore)):
        if state.is_archived(time) and time not in shown | kept:
            raise Violation(f"I12: {time} is neither on the timeline nor in the archive")


def _check_archived_once(store: Store) -> None:
    """Whoever decides to archive has seen the decisions before it carried out."""
    seen: set[str] = set()
    for content in ledger_files(store).values():
        entry, payload, _ = decode_entry(content)
        if entry.restored_to is not None:
            seen.discard(entry.restored_to)  # It comes back, and may go again.
        if entry.kind is not EntryKind.ARCHIVE:
            continue
        times = {time for time, _ in json.loads(payload)["instants"]}
        if seen & times:
            raise Violation(f"I12: decided twice to archive {sorted(seen & times)}")
        seen |= times


def _check_savepoints(table: OpenTable, timeline: Timeline, state: LedgerState) -> None:
    """What a savepoint names is there, also if it is decided and not yet shown."""
    for time, slot in state.savepoints.items():
        files = decode_savepoint(table.ledger.payload(slot)).files
        for path in (in_partition(partition, name) for partition, names in files.items() for name in names):
            if table.store.stat(path) is None:
                raise Violation(f"I12: savepoint {time} names {path}, which is gone")


def _check_versions(table: OpenTable, timeline: Timeline) -> None:
    """Each version of a file group was made from the one before it, and none of a group that was replaced."""
    newest: dict[tuple[str, str], str] = {}
    archived = read_archive(table.store, table.settings)
    commits = archived.with_active(timeline).completed_commits
    state = table.ledger.read()
    commits = tuple(commit for commit in commits if not state.is_taken_back(commit.time))
    for instant, content in archived.read_completed(table.store, commits):
        metadata = decode_commit(content)
        for partition, file_ids in (metadata.partition_to_replace_file_ids or {}).items():
            for group in ((partition, file_id) for file_id in file_ids):
                if newest.pop(group, None) is None:
                    raise Violation(f"I6: {instant.time} replaces {group}, which is not there")
        for partition, stats in metadata.partition_to_write_stats.items():
            for stat in stats:
                before = newest.get((partition, stat.file_id), NO_PREVIOUS_COMMIT)
                if stat.prev_commit != before:
                    raise Violation(f"I6: {stat.path} was made from {stat.prev_commit}, not from {before}")
                if stat.log_version is UNSET:  # A log file belongs to the version that is there.
                    newest[partition, stat.file_id] = instant.time


def check_at_rest(table: OpenTable) -> None:
    """What must hold after recovery, with no live writer."""
    check_at_any_time(table)
    timeline = load_timeline(table.store)
    state = whole_ledger(table.store)
    # A compaction waits as a plan, inflight or not, until somebody carries it out.
    pending = [i for i in timeline.instants if not i.is_completed and i.action is not Action.COMPACTION]
    pending += [i for i, plan in pending_compactions(table.store, timeline) if AT_ONCE in plan.extra]
    if pending:
        raise Violation(f"I17: still pending: {pending}")
    if state.begun:
        raise Violation(f"I17: undecided: {sorted(state.begun)}")
    completed = {instant.time for instant in timeline.completed_commits}
    expected = {time for time in state.committed if time in completed or not state.is_archived(time)}
    if expected != completed and _is_counted(table.store):
        raise Violation("I1: the timeline does not show what the ledger decided")
    if pending_cleans(table.store, timeline, state):
        raise Violation(f"I17: cleans that are not finished: {pending_cleans(table.store, timeline, state)}")
    for path in table.store.paths("", without=META_FOLDER):
        named = parse_base_file(path.rpartition("/")[2])
        if named is not None and any(to < named.instant < restore for to, restore in state.restored):
            raise Violation(f"I12: a file of an archived commit that was taken back is left: {path}")
    aborts = table.ledger.read_with_older_aborts().aborted
    if not state.aborted.keys() <= aborts.keys():
        raise Violation(f"I10: aborted, and forgotten: {sorted(state.aborted.keys() - aborts.keys())}")
    whole = read_archive(table.store, table.settings)
    _check_rollbacks_are_known(table, timeline, whole, aborts)
    _check_undone(table, timeline, aborts)
    for time, aborted in aborts.items():
        if aborted.restore is not None:
            _check_restored(table, time, aborted.restore, whole)
            continue
        archived = whole.content(aborted.rollback, Action.ROLLBACK)
        done = instant_file(aborted.rollback, Action.ROLLBACK, State.COMPLETED)
        metadata = decode_rollback_metadata(archived or table.store.read(done))
        if metadata.commits != (time,):
            raise Violation(f"I10: rollback {aborted.rollback} removed {metadata.commits}, not {time}")
    orphans = set(table.store.paths("")) - _referenced(table)
    if orphans:
        raise Violation(f"I2: nothing refers to {sorted(orphans)}")
    check_exports_followed(table)
    if table.store.leftovers():
        raise Violation(f"I2: left over: {table.store.leftovers()}")


def _check_restored(table: OpenTable, time: str, restore: str, archived: ArchivedTimeline) -> None:
    done = instant_file(restore, Action.RESTORE, State.COMPLETED)
    content = archived.content(restore, Action.RESTORE)
    metadata = decode_restore_metadata(content or table.store.read(done))
    if time not in {one.time for one in metadata.instants}:
        raise Violation(f"I10: restore {restore} removed {metadata.instants}, not {time}")


def _check_rollbacks_are_known(
    table: OpenTable, timeline: Timeline, archived: ArchivedTimeline, aborts: Mapping[InstantTime, Aborted]
) -> None:
    """Whatever was rolled back, the ledger says so for good, however long ago it was."""
    rollbacks = [
        instant
        for instant in archived.with_active(timeline).instants
        if instant.action is Action.ROLLBACK and instant.is_completed
    ]
    for instant, content in archived.read_completed(table.store, rollbacks):
        unknown = set(decode_rollback_metadata(content).commits) - aborts.keys()
        if unknown:
            raise Violation(f"I10: {instant.time} rolled back {unknown}, of which the ledger knows nothing")


def _check_undone(table: OpenTable, timeline: Timeline, aborts: Mapping[InstantTime, Aborted]) -> None:
    """Of what was taken back the timeline tells, or the record that readers look into."""
    shown = {instant.time for instant in timeline.instants}
    untold = [time for time, one in aborts.items() if not shown & {one.restore, one.rollback}]
    is_told = read_undone(table.store).covers(
        np.array([int(end_of(time)) for time in untold], dtype=np.int64)
    )
    if not is_told.all():
        raise Violation(f"I12: nothing tells readers that one of {untold} was taken back")


def _archives_of_restores(store: Store, folder: str) -> list[str]:
    paths = store.paths(f"{META_FOLDER}/{folder}")
    return [path for path in paths if is_restore_archive(path.rpartition("/")[2])]


def _referenced(table: OpenTable) -> set[str]:
    store: Store = table.store
    timeline = load_timeline(store)
    known = {PROPERTIES_FILE, CLOCK_FILE, *store.paths(LEDGER_FOLDER), *store.paths(CHECKPOINT_FOLDER)}
    # Leases expire, and a notice that a dead process put up is removed by the next lease.
    known |= {*store.paths(LEASE_FOLDER), *store.paths(SOURCES_FOLDER), *store.paths(ABORTED_FOLDER)}
    # What a killed probe of the storage left is removed by the next one that succeeds.
    known |= {*store.paths(STORAGE_FOLDER), *store.paths(PROBE_FOLDER)}
    known |= {*store.paths(DELTA_FOLDER), *store.paths(ICEBERG_FOLDER)}
    known |= {
        LEDGER_FLOOR,
        ARCHIVED_IN_PLACE,
        ARCHIVED_UNDONE,
        FIELD_IDS_RECORD,
        ZONE_FILE,
        *archives(store, table.settings.archive_folder).values(),
        *_archives_of_restores(store, table.settings.archive_folder),
    }
    # What was taken back may have been the first to write to a partition.
    aborts = table.ledger.read_with_older_aborts().aborted
    if any(aborted.revoked_by is not None for aborted in aborts.values()):
        known |= {path for path in store.paths("") if path.endswith(PARTITION_METAFILE)}
    for instant in timeline.instants:
        known |= {instant_file(instant.time, instant.action, state) for state in State}
        if instant.action is Action.COMPACTION and not instant.is_completed:
            # What an attempt wrote that sleeps goes with the next one.
            known |= set(store.paths(marker_folder(instant.time)))
            known |= {marker.data_path for marker in read_markers(store, instant.time)}
            known.add(heartbeat_path(instant.time))
        if instant.action is Action.COMMIT:  # As which a compaction is shown.
            known |= {instant_file(instant.time, Action.COMPACTION, state) for state in State}
    archived = read_archive(store, table.settings)
    commits = archived.with_active(timeline).completed_commits
    for _, content in archived.read_completed(store, commits):
        metadata = decode_commit(content)
        for partition, stats in metadata.partition_to_write_stats.items():
            known.add(in_partition(partition, PARTITION_METAFILE))
            known |= {stat.path for stat in stats}
    return known
