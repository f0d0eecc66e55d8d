"""Whose a log file is: what may be deleted when a write is taken back.

The name of a log file is that of its slice. Files of ours say in their names
which write made them; of others the blocks tell, of which old releases of Hudi
added those of several writes to one file.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from holdfast.format.log_blocks import BlockType
from holdfast.format.log_heads import BlockHead, read_heads
from holdfast.model.instant import InstantTime, end_of
from holdfast.model.names import LogFileName, is_file_of, parse_log_file
from holdfast.storage.store import Store

_THREADS = 16

_T = TypeVar("_T")


class Share(Enum):
    """How much of a data file one write made."""

    NONE = "none"
    PART = "part"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """What a write left in data files."""

    own: tuple[str, ...]
    """Files that hold nothing else."""
    shared: tuple[str, ...] = ()
    """Log files that hold what other writes made, too."""


def log_name(path: str) -> LogFileName | None:
    """What the name of a log file says; None if the path is not that of one."""
    return parse_log_file(path.rpartition("/")[2])


def is_log_file(path: str) -> bool:
    return log_name(path) is not None


def read_log_heads(store: Store, path: str) -> list[BlockHead] | None:
    """The heads of the blocks of a log file; None if it is absent."""
    try:
        with store.open(path) as source:
            return list(read_heads(source))
    except FileNotFoundError:
        return None


def writers_of_log(store: Store, path: str) -> frozenset[InstantTime] | None:
    """The writes whose rows are in a log file, as far as it can be read; None if it is absent."""
    name = log_name(path)
    if name is not None and name.written_by is not None:
        return None if store.stat(path) is None else frozenset({name.written_by})
    heads = read_log_heads(store, path)
    if heads is None:
        return None
    times = (head.instant for head in heads if head.kind != BlockType.COMMAND)
    return frozenset(time for time in times if time is not None)


def share_of(store: Store, path: str, time: InstantTime) -> Share:
    """How much of a file that a marker or a commit of `time` names is of that write.

    A log file of which nothing can be read is a torn one of that write. An
    absent one is nobody's: its name may be given to another write's file.
    """
    name = log_name(path)
    if name is None or name.written_by is not None:
        return Share.WHOLE if is_file_of(path, time) else Share.NONE
    writers = writers_of_log(store, path)
    if writers is None:
        return Share.NONE
    if not writers - {time}:
        return Share.WHOLE
    return Share.PART if time in writers else Share.NONE


def files_of_write(store: Store, named: Iterable[str], time: InstantTime) -> SharedFiles:
    """Of the files that markers or a commit of `time` name, those that are its own, and the shared ones."""
    paths = sorted(set(named))
    shares = dict(zip(paths, _each(lambda path: share_of(store, path, time), paths), strict=True))
    return SharedFiles(
        tuple(path for path in paths if shares[path] is Share.WHOLE),
        tuple(path for path in paths if shares[path] is Share.PART),
    )


def find_files_of_write(store: Store, listed: Collection[str], time: InstantTime) -> SharedFiles:
    """As `files_of_write`, among all files there are. One of which nothing can be read is left out."""
    base = [path for path in listed if is_file_of(path, time)]
    unsigned = [path for path in listed if _may_hold(path, time)]
    writers = dict(zip(unsigned, _each(lambda path: writers_of_log(store, path), unsigned), strict=True))
    holding = {path: found for path, found in writers.items() if found is not None and time in found}
    return SharedFiles(
        (*base, *(path for path, found in holding.items() if found == {time})),
        tuple(path for path, found in holding.items() if found != {time}),
    )


def find_logs_of_writes(
    store: Store, listed: Collection[str], times: Collection[InstantTime]
) -> Mapping[str, frozenset[InstantTime]]:
    """The log files there are that hold blocks of some writes, each with all that wrote to it."""
    writers = find_writers(store, [path for path in listed if is_log_file(path)])
    return {path: found for path, found in writers.items() if not found.isdisjoint(times)}


def find_writers(store: Store, logs: Collection[str]) -> dict[str, frozenset[InstantTime]]:
    """The writes whose rows are in log files; none where the file is absent."""
    found = _each(lambda path: writers_of_log(store, path), logs)
    return {path: writers or frozenset() for path, writers in zip(logs, found, strict=True)}


def _may_hold(path: str, time: InstantTime) -> bool:
    """Whether only the content tells if a log file is of the write: none is older than its slice."""
    name = log_name(path)
    return name is not None and name.written_by is None and end_of(name.base_instant) <= end_of(time)


def _each(look: Callable[[str], _T], paths: Collection[str]) -> list[_T]:
    """What a look at each file gives; several at once if there are many, where each costs a call."""
    if len(paths) <= _THREADS:
        return list(map(look, paths))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="logs") as pool:
        return list(pool.map(look, paths))
