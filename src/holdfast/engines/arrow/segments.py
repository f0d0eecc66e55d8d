"""Segments of rows in memory, built in this process, without Spark."""

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from holdfast.push.ingestion.rules import RowRules
from holdfast.push.segments.build import BuiltSegment, SegmentRequest, build_segments
from holdfast.push.segments.conversions import check_fields, select_fields
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation


def build_in_process(
    rows: pa.Table,
    request: SegmentRequest,
    location: StoreLocation,
    *,
    rules: RowRules,
    columns: Collection[str] = (),
) -> list[BuiltSegment]:
    """As one task does on Spark; `columns` are those to take, or all that the table has."""
    fields = [field for field, _ in request.fields]
    if rules:
        # Loaded here: it parses SQL, which few tables need.
        from holdfast.push.ingestion.compile import row_program

        program = row_program(rules, rows.schema, fields, columns)
        check_fields(program.output(rows.schema), fields)
        request, names = replace(request, program=program), list(program.columns)
    else:
        names = [field.name for field in select_fields(fields, rows.column_names, columns)]
    batches = rows.select(names).to_batches()
    return list(build_segments(open_store(location), request, task=0, attempt=0, batches=batches))
