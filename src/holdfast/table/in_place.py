"""Whether archived commits left their rows in the partitions that the rows name.

A commit says it of the rows that it wrote, and a view asks all commits of the
active timeline. Of those that are archived a record tells: the digest of a
listing of the archives, written by whoever put the last of them there, if its
commits and the record before it said so. An archive of another program, or one
whose commits do not say it, is not in the listing that the record is of.
"""

import hashlib
from collections.abc import Sequence

from holdfast.model.names import ARCHIVED_IN_PLACE, META_FOLDER
from holdfast.storage.store import StoredFile, read_or_none
from holdfast.table.opened import OpenTable


def archived_in_place(table: OpenTable) -> bool:
    """True if it is known of all archived commits, or there are none."""
    archives = _archives(table)
    return not archives or read_or_none(table.store, ARCHIVED_IN_PLACE) == _digest(archives)


def record_in_place(table: OpenTable, archive: str) -> None:
    """Take an archive into the record, whose commits all say it; unless it is unknown of older archives."""
    archives = _archives(table)
    known = read_or_none(table.store, ARCHIVED_IN_PLACE)
    older = [file for file in archives if file.path != archive]
    if known != _digest(archives) and (not older or known == _digest(older)):
        table.store.put(ARCHIVED_IN_PLACE, _digest(archives))


def _archives(table: OpenTable) -> tuple[StoredFile, ...]:
    return table.store.folder(f"{META_FOLDER}/{table.settings.archive_folder}").files


def _digest(archives: Sequence[StoredFile]) -> bytes:
    # Hudi may append to an archive, which shows in its size.
    listing = "\n".join(f"{file.path} {file.size}" for file in archives)
    return hashlib.sha256(listing.encode()).hexdigest().encode()
