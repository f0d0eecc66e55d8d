"""Which instants may leave the active timeline.

Pure. Readers take files older than the first commit of the timeline for those
of commits. So nothing is archived past what is undecided, or what could come
back that way; and nothing that a savepoint, a lease or a clean still needs.
"""

import datetime as dt
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import ArchiveSettings
from holdfast.model.instant import Action, Instant, InstantTime, end_of, moment_of
from holdfast.services.clean.policy import earliest_to_retain
from holdfast.timeline.timeline import Timeline

_CLOCK_CHANGE_MS = 3_600_000
_FOLLOWING = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)
"""What goes with the commits that are younger, or when there is too much of it."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that keeps commits on the timeline."""

    before: InstantTime
    """Only commits before it may go."""
    reason: str


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What leaves the timeline."""

    instants: tuple[Instant, ...] = ()
    """In ascending order."""
    until: InstantTime | None = None
    """The newest commit among them; None if no commit is archived."""
    first_left: InstantTime | None = None
    """The commit that the timeline begins with afterwards."""
    held_back: str = ""
    """Why not more of them go; empty if as many go as may."""


def commits_to_keep(commits: Sequence[Instant], settings: ArchiveSettings) -> tuple[int, int]:
    """How many commits stay at least, and how many may gather.

    The bounds are raised, both by as much, if cleaning needs more commits.
    """
    needed = _commits_needed(commits, settings)
    if settings.keep_min >= needed:
        return settings.keep_min, settings.keep_max
    return needed, needed + settings.keep_max - settings.keep_min


def bound_before(commits: Sequence[Instant], time: InstantTime, reason: str) -> Bound:
    """What keeps the timeline beginning before a time: the newest commit before it stays."""
    older = [commit.time for commit in commits if end_of(commit.time) < end_of(time)]
    return Bound(older[-1] if older else time, reason)


def bound_at(commits: Sequence[Instant], time: InstantTime, reason: str) -> Bound:
    """What keeps a snapshot readable: the newest commit that it shows stays."""
    shown = [commit.time for commit in commits if end_of(commit.time) <= end_of(time)]
    return Bound(shown[-1] if shown else time, reason)


def is_archive_due(timeline: Timeline, settings: ArchiveSettings) -> bool:
    """Whether more commits, cleans, rollbacks or restores have gathered than may."""
    _, most = commits_to_keep(timeline.completed_commits, settings)
    services = (_services_of(timeline, action) for action in _FOLLOWING)
    return any(len(gathered) > most for gathered in (timeline.completed_commits, *services))


def plan_archive(
    timeline: Timeline,
    settings: ArchiveSettings,
    *,
    bounds: Iterable[Bound] = (),
    savepoints: Collection[InstantTime] = (),
    staying: Collection[InstantTime] = (),
    unfinished: InstantTime | None = None,
) -> ArchivePlan:
    """The instants to archive: the oldest commits, and the cleans, rollbacks and restores older than them.

    If more cleans, rollbacks or restores have gathered than commits may, their
    oldest go as well, whatever the commits do; but none that is younger than
    `unfinished`, the oldest instant that is not completed. `staying` are
    those of them that do not go yet. Savepoints never go; a savepointed commit
    does, and the savepoint still tells which files it consists of.
    """
    going, held_back = _going_commits(timeline, settings, bounds, savepoints)
    until = going[-1].time if going else None
    services = [
        instant
        for action in _FOLLOWING
        for instant in _going_services(_services_of(timeline, action), settings, timeline, until)
        if instant.time not in staying
        and (_is_before(instant, until) or unfinished is None or _is_before(instant, unfinished))
    ]
    commits = timeline.completed_commits
    left = [c.time for c in commits if until is not None and c.time > until]
    return ArchivePlan(
        tuple(sorted((*going, *services), key=lambda instant: (instant.time, instant.action))),
        until,
        None if until is None else left[0] if left else commits[-1].time,
        held_back,
    )


def _going_commits(
    timeline: Timeline,
    settings: ArchiveSettings,
    bounds: Iterable[Bound],
    savepoints: Collection[InstantTime],
) -> tuple[list[Instant], str]:
    """The commits to archive, and why not more of them go."""
    commits = timeline.completed_commits
    least, most = commits_to_keep(commits, settings)
    if len(commits) <= most:
        return [], f"the timeline has {len(commits)} commits, and up to {most} may gather"
    known = list(bounds)
    if savepoints and not settings.beyond_savepoints:
        known.append(Bound(min(savepoints), f"commit {min(savepoints)} is savepointed"))
    nearest = min(known, key=lambda bound: end_of(bound.before), default=None)
    wanted = commits[: len(commits) - least]
    going = [c for c in wanted if nearest is None or end_of(c.time) < end_of(nearest.before)]
    return going, nearest.reason if nearest is not None and len(going) < len(wanted) else ""


def _services_of(timeline: Timeline, action: Action) -> list[Instant]:
    return [instant for instant in timeline.instants if instant.action is action and instant.is_completed]


def _going_services(
    services: Sequence[Instant], settings: ArchiveSettings, timeline: Timeline, until: InstantTime | None
) -> list[Instant]:
    """Cleans, rollbacks, or restores that go: those before `until`, and of too many the oldest."""
    least, most = commits_to_keep(timeline.completed_commits, settings)
    too_many = len(services) - least if len(services) > most else 0
    return [instant for n, instant in enumerate(services) if n < too_many or _is_before(instant, until)]


def _is_before(instant: Instant, time: InstantTime | None) -> bool:
    return time is not None and instant.time < time


def _commits_needed(commits: Sequence[Instant], settings: ArchiveSettings) -> int:
    """How many commits cleaning needs: those it retains, the one before them, and one to spare."""
    if not commits or settings.clean.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return 0
    # Only distances count, and they are as in UTC in every zone, but where its clock was put forward.
    now_ms = int(moment_of(commits[-1].time, dt.UTC).timestamp() * 1000) - _CLOCK_CHANGE_MS
    window = earliest_to_retain(commits, settings=settings.clean, now_ms=now_ms, zone=dt.UTC)
    if window.earliest is None:
        # All are retained, and so are as many more as are still to come.
        is_by_commits = settings.clean.policy is CleanPolicy.KEEP_LATEST_COMMITS
        return settings.clean.commits_retained + 1 if is_by_commits else len(commits) + 1
    return sum(commit.time > window.earliest for commit in commits) + 2
