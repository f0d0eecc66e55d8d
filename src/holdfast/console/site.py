"""The site: everything that pages look at, put together once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.config.server import EVERY_TABLE, Role
from holdfast.console.sessions import Sessions
from holdfast.console.tasks import Tasks
from holdfast.errors import TableNotFound
from holdfast.push.calls import Caller
from holdfast.server.auth import ANONYMOUS, Authenticator, Principal
from holdfast.server.limits import Bounds
from holdfast.server.table_names import raw_name
from holdfast.table.opened import OpenTable, open_at

if TYPE_CHECKING:
    from holdfast.console.visits import Visit
    from holdfast.server.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    clock: Clock
    users: Authenticator
    bounds: Bounds
    sessions: Sessions
    tasks: Tasks
    tables: Mapping[str, str]
    """Where each lake table is, by the name under which it is shown."""
    push: Service | None = None
    """The push service; None where lake tables alone are shown."""
    is_read_only: bool = False
    """Whether whoever needs no login may only look."""
    is_secure: bool = False
    """Whether browsers reach it by TLS."""

    @property
    def anonymous(self) -> Principal:
        """Who needs no login."""
        if not self.is_read_only:
            return ANONYMOUS
        return replace(ANONYMOUS, roles={EVERY_TABLE: Role.READ})

    def open(self, name: str) -> OpenTable:
        """A lake table by its name. `TableNotFound` if there is none."""
        path = self.tables.get(name)
        if path is None:
            raise TableNotFound("no lake table has this name", table=name)
        return open_at(path)

    def lake_tables(self, principal: Principal) -> list[str]:
        """The lake tables that a visitor may see."""
        return [name for name in self.tables if principal.may_read(name)]

    def push_tables(self, principal: Principal) -> list[str]:
        """The tables of the push service that a visitor may see, by their typed names."""
        if self.push is None:
            return []
        names = self.push.controller.views.tables()
        return [name for name in names if principal.may_read(raw_name(name))]

    def service(self) -> Service:
        """`TableNotFound` where lake tables alone are shown."""
        if self.push is None:
            raise TableNotFound("no push service runs here")
        return self.push

    def push_table(self, name: str) -> str:
        """The typed name of a served table. `TableNotFound` if there is none."""
        if self.push is not None:
            typed = next((one for one in self.push.controller.views.tables() if raw_name(one) == name), None)
            if typed is not None:
                return typed
        raise TableNotFound("no table of the push service has this name", table=name)

    def caller(self, visit: Visit) -> Caller:
        """Who asks, as the controller and its audit know them."""
        return Caller(
            actor=visit.principal.name,
            operator=visit.may(Role.OPERATE),
            address=visit.client,
            request_id=visit.request_id,
        )

    def kinds(self, name: str) -> Iterator[str]:
        """What the name stands for: a lake table, a served one, or both."""
        if name in self.tables:
            yield "lake"
        if self.push is not None and any(
            raw_name(one) == name for one in self.push.controller.views.tables()
        ):
            yield "served"
