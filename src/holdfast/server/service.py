"""Everything that handlers work with, put together once."""

from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.config.server import Role, ServerSettings
from holdfast.push.broker import Broker
from holdfast.push.catalog import Catalog
from holdfast.push.controller import Controller
from holdfast.push.deep_store import DeepStore
from holdfast.push.refused_calls import RefusedCalls
from holdfast.push.reports import Caller
from holdfast.server.auth import Authenticator
from holdfast.server.end_jobs import EndJobs
from holdfast.server.endpoints import Call
from holdfast.server.limits import RateLimit, Slots
from holdfast.server.metrics import Metrics
from holdfast.server.sources import Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    settings: ServerSettings
    clock: Clock
    catalog: Catalog
    deep_store: DeepStore
    controller: Controller
    broker: Broker
    sources: Sources
    users: Authenticator
    rates: RateLimit
    calls: Slots
    queries: Slots
    metrics: Metrics
    refused: RefusedCalls
    ends: EndJobs
    started_at_ms: int

    def caller(self, call: Call, table: str) -> Caller:
        """Who asks, as the controller and its audit know them."""
        return Caller(
            actor=call.principal.name,
            operator=call.may(Role.OPERATE, table),
            address=call.client,
            request_id=call.request_id,
            key=call.headers.get("idempotency-key", ""),
        )
