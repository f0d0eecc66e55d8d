"""Documents: what a plan, a report or a state says, before somebody draws it.

A document is shown in two ways: its fields as JSON, or its blocks as text. A
terminal draws the blocks as lines and tables; a page can draw them as well.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Bytes:
    """A size, shown in the unit that people would choose."""

    count: int

    def __str__(self) -> str:
        if self.count < 1024:
            return f"{self.count} B"
        scaled = float(self.count)
        for unit in ("KB", "MB", "GB", "TB"):
            scaled /= 1024
            if scaled < 1024:
                return f"{scaled:.1f} {unit}"
        return f"{scaled / 1024:.1f} PB"


@dataclass(frozen=True, slots=True)
class Line:
    text: str = ""


@dataclass(frozen=True, slots=True)
class Warned:
    """A line that a reader must not miss."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    facts: Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows under a header."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    spare: Sequence[str] = ()
    """Columns that a narrow screen does without, the least needed first."""


Block = Line | Warned | Facts | Rows


@dataclass(frozen=True, slots=True)
class Document:
    blocks: tuple[Block, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)
    """As programs read it. The names are a contract: they are added to, never changed."""

    def __add__(self, other: "Document") -> "Document":
        return Document((*self.blocks, *other.blocks), {**self.fields, **other.fields})


def iso(moment: dt.datetime | None) -> str | None:
    """A moment as programs read it."""
    if moment is None:
        return None
    return moment.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def quantity(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
