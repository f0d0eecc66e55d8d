"""What an option is: its names, how its text is read, and how a value is refused.

The options that there are stand in `option_table`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from holdfast.errors import InvalidOption

Value = TypeVar("Value")

REQUIRED: Any = MISSING
"""In place of a default."""

FLAGS = {"true": True, "false": False}
_KEY = "option"


class Area(StrEnum):
    """What an option is about, and so where it can be given."""

    SWITCH = "everything that takes options"
    WRITE = "a write"
    LOCK = "the lock of a write"
    CLEAN = "cleaning and archiving"
    TABLE = "what a table is"
    SOURCE = "holdfast.write and format('holdfast')"
    READ = "a read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    area: Area
    setting: str
    """The field of the settings; in the area TABLE, the property it is stored as."""
    names: tuple[str, ...]
    """Its spellings. The first that is given wins, and is the one printed."""
    meaning: str
    kind: type[Any] = str
    default: object = None
    shown: str = ""
    """What the page says instead of the default."""
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    """The texts it can be, in any case, if the type does not say them."""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def wanted(self) -> str:
        """What a text must be."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind is bool:
            return "true or false"
        if self.kind is float:
            return "a number"
        return ", ".join(self.kind) if issubclass(self.kind, StrEnum) else "a whole number"

    def parse(self, text: str, *, name: str = "") -> Any:
        """The value that a text means; `InvalidOption` with the `name` it was given by if it means none."""
        written = text.strip()
        try:
            if self._values:
                return self._values[written.lower()]
            return split_names(written) if self.kind is tuple else self.kind(written)
        except (ValueError, KeyError):
            raise self.refuse(text, self.wanted, name=name) from None

    def check(self, value: Any) -> None:
        """`InvalidOption` if the value is none that a setting may have."""
        if self.choices and value not in self.choices:
            raise self.refuse(value, self.wanted)
        if value is not None and self.least is not None and value < self.least:
            raise self.refuse(value, f"at least {self.least}")
        if value is not None and self.most is not None and value > self.most:
            raise self.refuse(value, f"at most {self.most}")

    def refuse(self, value: object, wanted: str, *, name: str = "") -> InvalidOption:
        """The error about a value. A property of a table has the name it is stored by."""
        role = "property" if self.area is Area.TABLE and not name else "option"
        given = name or (self.setting if role == "property" else self.name)
        facts: dict[str, Any] = {role: given, "value": value, "wanted": wanted}
        return InvalidOption(f"{role} has a value that cannot be used", **facts)

    @property
    def _values(self) -> Mapping[str, Any]:
        """The values there are, by their text in lower case; empty if there is no list of them."""
        if self.kind is bool:
            return FLAGS
        listed = tuple(self.kind) if issubclass(self.kind, StrEnum) else self.choices
        return {value.lower(): value for value in listed}


def option(
    default: Value,
    *names: str,
    meaning: str,
    shown: str = "",
    kind: type[Any] | None = None,
    least: int | None = None,
    most: int | None = None,
    choices: tuple[str, ...] = (),
) -> Value:
    """A field of settings that an option gives. Its type is that of the field, unless `kind` says another."""
    more = {"meaning": meaning, "shown": shown, "least": least, "most": most, "choices": choices}
    declared: Value = field(default=default, metadata={_KEY: {"names": names, "kind": kind, **more}})
    return declared


def field_options(area: Area, settings: type[Any]) -> Iterator[Option]:
    """The options that the fields of a class declare."""
    types = get_type_hints(settings)
    for each in fields(settings):
        facts = dict(each.metadata[_KEY])
        kind = facts.pop("kind") or _plain_type(types[each.name])
        yield Option(area=area, setting=each.name, kind=kind, default=each.default, **facts)


def split_names(text: str) -> tuple[str, ...]:
    """The names in a text, separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _plain_type(declared: Any) -> type[Any]:
    """`int` of `int | None`, `tuple` of `tuple[str, ...]`."""
    if get_origin(declared) is not tuple:
        declared = next((each for each in get_args(declared) if each is not type(None)), declared)
    kind: type[Any] = get_origin(declared) or declared
    return kind
