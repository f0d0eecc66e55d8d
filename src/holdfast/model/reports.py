"""Reports: what an operation did, as values a caller can print, compare and turn into JSON."""

from dataclasses import dataclass

from holdfast.model.instant import Action, InstantTime


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
    """What looking for keys took, in file groups."""

    file_groups: int = 0
    """Those that might have held a key."""
    pruned_by_range: int = 0
    """Ruled out by the least and greatest key in their footer."""
    pruned_by_bloom: int = 0
    """Ruled out by the bloom filter in their footer."""

    def __add__(self, other: "IndexReport") -> "IndexReport":
        return IndexReport(
            file_groups=self.file_groups + other.file_groups,
            pruned_by_range=self.pruned_by_range + other.pruned_by_range,
            pruned_by_bloom=self.pruned_by_bloom + other.pruned_by_bloom,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A write that finished."""

    instant: InstantTime
    action: Action
    operation: str
    records_written: int
    records_inserted: int
    records_updated: int
    records_deleted: int
    files_written: int
    bytes_written: int
    partitions: tuple[str, ...]
    index: IndexReport = IndexReport()
    """What it took to find the file groups that hold the keys."""
    rolled_back: tuple["RollbackReport", ...] = ()
    """Failed writes that this write removed before it began."""
    post_commit_errors: tuple[str, ...] = ()
    """What went wrong after the commit was durable; the commit itself stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport:
    """A write that did not finish, and what was removed of it."""

    instant: InstantTime
    """The rollback's own instant."""
    rolled_back: InstantTime
    action: Action
    deleted: tuple[str, ...]
    took_ms: int
