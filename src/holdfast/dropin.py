"""Drop-in for jobs written for Hudi: one call that takes the options they already have."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from holdfast.clock import SystemClock
from holdfast.config.choices import Operation
from holdfast.config.datasource import PARTITIONS_TO_DELETE, OptionValue, SourceWrite
from holdfast.config.option import Area
from holdfast.config.option_table import options_of
from holdfast.errors import InvalidOption, TableExists
from holdfast.host import SystemHost
from holdfast.lake import Idempotency, Table, table_exists, write_rows
from holdfast.model.reports import Commit
from holdfast.storage.open import location_of
from holdfast.table.opened import open_target

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from holdfast.model.arrow_stream import ArrowStream


class _Mode(StrEnum):
    APPEND = "append"
    OVERWRITE = "overwrite"
    ERROR_IF_EXISTS = "errorifexists"
    IGNORE = "ignore"


def write(
    df: DataFrame | ArrowStream,
    path: str,
    options: Mapping[str, OptionValue],
    mode: str = "append",
    *,
    storage_options: Mapping[str, str] | None = None,
    idempotency: Idempotency | None = None,
) -> Commit | None:
    """Write as a Hudi job with these options would, creating the table when it is absent.

    `mode` is `append`, `overwrite` (replaces every row in one commit, which can
    be taken back), `errorifexists` or `ignore` (then None if there is a table).
    `idempotency` is as in the verbs of `Table`; options `txnAppId` and `txnVersion` say the same.
    `InvalidOption` names any option that cannot be honoured or contradicts the table.
    """
    request = SourceWrite.from_options(options)
    operation = request.operation or Operation.UPSERT
    wanted = _mode(mode)
    if operation.is_delete and wanted is not _Mode.APPEND:
        raise InvalidOption("this operation needs mode append", operation=operation, mode=wanted)
    if operation is Operation.DELETE_PARTITION and not request.partitions:
        raise InvalidOption("no partition to delete is named", hint=f"set {PARTITIONS_TO_DELETE}")
    exists = table_exists(path, storage_options=storage_options)
    if exists and wanted is _Mode.IGNORE:
        return None
    if exists and wanted is _Mode.ERROR_IF_EXISTS:
        raise TableExists("there is already a table here", path=path, hint="use mode append or overwrite")
    rows = _as_rows(df)
    table = Table(
        open_target(
            location_of(path, storage_options),
            request,
            columns=_columns(rows),
            clock=SystemClock(),
            host=SystemHost(),
        )
    )
    if operation is Operation.DELETE_PARTITION:
        return table.delete_partitions(
            list(request.partitions), options=request.options, idempotency=idempotency
        )
    if exists and wanted is _Mode.OVERWRITE:
        replacing = _replacing(operation) | dict(request.options)
        return table.insert_overwrite_table(rows, options=replacing, idempotency=idempotency)
    return write_rows(table, operation, rows, options=request.options, idempotency=idempotency)


def _mode(text: str) -> _Mode:
    spelled = str(text).lower()
    if spelled in ("error", "default"):
        return _Mode.ERROR_IF_EXISTS
    if spelled not in tuple(_Mode):
        raise InvalidOption("unknown mode", mode=text, hint="use " + ", ".join(_Mode))
    return _Mode(spelled)


def _as_rows(df: DataFrame | ArrowStream) -> DataFrame | pa.Table:
    if hasattr(df, "mapInArrow"):
        return cast("DataFrame", df)
    from holdfast.engines.arrow.streams import read_stream

    return read_stream(df)


def _columns(rows: DataFrame | pa.Table) -> list[str]:
    return cast("list[str]", rows.columns if hasattr(rows, "mapInArrow") else rows.column_names)


def _replacing(operation: Operation) -> dict[str, str]:
    """An upsert reduces its rows to one per key, also into a table that it replaces."""
    option = options_of(Area.WRITE)["combines_inserts"]
    return {option.name: "true"} if operation is Operation.UPSERT else {}
