"""How text fits on a screen: what is one word, such as an instant or a file's name, is never broken.

A table that is too wide gives up the blanks of its header first, then breaks
its texts between words, then does without columns that it may do without, and
in the end shows its rows one below the other.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import click

GAP = 2
_TEXT_MIN = 24
"""A text of several words is not squeezed below this; narrower ones read badly."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    place: int
    """Where it stands in a row; two columns may have one name."""
    name: str
    cells: Sequence[str]
    is_right: bool = False
    is_text: bool = False
    """Whether its cells may be broken between words."""

    @property
    def full_width(self) -> int:
        return max(self.cell_width, width_of(self.name))

    @property
    def cell_width(self) -> int:
        """With a header that is broken between words."""
        return max([*map(width_of, self.cells), _longest_word(self.name)], default=0)

    @property
    def least_width(self) -> int:
        if not self.is_text:
            return self.cell_width
        words = max([*map(_longest_word, self.cells), _longest_word(self.name)], default=0)
        return min(self.cell_width, max(words, _TEXT_MIN))


def fit_columns(
    columns: Sequence[Column], spare: Iterable[str], width: int
) -> tuple[list[Column], list[int]] | None:
    """The columns that fit, with their widths; None if no choice of them does.

    `spare` are columns to do without, the least needed first.
    """
    kept, left = list(columns), list(spare)
    while kept:
        room = width - GAP * (len(kept) - 1)
        for widths in ([one.full_width for one in kept], [one.cell_width for one in kept]):
            if sum(widths) <= room:
                return kept, widths
        if sum(one.least_width for one in kept) <= room:
            return kept, _squeeze(kept, room)
        if not left:
            return None
        name = left.pop(0)
        kept = [one for one in kept if one.name != name]
    return None


def _squeeze(columns: Sequence[Column], room: int) -> list[int]:
    """Take what is too much from the widest columns that can give."""
    widths = [one.cell_width for one in columns]
    while sum(widths) > room:
        slack = [w if w > one.least_width else 0 for w, one in zip(widths, columns, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return widths


def wrap(text: str, width: int, *, indent: str = "") -> list[str]:
    """The text in lines that fit, broken at blanks; a path that is longer than a line, after slashes."""
    if width_of(text) <= width:
        return [text]
    lines = [text[: len(text) - len(text.lstrip(" "))]]
    is_empty = True
    for piece, blank in _pieces(text.lstrip(" "), width - len(indent)):
        candidate = lines[-1] + ("" if is_empty else blank) + piece
        if is_empty or width_of(candidate) <= width:
            lines[-1] = candidate
        else:
            lines.append(indent + piece)
        is_empty = False
    return lines


def _pieces(text: str, width: int) -> Iterator[tuple[str, str]]:
    """Words, each with the blank before it; of those that are too long, the parts between slashes."""
    for word in text.split(" "):
        if width_of(word) <= width or "/" not in word:
            yield word, " "
            continue
        blank = " "
        for part in word.replace("/", "/\0").split("\0"):
            if part:
                yield part, blank
                blank = ""


def _longest_word(text: str) -> int:
    return max(map(width_of, text.split(" ")), default=0)


def width_of(text: str) -> int:
    """How many places the text takes in a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def pad(
    text: str, width: int, *, is_right: bool = False, style: Mapping[str, Any] = MappingProxyType({})
) -> str:
    blanks = " " * (width - width_of(text))
    shown = click.style(text, **style) if style and text else text
    return blanks + shown if is_right else shown + blanks
