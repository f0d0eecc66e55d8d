"""Which commits were completed in a range of time, where the timeline says when each was completed.

Hudi 1.x goes by completion in incremental queries: a commit that was requested
before the range, and completed in it, is one of its changes.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.config.choices import TableType
from holdfast.errors import UnsupportedTable
from holdfast.format.commits import decode_operation, is_rewrite
from holdfast.format.malformed import report_damage
from holdfast.model.instant import Action, Instant, InstantTime, end_of
from holdfast.model.names import instant_path
from holdfast.table.opened import OpenTable
from holdfast.timeline.layout import completion_of, layout_of
from holdfast.timeline.timeline import load_timeline, read_completed

_BEFORE_ALL = InstantTime("0" * 17)


class RequestRange(NamedTuple):
    """The same commits by the times at which they were requested, which rows carry."""

    since: InstantTime
    until: InstantTime | None
    """The newest of them; None if there are none."""
    commits: frozenset[InstantTime] = frozenset()
    """All that were completed in the range, services too."""


def completed_range(table: OpenTable, since: InstantTime, until: InstantTime | None) -> RequestRange:
    """The commits that were completed in (since, until].

    `UnsupportedTable` if they overlap others: then no snapshot has the state of theirs alone.
    """
    every = _completions(table, since)
    commits = frozenset(
        time for time, end in every.items()
        if end_of(end) > end_of(since) and (until is None or end_of(end) <= end_of(until))
    )  # fmt: skip
    services = _services(table)
    completions = {time: end for time, end in every.items() if time not in services}
    older = {time for time, end in completions.items() if end_of(end) <= end_of(since)}
    later = {time for time, end in completions.items() if until is not None and end_of(end) > end_of(until)}
    within = completions.keys() - older - later
    if not within:
        return RequestRange(max(older, default=_BEFORE_ALL), None)
    first, last = min(within), max(within)
    overlapping = [time for time in older if time > first] + [time for time in later if time < last]
    if overlapping:
        raise UnsupportedTable(
            "commits of this range were written at the same time as others, which are not part of it",
            since=since,
            until=until or "now",
            commit=overlapping[0],
            hint="choose a range that begins and ends where no two writes overlap",
        )
    return RequestRange(max(older, default=_BEFORE_ALL), last, commits)


def _completions(table: OpenTable, since: InstantTime) -> dict[InstantTime, InstantTime]:
    """When each commit was completed; those that are archived, too, where the range reaches them."""
    found = {c.time: completion_of(c) for c in load_timeline(table.store).completed_commits}
    if not found or min(found.values()) > since:
        found = layout_of(table.store).archived_completions(table.store) | found
    return found


def _services(table: OpenTable) -> set[InstantTime]:
    """Commits that write rows of older ones anew, and run beside other writes."""
    commits = load_timeline(table.store).completed_commits
    return {commit.time for commit in commits if _is_service(table, commit)}


def _is_service(table: OpenTable, commit: Instant) -> bool:
    if commit.action is Action.COMMIT:
        return table.settings.table_type is TableType.MERGE_ON_READ
    if commit.action is Action.DELTACOMMIT:
        return False
    with report_damage("commit metadata cannot be read", file=instant_path(commit)):
        return is_rewrite(decode_operation(read_completed(table.store, commit)))
