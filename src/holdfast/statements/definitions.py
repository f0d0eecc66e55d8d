"""CREATE, DROP and ALTER TABLE.

A table of the warehouse is the catalog's own: DROP deletes it. One at a path of its own
only loses its name, unless PURGE says otherwise, as in Spark.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from holdfast.config.choices import Operation
from holdfast.config.datasource import SourceWrite
from holdfast.dropin import write
from holdfast.errors import InvalidOption, InvalidRequest, TableExists
from holdfast.format.schemas import avro_schema
from holdfast.lake import Table, create_table, open_table, table_exists
from holdfast.model.reports import Commit, DropReport
from holdfast.statements.names import BY_PATH, Context, Query
from holdfast.statements.rows import Target, open_target, run_until_current, write_settings
from holdfast.statements.syntax import names_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORMATS = ("holdfast", "hudi")
_HUDI_NAMES = {
    "primarykey": "hoodie.datasource.write.recordkey.field",
    "precombinefield": "hoodie.datasource.write.precombine.field",
    "orderingfields": "hoodie.table.ordering.fields",
    "type": "hoodie.datasource.write.table.type",
}
"""Names that Hudi takes in TBLPROPERTIES beside those of its options."""
_TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
_RECORD_KEY = _HUDI_NAMES["primarykey"]
_PARTITION = "hoodie.datasource.write.partitionpath.field"
_CREATE_SCHEMA = "hoodie.table.create.schema"
_DEFAULT_KEY = "uuid"
"""The record key of a table that names none and has such a column, as in Hudi before 0.14."""


def create(context: Context, node: exp.Create) -> Table | Commit:
    """CREATE TABLE, with columns, AS SELECT, or for the table that is at its LOCATION already."""
    _refuse_parts(context, node)
    named = node.this.this if isinstance(node.this, exp.Schema) else node.this
    options, location = _properties(context, node)
    path = _path(context, named, location)
    if table_exists(path, storage_options=context.catalog.storage_options):
        is_definition = isinstance(node.this, exp.Schema) or node.expression is not None
        if is_definition and not node.args.get("exists"):
            raise TableExists(
                "there is already a table here", path=path, hint="write IF NOT EXISTS, or leave it out"
            )
        _note(context, named, path)
        return open_table(path, storage_options=context.catalog.storage_options)
    partitions, typed = _partition_columns(context, node)
    name = (
        names_in(named.parts).rpartition(".")[2]
        if not _is_by_path(named)
        else path.rstrip("/").rpartition("/")[2]
    )
    if partitions:
        options[_PARTITION] = ",".join(partitions)
    if node.expression is not None:
        made: Table | Commit = _create_as(context, node, options, path=path, name=name, partitions=partitions)
    else:
        made = _create_empty(context, node, options, path=path, name=name, partitions=partitions, typed=typed)
    _note(context, named, path)
    return made


def _refuse_parts(context: Context, node: exp.Create) -> None:
    if node.kind != "TABLE":
        raise InvalidRequest("this statement is not supported", statement=f"CREATE {node.kind}")
    if node.args.get("replace"):
        raise context.wrong(
            "a table is not replaced by another one", node, hint="DROP it first, or INSERT OVERWRITE its rows"
        )


def _is_by_path(named: exp.Table) -> bool:
    return named.db.lower() == BY_PATH


def _path(context: Context, named: exp.Table, location: str) -> str:
    catalog, name = context.catalog, names_in(named.parts)
    if _is_by_path(named):
        if catalog.exclusive:
            raise context.wrong("only tables of the catalog can be named", named, name=named.name)
        return named.name
    known = catalog.path_of(name)
    if catalog.exclusive and location:
        raise context.wrong(
            "tables of this catalog are made in its warehouse alone", named, location=location
        )
    if location or known is not None:
        if location and known is not None and location.rstrip("/") != known.rstrip("/"):
            raise TableExists("the catalog has a table of this name", name=name, path=known)
        return location or str(known)
    if not catalog.warehouse:
        raise context.wrong(
            "there is no place for the table", named, name=name,
            hint="add LOCATION 'path', or give the catalog a warehouse",
        )  # fmt: skip
    return catalog.path_in_warehouse(name)


def _note(context: Context, named: exp.Table, path: str) -> None:
    if not _is_by_path(named) and context.catalog.path_of(names_in(named.parts)) is None:
        context.catalog.note(names_in(named.parts), path)


def _properties(context: Context, node: exp.Create) -> tuple[dict[str, str], str]:
    """The options that TBLPROPERTIES and USING give, and the LOCATION."""
    options: dict[str, str] = {}
    location = ""
    properties = node.args.get("properties")
    for each in properties.expressions if properties is not None else ():
        if isinstance(each, exp.FileFormatProperty):
            if each.name.lower() not in _FORMATS:
                raise context.wrong(
                    "tables of this format are not made here",
                    each,
                    format=each.name,
                    wanted=" or ".join(_FORMATS),
                )
        elif isinstance(each, exp.LocationProperty):
            location = each.name
        elif type(each) is exp.Property:
            name = each.this.name if isinstance(each.this, exp.Literal) else each.this.sql(dialect="spark")
            options[_HUDI_NAMES.get(name.lower(), name)] = each.args["value"].name
        elif not isinstance(each, exp.PartitionedByProperty):
            raise context.wrong(
                "this part of CREATE TABLE is not supported", each, part=each.sql(dialect="spark")[:60]
            )
    kind = options.get(_HUDI_NAMES["type"], "")
    if kind.lower() in _TYPES:
        options[_HUDI_NAMES["type"]] = _TYPES[kind.lower()]
    return options, location


def _partition_columns(context: Context, node: exp.Create) -> tuple[list[str], list[tuple[str, str]]]:
    """The partition columns, and those among them that are declared here, with their types."""
    names, typed = [], []
    for clause in node.find_all(exp.PartitionedByProperty):
        for each in clause.this.expressions:
            if isinstance(each, exp.ColumnDef):
                typed.append(_column(context, each, keys=()))
            elif not isinstance(each, exp.Identifier | exp.Column):
                raise context.wrong(
                    "tables are partitioned by columns", each, found=each.sql(dialect="spark"),
                    hint="a column with the value, or Hudi's timestamp key generator",
                )  # fmt: skip
            names.append(each.name)
    return names, typed


def _create_empty(
    context: Context,
    node: exp.Create,
    options: dict[str, str],
    *,
    path: str,
    name: str,
    partitions: list[str],
    typed: list[tuple[str, str]],
) -> Table:
    from holdfast.engines.spark.statements import schema_of_types

    if not isinstance(node.this, exp.Schema):
        raise context.wrong(
            "a new table needs columns",
            node,
            hint="name them, or write AS SELECT; no table is at this path yet",
        )
    keys = _key_columns(node)
    if keys:
        options.setdefault(_RECORD_KEY, ",".join(keys))
    defined = [each for each in node.this.expressions if isinstance(each, exp.ColumnDef)]
    declared = _with_default_key(options, [each.name for each in defined])
    columns = [_column(context, each, keys=declared) for each in defined] + typed
    # As in Spark: partition columns come last, whatever their place.
    last = [column for wanted in partitions for column in columns if column[0].lower() == wanted.lower()]
    if len(last) != len(partitions):
        raise context.wrong("a partition column is not declared", node, columns=", ".join(partitions))
    schema = schema_of_types(context.session, [c for c in columns if c not in last] + last)
    request = _table_request(options, name=name)
    properties = dict(request.properties) | {_CREATE_SCHEMA: avro_schema(schema, table_name=name)}
    _check_roles(request, schema)
    settings = SourceWrite(properties=properties, options={}).new_settings()
    return create_table(
        path,
        name=settings.name,
        record_key=settings.record_key,
        partition_by=settings.partition_by,
        ordering=settings.ordering,
        table_type=settings.table_type.value,
        properties={key: text for key, text in properties.items() if key not in _ARGUMENTS},
        storage_options=context.catalog.storage_options,
    )


_ARGUMENTS = frozenset(
    {
        "hoodie.table.name",
        "hoodie.table.type",
        "hoodie.table.recordkey.fields",
        "hoodie.table.partition.fields",
        "hoodie.table.precombine.field",
    }
)


def _table_request(options: Mapping[str, str], *, name: str) -> SourceWrite:
    """What the options say of the table; `InvalidOption` for those that are about single writes."""
    given = SourceWrite.from_options(options)
    if given.options or given.operation or given.partitions:
        raise InvalidOption(
            "a table does not keep options of writes",
            options=", ".join(given.options) or "hoodie.datasource.write.operation",
            hint="give them with each statement: holdfast.sql(..., options={...})",
        )
    return given.for_new_table(name=name, table_type="COPY_ON_WRITE")


def _check_roles(request: SourceWrite, schema: pa.Schema) -> None:
    settings = request.new_settings()
    wanted = (
        *settings.record_key,
        *settings.partition_by,
        *([settings.ordering] if settings.ordering else []),
    )
    missing = next((name for name in wanted if name not in schema.names), None)
    if missing is not None:
        raise InvalidRequest(
            "a column that the table's properties name is not declared",
            column=missing,
            columns=", ".join(schema.names),
        )


def _with_default_key(options: dict[str, str], columns: list[str]) -> tuple[str, ...]:
    """The record key columns, once the options name them."""
    if not any(name in options for name in ("hoodie.table.recordkey.fields", _RECORD_KEY)):
        if _DEFAULT_KEY not in columns:
            raise InvalidRequest(
                "a table needs a record key", hint="add TBLPROPERTIES (primaryKey = 'column')"
            )
        options[_RECORD_KEY] = _DEFAULT_KEY
    keys = options.get(_RECORD_KEY) or options["hoodie.table.recordkey.fields"]
    return tuple(key.strip() for key in keys.split(","))


def _key_columns(node: exp.Create) -> list[str]:
    """The columns of PRIMARY KEY."""
    whole = [each for each in node.this.expressions if isinstance(each, exp.PrimaryKey)]
    keys = [column.name for each in whole for column in each.expressions]
    for column in node.this.find_all(exp.ColumnDef):
        kinds = [constraint.args.get("kind") for constraint in column.args.get("constraints") or ()]
        keys += [column.name] * any(isinstance(kind, exp.PrimaryKeyColumnConstraint) for kind in kinds)
    return keys


def _column(context: Context, column: exp.ColumnDef, *, keys: tuple[str, ...]) -> tuple[str, str]:
    """A column and its type; refuses what the format would not keep."""
    for constraint in column.args.get("constraints") or ():
        kind = constraint.args.get("kind")
        is_kept = isinstance(kind, exp.PrimaryKeyColumnConstraint) or (
            isinstance(kind, exp.NotNullColumnConstraint)
            and (column.name in keys or kind.args.get("allow_null"))
        )
        if not is_kept:
            raise context.wrong(
                "this property of a column is not kept", column, column=column.name,
                property=constraint.sql(dialect="spark"), hint="leave it out",
            )  # fmt: skip
    if column.args.get("position") is not None:
        raise context.wrong(
            "new columns are the last", column, column=column.name, hint="leave FIRST or AFTER out"
        )
    if column.args.get("kind") is None:
        raise context.wrong("a column needs a type", column, column=column.name)
    return column.name, column.args["kind"].sql(dialect="spark")


def _create_as(
    context: Context,
    node: exp.Create,
    options: dict[str, str],
    *,
    path: str,
    name: str,
    partitions: list[str],
) -> Commit:
    """The table and its rows, by one commit: before it there is no table."""
    if isinstance(node.this, exp.Schema):
        raise context.wrong("AS SELECT says what columns there are", node, hint="leave the columns out")
    query = Query(context)
    frame = _partitions_last(query.run(query.bind(node.expression)), partitions)
    _with_default_key(options, list(frame.columns))
    request = _table_request(options, name=name)
    commit = write(
        frame,
        path,
        {
            **request.properties,
            **context.options,
            "hoodie.datasource.write.operation": Operation.BULK_INSERT.value,
        },
        mode="errorifexists",
        storage_options=context.catalog.storage_options,
        idempotency=context.idempotency,
    )
    assert commit is not None, "nothing is ignored"
    return commit


def _partitions_last(frame: "DataFrame", partitions: list[str]) -> "DataFrame":
    if not set(partitions) <= set(frame.columns):
        return frame  # The write names the column that is missing.
    return frame.select(
        *(f"`{name}`" for name in frame.columns if name not in partitions), *(f"`{p}`" for p in partitions)
    )


def drop(context: Context, node: exp.Drop) -> DropReport | None:
    """DROP TABLE. None if nothing was deleted: the table is not there, or only lost its name."""
    if node.kind != "TABLE":
        raise InvalidRequest("this statement is not supported", statement=f"DROP {node.kind}")
    named, catalog = node.args["tables"][0], context.catalog
    path = context.find_path(named)
    if path is None or not table_exists(path, storage_options=catalog.storage_options):
        if path is not None and not _is_by_path(named):
            catalog.forget(names_in(named.parts))
        if node.args.get("exists"):
            return None
        raise context.not_found(named)
    name = names_in(named.parts)
    is_managed = (
        bool(catalog.warehouse) and not _is_by_path(named) and path == catalog.path_in_warehouse(name)
    )
    if _is_by_path(named) and not node.args.get("purge"):
        raise context.wrong(
            "a table that is named by its path has no name to lose", named,
            hint="DROP TABLE ... PURGE deletes it for good",
        )  # fmt: skip
    if catalog.exclusive and not is_managed and node.args.get("purge"):
        raise context.wrong("only tables of the warehouse are deleted over an exclusive catalog", named)
    report = None
    if is_managed or node.args.get("purge"):
        report = open_table(path, storage_options=catalog.storage_options).drop()
    if not is_managed and not _is_by_path(named):
        catalog.forget(name)
    return report


def alter(context: Context, node: exp.Alter) -> Commit | None:
    """ALTER TABLE: new columns, wider types, another name. What the format cannot carry is refused."""
    if node.args.get("kind") != "TABLE":
        raise InvalidRequest("this statement is not supported", statement=f"ALTER {node.args.get('kind')}")
    actions = node.args["actions"]
    first = actions[0]
    if isinstance(first, exp.AlterRename):
        _rename(context, node.this, first)
        return None
    if isinstance(first, exp.Schema | exp.ColumnDef):
        definitions = first.expressions if isinstance(first, exp.Schema) else actions
        return run_until_current(context, node.this, lambda: _add_columns(context, node.this, definitions))
    if isinstance(first, exp.AlterColumn) and first.args.get("dtype") is not None and len(actions) == 1:
        return run_until_current(context, node.this, lambda: _widen(context, node.this, first))
    why = {
        exp.RenameColumn: "files name their columns, so a renamed one would be empty in all that are there",
        exp.Drop: "files keep their columns, so a dropped one would come back with the next file",
    }.get(type(first), "it is not kept by the table")
    raise context.wrong(
        "this change of a table is not supported",
        node.this,
        change=first.sql(dialect="spark")[:60],
        cause=why,
    )


def _rename(context: Context, named: exp.Table, action: exp.AlterRename) -> None:
    catalog, name, new = context.catalog, names_in(named.parts), names_in(action.this.parts)
    path = context.find_path(named)
    if path is None:
        raise context.not_found(named)
    is_managed = bool(catalog.warehouse) and path == catalog.path_in_warehouse(name)
    if catalog.exclusive or _is_by_path(named) or is_managed:
        raise context.wrong("a name that follows from the path cannot be changed", named, name=name)
    if catalog.path_of(new) is not None:
        raise TableExists("the catalog has a table of this name", name=new)
    catalog.note(new, path)
    catalog.forget(name)


def _add_columns(context: Context, named: exp.Table, definitions: list[exp.ColumnDef]) -> Commit:
    from holdfast.engines.spark.statements import schema_of_types

    target = open_target(context, named)
    columns = [_column(context, each, keys=()) for each in definitions]
    known = {name.lower() for name in target.schema.names}
    for each, (name, _) in zip(definitions, columns, strict=True):
        if name.lower() in known:
            raise context.wrong("the table has this column already", each, column=name)
        known.add(name.lower())
    added = schema_of_types(context.session, columns)
    return _write_schema(context, target, pa.schema([*target.schema, *added]))


def _widen(context: Context, named: exp.Table, action: exp.AlterColumn) -> Commit:
    from holdfast.engines.spark.statements import schema_of_types

    target = open_target(context, named)
    name = target.column(context, action.name, action)
    renamed = action.args.get("rename_to")
    if renamed is not None and renamed.name.lower() != name.lower():
        raise context.wrong(
            "this change of a table is not supported", named, change=f"{name} becomes {renamed.name}",
            cause="files name their columns, so a renamed one would be empty in all that are there",
        )  # fmt: skip
    if action.args.get("comment") or action.args.get("default"):
        raise context.wrong("comments and defaults of columns are not kept", named, column=name)
    wanted = schema_of_types(context.session, [(name, action.args["dtype"].sql(dialect="spark"))]).field(0)
    at = target.schema.get_field_index(name)
    return _write_schema(context, target, target.schema.set(at, wanted), changed=name)


def _write_schema(context: Context, target: Target, schema: pa.Schema, *, changed: str = "") -> Commit:
    """A commit without rows, from which on the table has this schema."""
    from holdfast.format.evolution import evolve_schema

    if changed:
        after = evolve_schema(target.schema, schema, fill_missing=False).field(changed)
        if after.type != schema.field(changed).type:
            raise InvalidRequest(
                "a column can only become wider", column=changed, to_type=str(schema.field(changed).type),
                from_type=str(target.schema.field(changed).type),
            )  # fmt: skip
    write_settings(context)
    return target.table.insert(schema.empty_table(), options=context.options, idempotency=context.idempotency)
