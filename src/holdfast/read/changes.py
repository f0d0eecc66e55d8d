"""Changes: the rows that the commits of a range wrote, each in its latest state.

A row lies in a file at least as young as the row itself, and the name of a
file says which commit wrote it. So only files written after the start of the
range, in their version as of its end, are opened; and such a version has no
row younger than the end. Commits that are archived by now need no exception.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest, SnapshotExpired, TableDamaged, UnsupportedTable
from holdfast.format.schemas import META_COLUMNS
from holdfast.model.instant import Instant, InstantTime, end_of, just_before
from holdfast.model.names import BASE_FILE_PATTERN, parse_log_file
from holdfast.read.arrow_rows import select_schema
from holdfast.read.completed_range import RequestRange, range_of_completions
from holdfast.read.merged_rows import each_merged_row, may_have_younger_rows
from holdfast.read.prune import Condition, each_match
from holdfast.read.snapshot import Moment, Snapshot, as_instant, snapshot, take_settled_snapshot
from holdfast.storage.store import Store
from holdfast.table.opened import OpenTable
from holdfast.table.settled import await_settled, read_settled
from holdfast.table.view import each_slice, slice_table
from holdfast.timeline.layout import completion_of, layout_of

COMMIT_TIME = META_COLUMNS[0]

_ATTEMPTS = 5


@dataclass(frozen=True)
class Changes:
    since: InstantTime
    """Rows of this instant and of older ones are not among them."""
    snapshot: Snapshot
    """As of the end of the range, with those files alone that commits in the range wrote."""
    has_older_rows: bool = True
    """Whether those without log files may hold rows from before the range, too."""


def changes(table: OpenTable, *, since: Moment, until: Moment | None = None) -> Changes:
    """What the commits in (since, until] wrote. Neither end needs to be a commit.

    Without `until` the range ends before the oldest write that is not decided
    yet: once committed, it would lie in a range that was read already. With an
    `until` after such a write it is waited for, and then refused.
    `SnapshotExpired` if a clean has removed the snapshot as of `until`.
    """
    start, end = _ends_of_range(table, since, until)
    if layout_of(table.store).has_completion_times:
        return _changes_by_completion(table, range_of_completions(table, start, end))
    found = _newest(table, start) if end is None else snapshot(table, as_of=end)
    return _younger(found, start)


def _changes_by_completion(table: OpenTable, requests: RequestRange) -> Changes:
    """As in Hudi 1.x: files alone that were written in the range, so that older rows do not compete."""
    if requests.until is None:
        found = snapshot(table)
        return Changes(requests.since, found.only(pa.array([False] * found.slices.num_rows, pa.bool_())))
    found = snapshot(table, as_of=requests.until)
    if found.merge is not None:
        found = replace(found, slices=_keep_files_of(found.slices, requests.commits), are_first=None)
    return _younger(found, requests.since)


def _keep_files_of(slices: pa.Table, commits: Collection[InstantTime]) -> pa.Table:
    """The slices with logs without those files that other commits wrote; others as they are."""
    kept = []
    for each in each_slice(slices):
        logs = tuple(path for path in each.logs if _writer(path) in commits)
        base = each.base if each.instant in commits or not each.logs else None
        if base is not None or logs:
            kept.append(replace(each, base=base, logs=logs))
    return slice_table(kept)


def _writer(path: str) -> str | None:
    name = parse_log_file(path.rpartition("/")[2])
    return None if name is None else name.base_instant


def _younger(found: Snapshot, start: InstantTime) -> Changes:
    younger = found.only(_may_have_younger_rows(found, start))
    are_first = younger.plain.are_first
    has_older_rows = are_first is None or not pc.all(are_first, min_count=0).as_py()
    return Changes(start, younger, has_older_rows)


def find_range(
    table: OpenTable, *, since: Moment, until: Moment | None
) -> tuple[InstantTime, InstantTime | None]:
    """The range of changes by the times of its commits; without an end if there are none.

    Up to the end everything is decided: with an `until` it is waited for.
    """
    start, end = _ends_of_range(table, since, until)
    if layout_of(table.store).has_completion_times:
        requests = range_of_completions(table, start, end)
        start, end = requests.since, requests.until
        if end is None:
            return start, None
    elif end is None:
        return start, _find_settled_end(table, start)
    named = end
    await_settled(table, lambda _: named)
    return start, named


def _ends_of_range(
    table: OpenTable, since: Moment, until: Moment | None
) -> tuple[InstantTime, InstantTime | None]:
    _check_meta_columns(table)
    start = _completion_time(table, since)
    end = None if until is None else _completion_time(table, until)
    if end is not None and start > end:
        raise InvalidRequest("the range ends before it begins", since=start, until=end)
    return start, end


def _check_meta_columns(table: OpenTable) -> None:
    if not table.settings.populates_meta_columns:
        raise UnsupportedTable(
            "the rows of this table do not say which commit wrote them", table=table.settings.name
        )


def _completion_time(table: OpenTable, moment: Moment) -> InstantTime:
    """As `as_instant`; of an instant that says when it was completed, that."""
    if isinstance(moment, Instant):
        return completion_of(moment)
    return as_instant(table, moment)


def _newest(table: OpenTable, start: InstantTime) -> Snapshot:
    """The newest snapshot that does not change any more, but none before the start of the range."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return take_settled_snapshot(table, _find_settled_end(table, start))
        except SnapshotExpired:
            # There are newer commits by now, and a clean has followed them.
            continue
    return take_settled_snapshot(table, _find_settled_end(table, start))


def _find_settled_end(table: OpenTable, start: InstantTime) -> InstantTime | None:
    settled = read_settled(table)
    if settled.undecided is not None:
        return max(start, just_before(settled.undecided))
    newest = settled.commit
    return None if newest is None else max(start, end_of(newest.time))


def change_schema(
    schema: pa.Schema | None, *, columns: Sequence[str] | None, meta_columns: bool
) -> pa.Schema:
    """As `select_schema`; the commit time is always there, first unless it is asked for elsewhere."""
    selected = select_schema(schema, columns=columns, meta_columns=meta_columns)
    if COMMIT_TIME in selected.names:
        return selected
    return selected.insert(0, pa.field(COMMIT_TIME, pa.string()))


def read_changes(store: Store, changes: Changes, schema: pa.Schema) -> pa.Table:
    """All rows of the changes, in a schema made by `change_schema`."""
    return pa.concat_tables([schema.empty_table(), *each_change(store, changes, schema)])


def each_change(store: Store, changes: Changes, schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows part by part, at most one row group of one file in memory."""
    found = changes.snapshot
    yield from each_younger_row(store, found.plain.paths, schema, since=changes.since)
    for slice_ in found.merged:
        assert found.merge is not None, "the slice has log files"
        yield from each_merged_row(store, slice_, schema, found.merge, since=changes.since)


def each_younger_row(
    store: Store, paths: Sequence[str], schema: pa.Schema, *, since: InstantTime
) -> Iterator[pa.Table]:
    """The rows of some base files that were written after an instant, part by part."""
    is_changed = pc.field(COMMIT_TIME) > since
    for path in paths:
        for rows in each_match(store, path, schema, [Condition(COMMIT_TIME, is_changed)]):
            if rows[COMMIT_TIME].null_count:
                raise TableDamaged("a data file has rows without a commit time", file=path)
            # A file that holds the commit times in another form was not filtered yet.
            changed = rows.filter(is_changed)
            if changed.num_rows:
                yield changed


def count_changes(store: Store, changes: Changes) -> int:
    """How many rows the changes have, by their commit times alone."""
    schema = pa.schema([(COMMIT_TIME, pa.string())])
    return sum(part.num_rows for part in each_change(store, changes, schema))


def _may_have_younger_rows(found: Snapshot, since: InstantTime) -> pa.Array:
    """False for the slices whose files are known to have been written by older commits."""
    parts = pc.extract_regex(found.slices["base"].combine_chunks(), BASE_FILE_PATTERN)
    may = pc.fill_null(pc.greater(pc.struct_field(parts, "instant"), since), True)
    if found.merge is None:
        return may
    may_have = may.to_numpy(zero_copy_only=False).copy()
    may_have[found.has_logs] = [may_have_younger_rows(each, found.merge, since) for each in found.merged]
    return pa.array(may_have)
