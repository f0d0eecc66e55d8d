"""Conflicts: whether a write may still be committed beside what was committed since it began.

Two writes are in each other's way if no order, one after the other, gives what
both together would leave:

    same file group                     the second would undo the first
    one replaces a partition, the other wrote to it meanwhile
    both add new keys to a partition    and the later one promises unique keys
    one adds keys to a partition        in which the later one looked for keys to remove, and missed some
    one wrote a file group              whose rows the later one found newer than its own
    both changed the schema             one's columns would be lost
    both say where their rows come from, and it is the same place

Everything here is a pure function of commit metadata.
"""

from dataclasses import dataclass
from typing import Self

from holdfast.format.buckets import bucket_of
from holdfast.format.commits import decode_touching
from holdfast.writes.origin import NO_ORIGIN, ExtraMetadata, Origin

Group = tuple[str, str | int]
"""A partition, and in it a file id, or a bucket: two new file groups of one bucket are the same one."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a commit touched."""

    groups: frozenset[Group]
    """File groups written or replaced."""
    partitions: frozenset[str]
    """Partitions written to."""
    added_to: frozenset[str]
    """Partitions that got new records."""
    schema: str | None
    extra_metadata: ExtraMetadata
    """Its extra metadata."""

    @classmethod
    def of(cls, payload: bytes) -> Self:
        """From commit metadata."""
        metadata = decode_touching(payload)
        stats = [(p, stat) for p, stats in metadata.partition_to_write_stats.items() for stat in stats]
        replaced = [
            (p, file_id)
            for p, ids in (metadata.partition_to_replace_file_ids or {}).items()
            for file_id in ids
        ]
        ids = [(partition, stat.file_id) for partition, stat in stats]
        return cls(
            groups=frozenset(group_of(partition, file_id) for partition, file_id in (*ids, *replaced)),
            partitions=frozenset(partition for partition, _ in stats),
            added_to=frozenset(partition for partition, stat in stats if stat.num_inserts > 0),
            schema=(metadata.extra_metadata or {}).get("schema"),
            extra_metadata=metadata.extra_metadata or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a write relies on that others might have changed since."""

    footprint: Footprint
    schema_before: str | None
    """The schema the write found; None if it found none."""
    replaces: frozenset[str] = frozenset()
    """Partitions whose whole content it replaces."""
    replaces_all: bool = False
    has_unique_keys: bool = False
    """Whether it looked for the keys it added, and promises that no other write has them."""
    is_global: bool = False
    """Whether keys are unique in the table, not only in each partition."""
    absent_from: frozenset[str] = frozenset()
    """Partitions in which it looked for a key to remove that was not there."""
    kept: frozenset[Group] = frozenset()
    """File groups that it looked at and left as they were."""
    appended: frozenset[str] = frozenset()
    """File groups, as `partition/file id`, to which it added a log file."""
    origin: Origin = NO_ORIGIN


def conflict(claim: Claim, other: Footprint, *, is_younger: bool) -> str | None:
    """Why `claim` cannot be committed after `other`, as a clause; None if it can.

    `is_younger`: whether `other` has the later instant, and so counts as the newer of the two.
    """
    same_origin = claim.origin.conflict(other.extra_metadata)
    if same_origin is not None:
        return same_origin
    mine = claim.footprint
    shared = mine.groups & other.groups
    if shared:
        partition, group = min(shared, key=str)
        count = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        return f"both wrote file group {group} of partition {partition or 'of the table'}{count}"
    changed = claim.kept & other.groups
    if changed:
        partition, group = min(changed, key=str)
        return (
            f"it wrote file group {group} of partition {partition or 'of the table'}, which this write read"
        )
    overwritten = other.partitions if claim.replaces_all else claim.replaces & other.partitions
    if overwritten:
        return f"it wrote to partition {min(overwritten)}, which this write replaces"
    if claim.has_unique_keys and mine.added_to and other.added_to:
        added = other.added_to if claim.is_global else mine.added_to & other.added_to
        if added:
            return f"both added new keys to partition {min(added)}"
    missed = other.added_to if claim.is_global and claim.absent_from else claim.absent_from & other.added_to
    if missed:
        return f"it added keys to partition {min(missed)}, where this write missed keys to remove"
    if other.schema not in (None, claim.schema_before, mine.schema):
        return "it changed the table's schema"
    # The newest commit has the table's schema, and this one would not be it.
    if is_younger and mine.schema not in (claim.schema_before, other.schema):
        return "it is younger, and this write changes the table's schema"
    return None


def group_of(partition: str, file_id: str) -> Group:
    bucket = bucket_of(file_id)
    return partition, file_id if bucket is None else bucket
