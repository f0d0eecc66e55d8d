"""Tasks of a write that run as a test says they do: twice, too late, or not to their end."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from harness.faults import StoreWrapper
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.storage.store import Store
from holdfast.writes.gather import BUNDLE
from holdfast.writes.merge_task import merge_rows
from holdfast.writes.outcome import Written
from holdfast.writes.task import TaskIdentity, write_rows


@dataclass(frozen=True)
class AttemptedRows:
    """Rows whose one task runs as a test says it does; only what is returned is reported."""

    table: pa.Table

    def schema(self):
        return self.table.schema

    def prepare(self, schema, table, **how):
        return self

    def write(self, table, request):
        batches = self.table.sort_by("city").to_batches()
        return self._run(table.store, lambda store, attempt: write_rows(store, request, attempt, batches))

    def merge(self, table, request):
        bundle = pa.array(np.zeros(self.table.num_rows, dtype=np.int64))
        batches = self.table.append_column(BUNDLE, bundle).to_batches()
        return self._run(table.store, lambda store, attempt: merge_rows(store, request, attempt, batches))

    def compactor(self):
        return ArrowRows(self.table).compactor()

    def cancel(self):
        """A test's task is over before anybody could cancel it."""

    def _run(self, store, body):
        raise NotImplementedError


def attempt(number):
    prefix = f"f{number:07d}-0000-0000-0000-000000000000"
    return TaskIdentity(task=0, stage=1, attempt=number, file_prefix=prefix)


def counted(store: Store, body):
    """The one attempt that is reported."""
    return Written(stats=Written.of(body(store, attempt(2))).stats)


@dataclass(frozen=True)
class LateRows(AttemptedRows):
    """Rows of which a second attempt is under way when the first has ended, or the job has failed."""

    late: list[Iterator[object]] = field(default_factory=list)
    fails: bool = False

    def _run(self, store, body):
        self.late.append(body(store, attempt(3)))
        if self.fails:
            raise RuntimeError("the job failed")
        return counted(store, body)


def lets_a_task_end(store: Store, late: list[Iterator[object]], *, before: str) -> StoreWrapper:
    """A store at which attempts that are under way end right before the first change that says so."""

    class Ending(StoreWrapper):
        def _change(self, verb, path, act):
            if before in f"{verb} {path}":
                while late:
                    list(late.pop())
            return act()

    return Ending(store)
