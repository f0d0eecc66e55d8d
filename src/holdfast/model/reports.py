"""Reports: what an operation did, as values a caller can print, compare and turn into JSON."""

from dataclasses import dataclass

from holdfast.model.instant import Action, InstantTime


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
