"""Segments of rows in memory, built in this process, without Spark."""

from collections.abc import Collection

import pyarrow as pa

from holdfast.push.segments.build import BuiltSegment, SegmentRequest, build_segments
from holdfast.push.segments.conversions import select_fields
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation


def build_in_process(
    rows: pa.Table, request: SegmentRequest, location: StoreLocation, *, columns: Collection[str] = ()
) -> list[BuiltSegment]:
    """As one task does on Spark; `columns` are those to take, or all that the table has."""
    held = select_fields([field for field, _ in request.fields], rows.column_names, columns)
    batches = rows.select([field.name for field in held]).to_batches()
    return list(build_segments(open_store(location), request, task=0, attempt=0, batches=batches))
