"""Visits: what a page is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.server.auth import Principal

if TYPE_CHECKING:
    from holdfast.console.site import Site


class On(Enum):
    """What the role of a page must be held on."""

    NOTHING = "nothing"
    """Who is not signed in comes here, too."""
    SOME = "some table"
    """The page itself shows only what its visitor may see."""
    TABLE = "the table that the path names"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page: its values, as JSON shows them, and what is drawn of them beside."""

    template: str
    title: str
    values: Mapping[str, Any]
    drawn: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Pictures and documents made of the values; programs do not get them."""
    status: int = 200
    part: str | None = None
    """The template of that part of the page which the script replaces."""


@dataclass(frozen=True, slots=True)
class Redirect:
    to: str


@dataclass(frozen=True, slots=True)
class File:
    content: bytes
    media_type: str
    name: str | None = None
    """To be stored under this name."""
    is_kept: bool = False
    """Whether a browser may keep it."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """The answer that begins a session, or, without a user, ends it."""

    user: str | None
    to: str


Answer = View | Redirect | File | SignIn


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request for a page, checked as far as its declaration goes."""

    principal: Principal
    is_signed_in: bool
    client: str
    request_id: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]

    @property
    def table(self) -> str:
        return self.path["table"]

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A number of the query, within its bounds."""
        text = self.query.get(name, "")
        try:
            number = int(text) if text.strip() else default
        except ValueError:
            raise InvalidRequest("a parameter is not a whole number", parameter=name) from None
        return max(least, min(most, number))

    def may(self, role: Role) -> bool:
        """On the table that the path names."""
        return self.principal.may(role, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    method: str
    path: str
    name: str
    handle: Callable[[Site, Visit], Answer]
    role: Role = Role.READ
    on: On = On.TABLE
    form_bytes: int = 64 * 1024

    @property
    def is_change(self) -> bool:
        return self.method != "GET"
