"""Which commits left all rows of their files in the partitions that the rows name.

A commit says it of the rows that it wrote. Its files also hold what it took
over from the versions before them; so it counts only if the commits of those
count, too. Of archived commits a record tells, which only grows: an archiver
adds those that count before they leave the timeline. What the record does not
name, a commit of another program or one whose archive was lost, does not count.
"""

from collections.abc import Collection, Mapping

from holdfast.model.instant import InstantTime
from holdfast.model.names import ARCHIVED_IN_PLACE
from holdfast.storage.store import Store, read_or_none

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
    return _decoded(read_or_none(store, ARCHIVED_IN_PLACE) or b"")


def record_in_place(store: Store, commits: Collection[InstantTime]) -> None:
    """Add commits that are about to leave the timeline."""
    while commits:
        if store.create(ARCHIVED_IN_PLACE, _encoded(commits)):
            return
        content, version = store.read_version(ARCHIVED_IN_PLACE)
        known = _decoded(content)
        if known.issuperset(commits):
            return
        if store.replace(ARCHIVED_IN_PLACE, _encoded(known.union(commits)), version):
            return


def _encoded(commits: Collection[InstantTime]) -> bytes:
    return "".join(f"{commit}\n" for commit in sorted(commits)).encode()


def _decoded(content: bytes) -> frozenset[InstantTime]:
    return frozenset(map(InstantTime, content.decode().split()))
