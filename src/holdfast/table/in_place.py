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

Said = Mapping[InstantTime, frozenset[InstantTime]]
"""A commit that says it → the commits whose versions of files it took over."""


def in_place(said: Said, archived: Collection[InstantTime]) -> frozenset[InstantTime]:
    """The commits that count, given the archived ones that do."""
    found = set(archived)
    for commit in sorted(said):
        if said[commit] <= found:
            found.add(commit)
    return frozenset(found)


def archived_in_place(store: Store) -> frozenset[InstantTime]:
    """The archived commits that count; none if the record cannot be read, which `verify` reports."""
    return _known(read_or_none(store, ARCHIVED_IN_PLACE))


def check_record(store: Store) -> None:
    """`Malformed` if the record is there and cannot be read."""
    content = read_or_none(store, ARCHIVED_IN_PLACE)
    if content is not None:
        _decoded(content)


def record_in_place(store: Store, commits: Collection[InstantTime]) -> None:
    """Add commits that are about to leave the timeline."""
    while commits:
        if store.create(ARCHIVED_IN_PLACE, _encoded(commits)):
            return
        content, version = store.read_version(ARCHIVED_IN_PLACE)
        known = _known(content)
        if known.issuperset(commits):
            return
        if store.replace(ARCHIVED_IN_PLACE, _encoded(known.union(commits)), version):
            return


def _known(content: bytes | None) -> frozenset[InstantTime]:
    try:
        return frozenset() if content is None else _decoded(content)
    except Malformed as error:
        log.warning("in_place.unreadable", extra={"file": ARCHIVED_IN_PLACE, "cause": str(error)})
        return frozenset()


def _encoded(commits: Collection[InstantTime]) -> bytes:
    """A line with the digest of the others, and one for each commit."""
    lines = "".join(f"{commit}\n" for commit in sorted(commits)).encode()
    return _digest(lines) + b"\n" + lines


def _decoded(content: bytes) -> frozenset[InstantTime]:
    digest, _, lines = content.partition(b"\n")
    if digest != _digest(lines):
        raise Malformed("its digest is not that of its content")
    return frozenset(map(InstantTime, lines.decode().split()))


def _digest(lines: bytes) -> bytes:
    return hashlib.sha256(lines).hexdigest().encode()
