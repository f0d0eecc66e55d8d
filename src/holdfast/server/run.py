"""One process of the push service: everything opened in order, and closed in the reverse one."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from socket import gethostname
from urllib.parse import unquote

from starlette.types import ASGIApp

from holdfast.clock import Clock, SystemClock
from holdfast.config.push import raw_name
from holdfast.config.server import ServerSettings
from holdfast.errors import HoldfastError, OutcomeUnknown, StorageUnavailable, TableNotFound
from holdfast.model.lineage import EntryState, visible
from holdfast.model.names import META_FOLDER
from holdfast.push.controller import Controller, ControllerSettings
from holdfast.push.metastore.open import open_metastore
from holdfast.push.queries.broker import Broker, BrokerSettings
from holdfast.push.queries.engine import Engine
from holdfast.push.queries.pool import PoolSettings, WorkerPool
from holdfast.push.queries.readers import StatementReaders
from holdfast.push.queries.routing import Router
from holdfast.push.refused_calls import RefusedCalls
from holdfast.push.replacement.snapshots import snapshots
from holdfast.push.segments.deep_store import DELETED, RUNS, DeepStore
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import lineage_path
from holdfast.push.uploads.inspection.pool import InspectionPool
from holdfast.server.app import build_app
from holdfast.server.auth import Authenticator
from holdfast.server.end_jobs import EndJobs
from holdfast.server.limits import open_bounds, share_of_user
from holdfast.server.listeners import Bound, Listeners, bind
from holdfast.server.metrics import Metrics, TableFigures
from holdfast.server.retention import PeriodicRetention
from holdfast.server.routes import broker_endpoints, controller_endpoints
from holdfast.server.service import Service
from holdfast.server.sources import Sources
from holdfast.server.tls import check_tls
from holdfast.storage.open import location_of, open_store
from holdfast.storage.private import close_folder
from holdfast.storage.store import StoreLocation

log = logging.getLogger(__name__)

_ENDS_AT_ONCE = 64
_QUERIES_SECONDS = 10
"""How long a stop waits for running queries before it cancels them."""
_REFUSED_MS = 5_000
"""How often refused calls are written down, if there were any."""


@dataclass(frozen=True, slots=True)
class Running:
    service: Service
    controller_url: str
    broker_url: str
    retention: PeriodicRetention
    _listeners: Listeners

    def wait(self, stopped: threading.Event) -> None:
        """Until `stopped` is set. `StorageUnavailable` if a port died."""
        while not stopped.wait(0.5):
            if not self._listeners.is_alive:
                raise StorageUnavailable("the ports no longer answer", hint="the log tells why")


@contextmanager
def serving(
    settings: ServerSettings,
    clock: Clock | None = None,
    *,
    front: Callable[[Service, ASGIApp], ASGIApp] | None = None,
) -> Iterator[Running]:
    """The service, answering on both ports; when the block ends it finishes what is under way and stops.

    `front` puts something before the controller's routes, such as the console.
    """
    clock = SystemClock() if clock is None else clock
    with ExitStack() as opened:
        # The ports first: a second service, started by mistake, fails before it touches anything.
        controller_port = _bound(opened, settings, "controller")
        broker_port = _bound(opened, settings, "broker")
        stopping = threading.Event()
        ports = (controller_port, broker_port)
        service = open_service(settings, clock, opened, ports=ports, stopping=stopping)
        controller: ASGIApp = build_app(service, controller_endpoints(), name="controller", is_broker=False)
        if front is not None:
            controller = front(service, controller)
        listeners = Listeners(
            [
                (controller, controller_port),
                (build_app(service, broker_endpoints(), name="broker", is_broker=True), broker_port),
            ],
            tls=settings.tls,
            limits=settings.limits,
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
    ports: tuple[Bound, Bound],
    stopping: threading.Event,
) -> Service:
    """Everything behind the routes. What `opened` holds is closed by the caller."""
    check_tls(settings.tls)
    _make_folders(settings)
    metastore = open_metastore(settings.store, settings.cluster, clock=clock)
    opened.callback(metastore.close)
    location = location_of(settings.deep_store, is_private=True)
    deep_store = DeepStore(open_store(location))
    controller_address, broker_address = (one.socket.getsockname()[:2] for one in ports)
    host, port = broker_address
    catalog = Catalog(metastore, instance=f"Server_{host}_{port}")
    _check_files(catalog, deep_store, settings.deep_store)
    _close_folders(settings.deep_store, catalog)
    router = Router(catalog, broker=f"Broker_{host}_{port}", clock=clock)
    sources = Sources(settings.downloads, most_bytes=settings.limits.upload_bytes)
    broker = _open_broker(settings, clock, opened, router=router, location=location, sources=sources)
    rules = ControllerSettings(rules=settings.rules, orphan_ms=settings.orphan_ms)
    inspections = InspectionPool(rules.archive_limits)
    opened.callback(inspections.close)
    inspections.start()
    controller = Controller(
        catalog, deep_store, clock,
        settings=rules,
        inspect=inspections.inspect,
        ask=broker.asking,
        fetch=sources.fetch,
        # The processes in which DuckDB runs can open nothing but the deep store.
        canonical_uri=sources.canonical_uri if settings.engine != "duckdb" else None,
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
        bounds=open_bounds(settings, clock),
        metrics=Metrics(lambda: _figures(catalog, clock)),
        refused=RefusedCalls.open(metastore, clock, record=f"{gethostname()}_{port}"),
        ends=EndJobs(most=_ENDS_AT_ONCE, share=share_of_user(settings, _ENDS_AT_ONCE)),
        started_at_ms=clock.monotonic_ms(),
        controller_address=controller_address,
        broker_address=broker_address,
    )


def _open_broker(
    settings: ServerSettings,
    clock: Clock,
    opened: ExitStack,
    *,
    router: Router,
    location: StoreLocation,
    sources: Sources,
) -> Broker:
    limits = settings.limits
    # One for each query at a time, so that no statement of one user waits for those of another.
    readers = StatementReaders(readers=limits.concurrent_queries + 1)
    opened.callback(readers.close)
    readers.start()
    engine = _engine(settings, location, readers, sources, opened)
    opened.callback(router.close)
    router.start()
    broker = Broker(
        router, engine, readers=readers, clock=clock,
        settings=BrokerSettings(
            max_rows=limits.query_rows,
            max_timeout_ms=limits.query_timeout_ms,
            max_answer_bytes=limits.answer_bytes,
        ),
    )  # fmt: skip
    opened.callback(broker.close)
    return broker


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


def _engine(
    settings: ServerSettings,
    location: StoreLocation,
    readers: StatementReaders,
    sources: Sources,
    opened: ExitStack,
) -> Engine:
    """Who runs the queries: DuckDB in processes of ours, or Spark."""
    if settings.engine != "duckdb":
        # Loaded here because only this engine needs Spark.
        from holdfast.engines.spark.queries import SparkEngine
        from holdfast.engines.spark.session import end_local_jvm, query_session
        from holdfast.engines.spark.watched import WatchedSession

        is_ours = settings.engine.startswith("local")
        watched = WatchedSession(
            partial(query_session, settings.engine), end=end_local_jvm if is_ours else None
        )
        opened.callback(watched.close)
        return SparkEngine(watched, open_store(location), readers, canonical_uri=sources.canonical_uri)
    limits = settings.limits
    pool = WorkerPool(
        location,
        PoolSettings(
            workers=limits.concurrent_queries,
            memory_bytes=limits.query_memory_bytes,
            max_rows=limits.query_rows,
            max_bytes=limits.answer_bytes,
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
    """The folders of the embedded store and of the segments, closed to other users."""
    folders = [] if "://" in settings.deep_store else [settings.deep_store]
    if settings.store.startswith("sqlite:///"):
        folders.append(os.path.dirname(unquote(settings.store.removeprefix("sqlite:///"))))
    for folder in folders:
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageUnavailable(
                "a folder of the service cannot be made", path=folder, cause=error.strerror
            ) from error


def _close_folders(deep_store: str, catalog: Catalog) -> None:
    """Close a deep store that was there already to other users, as the service closes one that it makes."""
    if "://" in deep_store or close_folder(deep_store, follows_link=True):
        return
    # A mount that belongs to another user: what is the service's in it is closed.
    names = (*map(raw_name, catalog.tables()), DELETED, RUNS, META_FOLDER)
    open_to_others = [name for name in names if not close_folder(os.path.join(deep_store, name))]
    log.warning(
        "service.deep_store_is_open",
        extra={
            "path": deep_store,
            "folders": open_to_others,
            "hint": "give it to the user of the service, or chmod it to 700",
        },
    )


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
