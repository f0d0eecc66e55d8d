"""Segment lineage: which segments a push replaces by which, as values.

An entry says that `segments_to` take the place of `segments_from`. Until it is
COMPLETED the former are hidden; from then on the latter are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class EntryState(StrEnum):
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    REVERTED = "REVERTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEntry:
    """One replacement. Order and repetition inside the lists are part of its identity."""

    id: str
    segments_from: tuple[str, ...]
    segments_to: tuple[str, ...]
    state: EntryState
    changed_at_ms: int
    """When the state last changed, by a controller's clock."""
    auto_complete: bool = False

    @property
    def is_live(self) -> bool:
        return self.state is not EntryState.REVERTED

    @property
    def hidden(self) -> tuple[str, ...]:
        """The side that queries must not see."""
        return self.segments_from if self.state is EntryState.COMPLETED else self.segments_to


@dataclass(frozen=True, slots=True)
class Lineage:
    """All entries of one table, oldest change first."""

    entries: tuple[LineageEntry, ...] = ()
    custom: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The record's own map, kept as it was found."""

    def entry(self, id: str) -> LineageEntry | None:  # noqa: A002  # the word of the protocol
        return next((entry for entry in self.entries if entry.id == id), None)


def visible(segments: Iterable[str], lineage: Lineage) -> frozenset[str]:
    """What queries see of `segments`: everything that no entry hides."""
    return frozenset(segments).difference(*(entry.hidden for entry in lineage.entries))
