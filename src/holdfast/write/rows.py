"""Rows to be written, whichever engine holds them."""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.format.commits import WriteStat
from holdfast.table.opened import OpenTable
from holdfast.write.task import TaskRequest


class Rows(Protocol):
    def schema(self) -> pa.Schema:
        """The columns as they come."""

    def prepared(self, schema: pa.Schema, table: TableSettings) -> "Rows":
        """The rows, ready to be stored in `schema`; those that cannot be are refused here."""

    def write(self, table: OpenTable, request: TaskRequest) -> Sequence[WriteStat]:
        """Write all rows into new file groups; what each file holds."""
