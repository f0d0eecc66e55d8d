"""Scope: what the last clean left to do, and so which partitions the next one looks at.

Below the last clean's earliest commit everything has been dealt with, except
what was protected or would not go. What has changed since is in the commits
from there on.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from holdfast.format.cleans import CleanMetadata, decode_clean_metadata
from holdfast.format.commits import decode_partitions, decode_replaced_file_ids
from holdfast.format.malformed import report_damage
from holdfast.model.instant import Action, Instant, InstantTime, State
from holdfast.model.names import instant_file, instant_path
from holdfast.storage.store import Store, read_or_none
from holdfast.timeline.timeline import Timeline, read_all_completed

SAVEPOINTED = "savepointed_timestamps"
"""Hudi's name for the savepoints that a clean saw."""
LEASED = "holdfast_leased"
"""The leased commits that a clean saw."""
REVISIT = "holdfast_revisit"
"""Partitions in which a clean left what it would have deleted otherwise."""


@dataclass(frozen=True, slots=True)
class LastClean:
    instant: InstantTime
    earliest: InstantTime | None
    last_commit: InstantTime | None
    """The newest commit it knew."""
    savepoints: frozenset[InstantTime]
    revisit: frozenset[str]
    """Partitions with files that it left for a reason that may pass."""


def last_clean(store: Store, timeline: Timeline) -> LastClean | None:
    """The newest completed clean. One whose file is empty was cut off and does not count."""
    for instant in reversed(timeline.instants):
        if instant.action is Action.CLEAN and instant.is_completed:
            path = instant_file(instant.time, Action.CLEAN, State.COMPLETED)
            content = read_or_none(store, path)
            if content:
                return _last(instant, _decode(content, path))
    return None


def partitions_to_examine(
    store: Store,
    timeline: Timeline,
    last: LastClean | None,
    *,
    start: InstantTime,
    savepoints: Collection[InstantTime],
) -> frozenset[str] | None:
    """The partitions in which there may be something to clean; None means all.

    All, if the last clean cannot be built on: there is none, it knew no
    earliest commit or that commit is not there any more, or a savepoint that
    it saw is gone.
    """
    if last is None or last.earliest is None or not last.savepoints <= set(savepoints):
        return None
    if last.earliest not in {commit.time for commit in timeline.completed_commits}:
        return None
    between = commits_between(timeline, last.earliest, start)
    late = late_services(timeline)
    seen_between = [c for c in timeline.completed_commits if last.earliest <= late.get(c.time, "") < start]
    return last.revisit | _partitions_touched(store, list(dict.fromkeys([*between, *seen_between])))


def late_services(timeline: Timeline) -> dict[InstantTime, InstantTime]:
    """Compactions and replacements shown after newer commits, with the newest that was shown before each.

    Readers of that commit had what the older instant superseded.
    """
    commits = timeline.completed_commits
    services = {Action.REPLACECOMMIT}
    if any(commit.action is Action.DELTACOMMIT for commit in commits):
        services.add(Action.COMMIT)  # Beside deltacommits, only a compaction is a commit.
    finished = [(c.completed_at, c.time, c.action) for c in commits if c.completed_at is not None]
    late: dict[InstantTime, InstantTime] = {}
    newest = InstantTime("")
    for _, time, action in sorted(finished):
        if action in services and time < newest:
            late[time] = newest
        newest = max(newest, time)
    return late


def commits_between(timeline: Timeline, first: InstantTime, until: InstantTime) -> list[Instant]:
    """The completed commits in [first, until)."""
    return [commit for commit in timeline.completed_commits if first <= commit.time < until]


def _partitions_touched(store: Store, commits: list[Instant]) -> frozenset[str]:
    """The partitions that commits wrote to or replaced file groups in."""
    touched: set[str] = set()
    for commit, content in read_all_completed(store, commits):
        with report_damage("commit metadata cannot be read", file=instant_path(commit)):
            touched.update(decode_partitions(content), decode_replaced_file_ids(content))
    return frozenset(touched)


def _decode(content: bytes, path: str) -> CleanMetadata:
    with report_damage("clean metadata cannot be read", file=path):
        return decode_clean_metadata(content)


def _last(instant: Instant, metadata: CleanMetadata) -> LastClean:
    seen = (time.strip() for time in metadata.extra.get(SAVEPOINTED, "").split(","))
    stuck = frozenset(each.partition for each in metadata.partitions if each.failed)
    return LastClean(
        instant.time,
        metadata.earliest,
        metadata.last_completed,
        frozenset(InstantTime(time) for time in seen if time),
        stuck | frozenset(json.loads(metadata.extra.get(REVISIT, "[]"))),
    )
