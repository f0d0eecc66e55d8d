"""The engine of a write, as writes see it: rows that it holds, and what it can do with them."""

import threading
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.errors import Fenced
from holdfast.table.opened import OpenTable
from holdfast.writes.merge_task import MergeRequest
from holdfast.writes.outcome import Written
from holdfast.writes.task import TaskRequest

if TYPE_CHECKING:
    from holdfast.writes.compaction import Compactor


class Cancellation:
    """Whether a write is to stop. Any thread may cancel it, for good."""

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

    def prepare(
        self,
        schema: pa.Schema,
        table: TableSettings,
        *,
        by_partition: bool = True,
        validate_first: bool = True,
    ) -> "Rows":
        """The rows, ready to be stored in `schema`; those that cannot be are refused here.

        Unless `by_partition`, the rows need not say their partition. Without
        `validate_first`, rows that must be computed to be seen are left to
        `write`, which sees all of them: it would be the second time.
        """

    def write(self, table: OpenTable, request: TaskRequest) -> Written:
        """Write all rows into new file groups, in one pass."""

    def merge(self, table: OpenTable, request: MergeRequest) -> Written:
        """Bring all rows to the file groups they belong to."""

    def compactor(self) -> "Compactor":
        """What compacts on the same engine."""

    def cancel(self) -> None:
        """Stop writing these rows, as they are or prepared, and do not begin again.

        May be called from another thread, and more than once. What runs ends with an error.
        """
