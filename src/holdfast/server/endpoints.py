"""The language in which routes are declared.

An `Endpoint` says everything about one route: path, who may call it, what it
takes, what it answers. The served routes and `/openapi.json` are both made
from these declarations; a handler that asks for something undeclared fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.uploads.receive import (
    Take,
    take_freely,
)
from holdfast.server import auth
from holdfast.server.auth import Access, Principal
from holdfast.server.table_names import parse_type, qualify, raw_name

if TYPE_CHECKING:
    from holdfast.server.service import Service

Document = TypeVar("Document")

DATABASE = "database"
_SMALL_BYTES = 64 * 1024
_LARGE_DECODES = BoundedSemaphore(2)
"""While a large body is decoded no other thread runs, so only few are decoded at a time."""


class Place(Enum):
    PATH = "path"
    QUERY = "query"
    HEADER = "header"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    about: str
    place: Place = Place.QUERY
    kind: str = "string"
    """`string`, `boolean` or `integer`."""
    choices: tuple[str, ...] = ()
    default: str | None = None
    is_required: bool = False
    is_repeated: bool = False


def path_parameter(name: str, about: str) -> Parameter:
    return Parameter(name, about, Place.PATH, is_required=True)


def header(name: str, about: str, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(name, about, Place.HEADER, choices=choices)


def flag(name: str, about: str, *, default: bool = False) -> Parameter:
    return Parameter(name, about, kind="boolean", default=str(default).lower())


TABLE = path_parameter("table", "A table by its raw name (orders) or its typed one (orders_OFFLINE).")
TYPE = Parameter("type", "The table's type.", choices=("OFFLINE", "REALTIME"))
DATABASE_HEADER = header(DATABASE, "Put this and a dot before the table's name; `default` means nothing.")
PRECISE_HEADER = header(
    "X-Lineage-Status", "400, 403, 404 and 409 for rules that fail, instead of Pinot's 500.", ("precise",)
)
NEEDED_TYPE = Parameter("type", "The table's type.", choices=("OFFLINE", "REALTIME"), is_required=True)
KEY_HEADER = header(
    "Idempotency-Key", "Chosen by the client: a repeat with the same key gets the same answer."
)
COMMON = (TABLE, TYPE, DATABASE_HEADER)
DRY_RUN = flag("dryRun", "Check every rule and tell what would change; change nothing.")
TO_EMPTY = flag("toEmpty", "`false`: refuse if queries would see no rows any more.", default=True)
RULES = {
    404: "The table or the entry is not known.",
    409: "A rule forbids it, or somebody else was faster (precise statuses).",
    500: "A rule forbids it, as Pinot answers; errorCode names the rule. Or a bug.",
}
NO_TABLE = {404: "The table is not known."}


class BodyKind(Enum):
    NONE = "none"
    JSON = "json"
    OPTIONAL_JSON = "optional json"
    UPLOAD = "upload"
    """One part of a form, or nothing where the bytes are named by an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    about: str
    schema: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    media_type: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a handler answers. Exactly one of `document`, `text` and `chunks`, or none: an empty body."""

    document: Any = None
    text: str | None = None
    chunks: Iterator[bytes] | None = None
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    path: str
    name: str
    """One word for logs, metrics and the audit, as Pinot names its actions where it does."""
    access: Access
    about: str
    handle: Callable[["Service", "Call"], Reply]
    parameters: tuple[Parameter, ...] = ()
    body: BodyKind = BodyKind.NONE
    body_type: type | None = None
    body_about: str = ""
    answer: Answer = field(default_factory=lambda: Answer(about="Done."))
    refusals: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """Statuses beside the ones that every route may answer."""
    is_query: bool = False
    """It runs or reads SQL, and so takes one of the places for queries."""
    deadline: Callable[["Service", "Call"], float] | None = None
    """Until when, in `time.monotonic`, a query may wait for a place; its handler tells who was late."""
    has_list: bool = False
    """Its body lists segments or files, of which there may be many; only who may write sends one."""
    has_statement: bool = False
    """Its body is a statement, which is short."""
    only_looks: bool = False
    """It changes nothing, although its method or its role are those of a change."""

    is_download: bool = False
    """Its answer is a file, made while it is sent. The downloads of one user at a time are bounded."""
    is_immediate: bool = False
    """Its handler waits for nothing, and so for no place either: it runs on the event loop."""

    @property
    def is_change(self) -> bool:
        """Whether it is there to change something, if only a query that runs."""
        if self.only_looks:
            return False
        needs_more = self.access.role is not None and self.access.role > Role.READ
        return needs_more or (self.method != "GET" and not self.is_query)

    def parameter(self, name: str) -> Parameter:
        found = next((one for one in self.parameters if one.name == name), None)
        assert found is not None, f"{self.method} {self.path} does not declare {name}"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The one part of a form, on disk until the call is over."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, read and checked as far as its declaration goes."""

    endpoint: Endpoint
    principal: Principal
    request_id: str
    client: str
    began_s: float
    """When the request came, on `time.monotonic`."""
    path: Mapping[str, str]
    query: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str]
    body: bytes = b""
    upload: Upload | None = None
    folder: Path | None = None
    """Where an upload may put files; it is removed when the call is over."""
    take: Take = take_freely
    """Claims bytes of disk for an upload, from the thread of its handler."""

    def text(self, name: str) -> str | None:
        """A parameter's value; None if it is absent or blank."""
        found = self.texts(name)
        return found[0] if found and found[0].strip() else None

    def require_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise InvalidRequest("a parameter is missing", parameter=name, code="PARAMETER_MISSING")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Every value of a parameter that repeats."""
        match self.endpoint.parameter(name).place:
            case Place.PATH:
                return (str(self.path[name]),)
            case Place.HEADER:
                value = self.headers.get(name.lower())
                return () if value is None else (value,)
            case Place.QUERY:
                return self.query.get(name, ())

    def flag(self, name: str) -> bool:
        """`true` in any case is true, everything else is false, as in Pinot."""
        value = self.text(name) or self.endpoint.parameter(name).default or ""
        return value.strip().lower() == "true"

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = 2**63
        if not -(2**63) <= number < 2**63:
            raise InvalidRequest(
                "a parameter is not a whole number", parameter=name, code="PARAMETER_INVALID"
            )
        return number

    @property
    def is_precise(self) -> bool:
        return self.headers.get("x-lineage-status", "").strip().lower() == "precise"

    @property
    def database(self) -> str | None:
        return self.headers.get(DATABASE)

    @property
    def table(self) -> str:
        """The table that the path names, in its database."""
        return qualify(self.path["table"], self.database)

    def kind(self, name: str = "type", *, is_needed: bool = False) -> str | None:
        """The table type that a parameter names."""
        value = self.require_text(name) if is_needed else self.text(name)
        return None if value is None else parse_type(value)

    def read(self, kind: type[Document]) -> Document:
        """The body as JSON of this shape. Unknown fields are passed over, as in Pinot."""
        try:
            if len(self.body) <= _SMALL_BYTES:
                return msgspec.json.decode(self.body, type=kind)
            with _LARGE_DECODES:
                return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest("the body is wrong", cause=str(error), code="BODY_INVALID") from error

    def require(self, role: Role, table: str) -> None:
        """For a table that only the body names."""
        auth.require(self.principal, role, table)

    def may(self, role: Role, table: str) -> bool:
        """On a table, by its typed name or its raw one."""
        return self.principal.may(role, raw_name(table))
