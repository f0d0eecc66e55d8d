"""Schema evolution: what a table's schema becomes when rows of another schema are written to it.

Columns may be added and numbers widened, at any depth; nothing is ever
narrowed, renamed or dropped. Hudi and hudi-rs read tables that changed so.
"""

from collections.abc import Iterable

import pyarrow as pa

from holdfast.errors import SchemaMismatch
from holdfast.format.schemas import storable_schema

_NUMBERS = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
"""Each can become any that follows it."""


def evolve_schema(existing: pa.Schema, found: pa.Schema, *, fill_missing: bool) -> pa.Schema:
    """The table's schema after a write of rows whose storable schema is `found`.

    The existing columns in their order, widened where the rows need it, and
    new ones after them; the same within structs. Columns are matched by name,
    in any order. `SchemaMismatch` names the first that does not fit; a column
    the rows lack fits only if it is to be filled with nulls.
    """
    evolved = pa.schema(_evolve_fields(existing, found, fill_missing=fill_missing, path=""))
    # What we cannot store as Hudi did is not continued, not even with nulls; nor may two names
    # differ in case alone, now that there are more of them.
    return pa.schema(_evolve_fields(evolved, storable_schema(evolved), fill_missing=False, path=""))


def schema_in_file(wanted: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """The wanted columns as files of an older schema hold them: narrower numbers, fewer nested fields.

    A column that the files lack altogether stays as it is wanted.
    """
    held = {field.name: field.type for field in stored}
    return pa.schema(
        [(field.name, _type_in_file(field.type, held.get(field.name, field.type))) for field in wanted]
    )


def _type_in_file(wanted: pa.DataType, stored: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(wanted) and pa.types.is_struct(stored):
        held = {field.name: field.type for field in stored}
        return pa.struct(
            [
                (field.name, _type_in_file(field.type, held[field.name]))
                for field in wanted
                if field.name in held
            ]
        )
    if pa.types.is_list(wanted) and pa.types.is_list(stored):
        return pa.list_(pa.field("element", _type_in_file(wanted.value_type, stored.value_type)))
    if pa.types.is_map(wanted) and pa.types.is_map(stored):
        return pa.map_(wanted.key_type, _type_in_file(wanted.item_type, stored.item_type))
    if pa.types.is_integer(stored) and stored.bit_width < 32:
        stored = pa.int32()  # Parquet can say that a column's integers are short, but stores them so.
    # Whatever is no number has one type for ever, if perhaps in several spellings.
    return stored if wanted in _NUMBERS and stored in _NUMBERS else wanted


def _evolve_fields(
    existing: Iterable[pa.Field], found: Iterable[pa.Field], *, fill_missing: bool, path: str
) -> list[pa.Field]:
    incoming = {field.name: field.type for field in found}
    evolved = []
    for field in existing:
        column = path + field.name
        if field.name not in incoming and not fill_missing:
            hint = "set hoodie.write.set.null.for.missing.columns to fill it with nulls"
            raise _mismatch(column, "missing", field.type, hint=hint)
        kind = incoming.pop(field.name, field.type)
        kind = _evolve_type(field.type, kind, fill_missing=fill_missing, path=column)
        evolved.append(pa.field(field.name, kind))
    return evolved + [pa.field(name, kind) for name, kind in incoming.items()]


def _evolve_type(existing: pa.DataType, found: pa.DataType, *, fill_missing: bool, path: str) -> pa.DataType:
    if pa.types.is_struct(existing) and pa.types.is_struct(found):
        return pa.struct(_evolve_fields(existing, found, fill_missing=fill_missing, path=f"{path}."))
    if pa.types.is_list(existing) and pa.types.is_list(found):
        element = _evolve_type(
            existing.value_type, found.value_type, fill_missing=fill_missing, path=f"{path}.element"
        )
        return pa.list_(pa.field("element", element))
    if pa.types.is_map(existing) and pa.types.is_map(found):
        value = _evolve_type(
            existing.item_type, found.item_type, fill_missing=fill_missing, path=f"{path}.value"
        )
        return pa.map_(pa.string(), value)
    if existing in _NUMBERS and found in _NUMBERS:
        return max(existing, found, key=_NUMBERS.index)
    if existing != found:
        raise _mismatch(path, found, existing)
    return existing


def _mismatch(column: str, found: object, expected: pa.DataType, *, hint: str = "") -> SchemaMismatch:
    return SchemaMismatch(
        "the rows do not fit the table's schema",
        hint=hint,
        column=column,
        found=str(found),
        expected=str(expected),
    )
