"""Sharing the files of a read among tasks."""

import pyarrow as pa

from holdfast.read.tasks import files_of_tasks

MB = 1 << 20


def shares(*sizes):
    """How many files each task gets, of files that are so large."""
    paths = [str(number) for number in range(len(sizes))]
    tasks = files_of_tasks(paths, pa.chunked_array([pa.array(sizes, pa.int64())]))
    assert [path for files in tasks for path in files] == paths, "each once, neighbours together"
    return [len(files) for files in tasks]


def test_small_files_share_a_task_and_large_ones_have_their_own():
    assert shares() == []
    assert shares(*[10_000] * 300) == [15] * 20
    assert shares(*[128 * MB] * 3) == [1, 1, 1]
    assert shares(1, 1, 500 * MB, 1, 1) == [2, 1, 2]
    assert shares(*[28 * MB] * 4) == [2, 2]


def test_a_file_of_unknown_size_counts_like_the_others():
    assert shares(100 * MB, None, None) == [1, 1, 1]
    assert shares(1, None, None) == [3]
    assert len(shares(*[None] * 9)) == 3
    assert files_of_tasks(["a", "b"], None) == [["a", "b"]]
