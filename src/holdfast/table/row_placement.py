"""Which commits left all rows of their files in the partitions that the rows name.

A commit says it of the rows that it wrote. Its files also hold what it took
over from the versions before them; so it counts only if the commits of those
count, too. Of archived commits a record tells, which only grows: an archiver
adds those that count before they leave the timeline. What the record does not
name, a commit of another program or one that was archived before there was a
record, does not count. Only speed depends on it: other files are opened.
"""

import hashlib
import logging
from collections.abc import Collection, Mapping

from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime
from holdfast.model.names import ARCHIVED_IN_PLACE
from holdfast.storage.store import Store, read_or_none

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
        _decode(content)


def add_to_placement_record(store: Store, commits: Collection[InstantTime]) -> None:
    """Add commits that are about to leave the timeline."""
    while commits:
        if store.create(ARCHIVED_IN_PLACE, _encode(commits)):
            return
        content, version = store.read_version(ARCHIVED_IN_PLACE)
        known = _decode_or_warn(store, content)
        if known.issuperset(commits):
            return
        if store.replace(ARCHIVED_IN_PLACE, _encode(known.union(commits)), version):
            return


def _decode_or_warn(store: Store, content: bytes | None) -> frozenset[InstantTime]:
    try:
        return frozenset() if content is None else _decode(content)
    except Malformed as error:
        log.warning(
            "in_place.unreadable",
            extra={"table": store.uri(""), "file": ARCHIVED_IN_PLACE, "cause": str(error)},
        )
        return frozenset()


def _encode(commits: Collection[InstantTime]) -> bytes:
    """A line with the digest of the others, and one for each commit."""
    lines = "".join(f"{commit}\n" for commit in sorted(commits)).encode()
    return _digest(lines) + b"\n" + lines


def _decode(content: bytes) -> frozenset[InstantTime]:
    digest, _, lines = content.partition(b"\n")
    if digest != _digest(lines):
        raise Malformed("its digest is not that of its content")
    return frozenset(map(InstantTime, lines.decode().split()))


def _digest(lines: bytes) -> bytes:
    return hashlib.sha256(lines).hexdigest().encode()
