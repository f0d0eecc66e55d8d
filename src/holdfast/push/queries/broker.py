"""The broker: from a statement to Pinot's answer, over one moment of every table it reads."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from holdfast.clock import Clock, SystemClock
from holdfast.config.push import raw_name
from holdfast.errors import HoldfastError
from holdfast.push.queries.engine import Cancellation, Engine, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.options import QueryOptions, Statement, read_options, read_statement
from holdfast.push.queries.readers import StatementReaders
from holdfast.push.queries.results import Facts, as_failed, check_size, explanation, response, result_table
from holdfast.push.queries.routing import Lease, Router, RoutingSnapshot
from holdfast.push.queries.translate import DEFAULT_LIMIT, Translation

log = logging.getLogger(__name__)

_TIMEOUT_OPTION = "timeoutms"
"""Options are known in any case. A statement without this word cannot set it, however it is spelled."""


class Principal(Protocol):
    @property
    def name(self) -> str: ...

    def may_read(self, table: str) -> bool:
        """By raw table name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    default_limit: int = DEFAULT_LIMIT
    max_rows: int = 100_000
    """The most rows of an answer, whatever LIMIT allows."""
    max_timeout_ms: int = 600_000
    max_answer_bytes: int = 256 << 20
    """What one answer may take in this process."""


@dataclass(frozen=True, slots=True)
class _Running:
    sql: str
    principal: str
    started_ms: int
    cancellation: Cancellation


class Broker:
    """Answers queries. Every method may be called from any thread."""

    def __init__(
        self,
        router: Router,
        engine: Engine,
        *,
        readers: StatementReaders,
        clock: Clock | None = None,
        settings: BrokerSettings | None = None,
    ) -> None:
        self._router = router
        self._engine = engine
        self._readers = readers
        self._clock = clock or SystemClock()
        self._settings = settings or BrokerSettings()
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._quotas = _Quotas(self._clock)

    @property
    def id(self) -> str:
        return self._router.broker

    @property
    def router(self) -> Router:
        return self._router

    def answer(
        self,
        sql: str,
        options: Mapping[str, str] | None = None,
        principal: Principal | None = None,
        *,
        request_id: str | None = None,
        database: str | None = None,
        began_s: float | None = None,
    ) -> dict[str, Any]:
        """Pinot's response. A query that fails has its reason in `exceptions`; nothing is raised for it.

        `began_s`, a moment of `time.monotonic`, is when the request came: waiting counts.
        """
        began_s = time.monotonic() if began_s is None else began_s
        query = _Query(request_id or self._clock.unique(), self.id)
        try:
            return self._answer(query, sql, options or {}, principal, database, began_s)
        except QueryFailed as failed:
            return query.failure_response(failed, began_s)
        except HoldfastError as error:
            log.error("query.failed", extra={"request": query.request_id, "cause": str(error)})
            return query.failure_response(as_failed(error), began_s)
        except Exception as error:  # a bug in one query must not take the broker down
            log.exception("query.failed", extra={"request": query.request_id})
            return query.failure_response(as_failed(error), began_s)

    def deadline_s(self, sql: str, options: Mapping[str, str], began_s: float) -> float:
        """When a query that came at `began_s` must have its answer, both in `time.monotonic`."""
        most_ms = self._settings.max_timeout_ms
        try:
            if _TIMEOUT_OPTION in sql.lower():
                return _deadline(read_statement(sql, options, max_timeout_ms=most_ms).options, began_s)
            return _deadline(read_options((options,), max_timeout_ms=most_ms), began_s)
        except QueryFailed:
            # What is wrong with it is told when it has its turn.
            return _deadline(read_options((), max_timeout_ms=most_ms), began_s)

    def check(self, sql: str, *, began_s: float | None = None) -> dict[str, Any] | None:
        """Whether a statement is admitted, without running it: None, or the exception it would get."""
        began_s = time.monotonic() if began_s is None else began_s
        try:
            statement = read_statement(sql, {}, max_timeout_ms=self._settings.max_timeout_ms)
            deadline_s = _deadline(statement.options, began_s)
            _refuse_late(deadline_s)
            self._readers.tables(statement.sql, deadline_s=deadline_s)
        except QueryFailed as failed:
            return {"errorCode": int(failed.code), "message": failed.text}
        return None

    def asking(self, table: str) -> Callable[[str, frozenset[str]], object]:
        """`ask` for the questions of one look at gates, which have one deadline together."""
        most_s = self._settings.max_timeout_ms / 1000
        return partial(self.ask, table, until_s=time.monotonic() + most_s)

    def ask(
        self,
        table: str,
        sql: str,
        segments: Sequence[str] | frozenset[str],
        *,
        until_s: float = math.inf,
    ) -> object:
        """The one value of a query over any segments of a table, which it calls `snapshot`.

        For gates: `QueryFailed` if there is no answer, or more than one value.
        """
        statement = read_statement(sql, {}, max_timeout_ms=self._settings.max_timeout_ms)
        deadline_s = min(until_s, _deadline(statement.options, time.monotonic()))
        names = self._readers.tables(statement.sql, deadline_s=deadline_s)
        with self._router.take_segments(table, segments) as lease:
            snapshot = lease.snapshots[table]
            _check_available({"snapshot": snapshot})
            translation = self._readers.translation(
                statement.sql,
                tuple((name, snapshot.columns) for name in names if name.lower() == "snapshot"),
                null_handling=True,
                default_limit=DEFAULT_LIMIT,
                deadline_s=deadline_s,
            )
            work = self._work(translation, {view.table: snapshot for view in translation.views})
            answer = self._engine.run(work, deadline_s=deadline_s, cancellation=Cancellation())
        if answer.num_rows != 1 or answer.num_columns != 1:
            raise QueryFailed(QueryError.QUERY_VALIDATION, "the query gives more or less than one value")
        return answer.column(0)[0].as_py()

    def running(self) -> list[dict[str, Any]]:
        """The queries that run now."""
        with self._lock:
            return [
                {
                    "requestId": request_id,
                    "principal": one.principal,
                    "query": one.sql,
                    "startTimeMs": one.started_ms,
                }
                for request_id, one in self._running.items()
            ]

    def cancel(self, request_id: str) -> bool:
        """Stop a running query. False if there is none of this id."""
        with self._lock:
            found = self._running.get(request_id)
        if found is None:
            return False
        found.cancellation.set()
        return True

    def is_well(self) -> bool:
        """Whether queries can be run."""
        return self._engine.is_well()

    def close(self) -> None:
        self._router.close()
        self._engine.close()

    def _answer(
        self,
        query: "_Query",
        sql: str,
        options: Mapping[str, str],
        principal: Principal | None,
        database: str | None,
        began_s: float,
    ) -> dict[str, Any]:
        statement = read_statement(sql, options, max_timeout_ms=self._settings.max_timeout_ms)
        query.options = statement.options
        deadline_s = _deadline(statement.options, began_s)
        _refuse_late(deadline_s)
        names = self._readers.tables(statement.sql, deadline_s=deadline_s)
        tables = self._resolve_tables(names, principal, database)
        with self._lease(tables, statement.options, deadline_s) as lease:
            snapshots = {name: lease.snapshots[table] for name, table in tables.items()}
            query.saw(lease.snapshots)
            self._check_quotas(lease.snapshots)
            missing = _check_available(snapshots, allow_partial=statement.options.allow_partial)
            translation = self._translate(snapshots, statement, deadline_s)
            if statement.is_explain:
                seen = {name: (len(one.segments), one.epoch) for name, one in snapshots.items()}
                table = explanation(translation.sql, seen, translation.limit)
                return query.rows_response(table, [], began_s)
            with self._track(query.request_id, sql, principal) as cancellation:
                answer = self._engine.run(
                    self._work(translation, snapshots), deadline_s=deadline_s, cancellation=cancellation
                )
        check_size(answer, self._settings.max_answer_bytes)
        table = result_table(answer, translation.outputs, null_handling=statement.options.null_handling)
        return query.rows_response(table, missing, began_s)

    def _resolve_tables(
        self, names: Sequence[str], principal: Principal | None, database: str | None
    ) -> dict[str, str]:
        """Typed table names by the names that the statement uses."""
        resolved: dict[str, str] = {}
        prefix = f"{database}." if database and database.lower() != "default" else ""
        for name in names:
            full = name if "." in name or not prefix else prefix + name
            table = self._router.resolve(full)
            # A user who may not read a table does not learn whether it exists, not even by waiting.
            _check_right(principal, table or full, asked=full)
            if table is None:
                table = self._router.resolve_fresh(full)
                _check_right(principal, table or full, asked=full)
            if table is None:
                raise QueryFailed(QueryError.TABLE_DOES_NOT_EXIST, "there is no such table", table=full)
            resolved[name] = table
        return resolved

    def _lease(self, tables: Mapping[str, str], options: QueryOptions, deadline_s: float) -> Lease:
        typed = tuple(dict.fromkeys(tables.values()))
        if options.as_of_epoch is None and options.entry_id is None and options.as_of_ms is None:
            return self._router.lease(typed, at_least=self._at_least(typed, options), deadline_s=deadline_s)
        if len(typed) != 1:
            raise QueryFailed(
                QueryError.QUERY_VALIDATION, "an earlier snapshot is read of one table at a time"
            )
        return self._router.take_as_of(
            typed[0], epoch=options.as_of_epoch, entry_id=options.entry_id, at_ms=options.as_of_ms
        )

    def _at_least(self, tables: Sequence[str], options: QueryOptions) -> dict[str, int]:
        needed: dict[str, int] = {}
        for name, epoch in options.min_epoch.items():
            table = self._router.resolve(name) if name else (tables[0] if len(tables) == 1 else None)
            if table is None and not name and len(tables) > 1:
                raise QueryFailed(
                    QueryError.QUERY_VALIDATION,
                    "the query reads several tables; say which one the epoch is of",
                    hint="minSnapshotEpoch=orders:17,items:4",
                )
            if table is not None and table in tables:
                needed[table] = epoch
        return needed

    def _check_quotas(self, snapshots: Mapping[str, RoutingSnapshot]) -> None:
        for table, snapshot in snapshots.items():
            rate = snapshot.config.queries_per_second
            if rate is not None and not self._quotas.admits(table, rate):
                raise QueryFailed(
                    QueryError.TOO_MANY_REQUESTS,
                    "the table's queries per second are used up",
                    table=raw_name(table),
                    limit=rate,
                )

    def _translate(
        self, snapshots: Mapping[str, RoutingSnapshot], statement: Statement, deadline_s: float
    ) -> Translation:
        return self._readers.translation(
            statement.sql,
            tuple((name, snapshot.columns) for name, snapshot in snapshots.items()),
            null_handling=statement.options.null_handling,
            default_limit=self._settings.default_limit,
            deadline_s=deadline_s,
        )

    def _work(self, translation: Translation, snapshots: Mapping[str, RoutingSnapshot]) -> Work:
        return Work(
            sql=translation.sql,
            views=tuple((view, snapshots[view.table].segments) for view in translation.views),
            max_rows=self._settings.max_rows,
        )

    @contextmanager
    def _track(self, request_id: str, sql: str, principal: Principal | None) -> Iterator[Cancellation]:
        cancellation = Cancellation()
        name = principal.name if principal is not None else ""
        with self._lock:
            self._running[request_id] = _Running(sql, name, self._clock.now_ms(), cancellation)
        try:
            yield cancellation
        finally:
            with self._lock:
                self._running.pop(request_id, None)


def _check_right(principal: Principal | None, table: str, *, asked: str) -> None:
    if principal is not None and not principal.may_read(raw_name(table)):
        raise QueryFailed(QueryError.ACCESS_DENIED, "the table may not be read", table=asked)


def _deadline(options: QueryOptions, began_s: float) -> float:
    return began_s + options.timeout_ms / 1000


def _refuse_late(deadline_s: float) -> None:
    if time.monotonic() >= deadline_s:
        raise QueryFailed(
            QueryError.QUERY_SCHEDULING_TIMEOUT, "the query did not have its turn before its deadline"
        )


class _Query:
    """What is known of one query so far, whatever becomes of it."""

    def __init__(self, request_id: str, broker: str) -> None:
        self.request_id = request_id
        self._broker = broker
        self.options = QueryOptions()
        self._snapshots: Mapping[str, RoutingSnapshot] = {}

    def saw(self, snapshots: Mapping[str, RoutingSnapshot]) -> None:
        self._snapshots = snapshots

    def rows_response(
        self, table: dict[str, Any], missing: Sequence[QueryFailed], began_s: float
    ) -> dict[str, Any]:
        return response(self._facts(began_s), table=table, failures=missing)

    def failure_response(self, failed: QueryFailed, began_s: float) -> dict[str, Any]:
        return response(self._facts(began_s), table=None, failures=[failed])

    def _facts(self, began_s: float) -> Facts:
        return Facts(
            request_id=self.request_id,
            broker=self._broker,
            client_id=self.options.client_id,
            took_ms=round((time.monotonic() - began_s) * 1000),
            tables=tuple(raw_name(table) for table in self._snapshots),
            epochs={raw_name(table): one.epoch for table, one in self._snapshots.items()},
            segments=sum(len(one.segments) for one in self._snapshots.values()),
            docs=sum(one.docs for one in self._snapshots.values()),
        )


def _check_available(
    snapshots: Mapping[str, RoutingSnapshot], *, allow_partial: bool = False
) -> list[QueryFailed]:
    """All segments of a snapshot answer or none does (L2), unless a part was asked for."""
    missing = [
        QueryFailed(
            QueryError.BROKER_SEGMENT_UNAVAILABLE,
            "segments of the table cannot be read",
            table=raw_name(snapshot.table),
            segments=len(snapshot.unavailable),
            first=snapshot.unavailable[0],
        )
        for snapshot in snapshots.values()
        if snapshot.unavailable
    ]
    if missing and not allow_partial:
        raise missing[0]
    return missing


class _Quotas:
    """Queries per second by table: a second's worth may come at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, int]] = {}

    def admits(self, table: str, rate: float) -> bool:
        now_ms = self._clock.monotonic_ms()
        most = max(1.0, rate)
        with self._lock:
            left, since_ms = self._left.get(table, (most, now_ms))
            left = min(most, left + rate * (now_ms - since_ms) / 1000)
            self._left[table] = (left - 1 if left >= 1 else left, now_ms)
            return left >= 1
