"""What engines that know nothing of Hudi read from the exports of a table."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from harness.checker import visible_rows
from harness.world import row_list
from holdfast.config.choices import ExportFormat
from holdfast.lake import Table
from holdfast.table.opened import OpenTable


def check_as_exported(table: OpenTable, folder: Path) -> None:
    """Compare what other engines read from a copy of the table on disk with what we read."""
    expected = visible_rows(table)
    if ExportFormat.DELTA in table.settings.export_formats:
        for rows in (_read_delta(str(folder)), _read_with_polars(str(folder))):
            seen = frozenset(row_list(rows))
            assert seen == expected, f"{sorted(seen)}, not {sorted(expected)}"


def present_rows(table: Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each engine that is here, from each export that is switched on."""
    for export in table.exports():
        if export.format == ExportFormat.DELTA:
            yield "deltalake", _read_delta(export.where)
            yield "polars from delta", _read_with_polars(export.where)


def past_rows(table: Table, instant: str) -> Iterator[tuple[str, pa.Table]]:
    """As of an instant that the exports followed."""
    for export in table.exports():
        if export.format == ExportFormat.DELTA:
            version = delta_versions(export.where)[instant]
            yield "deltalake", _read_delta(export.where, version)
            yield "polars from delta", _read_with_polars(export.where, version)


def delta_versions(path: str) -> dict[str, int]:
    """Instant → the newest version that shows it."""
    history = DeltaTable(path).history()
    return {entry["holdfast.instant"]: entry["version"] for entry in reversed(history)}


def _read_delta(path: str, version: int | None = None) -> pa.Table:
    return DeltaTable(path, version=version).to_pyarrow_table()


def _read_with_polars(path: str, version: int | None = None) -> pa.Table:
    return pl.read_delta(path, version=version).to_arrow()
