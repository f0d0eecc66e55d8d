"""Which instants may leave the active timeline.

Pure. Readers take files older than the first commit of the timeline for those
of commits. So nothing is archived past what is undecided, or what could come
back that way; and nothing that a savepoint, a lease or a clean still needs.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from holdfast.config.archiving import ArchiveSettings
from holdfast.config.cleaning import CleanPolicy
from holdfast.model.instant import Action, Instant, InstantTime, end_of
from holdfast.services.clean_planner import earliest_to_retain
from holdfast.timeline.timeline import Timeline

_FOLLOWING = (Action.CLEAN, Action.ROLLBACK)
"""What goes with the commits that are younger."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Something that keeps commits on the timeline."""

    before: InstantTime
    """Only commits before it may go."""
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What leaves the timeline."""

    instants: tuple[Instant, ...] = ()
    """In ascending order."""
    until: InstantTime | None = None
    """The newest commit among them; None if nothing is archived."""
    first_left: InstantTime | None = None
    """The commit that the timeline begins with afterwards; those of savepoints do not count."""
    held_back: str = ""
    """Why not more of them go; empty if as many go as may."""


def keeping(commits: Sequence[Instant], settings: ArchiveSettings) -> tuple[int, int]:
    """How many commits stay at least, and how many may gather.

    The bounds are raised, both by as much, if cleaning needs more commits.
    """
    needed = _needed(commits, settings)
    if settings.keep_min >= needed:
        return settings.keep_min, settings.keep_max
    return needed, needed + settings.keep_max - settings.keep_min


def keeping_start(commits: Sequence[Instant], time: InstantTime, reason: str) -> Bound:
    """What keeps the timeline beginning before a time: the newest commit before it stays."""
    older = [commit.time for commit in commits if end_of(commit.time) < end_of(time)]
    return Bound(older[-1] if older else time, reason)


def holding(commits: Sequence[Instant], time: InstantTime, reason: str) -> Bound:
    """What keeps a snapshot readable: the newest commit that it shows stays."""
    shown = [commit.time for commit in commits if end_of(commit.time) <= end_of(time)]
    return Bound(shown[-1] if shown else time, reason)


def plan_archive(
    timeline: Timeline,
    settings: ArchiveSettings,
    *,
    bounds: Iterable[Bound] = (),
    savepoints: Collection[InstantTime] = (),
    staying: Collection[InstantTime] = (),
) -> Plan:
    """The instants to archive: the oldest commits, and the cleans and rollbacks that are older than them.

    `staying` are cleans and rollbacks that do not go yet. Restores and
    savepoints never go.
    """
    commits = timeline.completed_commits
    least, most = keeping(commits, settings)
    if len(commits) <= most:
        return Plan(held_back=f"the timeline has {len(commits)} commits, and up to {most} may gather")
    known = list(bounds)
    if savepoints and not settings.beyond_savepoints:
        known.append(Bound(min(savepoints), f"commit {min(savepoints)} is savepointed"))
    nearest = min(known, key=lambda bound: end_of(bound.before), default=None)
    wanted = [commit for commit in commits if commit.time not in savepoints or not settings.beyond_savepoints]
    wanted = wanted[: len(commits) - least]
    going = [c for c in wanted if nearest is None or end_of(c.time) < end_of(nearest.before)]
    held_back = nearest.reason if nearest is not None and len(going) < len(wanted) else ""
    if not going:
        return Plan(held_back=held_back)
    until = going[-1].time
    following = [
        instant
        for instant in timeline.instants
        if instant.action in _FOLLOWING
        and instant.is_completed
        and instant.time < until
        and instant.time not in staying
    ]
    left = [commit.time for commit in commits if commit.time > until and commit.time not in savepoints]
    return Plan(
        tuple(sorted((*going, *following), key=lambda instant: (instant.time, instant.action))),
        until,
        left[0] if left else commits[-1].time,
        held_back,
    )


def _needed(commits: Sequence[Instant], settings: ArchiveSettings) -> int:
    """How many commits cleaning needs: those it retains, the one before them, and one to spare."""
    if not commits or settings.clean.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return 0
    window = earliest_to_retain(commits, settings=settings.clean, now=commits[-1].time)
    if window.earliest is None:
        # All are retained, and so are as many more as are still to come.
        is_by_commits = settings.clean.policy is CleanPolicy.KEEP_LATEST_COMMITS
        return settings.clean.commits_retained + 1 if is_by_commits else len(commits) + 1
    return sum(commit.time > window.earliest for commit in commits) + 2
