"""Where rows go: the file groups a write may add to, and how many new rows each takes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from holdfast.config.choices import IndexType
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption, TableDamaged
from holdfast.format.buckets import bucket_of
from holdfast.model.slices import FileSlice
from holdfast.storage.store import Store

_MIN_SAMPLE_BYTES = 1024 * 1024
"""In a smaller file the footer is larger than the rows."""
_BUCKETS_LIKELY = 10_000
"""A random id begins with a decimal number below this once in four hundred thousand times."""

FileGroups = Mapping[str, tuple[FileSlice, ...]]
"""Partition → the newest slice of each of its file groups."""


def file_groups(newest: pa.Table) -> FileGroups:
    """The newest slices of a snapshot, as the view gives them, by partition."""
    # Loaded here because tasks import this module, and need nothing of the view.
    from holdfast.table.view import each_slice

    groups: dict[str, list[FileSlice]] = {}
    for each in each_slice(newest):
        groups.setdefault(each.partition, []).append(each)
    return {partition: tuple(members) for partition, members in groups.items()}


def with_sizes(store: Store, members: tuple[FileSlice, ...]) -> tuple[FileSlice, ...]:
    """File groups of one partition, each with its size; their folder is listed if the commits do not tell.

    They do not once they are archived. Without it an old file group would
    seem to be full, and an old partition to be empty.
    """
    if all(group.size is not None for group in members):
        return members
    sizes = {file.path: file.size for file in store.folder(members[0].partition).files}
    return tuple(
        replace(group, size=sizes.get(group.home)) if group.size is None else group for group in members
    )


def check_index(groups: FileGroups, settings: WriteSettings) -> None:
    """Refuse an index that does not fit how the table was laid out.

    Version 6 of the format does not say which index a table has; its file ids
    do, where the index is BUCKET.
    """
    if settings.index_type is IndexType.BUCKET:
        _check_buckets(groups, settings)
    else:
        check_not_bucketed([group.file_id for members in groups.values() for group in members], settings)


def check_not_bucketed(file_ids: Sequence[str], settings: WriteSettings) -> None:
    """Refuse another index where these file groups, which may be some of the table's, are all buckets."""
    buckets = [bucket_of(file_id) for file_id in file_ids]
    if buckets and all(bucket is not None and bucket < _BUCKETS_LIKELY for bucket in buckets):
        raise InvalidOption(
            "the table's file groups are buckets; another index would break that",
            option="hoodie.index.type",
            value=settings.index_type,
            hint="write with hoodie.index.type=BUCKET and the number of buckets it was made with",
        )


def _check_buckets(groups: FileGroups, settings: WriteSettings) -> None:
    for partition, members in groups.items():
        seen: set[int] = set()
        for group in members:
            bucket = bucket_of(group.file_id)
            if bucket is None or bucket >= settings.bucket_count:
                raise InvalidOption(
                    "the table was not made with this many buckets",
                    file_group=group.file_id,
                    partition=partition,
                    option="hoodie.bucket.index.num.buckets",
                    value=settings.bucket_count,
                )
            if bucket in seen:
                raise TableDamaged("a bucket has two file groups", bucket=bucket, partition=partition)
            seen.add(bucket)


@dataclass(frozen=True, slots=True)
class Room:
    """A file group that may take new rows."""

    size: int | None
    rows: int
    is_rewritten: bool
    """Whether it is written anew in any case."""


def rows_taken(
    rooms: Sequence[Room], new_rows: int, settings: WriteSettings, *, row_bytes: float
) -> list[int]:
    """How many of the new rows each file group takes; the rest goes to new ones.

    Those that are rewritten anyway come first, then the smallest. `row_bytes`
    is how long a new row is at most; a large file shows it better.
    """
    taken = [0] * len(rooms)
    small = [n for n, room in enumerate(rooms) if (room.size or math.inf) < settings.small_file_bytes]
    for number in sorted(small, key=lambda n: (not rooms[n].is_rewritten, rooms[n].size)):
        size, rows = rooms[number].size or 0, rooms[number].rows
        is_sample = rows > 0 and size >= _MIN_SAMPLE_BYTES
        room = (settings.max_file_bytes - size) / max(size / rows if is_sample else row_bytes, 1)
        taken[number] = min(new_rows, max(0, int(room)))
        new_rows -= taken[number]
    return taken


def insertion_targets(groups: Sequence[FileSlice], new_rows: int, settings: WriteSettings) -> list[str]:
    """The base files that new rows of a partition are spread over, small ones first; empty for new ones."""
    files = max(1, math.ceil(new_rows * settings.record_bytes / settings.max_file_bytes))
    small = [g for g in groups if g.size is not None and g.size < settings.small_file_bytes]
    targets = [group.home for group in sorted(small, key=lambda group: group.size or 0)[:files]]
    return targets + [""] * (files - len(targets))


def total_bytes(groups: Iterable[FileSlice]) -> int:
    return sum(group.size or 0 for group in groups)
