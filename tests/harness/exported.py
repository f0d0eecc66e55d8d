"""What engines that know nothing of Hudi read from the exports of a table.

pyiceberg, and DuckDB with the extensions that read other formats, are only in the
environment of `make test-exports`: of these extensions there are none for the newest DuckDB.
"""

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from harness.checker import visible_rows
from harness.world import row_list
from holdfast.config.choices import ExportFormat
from holdfast.lake import Table
from holdfast.model.reports import Export
from holdfast.table.opened import OpenTable

HAS_JUDGES = find_spec("pyiceberg") is not None and find_spec("duckdb_extensions") is not None


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
            if HAS_JUDGES:
                yield "DuckDB from delta", _query(f"FROM delta_scan('{export.where}')")
        elif HAS_JUDGES:
            yield "pyiceberg", _static(export).scan().to_arrow()
            yield "DuckDB from iceberg", _query(f"FROM iceberg_scan('{export.where}')")
            yield "polars from iceberg", pl.scan_iceberg(_static(export)).collect().to_arrow()


def past_rows(table: Table, instant: str) -> Iterator[tuple[str, pa.Table]]:
    """As of an instant that the exports followed."""
    for export in table.exports():
        if export.format == ExportFormat.DELTA:
            version = delta_versions(export.where)[instant]
            yield "deltalake", _read_delta(export.where, version)
            yield "polars from delta", _read_with_polars(export.where, version)
        elif HAS_JUDGES:
            snapshots = _static(export).snapshots()
            number = next(s.snapshot_id for s in snapshots if s.summary["holdfast.instant"] == instant)
            yield "pyiceberg", _static(export).scan(snapshot_id=number).to_arrow()
            scan = f"iceberg_scan('{export.where}', snapshot_from_id={number}::UBIGINT)"
            yield "DuckDB from iceberg", _query(f"FROM {scan}")


def delta_versions(path: str) -> dict[str, int]:
    """Instant → the newest version that shows it."""
    history = DeltaTable(path).history()
    return {entry["holdfast.instant"]: entry["version"] for entry in reversed(history)}


def _read_delta(path: str, version: int | None = None) -> pa.Table:
    return DeltaTable(path, version=version).to_pyarrow_table()


def _read_with_polars(path: str, version: int | None = None) -> pa.Table:
    return pl.read_delta(path, version=version).to_arrow()


def _static(export: Export) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(export.where)


def _query(statement: str) -> pa.Table:
    found = duckdb_with_extensions().cursor().sql(statement).to_arrow_table()
    return pa.table(found)


@cache
def duckdb_with_extensions() -> Any:
    import duckdb
    from duckdb_extensions import import_extension

    connection = duckdb.connect()
    for name in ("httpfs", "avro", "iceberg", "delta"):
        import_extension(name, con=connection)
        connection.execute(f"LOAD {name}")
    return connection
