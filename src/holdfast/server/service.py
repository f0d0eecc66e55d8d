"""Everything that handlers work with, put together once."""

from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.config.server import Role, ServerSettings
from holdfast.push.calls import Caller
from holdfast.push.controller import Controller
from holdfast.push.queries.broker import Broker
from holdfast.push.refused_calls import RefusedCalls
from holdfast.push.segments.deep_store import DeepStore
from holdfast.push.state.catalog import Catalog
from holdfast.server.auth import Authenticator
from holdfast.server.end_jobs import EndJobs
from holdfast.server.endpoints import Call
from holdfast.server.limits import Bounds
from holdfast.server.metrics import Metrics
from holdfast.server.parameters import Parameters
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
    bounds: Bounds
    metrics: Metrics
    refused: RefusedCalls
    ends: EndJobs
    started_at_ms: int
    controller_address: tuple[str, int]
    broker_address: tuple[str, int]
    """Host and port where both listen."""

    def caller(self, call: Call[Parameters], table: str) -> Caller:
        """Who asks, as the controller and its audit know them."""
        return Caller(
            actor=call.principal.name,
            operator=call.may(Role.OPERATE, table),
            address=call.client,
            request_id=call.request_id,
            key=call.headers.get("idempotency-key", ""),
        )
