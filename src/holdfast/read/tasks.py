"""Files of a read shared among tasks: few enough that starting tasks does not take longer than reading."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

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
    tasks: list[list[str]] = []
    filled = _TASK_BYTES
    for path, size in zip(paths, known.to_pylist(), strict=True):
        weight = size + _OPENING_BYTES
        if filled + weight > _TASK_BYTES:
            tasks.append([])
            filled = 0
        tasks[-1].append(path)
        filled += weight
    return tasks
