"""One process of the push service: everything opened in order, and closed in the reverse one."""

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from socket import gethostname
from urllib.parse import unquote

from holdfast.clock import Clock, SystemClock
from holdfast.config.push import raw_name
from holdfast.config.server import ServerSettings
from holdfast.errors import HoldfastError, OutcomeUnknown, StorageUnavailable, TableNotFound
from holdfast.model.lineage import EntryState, visible
from holdfast.push.broker import Broker, BrokerSettings
from holdfast.push.catalog import Catalog
from holdfast.push.controller import Controller, ControllerSettings
from holdfast.push.deep_store import DeepStore
from holdfast.push.metastore.open import open_metastore
from holdfast.push.paths import lineage_path
from holdfast.push.queries.engine import Engine
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.refused_calls import RefusedCalls
from holdfast.push.routing import Router
from holdfast.push.snapshots import snapshots
from holdfast.server.app import build_app
from holdfast.server.auth import Authenticator
from holdfast.server.end_jobs import EndJobs
from holdfast.server.limits import RateLimit, Slots
from holdfast.server.listeners import Bound, Listeners, bind
from holdfast.server.metrics import Metrics, TableFigures
from holdfast.server.retention import PeriodicRetention
from holdfast.server.routes import broker_endpoints, controller_endpoints
from holdfast.server.service import Service
from holdfast.server.sources import Sources
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import StoreLocation

log = logging.getLogger(__name__)

_CALLS_AT_ONCE = 64
_QUERIES_SECONDS = 10
"""How long a stop waits for running queries before it cancels them."""
_REFUSED_MS = 5_000
"""So often refused calls are written down, if there were any."""


@dataclass(frozen=True, slots=True)
class Running:
    service: Service
    controller_url: str
    broker_url: str
    retention: PeriodicRetention
    _listeners: Listeners

    def wait(self, stopped: threading.Event) -> None:
        """Until somebody wants it to stop, or a port died."""
        while not stopped.wait(0.5):
            if not self._listeners.is_alive:
                raise StorageUnavailable("the ports no longer answer", hint="the log tells why")


@contextmanager
def serving(settings: ServerSettings, clock: Clock | None = None) -> Iterator[Running]:
    """The service, answering on both ports; when the block ends it finishes what is under way and stops."""
    clock = SystemClock() if clock is None else clock
    with ExitStack() as opened:
        # The ports first: whoever starts a second one by mistake is told before anything is touched.
        controller_port = _bound(opened, settings, "controller")
        broker_port = _bound(opened, settings, "broker")
        stopping = threading.Event()
        service = open_service(settings, clock, opened, broker_port=broker_port, stopping=stopping)
        listeners = Listeners(
            [
                (
                    build_app(service, controller_endpoints(), name="controller", is_broker=False),
                    controller_port,
                ),
                (build_app(service, broker_endpoints(), name="broker", is_broker=True), broker_port),
            ],
            tls=settings.tls,
            clock=clock,
        )
        retention = PeriodicRetention(
            service.controller, service.metrics, clock,
            frequency_ms=settings.retention_frequency_ms,
            initial_delay_ms=settings.retention_initial_delay_ms,
        )  # fmt: skip
        opened.callback(_write_refused, service)
        refusals = clock.every_ms(
            _REFUSED_MS, partial(_write_refused, service), name="holdfast-refused-calls"
        )
        opened.callback(refusals.stop)
        opened.callback(retention.stop)
        opened.callback(_stop, listeners, service, stopping)
        listeners.start()
        retention.start()
        log.info("service.started", extra={"controller": controller_port.url, "broker": broker_port.url})
        yield Running(service, controller_port.url, broker_port.url, retention, listeners)
        log.info("service.stopping")


def open_service(
    settings: ServerSettings,
    clock: Clock,
    opened: ExitStack,
    *,
    broker_port: Bound,
    stopping: threading.Event,
) -> Service:
    """Everything behind the routes. What `opened` holds is closed by the caller."""
    _make_folders(settings)
    metastore = open_metastore(settings.store, settings.cluster, clock=clock)
    opened.callback(metastore.close)
    location = location_of(settings.deep_store)
    deep_store = DeepStore(open_store(location))
    host, port = broker_port.socket.getsockname()[:2]
    catalog = Catalog(metastore, instance=f"Server_{host}_{port}")
    _check_files(catalog, deep_store, settings.deep_store)
    router = Router(catalog, broker=f"Broker_{host}_{port}", clock=clock)
    limits = settings.limits
    engine = _engine(settings, location, opened)
    opened.callback(router.close)
    router.start()
    broker = Broker(
        router, engine, clock=clock,
        settings=BrokerSettings(max_rows=limits.query_rows, max_timeout_ms=limits.query_timeout_ms),
    )  # fmt: skip
    opened.callback(broker.close)
    sources = Sources(settings.downloads, most_bytes=limits.upload_bytes)
    controller = Controller(
        catalog, deep_store, clock,
        settings=ControllerSettings(rules=settings.rules, orphan_ms=settings.orphan_ms),
        ask=lambda table: partial(broker.ask, table),
        fetch=sources.fetch,
        # The processes in which DuckDB runs can open nothing but the deep store.
        check_uri=sources.check if settings.engine != "duckdb" else None,
        wait=partial(_wait, stopping),
    )  # fmt: skip
    return Service(
        settings=settings,
        clock=clock,
        catalog=catalog,
        deep_store=deep_store,
        controller=controller,
        broker=broker,
        sources=sources,
        users=Authenticator(settings, clock),
        rates=RateLimit(limits.requests_per_second, clock),
        calls=Slots(_CALLS_AT_ONCE, "requests"),
        queries=Slots(limits.concurrent_queries, "queries"),
        metrics=Metrics(lambda: _figures(catalog, clock)),
        refused=RefusedCalls.open(metastore, clock, record=f"{gethostname()}_{port}"),
        ends=EndJobs(),
        started_at_ms=clock.elapsed_ms(),
    )


def _check_files(catalog: Catalog, deep_store: DeepStore, where: str) -> None:
    """Refuse to start beside a deep store without a file of any table: another one, or not mounted."""
    lost: list[str] = []
    for table in catalog.tables():
        if next(iter(deep_store.files(table)), None) is not None:
            return
        with suppress(TableNotFound):  # Another controller deleted it since.
            state = catalog.load(table)
            known = catalog.segments(table, state.visible) if state.push.deleting_since_ms is None else {}
            lost += [table] if any("://" not in one.uri for one in known.values()) else []
    if lost:
        raise StorageUnavailable(
            "the deep store has none of the files that queries need",
            deep_store=where,
            tables=len(lost),
            first=lost[0],
            hint="mount it, or correct deep_store; if the files are lost, push again with a new store",
        )


def _engine(settings: ServerSettings, location: StoreLocation, opened: ExitStack) -> Engine:
    """Who runs the queries: DuckDB in processes of ours, or Spark."""
    if settings.engine != "duckdb":
        # Loaded here because only this engine needs Spark.
        from holdfast.engines.spark.queries import SparkEngine
        from holdfast.engines.spark.session import session_at

        session = session_at("holdfast-broker", settings.engine)
        opened.callback(session.stop)
        return SparkEngine(session, open_store(location))
    limits = settings.limits
    pool = WorkerPool(
        location,
        PoolSettings(
            workers=limits.concurrent_queries,
            memory_bytes=limits.query_memory_bytes,
            max_rows=limits.query_rows,
        ),
    )
    opened.callback(pool.close)
    pool.start()
    return pool


def _wait(stopping: threading.Event, seconds: float) -> None:
    """Sleep as the controller does between two looks, but not while the service wants to stop."""
    if stopping.wait(seconds):
        raise OutcomeUnknown(
            "the service stopped while the call was waiting",
            code="STOPPING",
            hint="look, then repeat the call",
        )


def _stop(listeners: Listeners, service: Service, stopping: threading.Event) -> None:
    """Requests under way may finish, but calls that only wait end now, and queries after a while."""
    stopping.set()
    impatience = threading.Timer(_QUERIES_SECONDS, _cancel_queries, [service])
    impatience.daemon = True
    impatience.start()
    try:
        listeners.stop()
    finally:
        impatience.cancel()


def _cancel_queries(service: Service) -> None:
    for one in service.broker.running():
        service.broker.cancel(one["requestId"])


def _write_refused(service: Service) -> None:
    try:
        service.refused.write()
    except HoldfastError as error:
        log.warning("refused_calls.not_written", extra={"cause": str(error)})


def _bound(opened: ExitStack, settings: ServerSettings, name: str) -> Bound:
    port = bind(getattr(settings, name), name=name, is_tls=settings.has_tls)
    opened.callback(port.socket.close)
    return port


def _make_folders(settings: ServerSettings) -> None:
    """The folder of the embedded store; the deep store makes its own."""
    if settings.store.startswith("sqlite:///"):
        folder = os.path.dirname(unquote(settings.store.removeprefix("sqlite:///")))
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(
                "the folder of the store cannot be made", path=folder, cause=error.strerror
            ) from error


def _figures(catalog: Catalog, clock: Clock) -> Iterable[TableFigures]:
    for table in catalog.tables():
        try:
            state = catalog.load(table)
        except HoldfastError:
            # Deleted meanwhile, or damaged: the others must still be counted.
            continue
        record = catalog.metastore.read(lineage_path(table))
        opens = [one for one in state.lineage.entries if one.state is EntryState.IN_PROGRESS]
        started = [state.push.details[one.id].started_at_ms for one in opens if one.id in state.push.details]
        yield TableFigures(
            table=raw_name(table),
            epoch=state.push.epoch,
            segments=len(state.segments),
            visible_segments=len(visible(state.segments, state.lineage)),
            entries={
                kind.value: sum(one.state is kind for one in state.lineage.entries) for kind in EntryState
            },
            oldest_open_seconds=max(0, clock.now_ms() - min(started)) / 1000 if started else 0,
            snapshots=len(snapshots(state)),
            record_bytes=0 if record is None else len(record.data),
            waiting_deletions=sum(len(one.segments) + len(one.files) for one in state.push.deletions),
        )
