"""Schemas and tables of the push service: made, changed and deleted, with a word in the audit."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.config.push import PushTable, parse_table
from holdfast.config.push_schema import incompatibilities, parse_schema
from holdfast.errors import InvalidRequest, TableNotFound
from holdfast.push.calls import Caller
from holdfast.push.ingestion.rules import check_config, check_schema
from holdfast.push.replacement.decisions import Decision
from holdfast.push.retention.upkeep import Upkeep
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import TableState
from holdfast.push.state.transactions import Step, Transactions

_POLL_MS = 50
_BROKERS_LEAVE_MS = 5_000


class Tables:
    """All methods take the typed table name (`orders_OFFLINE`)."""

    def __init__(
        self, catalog: Catalog, transactions: Transactions, upkeep: Upkeep, *, wait: Callable[[float], None]
    ) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._upkeep = upkeep
        self._wait = wait

    def put_schema(self, schema: Mapping[str, Any], *, override: bool, by: Caller) -> None:
        parsed = parse_schema(schema)
        check_schema(schema)
        if not override:
            self._catalog.create_schema(parsed)
            return
        try:
            before = self._catalog.schema(parsed.name)
        except TableNotFound:
            self._catalog.create_schema(parsed)
            return
        broken = incompatibilities(before, parsed)
        if broken:
            raise InvalidRequest(
                "the schema does not fit the rows there are",
                schema=parsed.name,
                cause="; ".join(broken),
                code="SCHEMA_INCOMPATIBLE",
            )
        for table in self._catalog.users_of_schema(parsed.name):
            self._announce(table, "change schema", by=by)
        self._catalog.replace_schema(parsed)

    def delete_schema(self, name: str, *, by: Caller) -> None:
        """Only of a schema that no table uses, so there is no audit to tell of it."""
        self._catalog.delete_schema(name)

    def create(self, config: Mapping[str, Any], *, by: Caller) -> PushTable:
        parsed = parse_table(config)
        check_config(config)
        self._catalog.create_table(parsed)
        self._note(parsed.table, "create table", by=by)
        return parsed

    def update(self, config: Mapping[str, Any], *, by: Caller) -> PushTable:
        parsed = parse_table(config)
        check_config(config)

        def decide(state: TableState) -> Step:
            return Step(decision=Decision(after=replace(state, config=parsed)), operation="update table")

        self._transactions.run(parsed.table, decide, by=by)
        return parsed

    def delete(self, table: str, *, retention_ms: int | None = None, by: Caller) -> None:
        """Take the table away from queries at once; `Conflict` if its files must wait for brokers."""
        self._announce(table, "delete table", by=by)
        polls = iter(range(_BROKERS_LEAVE_MS // _POLL_MS))

        def wait() -> bool:
            self._wait(_POLL_MS / 1000)
            return next(polls, None) is not None

        self._upkeep.delete_table(table, retention_ms=retention_ms, wait=wait)

    def _note(self, table: str, operation: str, *, by: Caller) -> None:
        def decide(state: TableState) -> Step:
            return Step(decision=Decision(after=state), operation=operation, is_written=True)

        self._transactions.run(table, decide, by=by)

    def _announce(self, table: str, operation: str, *, by: Caller) -> None:
        """Put into the audit what is about to be done and cannot be written in one step with it."""
        with suppress(TableNotFound):
            self._note(table, operation, by=by)
