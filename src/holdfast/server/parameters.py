"""What requests carry beside their bodies: for each endpoint one struct, which declares it and holds it.

The type of a field says how it is read: text, `int`, `bool`, several texts
for a tuple, and with `None` it may be absent. What `Annotated` adds is for
clients. Requests are decoded, and `/openapi.json` is written, from these alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from holdfast.errors import InvalidRequest
from holdfast.server.table_names import TYPES, offline_name, parse_type, qualify

Given = TypeVar("Given", bound="Parameters")

WAIT_MAX_MS = 3_600_000
_BROKERS_WITHIN_MS = 60_000
_KINDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer"}


class Place(Enum):
    PATH = "path"
    QUERY = "query"
    HEADER = "header"


@dataclass(frozen=True, slots=True)
class Parameter:
    """What `Annotated` says of a field."""

    about: str
    name: str = ""
    """As requests spell it; without one, the field's name in camel case."""
    place: Place = Place.QUERY
    choices: tuple[str, ...] = ()
    parse: Callable[[str], object] | None = None
    """What makes the value of a text, where that is not plain from the type."""


def in_path(about: str) -> Parameter:
    return Parameter(about, place=Place.PATH)


def header(name: str, about: str, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(about, name, Place.HEADER, choices)


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Those of an endpoint that takes none, and the base of all others."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A field of such a struct, as `/openapi.json` and the decoder need it."""

    field: str
    name: str
    about: str
    place: Place
    kind: str
    """`string`, `boolean` or `integer`."""
    choices: tuple[str, ...]
    default: Any
    is_required: bool
    is_repeated: bool
    parse: Callable[[str], object]


@cache
def declarations(kind: type[Parameters]) -> tuple[Declaration, ...]:
    """The parameters of an endpoint: of the path, the query, and the headers."""
    places = list(Place)
    every = (_declare(field) for field in msgspec.structs.fields(kind))
    return tuple(sorted(every, key=lambda one: places.index(one.place)))


def read_parameters(kind: type[Given], texts: Callable[[Place, str], tuple[str, ...]]) -> Given:
    """The parameters of a request. A blank one is absent, and of several values the first counts."""
    values: dict[str, object] = {}
    for one in declarations(kind):
        given = texts(one.place, one.name)
        if one.is_repeated:
            values[one.field] = given
        elif given and given[0].strip():
            values[one.field] = _parse(one, given[0])
        elif one.is_required:
            raise InvalidRequest("a parameter is missing", parameter=one.name, code="PARAMETER_MISSING")
    return kind(**values)


def _declare(field: msgspec.structs.FieldInfo) -> Declaration:
    held, parameter = get_args(field.type)
    inner = next((one for one in get_args(held) if one is not NoneType), held)
    return Declaration(
        field=field.name,
        name=parameter.name or _camel(field.name),
        about=parameter.about,
        place=parameter.place,
        kind="string" if parameter.parse else _KINDS[inner],
        choices=parameter.choices,
        default=None if field.required else field.default,
        is_required=field.required,
        is_repeated=get_origin(held) is tuple,
        parse=parameter.parse or _PARSERS[inner],
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _parse(one: Declaration, text: str) -> object:
    try:
        return one.parse(text)
    except ValueError as error:
        raise InvalidRequest(
            "a parameter is not a whole number", parameter=one.name, code="PARAMETER_INVALID"
        ) from error


def _parse_flag(text: str) -> bool:
    """`true` in any case is true, everything else is false, as in Pinot."""
    return text.strip().lower() == "true"


def _parse_whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"larger than 64 bits: {text[:40]}")
    return number


_PARSERS: Mapping[type, Callable[[str], object]] = {str: str, bool: _parse_flag, int: _parse_whole}

_TYPE = Parameter("The table's type.", choices=TYPES, parse=parse_type)
TableType = Annotated[str | None, _TYPE]
NeededType = Annotated[str, _TYPE]
DryRun = Annotated[bool, Parameter("Check every rule and tell what would change; change nothing.")]
ToEmpty = Annotated[bool, Parameter("`false`: refuse if queries would see no rows any more.")]
Precise = Annotated[
    str | None,
    header(
        "X-Lineage-Status", "400, 403, 404 and 409 for rules that fail, instead of Pinot's 500.", ("precise",)
    ),
]
"""Read where errors become statuses, which may be before parameters are read."""
IdempotencyKey = Annotated[
    str | None,
    header("Idempotency-Key", "Chosen by the client: a repeat with the same key gets the same answer."),
]
EntryId = Annotated[str, Parameter("The entry, as start named it.")]
LeaseToken = Annotated[str, header("X-Lease-Token", "The token that start gave with a lease.")]
WaitForBrokers = Annotated[bool, Parameter("Answer when every broker has switched.")]
TimeoutMs = Annotated[int | None, Parameter("How long to wait for that.")]


class InDatabase(Parameters, frozen=True, kw_only=True):
    database: Annotated[
        str | None, header("database", "Put this and a dot before the table's name; `default` means nothing.")
    ] = None


class OfTable(InDatabase, frozen=True, kw_only=True):
    table: Annotated[str, in_path("A table by its raw name (orders) or its typed one (orders_OFFLINE).")]

    @property
    def qualified(self) -> str:
        """The table's name in its database."""
        return qualify(self.table, self.database)

    @property
    def typed(self) -> str:
        """The table's name in its database and with its type, under which it is kept."""
        return offline_name(self.qualified, None)


class OfTypedTable(OfTable, frozen=True, kw_only=True):
    type: TableType = None

    @property
    def typed(self) -> str:
        return offline_name(self.qualified, self.type)


class OfTypedTablePrecisely(OfTypedTable, frozen=True, kw_only=True):
    precise: Precise = None


def wait_ms(given_ms: int | None, default_ms: int) -> int:
    """How long a call waits for what happens elsewhere."""
    return default_ms if given_ms is None else max(0, min(given_ms, WAIT_MAX_MS))


def brokers_within_ms(given_ms: int | None, *, waits: bool) -> int:
    """0: the call does not wait for them."""
    return wait_ms(given_ms, _BROKERS_WITHIN_MS) if waits else 0
