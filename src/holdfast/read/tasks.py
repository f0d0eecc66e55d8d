"""Files and slices of a read shared among tasks: few, so that starting these does not take longest."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.slices import FileSlice
from holdfast.read.row_changes import GroupChange

_T = TypeVar("_T")

_TASK_BYTES = 64 << 20
"""A worker reads so much in about the time in which ten tasks are started."""
_OPENING_BYTES = 4 << 20
"""What opening a file costs, as bytes that could be read meanwhile."""
_UNKNOWN_BYTES = 16 << 20


def files_of_tasks(paths: Sequence[str], sizes: pa.ChunkedArray | None) -> list[list[str]]:
    """The files of each task, neighbours together; the size of a file may be null."""
    if sizes is None:
        sizes = pa.chunked_array([pa.nulls(len(paths), pa.int64())])
    average = pc.mean(sizes).as_py()
    known = pc.fill_null(sizes, _UNKNOWN_BYTES if average is None else int(average))
    return _share(zip(paths, known.to_pylist(), strict=True))


def slices_of_tasks(slices: Sequence[FileSlice]) -> list[list[FileSlice]]:
    """The slices of each task. One that is large has a task to itself."""
    return _share((each, (each.size or _UNKNOWN_BYTES) + len(each.logs) * _OPENING_BYTES) for each in slices)


def group_changes_of_tasks(groups: Sequence[GroupChange]) -> list[list[GroupChange]]:
    """The file groups that each task compares."""
    return _share((each, each.bytes or _UNKNOWN_BYTES) for each in groups)


def _share(weighed: Iterable[tuple[_T, int]]) -> list[list[_T]]:
    tasks: list[list[_T]] = []
    filled = _TASK_BYTES
    for one, size in weighed:
        weight = size + _OPENING_BYTES
        if filled + weight > _TASK_BYTES:
            tasks.append([])
            filled = 0
        tasks[-1].append(one)
        filled += weight
    return tasks
