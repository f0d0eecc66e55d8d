"""Control plane: questions about a table of many files and commits, without Spark.

The limit is a plain walk over the same tree: it says what the file system
alone takes, and knows nothing about commits.
"""

import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

import holdfast
from bench.framework import Goal, Scene, Unit, Variant, Workload
from holdfast.format.commits import CommitMetadata, WriteStat, decode_commit, encode_commit, inflight_metadata
from holdfast.format.partition_metafile import PartitionMetafile, encode_partition_metafile
from holdfast.format.schemas import avro_schema
from holdfast.model.instant import Action, InstantTime, State, time_at
from holdfast.model.names import PARTITION_METAFILE, BaseFileName, in_partition, instant_file
from holdfast.storage.local import LocalStore
from holdfast.timeline.timeline import load_timeline, read_completed

_NAME = "control plane"
_TABLE = "many_files"

_LIMIT = "os.walk"
_FILES = "open_table, files()"
_COMMAND = "holdfast timeline show"
_OPERATION = "BULK_INSERT"
_FIRST_MS = 1_700_000_000_000
_COMMIT_EVERY_MS = 60_000
_FILE_BYTES = 104_857_600
_FILE_ROWS = 800_000
_SCHEMA = pa.schema([("trip_id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    partitions: int
    commits: int
    files_per_commit: int

    @property
    def files(self) -> int:
        return self.commits * self.files_per_commit


def control_plane(size: Size) -> Workload:
    def set_up(folder: Path) -> Scene:
        path = str(folder / "table")
        build_table(path, size)
        variants = (
            Variant(_LIMIT, lambda _: _walk(path, size)),
            Variant(_FILES, lambda _: _list_files(path, size)),
            Variant("open_table, timeline()", lambda _: _list_instants(path, size)),
            Variant("decode all commits", lambda _: _decode_commits(path, size)),
            Variant(_COMMAND, lambda _: _run([sys.executable, "-m", "holdfast", "timeline", "show", path])),
            Variant("python -c pass", lambda _: _run([sys.executable, "-c", "pass"])),
        )
        facts = {"files": size.files, "partitions": size.partitions, "commits": size.commits}
        return Scene(variants, facts)

    goals = (Goal(_FILES, 2.0, Unit.SECONDS), Goal(_COMMAND, 0.5, Unit.SECONDS))
    return Workload(name=_NAME, limit=_LIMIT, goals=goals, set_up=set_up)


def build_table(path: str, size: Size) -> None:
    """A table as so many bulk inserts would leave it, with empty files for base files.

    Files are made without syncs: nobody needs this table after a power cut.
    """
    partitions = create_partitions(path, size.partitions)
    for number in range(size.commits):
        first = number * size.files_per_commit
        files = range(first, first + size.files_per_commit)
        commit_files(path, number, [(partitions[file % size.partitions], file) for file in files])


def create_partitions(path: str, count: int) -> list[str]:
    """An empty table with so many partitions; their paths."""
    holdfast.create_table(path, name=_TABLE, record_key="trip_id", partition_by="region")
    partitions = region_names(count)
    for partition in partitions:
        os.mkdir(f"{path}/{partition}")
        metafile = PartitionMetafile(time_at(_FIRST_MS, dt.UTC), depth=1)
        _create(
            path,
            in_partition(partition, PARTITION_METAFILE),
            encode_partition_metafile(metafile, moment=_moment()),
        )
    return partitions


def region_names(count: int) -> list[str]:
    return [f"region={number:05d}" for number in range(count)]


def commit_files(
    path: str,
    number: int,
    files: Iterable[tuple[str, int]],
    *,
    previous: int | None = None,
    content: bytes = b"",
) -> None:
    """The commit of that number, with one file for each partition and number of a file group.

    The file groups are new unless `previous` is the number of the commit that wrote them last.
    """
    instant = _time_of(number)
    stats = [write_stat(partition, group, instant) for partition, group in files]
    if previous is not None:
        stats = [msgspec.structs.replace(stat, prev_commit=_time_of(previous)) for stat in stats]
    for stat in stats:
        assert stat.path is not None
        _create(path, stat.path, content)
    _create_instant(path, instant, stats, schema=table_schema())


def table_schema() -> str:
    return avro_schema(_SCHEMA, table_name=_TABLE)


def _time_of(commit: int) -> InstantTime:
    return time_at(_FIRST_MS + commit * _COMMIT_EVERY_MS, dt.UTC)


def write_stat(partition: str, number: int, instant: InstantTime) -> WriteStat:
    file_id = f"{number:08x}-0000-4000-8000-{number:012x}-0"
    return WriteStat(
        file_id=file_id,
        path=in_partition(partition, str(BaseFileName(file_id, f"{number}-1-{number}", instant))),
        partition_path=partition,
        num_writes=_FILE_ROWS,
        num_inserts=_FILE_ROWS,
        total_write_bytes=_FILE_BYTES,
        file_size_in_bytes=_FILE_BYTES,
    )


def _create_instant(path: str, instant: InstantTime, stats: Sequence[WriteStat], *, schema: str) -> None:
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    metadata = CommitMetadata(by_partition, extra_metadata={"schema": schema}, operation_type=_OPERATION)
    for state, content in (
        (State.REQUESTED, b""),
        (State.INFLIGHT, inflight_metadata(_OPERATION)),
        (State.COMPLETED, encode_commit(metadata)),
    ):
        _create(path, instant_file(instant, Action.COMMIT, state), content)


def _create(root: str, path: str, content: bytes) -> None:
    with open(f"{root}/{path}", "xb") as file:
        file.write(content)


def _moment() -> dt.datetime:
    return dt.datetime.fromtimestamp(_FIRST_MS / 1000, dt.UTC)


def _walk(path: str, size: Size) -> None:
    files = [f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names]
    assert len(files) > size.files


def _list_files(path: str, size: Size) -> None:
    assert len(holdfast.open_table(path).files()) == size.files


def _list_instants(path: str, size: Size) -> None:
    assert len(holdfast.open_table(path).timeline()) == size.commits


def _decode_commits(path: str, size: Size) -> None:
    store = LocalStore(path)
    commits = [decode_commit(read_completed(store, i)) for i in load_timeline(store).completed_commits]
    named = sum(len(stats) for commit in commits for stats in commit.partition_to_write_stats.values())
    assert named == size.files


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
