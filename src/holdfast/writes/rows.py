"""Rows to be written, whichever engine holds them."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.errors import Fenced
from holdfast.format.commits import WriteStat
from holdfast.model.reports import IndexReport
from holdfast.table.opened import OpenTable
from holdfast.writes.merge_task import MergeRequest
from holdfast.writes.task import TaskRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the tasks of a write did."""

    stats: Sequence[WriteStat]
    index: IndexReport = field(default_factory=IndexReport)


class Cancellation:
    """Whether a write is to stop. Any thread may say so, and it stays said."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        self._event.set()

    def refuse_if_cancelled(self) -> None:
        if self._event.is_set():
            raise Fenced(
                "the write was stopped because it had lost its right to commit",
                hint="nothing of it is visible; run the write again",
            )


class Rows(Protocol):
    def schema(self) -> pa.Schema:
        """The columns as they come."""

    def prepared(
        self, schema: pa.Schema, table: TableSettings, *, by_partition: bool = True, looks_ahead: bool = True
    ) -> "Rows":
        """The rows, ready to be stored in `schema`; those that cannot be are refused here.

        Unless `by_partition`, the rows need not say their partition. Unless it
        `looks_ahead`, rows that must be computed to be seen are left to `write`,
        which sees all of them: it would be the second time.
        """

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        """Write all rows into new file groups, in one pass."""

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        """Bring all rows to the file groups they belong to."""

    def cancel(self) -> None:
        """Stop writing these rows, as they are or prepared, and do not begin again.

        May be called from another thread, and more than once. What runs ends with an error.
        """
