"""Which commits left all rows of their files in the partitions that the rows name.

A commit says it of the rows that it wrote. Its files also hold what it took
over from the versions before them; so it counts only if the commits of those
count, too. Of archived commits a record tells, which only grows: an archiver
adds those that count before they leave the timeline. What the record does not
name, a commit of another program or one that was archived before there was a
record, does not count. Only speed depends on it: other files are opened.
"""

import logging
from collections.abc import Collection, Mapping

from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime
from holdfast.model.names import ARCHIVED_IN_PLACE
from holdfast.storage.store import Store, read_or_none
from holdfast.table.line_record import change_lines, decode_lines

log = logging.getLogger(__name__)

RowPlacement = Mapping[InstantTime, frozenset[InstantTime]]
"""Commits that say that the rows they wrote lie in the partitions these name → the commits whose
versions of files each took over."""


def commits_in_place(placement: RowPlacement, archived: Collection[InstantTime]) -> frozenset[InstantTime]:
    """The commits that count, given the archived ones that do."""
    counted = set(archived)
    for commit in sorted(placement):
        if placement[commit] <= counted:
            counted.add(commit)
    return frozenset(counted)


def read_placement_record(store: Store) -> frozenset[InstantTime]:
    """The archived commits that count; none if the record cannot be read, which `verify` reports."""
    return _decode_or_warn(store, read_or_none(store, ARCHIVED_IN_PLACE))


def check_placement_record(store: Store) -> None:
    """`Malformed` if the record is there and cannot be read."""
    content = read_or_none(store, ARCHIVED_IN_PLACE)
    if content is not None:
        decode_lines(content)


def add_to_placement_record(store: Store, commits: Collection[InstantTime]) -> None:
    """Add commits that are about to leave the timeline."""
    if not commits:
        return

    def change(content: bytes | None) -> list[str] | None:
        known = _decode_or_warn(store, content)
        return None if known.issuperset(commits) else sorted(known.union(commits))

    change_lines(store, ARCHIVED_IN_PLACE, change)


def _decode_or_warn(store: Store, content: bytes | None) -> frozenset[InstantTime]:
    try:
        return frozenset(map(InstantTime, () if content is None else decode_lines(content)))
    except Malformed as error:
        log.warning(
            "in_place.unreadable",
            extra={"table": store.uri(""), "file": ARCHIVED_IN_PLACE, "cause": str(error)},
        )
        return frozenset()
