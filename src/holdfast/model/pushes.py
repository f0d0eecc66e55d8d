"""Pushes of a lake table: which commit is served where."""

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from holdfast.model.instant import InstantTime

LAKE_TABLE = "lake.table"
LAKE_INSTANT = "lake.instant"
INPUT_FOLDER = "input.folder"
INPUT_FILES = "input.files"
PUSH_RUN = "push.run"
"""What a push tells the service about where its rows come from: the keys of a lineage entry's source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """One push of a lake table's snapshot to a table of the push service."""

    instant: InstantTime
    """The commit whose snapshot was pushed."""
    table: str
    """The table of the push service, by its typed name."""
    controller: str
    """The address of the service."""
    entry_id: str
    """The lineage entry there."""
    lake: str
    """Where the lake table was when it was pushed."""
    segments: int = 0
    rows: int = 0
    is_whole: bool = True
    """Whether it replaced everything that was served before."""
    published_at: dt.datetime | None = None
    """None while it is not known whether the push was published; the service knows."""

    @property
    def place(self) -> tuple[str, str]:
        """Where it is served: a later push to the same place may have replaced it."""
        return self.controller, self.table


class Fate(StrEnum):
    """What became of a push, as its service tells."""

    SERVED = "served"
    OPEN = "not published"
    REVERTED = "reverted"
    REPLACED = "replaced"
    GONE = "its table is gone"
    UNKNOWN = "the service does not tell"


def newest_of_each_place(pushes: Iterable[Push]) -> list[Push]:
    """What is served, as far as the pushes of one table tell; they come oldest first."""
    return list({push.place: push for push in pushes}.values())


def source_text(source: Mapping[str, str]) -> str:
    """Where rows came from, in a few words; empty if not given."""
    files = ""
    if INPUT_FOLDER in source:
        files = f"{source.get(INPUT_FILES, 'some')} files of {source[INPUT_FOLDER]}"
    if LAKE_TABLE in source:
        commit = f"{source[LAKE_TABLE]} at {source.get(LAKE_INSTANT, 'an unknown commit')}"
        return f"{commit}, made of {files}" if files else commit
    if files:
        return files
    return ", ".join(f"{name} {value}" for name, value in source.items() if name != PUSH_RUN)
