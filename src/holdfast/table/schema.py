"""The table's schema: what the newest commit says, or what the table was created with."""

from collections.abc import Mapping

import pyarrow as pa

from holdfast.errors import TableDamaged
from holdfast.format.commits import decode_writes
from holdfast.format.malformed import Malformed
from holdfast.format.schemas import arrow_schema, without_meta_columns
from holdfast.model.instant import InstantTime
from holdfast.model.names import PROPERTIES_FILE, instant_file
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import Timeline, read_completed


def table_schema(table: OpenTable, timeline: Timeline, as_of: InstantTime | None = None) -> pa.Schema | None:
    """The data columns as of an instant; None before the first write of a table without a schema."""
    for instant in reversed(timeline.completed_commits):
        if as_of is not None and instant.time > as_of:
            continue
        path = instant_file(instant.time, instant.action, instant.state)
        content = read_completed(table.store, instant)
        try:
            text = decode_writes(content).schema
            if text is not None:
                return without_meta_columns(arrow_schema(text))
        except Malformed as error:
            raise TableDamaged("commit metadata cannot be read", file=path, cause=error) from error
    if table.settings.create_schema is None:
        return None
    try:
        return without_meta_columns(arrow_schema(table.settings.create_schema))
    except Malformed as error:
        raise TableDamaged("the table's schema cannot be read", file=PROPERTIES_FILE, cause=error) from error


def schema_as_of(schemas: Mapping[InstantTime, str], time: InstantTime) -> pa.Schema | None:
    """The data columns of the newest commit at that time, from what each commit was written with."""
    newest = max((commit for commit in schemas if commit <= time), default=None)
    return None if newest is None else without_meta_columns(arrow_schema(schemas[newest]))
