"""The console put to work: before the routes of a service, or on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from starlette.types import ASGIApp

from holdfast.clock import Clock, SystemClock
from holdfast.config.server import Listener, ServerSettings, User
from holdfast.console.app import WithConsole, build_console
from holdfast.console.sessions import Sessions
from holdfast.console.site import Site
from holdfast.console.tasks import Tasks
from holdfast.server.auth import Authenticator
from holdfast.server.limits import open_bounds
from holdfast.server.listeners import Listeners, bind
from holdfast.server.service import Service


def console_in_front(service: Service, controller: ASGIApp) -> ASGIApp:
    """The controller's application with the console at `/`."""
    settings = service.settings
    site = Site(
        clock=service.clock,
        users=service.users,
        bounds=service.bounds,
        sessions=Sessions(service.clock),
        tasks=Tasks(service.clock),
        tables=settings.catalog.tables,
        push=service,
        is_secure=settings.has_tls or not settings.tls.is_required,
    )
    return WithConsole(build_console(site), controller)


def lake_site(
    tables: Mapping[str, str],
    *,
    clock: Clock | None = None,
    is_read_only: bool = False,
    users: Sequence[User] = (),
) -> Site:
    """A site of lake tables alone; without users, for whoever reaches the loopback address."""
    clock = SystemClock() if clock is None else clock
    settings = ServerSettings(users=tuple(users))
    return Site(
        clock=clock,
        users=Authenticator(settings, clock),
        bounds=open_bounds(settings, clock),
        sessions=Sessions(clock),
        tasks=Tasks(clock),
        tables=tables,
        is_read_only=is_read_only,
    )


@contextmanager
def serving_console(site: Site, *, port: int) -> Iterator[str]:
    """The console on a port of the loopback address, whose URL this is, until the block ends."""
    settings = ServerSettings()
    bound = bind(Listener(port=port), name="console", is_tls=False)
    try:
        served = [(build_console(site), bound)]
        listeners = Listeners(served, tls=settings.tls, limits=settings.limits, clock=site.clock)
        listeners.start()
        try:
            yield bound.url
        finally:
            listeners.stop()
    finally:
        bound.socket.close()
