"""The broker: from a statement to Pinot's answer, over one moment of every table it reads."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from holdfast.clock import Clock, SystemClock
from holdfast.config.push import raw_name
from holdfast.errors import HoldfastError
from holdfast.push.queries.columns import Column
from holdfast.push.queries.engine import Cancellation, Engine, Work
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.gate import admit
from holdfast.push.queries.options import QueryOptions, Statement, read_statement
from holdfast.push.queries.results import Facts, as_failed, explanation, response, result_table
from holdfast.push.queries.translate import DEFAULT_LIMIT, Translation, translate
from holdfast.push.routing import Lease, Router, RoutingSnapshot

log = logging.getLogger(__name__)

_KNOWN_STATEMENTS = 256


class Principal(Protocol):
    @property
    def name(self) -> str: ...

    def may_read(self, table: str) -> bool:
        """By raw table name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    default_limit: int = DEFAULT_LIMIT
    max_rows: int = 100_000
    """The greatest LIMIT that is accepted."""
    max_timeout_ms: int = 600_000


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
        clock: Clock | None = None,
        settings: BrokerSettings | None = None,
    ) -> None:
        self._router = router
        self._engine = engine
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
    ) -> dict[str, Any]:
        """Pinot's response. A query that fails has its reason in `exceptions`; nothing is raised for it."""
        began_s = time.monotonic()
        query = _Query(request_id or self._clock.unique(), self.id)
        try:
            return self._answer(query, sql, options or {}, principal, database, began_s)
        except QueryFailed as failed:
            return query.failed(failed, began_s)
        except HoldfastError as error:
            log.error("query.failed", extra={"request": query.request_id, "cause": str(error)})
            return query.failed(as_failed(error), began_s)
        except Exception as error:  # a bug in one query must not take the broker down
            log.exception("query.failed", extra={"request": query.request_id})
            return query.failed(as_failed(error), began_s)

    def check(self, sql: str) -> dict[str, Any] | None:
        """Whether a statement is admitted, without running it: None, or the exception it would get."""
        try:
            admit(read_statement(sql, {}, max_timeout_ms=self._settings.max_timeout_ms).sql)
        except QueryFailed as failed:
            return {"errorCode": int(failed.code), "message": failed.text}
        return None

    def ask(self, table: str, sql: str, segments: Sequence[str] | frozenset[str]) -> object:
        """The one value of a query over any segments of a table, which it calls `snapshot`.

        For gates: `QueryFailed` if there is no answer, or more than one value.
        """
        statement = read_statement(sql, {}, max_timeout_ms=self._settings.max_timeout_ms)
        admitted = admit(statement.sql)
        with self._router.take_segments(table, segments) as lease:
            snapshot = lease.snapshots[table]
            _check_available({"snapshot": snapshot})
            translation = translate(
                admitted.tree,
                {name: snapshot.columns for name in admitted.tables if name.lower() == "snapshot"},
                null_handling=True,
                max_rows=self._settings.max_rows,
            )
            work = self._work(translation, {view.table: snapshot for view in translation.views})
            answer = self._engine.run(
                work,
                deadline_s=time.monotonic() + statement.options.timeout_ms / 1000,
                cancellation=Cancellation(),
            )
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
        deadline_s = began_s + statement.options.timeout_ms / 1000
        admitted = admit(statement.sql)
        tables = self._resolved(admitted.tables, principal, database)
        with self._taken(tables, statement.options, deadline_s) as lease:
            snapshots = {name: lease.snapshots[table] for name, table in tables.items()}
            query.saw(lease.snapshots)
            self._check_quotas(lease.snapshots)
            missing = _check_available(snapshots, allow_partial=statement.options.allow_partial)
            translation = self._translated(snapshots, statement)
            if statement.is_explain:
                seen = {name: (len(one.segments), one.epoch) for name, one in snapshots.items()}
                table = explanation(translation.sql, seen, translation.limit)
                return query.answered(table, [], began_s)
            with self._noted(query.request_id, sql, principal) as cancellation:
                answer = self._engine.run(
                    self._work(translation, snapshots), deadline_s=deadline_s, cancellation=cancellation
                )
        table = result_table(answer, translation.outputs, null_handling=statement.options.null_handling)
        return query.answered(table, missing, began_s)

    def _resolved(
        self, names: Sequence[str], principal: Principal | None, database: str | None
    ) -> dict[str, str]:
        """Typed table names by the names that the statement uses."""
        resolved: dict[str, str] = {}
        prefix = f"{database}." if database and database.lower() != "default" else ""
        for name in names:
            full = name if "." in name or not prefix else prefix + name
            table = self._router.resolve(full)
            # Whoever may not read a table does not learn whether it exists, not even by waiting.
            _check_right(principal, table or full, asked=full)
            if table is None:
                table = self._router.sought(full)
                _check_right(principal, table or full, asked=full)
            if table is None:
                raise QueryFailed(QueryError.TABLE_DOES_NOT_EXIST, "there is no such table", table=full)
            resolved[name] = table
        return resolved

    def _taken(self, tables: Mapping[str, str], options: QueryOptions, deadline_s: float) -> Lease:
        typed = tuple(dict.fromkeys(tables.values()))
        if options.as_of_epoch is None and options.entry_id is None and options.as_of_ms is None:
            return self._router.take(typed, at_least=self._at_least(typed, options), deadline_s=deadline_s)
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

    def _translated(self, snapshots: Mapping[str, RoutingSnapshot], statement: Statement) -> Translation:
        return _translation(
            statement.sql,
            tuple((name, snapshot.columns) for name, snapshot in snapshots.items()),
            null_handling=statement.options.null_handling,
            max_rows=self._settings.max_rows,
            default_limit=self._settings.default_limit,
        )

    def _work(self, translation: Translation, snapshots: Mapping[str, RoutingSnapshot]) -> Work:
        return Work(
            sql=translation.sql,
            views=tuple((view, snapshots[view.table].segments) for view in translation.views),
            max_rows=self._settings.max_rows,
        )

    @contextmanager
    def _noted(self, request_id: str, sql: str, principal: Principal | None) -> Iterator[Cancellation]:
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


@lru_cache(maxsize=_KNOWN_STATEMENTS)
def _translation(
    sql: str,
    tables: tuple[tuple[str, tuple[Column, ...]], ...],
    *,
    null_handling: bool,
    max_rows: int,
    default_limit: int,
) -> Translation:
    """Worked out once for a text and the schemas that it meets."""
    try:
        return translate(
            admit(sql).tree,
            dict(tables),
            null_handling=null_handling,
            max_rows=max_rows,
            default_limit=default_limit,
        )
    except RecursionError:
        raise QueryFailed(QueryError.SQL_PARSING, "the statement is nested too deeply") from None


class _Query:
    """What is known of one query so far, whatever becomes of it."""

    def __init__(self, request_id: str, broker: str) -> None:
        self.request_id = request_id
        self._broker = broker
        self.options = QueryOptions()
        self._snapshots: Mapping[str, RoutingSnapshot] = {}

    def saw(self, snapshots: Mapping[str, RoutingSnapshot]) -> None:
        self._snapshots = snapshots

    def answered(
        self, table: dict[str, Any], missing: Sequence[QueryFailed], began_s: float
    ) -> dict[str, Any]:
        return response(self._facts(began_s), table=table, failures=missing)

    def failed(self, failed: QueryFailed, began_s: float) -> dict[str, Any]:
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
        now_ms = self._clock.elapsed_ms()
        most = max(1.0, rate)
        with self._lock:
            left, since_ms = self._left.get(table, (most, now_ms))
            left = min(most, left + rate * (now_ms - since_ms) / 1000)
            self._left[table] = (left - 1 if left >= 1 else left, now_ms)
            return left >= 1
