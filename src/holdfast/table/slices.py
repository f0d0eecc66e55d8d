"""File slices: the files of a table that are kept or deleted together.

A file slice is a base file and the log files that carry its instant, or log
files alone. Each file is a row, in columns: a table may have a million.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.instant import InstantTime, end_of
from holdfast.model.names import LOG_FILE_PATTERN
from holdfast.table.view import SLICES, View, groups_of, instant_numbers, parsed_names, without_rolled_back

_LOG = ".log."
"""In the name of every log file."""


def file_slices(view: View, compactions: Collection[InstantTime]) -> pa.Table:
    """The files that are there of slices that readers know, as rows of `SLICES`.

    Readers know the slices of commits, and those of `compactions` that are
    pending: what is written meanwhile goes to log files that carry their
    instants. The size of a log file only storage knows; it may have grown.
    """
    base = view.slices.filter(pc.is_in(view.slices["path"], view.listed))
    logs = _known(view, log_files(view.listed), compactions)
    return base if logs.num_rows == 0 else pa.concat_tables([base, logs])


def log_files(paths: pa.Array) -> pa.Table:
    """What the names of log files say, as rows of `SLICES`; other files are left out."""
    paths = paths.filter(pc.match_substring(paths, _LOG))
    parts = pc.extract_regex(paths, LOG_FILE_PATTERN)
    names = [parts.field(name) for name in ("partition", "file_id", "instant")]
    unknown = pa.nulls(len(paths), pa.int64()), pa.nulls(len(paths), pa.string())
    return pa.table([paths, *names, *unknown], schema=SLICES).filter(pc.is_valid(parts))


def are_logs(paths: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Whether each file is a log file; all of them are data files."""
    found: npt.NDArray[np.bool_] = pc.match_substring(paths, _LOG).to_numpy()
    if found.any():  # Or the name of its partition only looks like that.
        found = pc.match_substring_regex(paths, r"(^|/)\.[^/]*$").to_numpy()
    return found


def named_files(paths: pa.Array) -> pa.Table:
    """What the names of data files say, as rows of `SLICES`; other files are left out."""
    return pa.concat_tables([parsed_names(paths), log_files(paths)])


def slice_keys(files: pa.Table) -> pa.ChunkedArray:
    """The slice of each row: `partition/file id@instant`."""
    return pc.binary_join_element_wise(groups_of(files), files["instant"], "@")


def _known(view: View, logs: pa.Table, compactions: Collection[InstantTime]) -> pa.Table:
    first = view.timeline.first_commit_time
    if logs.num_rows == 0 or first is None:
        return SLICES.empty_table()
    shown = [commit.time for commit in view.timeline.completed_commits]
    is_shown = pc.is_in(logs["instant"], pa.array([*shown, *compactions], pa.string()))
    others = logs.filter(pc.invert(is_shown))
    pending = pa.array([i.time for i in view.timeline.instants if not i.is_completed], pa.string())
    is_older = pa.chunked_array([pa.array(instant_numbers(others["instant"]) < int(end_of(first)))])
    archived = others.filter(pc.and_(is_older, pc.invert(pc.is_in(others["instant"], pending))))
    if view.store is not None:
        archived = without_rolled_back(view.store, view.timeline, archived)
    return pa.concat_tables([logs.filter(is_shown), archived])
