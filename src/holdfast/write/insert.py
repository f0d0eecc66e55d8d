"""Insert and bulk insert: rows into new file groups, existing ones untouched.

As in Hudi, neither looks for keys that exist already.
"""

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import SchemaMismatch
from holdfast.format.schemas import avro_schema, differences, storable_schema
from holdfast.model.instant import Action
from holdfast.model.reports import Commit
from holdfast.table.opened import OpenTable
from holdfast.table.schema import table_schema
from holdfast.timeline.timeline import load_timeline
from holdfast.write.rows import Rows
from holdfast.write.task import TaskRequest
from holdfast.write.transaction import WriteRequest, run_write


def insert(table: OpenTable, rows: Rows, *, operation: str, settings: WriteSettings) -> Commit:
    """Add the rows. Everything that can be refused is refused before the first byte."""
    table.settings.check_writable()
    existing = table_schema(table, load_timeline(table.store))
    schema = fitting_schema(rows.schema(), existing, table.settings)
    prepared = rows.prepared(schema, table.settings)
    request = WriteRequest(
        operation=operation,
        action=Action.COMMIT,
        schema=avro_schema(schema, table_name=table.settings.name),
        settings=settings,
    )
    return run_write(
        table,
        request,
        lambda instant: prepared.write(
            table,
            TaskRequest(
                instant=instant, action=request.action, schema=schema, table=table.settings, write=settings
            ),
        ),
    )


def fitting_schema(found: pa.Schema, existing: pa.Schema | None, table: TableSettings) -> pa.Schema:
    """The schema to store the rows in; `SchemaMismatch` names what does not fit."""
    stored = storable_schema(found)
    roles = {"record key": table.record_key, "partition": table.partition_by}
    if table.ordering:
        roles["ordering"] = (table.ordering,)
    for role, names in roles.items():
        for name in names:
            if name not in stored.names:
                found_names = ", ".join(stored.names)
                raise SchemaMismatch(f"the {role} column is missing", column=name, found=found_names)
    if existing is None:
        return stored
    different = differences(stored, existing)
    if different:
        first = different[0]
        raise SchemaMismatch(
            "the rows do not fit the table's schema",
            column=first.column,
            found=first.found,
            expected=first.expected,
            differences=len(different),
        )
    return existing
