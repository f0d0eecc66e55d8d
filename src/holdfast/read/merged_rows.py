"""Rows of slices with log files, for reads of a snapshot and of changes."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import TableDamaged
from holdfast.files.merged_slice import LogMerge, each_merged
from holdfast.files.meta_columns import COMMIT_TIME
from holdfast.model.instant import InstantTime, end_of
from holdfast.model.slices import FileSlice
from holdfast.read.vanished import explaining_absence
from holdfast.storage.store import Store


def each_merged_row(
    store: Store,
    slice_: FileSlice,
    schema: pa.Schema,
    merge: LogMerge,
    *,
    since: InstantTime | None = None,
) -> Iterator[pa.Table]:
    """The rows of a slice part by part, at most one row group and the logs in memory.

    With `since` those alone that were written after it, and then the schema has the commit time.
    """
    with explaining_absence(store):
        if since is None:
            yield from each_merged(store, slice_, schema, merge)
            return
        # All rows of an older base file are older.
        is_younger = end_of(slice_.instant) > end_of(since)
        for rows in each_merged(store, slice_, schema, merge, with_base=is_younger):
            if rows[COMMIT_TIME].null_count:
                raise TableDamaged(
                    "a file slice has rows without a commit time", file=slice_.base or slice_.logs[0]
                )
            changed = rows.filter(pc.field(COMMIT_TIME) > since)
            if changed.num_rows:
                yield changed


def may_have_younger_rows(slice_: FileSlice, merge: LogMerge, since: InstantTime) -> bool:
    """False if the commits of all files of a slice are known, and none is younger."""
    if end_of(slice_.instant) > end_of(since):
        return True
    commits = (merge.instants.written.get(path) for path in slice_.logs)
    return any(written is None or end_of(written.commit) > end_of(since) for written in commits)
