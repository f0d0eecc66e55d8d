"""Exports follow the table: each shows what the timeline shows, and is moved before files are deleted.

Most tables have none, and commands that only look at a table must start fast: so what
reads and writes exports is loaded where there is one.
"""

from collections.abc import Collection

from holdfast.table.opened import OpenTable
from holdfast.table.properties_file import read_current_settings


def follow(table: OpenTable) -> None:
    """Bring the exports to what the timeline shows."""
    _advance(table, fences=False)


def move_before_deletion(table: OpenTable) -> None:
    """As `follow`, before files are deleted that commits had which are not shown any more.

    Afterwards no version can be made that was computed while they were.
    """
    _advance(table, fences=True)


def move_before_clean(table: OpenTable, doomed: Collection[str]) -> None:
    """As `follow`, before these files are deleted, which are of no newest version of anything.

    Older versions that have one of them cannot be named any more afterwards.
    """
    if read_current_settings(table).export_formats:
        from holdfast.exports.advance import expire

        _advance(table, fences=False)
        expire(table, doomed)


def _advance(table: OpenTable, *, fences: bool) -> None:
    if read_current_settings(table).export_formats:
        from holdfast.exports.advance import advance

        advance(table, fences=fences)
