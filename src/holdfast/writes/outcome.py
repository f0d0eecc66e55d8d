"""What the tasks of a write did, and the report of the commit that it became."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec

from holdfast.format.commits import WriteStat
from holdfast.model.instant import Action, InstantTime
from holdfast.model.reports import Commit, IndexReport, RollbackReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """What a write saw and left as it is: nothing of it is in the commit, yet the write relies on it.

    A delete of a key that is not there changes nothing, if no other write adds
    the key meanwhile; a row that is older than the stored one changes nothing,
    if no other write removes that one.
    """

    absent_from: frozenset[str] = frozenset()
    """Partitions in which a key that was to be removed is not."""
    kept: frozenset[tuple[str, str]] = frozenset()
    """File groups, as partition and file id, that hold a key and are not written: what they hold is newer."""

    def __add__(self, other: "Unchanged") -> "Unchanged":
        return Unchanged(absent_from=self.absent_from | other.absent_from, kept=self.kept | other.kept)


class TaskOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task reports to the driver: a file, or what looking for keys took, or what it left unchanged."""

    stat: WriteStat | None = None
    index: IndexReport | None = None
    unchanged: Unchanged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What all tasks of a write did."""

    stats: Sequence[WriteStat]
    index: IndexReport = field(default_factory=IndexReport)
    unchanged: Unchanged = field(default_factory=Unchanged)

    @classmethod
    def of(cls, outputs: Iterable[TaskOutput], *, index: IndexReport | None = None) -> Self:
        """The sum of what tasks report; `index` is what the driver's own look for keys took."""
        outputs = list(outputs)
        return cls(
            stats=[output.stat for output in outputs if output.stat is not None],
            index=sum((o.index for o in outputs if o.index is not None), index or IndexReport()),
            unchanged=sum((o.unchanged for o in outputs if o.unchanged is not None), Unchanged()),
        )


def commit_report(
    instant: InstantTime,
    action: Action,
    operation: str,
    stats: Sequence[WriteStat],
    replaced: Mapping[str, object] | None,
    *,
    index: IndexReport | None = None,
    rolled_back: tuple[RollbackReport, ...] = (),
    post_commit_errors: tuple[str, ...] = (),
    repeated: bool = False,
) -> Commit:
    """The report of a commit with these files; `replaced` has the partitions that lost some."""
    touched = {stat.partition_path or "" for stat in stats} | set(replaced or ())
    return Commit(
        instant=instant,
        action=action,
        operation=operation,
        records_written=sum(stat.num_writes for stat in stats),
        records_inserted=sum(stat.num_inserts for stat in stats),
        records_updated=sum(stat.num_update_writes for stat in stats),
        records_deleted=sum(stat.num_deletes for stat in stats),
        files_written=len(stats),
        bytes_written=sum(stat.total_write_bytes for stat in stats),
        partitions=tuple(sorted(touched)),
        index=index or IndexReport(),
        rolled_back=rolled_back,
        post_commit_errors=post_commit_errors,
        repeated=repeated,
    )
