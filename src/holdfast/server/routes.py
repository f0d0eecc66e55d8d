"""All routes of the two applications. The more particular path stands first."""

from typing import Any

from holdfast.config.server import Role
from holdfast.server import (
    inspection,
    lineage,
    queries,
    replace,
    segments,
    snapshots,
    table_configs,
    tables,
    upkeep,
    uploads,
)
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import Answer, Call, Endpoint, Reply
from holdfast.server.openapi import describe
from holdfast.server.parameters import Parameters
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT


def controller_endpoints() -> tuple[Endpoint[Any], ...]:
    return _with_description(
        (
            *upkeep.ENDPOINTS,
            *queries.CONTROLLER_ENDPOINTS,
            *uploads.ENDPOINTS,
            *replace.ENDPOINTS,
            *lineage.ENDPOINTS,
            *snapshots.ENDPOINTS,
            *inspection.ENDPOINTS,
            *segments.ENDPOINTS,
            *table_configs.ENDPOINTS,
            *tables.ENDPOINTS,
        ),
        title="Holdfast push service: controller",
        is_broker=False,
    )


def broker_endpoints() -> tuple[Endpoint[Any], ...]:
    return _with_description(
        (upkeep.HEALTH, upkeep.UPTIME, upkeep.METRICS, *queries.BROKER_ENDPOINTS),
        title="Holdfast push service: broker",
        is_broker=True,
    )


def _with_description(
    endpoints: tuple[Endpoint[Any], ...], *, title: str, is_broker: bool
) -> tuple[Endpoint[Any], ...]:
    """The endpoints and the one that describes them all, itself included."""

    def show(_service: Service, _call: Call[Parameters]) -> Reply:
        return Reply(document=document)

    every = (
        Endpoint(
            method="GET", path="/openapi.json", name="GetOpenApi", access=Access(Role.READ, On.SOME),
            parameters=Parameters, handle=show, about="This description.",
            answer=Answer(about="It.", schema=OBJECT),
        ),
        *endpoints,
    )  # fmt: skip
    document = describe(every, title=title, is_broker=is_broker)
    return every
