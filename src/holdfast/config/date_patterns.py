"""Date patterns: Joda's pattern language, in which Hudi's timestamp generator is configured.

Letters stand for fields, everything else for itself, quotes around letters
that do. Only what both sides are sure to read alike is understood; names of
months, days and zones depend on the machine's language and are refused.
"""

import re
from dataclasses import dataclass

from holdfast.errors import InvalidOption

_PART = re.compile(r"''|'|([A-Za-z])\1*|[^A-Za-z']+")
_WIDEST = {"y": 4, "M": 2, "d": 2, "H": 2, "h": 2, "m": 2, "s": 2, "S": 9, "Z": 2}
_PRINTED_FRACTION_MAX = 3  # Moments have milliseconds.
_SAME_FIELD = {"h": "H"}


@dataclass(frozen=True, slots=True)
class DateField:
    letter: str
    """One of `y M d H h m s S Z`."""
    width: int


DatePattern = tuple[DateField | str, ...]
"""Fields and the texts between them."""


def input_pattern(text: str, *, option: str) -> DatePattern:
    """The pattern of texts to be read; `InvalidOption` if it does not tell a moment for certain."""
    pattern = _parse_pattern(text, option)
    fields = [part for part in pattern if isinstance(part, DateField)]
    letters = [_SAME_FIELD.get(field.letter, field.letter) for field in fields]
    fault = ""
    if "y" not in letters:
        fault = "a date pattern for input needs a year"
    elif DateField("y", 2) in fields:
        fault = "a date pattern for input needs years of four digits"
    elif len(set(letters)) != len(letters):
        fault = "a date pattern for input names a field twice"
    elif any(_begins_with_digit(part) for part in pattern):
        fault = "a text in a date pattern for input must not begin with a digit"
    if fault:
        raise InvalidOption(fault, property=option, pattern=repr(text))
    return pattern


def output_pattern(text: str, *, option: str) -> DatePattern:
    """The pattern of texts to be written."""
    pattern = _parse_pattern(text, option)
    for part in pattern:
        if isinstance(part, DateField) and (
            part.letter == "Z" or (part.letter == "S" and part.width > _PRINTED_FRACTION_MAX)
        ):
            raise _unknown(part.letter * part.width, text, option)
    return pattern


def _parse_pattern(text: str, option: str) -> DatePattern:
    parts: list[DateField | str] = []
    literal = ""
    is_quoted = False
    for match in _PART.finditer(text):
        part, letter = match[0], match[1]
        if part == "'":
            is_quoted = not is_quoted
        elif letter is None or is_quoted:
            literal += "'" if part == "''" else part
        else:
            parts += [literal] if literal else []
            literal = ""
            parts.append(_field(part, text, option))
    if is_quoted:
        raise InvalidOption("a quote in a date pattern is not closed", property=option, pattern=repr(text))
    parts += [literal] if literal else []
    if not parts:
        raise InvalidOption("a date pattern must not be empty", property=option)
    return tuple(parts)


def _field(letters: str, text: str, option: str) -> DateField:
    letter = "y" if letters[0] == "Y" else letters[0]
    if len(letters) > _WIDEST.get(letter, 0):
        raise _unknown(letters, text, option)
    return DateField(letter, len(letters))


def _begins_with_digit(part: DateField | str) -> bool:
    return isinstance(part, str) and part[0].isdigit()


def _unknown(letters: str, text: str, option: str) -> InvalidOption:
    hint = "write Z for a zone offset" if letters[0] == "X" else "use y M d H h m s S, quotes around text"
    return InvalidOption(
        "a date pattern has letters that are not supported here",
        property=option,
        letters=letters,
        pattern=repr(text),
        hint=hint,
    )
