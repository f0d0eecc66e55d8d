"""The schemas of a write: what the table's becomes with it, and the columns that name rows to delete."""

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.errors import SchemaMismatch
from holdfast.format.evolution import evolve_schema
from holdfast.format.schemas import storable_schema


def schema_after_write(
    given: pa.Schema, existing: pa.Schema | None, table: TableSettings, *, fill_missing: bool = False
) -> pa.Schema:
    """The schema to store the rows in, at least the table's; `SchemaMismatch` names what does not fit."""
    stored = storable_schema(given)
    roles = {"record key": table.record_key, "partition": table.partition_by}
    if table.ordering:
        roles["ordering"] = (table.ordering,)
    for role, names in roles.items():
        for name in names:
            if name not in stored.names:
                names_found = ", ".join(stored.names)
                raise SchemaMismatch(f"the {role} column is missing", column=name, found=names_found)
    if table.ordering and pa.types.is_nested(stored.field(table.ordering).type):
        kind = stored.field(table.ordering).type
        raise SchemaMismatch(
            "the ordering column must be of a type that has an order",
            column=table.ordering,
            found=str(kind),
            expected="number, text, date or time",
        )
    if existing is None:
        return stored
    evolved = evolve_schema(existing, stored, fill_missing=fill_missing)
    for name in (*table.record_key, *table.partition_by):
        if name in existing.names:
            _check_spelling(name, existing, evolved)
    return evolved


def schema_of_keys(
    rows: pa.Schema, existing: pa.Schema, table: TableSettings, *, by_partition: bool
) -> pa.Schema:
    """The columns that name rows to delete, as the table has them; others are passed over.

    The ordering column is among them if it is given: then a delete that is
    older than the stored row loses against it.
    """
    needed = (*table.record_key, *(table.partition_by if by_partition else ()))
    for name in needed:
        if name not in rows.names:
            raise SchemaMismatch(
                "a column that names the rows to delete is missing",
                column=name,
                found=", ".join(rows.names),
                expected=", ".join(needed),
            )
    wanted = dict.fromkeys((*needed, *table.partition_by, *([table.ordering] if table.ordering else [])))
    given = storable_schema(pa.schema([field for field in rows if field.name in wanted]))
    named = pa.schema([field for field in existing if field.name in given.names])
    widened = evolve_schema(named, given, fill_missing=False)
    for before, after in zip(named, widened, strict=True):
        if before.type != after.type:
            raise SchemaMismatch(
                "a column has another type than in the table",
                column=before.name,
                found=str(after.type),
                expected=str(before.type),
            )
    return named


def _check_spelling(name: str, existing: pa.Schema, evolved: pa.Schema) -> None:
    """Refuse a type in which the values of a key or partition column are spelled in another way.

    A record would no longer be found under the key it was stored with.
    """
    before, after = existing.field(name).type, evolved.field(name).type
    if before != after and not (pa.types.is_integer(before) and pa.types.is_integer(after)):
        raise SchemaMismatch(
            "a key or partition column cannot become a fraction",
            column=name,
            found=str(after),
            expected=str(before),
        )
