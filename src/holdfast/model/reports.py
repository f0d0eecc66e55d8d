"""Reports: what an operation did, as values a caller can print, compare and turn into JSON."""

import datetime as dt
from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.instant import Action, Instant, InstantTime, State
from holdfast.model.shown import Shown


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IndexReport(Shown):
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Commit(Shown):
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
    repeated: bool = False
    """Whether this is an earlier commit, which a write of the same number found; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RollbackReport(Shown):
    """A write that did not finish, and what was removed of it."""

    instant: InstantTime
    """The rollback's own instant."""
    rolled_back: InstantTime
    action: Action
    deleted: tuple[str, ...]
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Compaction(Shown):
    """One compaction of a merge-on-read table: planned, running or done."""

    instant: InstantTime
    state: State
    file_groups: int
    log_files: int
    log_bytes: int
    """What the plan says of them; 0 if it says nothing."""
    planned_at: dt.datetime
    """When it was asked for, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Export(Shown):
    """The table in another format."""

    format: str
    """`delta` or `iceberg`."""
    instant: InstantTime | None
    """The commit whose rows it shows; None if it shows none yet."""
    lag: int
    """How many commits it does not show."""
    where: str
    """What other programs open."""
    complete_until: InstantTime | None
    """The newest commit of which it has all rows. It is older than `instant` where a merge-on-read
    table has log files, which no other format knows."""


class Severity(StrEnum):
    INFO = "info"
    """Normal while writers run, or soon after one died."""
    WARNING = "warning"
    """Readers see the right rows; something is to be tidied up."""
    DAMAGE = "damage"
    """Something is lost, or an operator has to decide."""


class FindingKind(StrEnum):
    """What `verify` looks for."""

    ORPHAN = "orphan"
    """A data file that belongs to no commit."""
    MISSING = "missing"
    """A data file that the newest snapshot or a savepoint needs."""
    TRUNCATED = "truncated"
    """A data file that is not as long as its commit says, or does not end as a Parquet file does."""
    TORN = "torn"
    """An instant, or a ledger entry, that cannot be read."""
    TORN_ROLLBACK = "torn rollback"
    """The request of a rollback that cannot be read and was not carried out."""
    TORN_PLAN = "torn plan"
    """The plan of a clean that was decided, cannot be read and was not carried out."""
    CONTRADICTORY = "contradictory"
    """Instants or files that cannot all be true."""
    DISAGREEMENT = "disagreement"
    """The timeline does not show what the ledger decided."""
    CHANGED = "changed"
    """A commit of ours whose file is not what the ledger has: torn, or written anew."""
    GHOST = "ghost"
    """A completed instant that the ledger aborted: it never happened."""
    UNDECIDED = "undecided"
    """A commit that is shown and that the ledger has not decided: it is older, as in a copy."""
    VANISHED = "vanished"
    """A commit that was decided, of which the timeline shows nothing although its files are there."""
    LOST = "lost"
    """A commit that was decided and whose files are not here: the ledger is newer, as in a copy."""
    UNFINISHED = "unfinished"
    """A rollback that was begun."""
    PENDING = "pending"
    """A write or a restore that is running, or whose process died."""
    MARKERS = "markers"
    """Markers of an instant that is decided."""
    HEARTBEAT = "heartbeat"
    """A heartbeat of an instant that is decided."""
    LOCK = "lock"
    PUSH = "push"
    """The record of a push that cannot be read, or that came from a commit which was taken back."""
    LEFTOVER = "leftover"
    """What was half-written when a process was killed."""
    HIDDEN = "hidden"
    """A data file that was written behind a newer one, by a clock that went back: nobody reads its rows."""
    MISREAD = "misread"
    """Rows that another reader would see otherwise."""
    METAFILE = "metafile"
    """A partition that Hudi would not find."""


@dataclass(frozen=True, slots=True, repr=False)
class Finding(Shown):
    """One thing that is not as it should be."""

    kind: FindingKind
    path: str
    """The file, or the folder, relative to the table."""
    detail: str
    remedy: str
    severity: Severity


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifyReport(Shown):
    findings: tuple[Finding, ...]
    files_checked: int
    """Base files that were looked at."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong; what is only for information does not count."""
        return all(finding.severity is Severity.INFO for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RepairReport(Shown):
    quarantine: str | None
    """What `undo_repair` takes to put the moved files back; None if nothing was moved."""
    moved: tuple[str, ...]
    rolled_back: tuple[RollbackReport, ...]
    left: tuple[Finding, ...]
    """What a repair does not touch."""
    taken_back: tuple[InstantTime, ...] = ()
    """Commits that were decided and whose files are not here."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Savepoint(Shown):
    """A commit that can always be gone back to: its files stay."""

    instant: InstantTime
    """The commit's."""
    user: str
    comment: str
    created_at: dt.datetime
    files: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TakenBack(Shown):
    """A commit, or a write that did not finish, and what vanishes with it."""

    instant: InstantTime
    action: Action
    is_committed: bool
    owner: str | None
    """Who began it, if it did not finish and that is known."""
    records: int
    """Those it inserted, updated and deleted; 0 if that is not known."""
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestorePlan(Shown):
    """What going back to a commit would take."""

    target: InstantTime
    """The newest commit afterwards."""
    instants: tuple[TakenBack, ...]
    """Newest first."""
    resumes: InstantTime | None = None
    """A restore to the same commit that was begun and not finished."""
    vanishing: tuple[str, ...] = ()
    """Every file that would be gone, by its path: data files, and what is kept about them in `.hoodie`."""
    hindrance: str = ""
    """Why it would be refused now, if it would be."""

    @property
    def files(self) -> int:
        """How many files would be deleted."""
        return sum(one.files for one in self.instants)

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.instants)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RestoreReport(Shown):
    """A table that was taken back to a commit."""

    instant: InstantTime | None
    """The restore's own instant; None if the commit was the newest already."""
    target: InstantTime
    rolled_back: tuple[RollbackReport, ...]
    """In the order in which they were taken back."""
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DropPlan(Shown):
    """What goes with a table, and what stays."""

    path: str
    name: str
    files: tuple[str, ...]
    """Relative to the table: its data files, and everything in `.hoodie`."""
    size_bytes: int
    left: tuple[str, ...]
    """Files below the path that do not belong to the table, and stay."""
    commits: int = 0
    """On the timeline."""
    savepoints: tuple[InstantTime, ...] = ()
    leases: tuple[str, ...] = ()
    """Who reads a snapshot of it."""
    writers: tuple[str, ...] = ()
    """Writes that may be running."""
    pushes: tuple[str, ...] = ()
    """What was pushed from it. The push service has its own files: what it serves stays."""
    resumes: bool = False
    """Whether the table was being dropped already; then only files are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DropReport(Shown):
    path: str
    deleted: int
    """How many files."""
    bytes_freed: int
    left: tuple[str, ...]
    """Files below the path that did not belong to the table."""
    took_ms: int


@dataclass(frozen=True, slots=True, repr=False)
class CleanFile(Shown):
    """A data file, and why a clean deletes it or leaves it."""

    path: str
    """Relative to the table."""
    size: int
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class CleanForecast(Shown):
    """What a clean that keeps this many commits would free."""

    commits_retained: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanPlan(Shown):
    """What a clean would delete, and what it would leave, and why."""

    earliest_commit_to_retain: InstantTime | None
    """The earliest commit that can be read afterwards; None if nothing is decided by commits."""
    doomed: tuple[CleanFile, ...]
    kept: tuple[CleanFile, ...]
    why_nothing: str = ""
    """Why nothing can be cleaned, where that needs a word."""
    forecast: tuple[CleanForecast, ...] = ()
    vanishing: tuple[str, ...] = ()
    """Every file that would be gone, by its path: data files, and what is kept about them in `.hoodie`."""
    hindrance: str = ""
    """Why it would be refused now, if it would be."""

    @property
    def bytes_freed(self) -> int:
        return sum(file.size for file in self.doomed)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanReport(Shown):
    """What a clean did."""

    instant: InstantTime | None = None
    """None if there was nothing to clean."""
    earliest_commit_to_retain: InstantTime | None = None
    deleted: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Files of the plan that were gone before; an earlier attempt at the same clean deletes some."""
    failed: tuple[str, ...] = ()
    """Files that storage did not delete; the next clean tries again."""
    metadata_table: tuple[str, ...] = ()
    """Files of Hudi's metadata table, which went because it would still list what is deleted."""
    bytes_freed: int = 0
    took_ms: int = 0
    resumed: tuple["CleanReport", ...] = ()
    """Older cleans that were not finished and have been now."""
    why_nothing: str = ""
    """Why nothing was cleaned, if nothing was."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ArchiveReport(Shown):
    """Instants that left the active timeline."""

    archived: tuple[Instant, ...]
    """In ascending order; empty if nothing was to be done."""
    file: str | None
    """Where they are now, relative to the table; None if there are none."""
    commits_left: int
    """Completed commits on the active timeline."""
    held_back: str
    """Why not more were archived; empty if nothing was in the way."""
    took_ms: int
    resumed: tuple[Instant, ...] = ()
    """What was to be archived before, by a process that died over it, and has been now."""
