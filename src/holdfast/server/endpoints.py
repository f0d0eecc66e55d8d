"""The language in which routes are declared.

An `Endpoint` says everything about one route: path, who may call it, what it
takes, what it answers. The served routes and `/openapi.json` are both made
from these declarations, and a handler is given what they declare.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from threading import BoundedSemaphore
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.uploads.receive import (
    Take,
    take_freely,
)
from holdfast.server import auth
from holdfast.server.auth import Access, Principal
from holdfast.server.parameters import Given, Parameters
from holdfast.server.table_names import raw_name

if TYPE_CHECKING:
    from holdfast.server.service import Service

Document = TypeVar("Document")
Held = TypeVar("Held", bound=Parameters, covariant=True)

_SMALL_BYTES = 64 * 1024
_LARGE_DECODES = BoundedSemaphore(2)
"""While a large body is decoded no other thread runs, so only few are decoded at a time."""


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
class Endpoint(Generic[Given]):
    method: str
    path: str
    name: str
    """One word for logs, metrics and the audit, as Pinot names its actions where it does."""
    access: Access
    about: str
    parameters: type[Given]
    handle: Callable[["Service", "Call[Given]"], Reply]
    body: BodyKind = BodyKind.NONE
    body_type: type | None = None
    body_about: str = ""
    answer: Answer = field(default_factory=lambda: Answer(about="Done."))
    refusals: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    """Statuses beside the ones that every route may answer."""
    is_query: bool = False
    """It runs or reads SQL, and so takes one of the places for queries."""
    deadline: Callable[["Service", "Call[Given]"], float] | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """The one part of a form, on disk until the call is over."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Held]):
    """One request, read and checked as far as its declaration goes."""

    parameters: Held
    principal: Principal
    request_id: str
    client: str
    began_s: float
    """When the request came, on `time.monotonic`."""
    headers: Mapping[str, str]
    body: bytes = b""
    upload: Upload | None = None
    folder: Path | None = None
    """Where an upload may put files; it is removed when the call is over."""
    take: Take = take_freely
    """Claims bytes of disk for an upload, from the thread of its handler."""

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
