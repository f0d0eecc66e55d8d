"""Routes of tables and schemas."""

from collections.abc import Mapping
from typing import Annotated, Any

from holdfast.config.push import parse_table, raw_name, unknown_sections
from holdfast.config.push_schema import parse_schema
from holdfast.config.push_support import settings_without_effect
from holdfast.config.server import Role
from holdfast.config.values import parse_period_ms
from holdfast.errors import Conflict, InvalidRequest
from holdfast.format.znode import decode_record
from holdfast.model.lineage import visible
from holdfast.model.segment import Segment
from holdfast.push.ingestion.rules import check_config, check_schema
from holdfast.push.state.records import external_view_path
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import RULES, Answer, BodyKind, Call, Endpoint, Reply
from holdfast.server.parameters import (
    InDatabase,
    OfTable,
    OfTypedTable,
    Parameter,
    Parameters,
    Precise,
    TableType,
    in_path,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, STATUS, TEXTS, publish_document, status
from holdfast.server.table_names import qualify

_OFFLINE = "OFFLINE"


def _parse_retention(text: str) -> int:
    try:
        return max(0, parse_period_ms(text))
    except InvalidRequest as error:
        raise InvalidRequest(
            "not a period", parameter="retention", code="PARAMETER_INVALID", hint="write it as 7d or 0d"
        ) from error


RetentionMs = Annotated[
    int | None,
    Parameter(
        "How long the deleted files stay, such as 7d; 0d: not at all.", "retention", parse=_parse_retention
    ),
]
"""None: as the table says."""


class ListParameters(Parameters, frozen=True, kw_only=True):
    type: TableType = None


class DeleteParameters(OfTypedTable, frozen=True, kw_only=True):
    retention_ms: RetentionMs = None


class SizeParameters(OfTable, frozen=True, kw_only=True):
    verbose: Annotated[bool, Parameter("With every segment.")] = True
    include_replaced_segments: Annotated[bool, Parameter("Hidden segments, too.")] = True


class ConsistentPushParameters(OfTypedTable, frozen=True, kw_only=True):
    enabled: Annotated[bool, Parameter("On or off.")]
    precise: Precise = None


class SchemaParameters(OfTable, frozen=True, kw_only=True):
    # A schema is granted like the table of its name, so both stand at the same place in the path.
    table: Annotated[str, in_path("A schema by its name, which is the raw name of its table.")]


class UpdateSchemaParameters(SchemaParameters, frozen=True, kw_only=True):
    reload: Annotated[bool, Parameter("Accepted for Pinot's clients; changes nothing.")] = False


class AddSchemaParameters(InDatabase, frozen=True, kw_only=True):
    override: Annotated[bool, Parameter("Replace one that exists.")] = True
    force: Annotated[bool, Parameter("Accepted for Pinot's clients; changes nothing.")] = False


def list_tables(service: Service, call: Call[ListParameters]) -> Reply:
    if call.parameters.type == "REALTIME":
        return Reply(document={"tables": []})
    names = {raw_name(table) for table in service.catalog.tables()}
    return Reply(document={"tables": sorted(name for name in names if call.principal.may(Role.READ, name))})


def table_config(service: Service, call: Call[OfTypedTable]) -> Reply:
    return Reply(document={_OFFLINE: dict(service.catalog.table(call.parameters.typed).raw)})


def create_table(service: Service, call: Call[InDatabase]) -> Reply:
    config = _config(call)
    table = parse_table(config).table
    call.require(Role.ADMIN, table)
    service.controller.tables.create(config, by=service.caller(call, table))
    return _acceptance(f"Table {table} successfully added", _about(config))


def update_table(service: Service, call: Call[OfTable]) -> Reply:
    config = _config(call)
    table = call.parameters.typed
    if parse_table(config).table != table:
        raise InvalidRequest(
            "the name in the body is not the one in the path", table=table, code="NAME_MISMATCH"
        )
    service.controller.update_table(config, by=service.caller(call, table))
    return _acceptance(f"Table config updated for {raw_name(table)}", _about(config))


def validate_table(service: Service, call: Call[InDatabase]) -> Reply:
    config = _config(call)
    parsed = parse_table(config)
    call.require(Role.READ, parsed.table)
    check_config(config)
    return Reply(
        document={
            _OFFLINE: dict(parsed.raw),
            **_about(config),
            "warnings": list(parsed.warnings),
        }
    )


def delete_table(service: Service, call: Call[DeleteParameters]) -> Reply:
    table = call.parameters.typed
    text = f"Tables: [{table}] deleted"
    try:
        service.controller.tables.delete(
            table, retention_ms=call.parameters.retention_ms, by=service.caller(call, table)
        )
    except Conflict as error:
        if error.facts.get("code") != "TABLE_IN_USE":
            raise
        # Queries no longer find it, and retention does the rest: the call has succeeded.
        text += "; its files go once brokers have let go of them"
    return Reply(document=status(text))


def table_schema(service: Service, call: Call[OfTable]) -> Reply:
    return Reply(document=dict(service.catalog.schema_of(call.parameters.typed).raw))


def list_schemas(service: Service, call: Call[Parameters]) -> Reply:
    return Reply(document=[name for name in service.catalog.schemas() if call.principal.may(Role.READ, name)])


def show_schema(service: Service, call: Call[SchemaParameters]) -> Reply:
    return Reply(document=dict(service.catalog.schema(call.parameters.qualified).raw))


def add_schema(service: Service, call: Call[AddSchemaParameters]) -> Reply:
    schema = _schema(call)
    name = parse_schema(schema).name
    call.require(Role.ADMIN, name)
    service.controller.tables.put_schema(
        schema, override=call.parameters.override, by=service.caller(call, name)
    )
    return _acceptance(f"{name} successfully added", {"unrecognizedProperties": {}})


def update_schema(service: Service, call: Call[UpdateSchemaParameters]) -> Reply:
    schema, name = _schema(call), call.parameters.qualified
    if parse_schema(schema).name != name:
        raise InvalidRequest(
            "the name in the body is not the one in the path", schema=name, code="NAME_MISMATCH"
        )
    service.catalog.schema(name)
    service.controller.tables.put_schema(schema, override=True, by=service.caller(call, name))
    return _acceptance(f"{name} successfully added", {"unrecognizedProperties": {}})


def validate_schema(service: Service, call: Call[InDatabase]) -> Reply:
    schema = parse_schema(_schema(call))
    call.require(Role.READ, schema.name)
    check_schema(schema.raw)
    return Reply(document=dict(schema.raw))


def delete_schema(service: Service, call: Call[SchemaParameters]) -> Reply:
    name = call.parameters.qualified
    service.controller.tables.delete_schema(name, by=service.caller(call, name))
    return Reply(document=status(f"Schema {name} deleted"))


def table_size(service: Service, call: Call[SizeParameters]) -> Reply:
    table = call.parameters.typed
    state = service.controller.views.state(table)
    names = state.segments
    if not call.parameters.include_replaced_segments:
        names = visible(names, state.lineage)
    details = service.catalog.segments(table, sorted(names))
    view = service.catalog.metastore.read(external_view_path(table))
    holders = {} if view is None else decode_record(view.data).maps
    sizes = {name: _size(segment, list(holders.get(name, {}))) for name, segment in details.items()}
    per_replica = sum(segment.size_bytes for segment in details.values())
    reported = sum(size["reportedSizeInBytes"] for size in sizes.values())
    figures = {
        "reportedSizeInBytes": reported,
        "estimatedSizeInBytes": reported,
        "reportedSizePerReplicaInBytes": per_replica,
    }
    return Reply(
        document={
            "tableName": raw_name(table),
            **figures,
            "offlineSegments": {
                **figures,
                "missingSegments": len(names) - len(details),
                "segments": sizes if call.parameters.verbose else {},
            },
            "realtimeSegments": None,
        }
    )


def consistent_push(service: Service, call: Call[ConsistentPushParameters]) -> Reply:
    table, is_enabled = call.parameters.typed, call.parameters.enabled
    switched = service.controller.set_consistent_push(
        table, enabled=is_enabled, by=service.caller(call, table)
    )
    document: dict[str, Any] = {"consistentDataPush": is_enabled}
    if switched is not None:
        document |= publish_document(switched, is_dry_run=False)
    return Reply(document=document)


def _acceptance(text: str, about: Mapping[str, Any]) -> Reply:
    return Reply(document={**about, **status(text)})


def _size(segment: Segment, servers: list[str]) -> dict[str, Any]:
    total = segment.size_bytes * len(servers)
    return {
        "reportedSizeInBytes": total,
        "estimatedSizeInBytes": total,
        "maxReportedSizePerReplicaInBytes": segment.size_bytes,
        "serverInfo": {
            server: {"segmentName": segment.name, "diskSizeInBytes": segment.size_bytes} for server in servers
        },
    }


def _about(config: dict[str, Any]) -> dict[str, Any]:
    """What of a configuration changes nothing: keys that nobody knows, and settings without effect here."""
    return {
        "unrecognizedProperties": unknown_sections(config),
        "settingsWithoutEffect": settings_without_effect(config),
    }


def _config(call: Call[InDatabase]) -> dict[str, Any]:
    """The configuration in the body, its table in the database of the request."""
    config = call.read(dict[str, Any])
    name = config.get("tableName")
    if isinstance(name, str):
        config["tableName"] = qualify(name, call.parameters.database)
    return config


def _schema(call: Call[InDatabase]) -> dict[str, Any]:
    schema = call.read(dict[str, Any])
    name = schema.get("schemaName")
    if isinstance(name, str):
        schema["schemaName"] = qualify(name, call.parameters.database)
    return schema


_MISSING = {404: "Not known."}
_EXISTS = {409: "It exists already, or is in use."}
_ADDED = Answer(about="Added.", schema=STATUS)

ENDPOINTS = (
    Endpoint(
        method="GET", path="/tables", name="GetTables", access=Access(Role.READ, On.SOME), handle=list_tables,
        about="Raw names of the tables that the user may read.", parameters=ListParameters,
        answer=Answer(about="The names.", schema={
            "type": "object", "properties": {"tables": TEXTS}, "required": ["tables"]}),
    ),
    Endpoint(
        method="POST", path="/tables", name="CreateTable", access=Access(Role.ADMIN, On.SOME),
        handle=create_table, about="Create a table; its schema must exist.", parameters=InDatabase,
        body=BodyKind.JSON, body_about="A table configuration of Pinot's.", answer=_ADDED, refusals=_EXISTS,
    ),
    Endpoint(
        method="POST", path="/tables/validate", name="ValidateTable", access=Access(Role.READ, On.SOME),
        handle=validate_table, about="Check a table configuration; nothing is changed.",
        parameters=InDatabase, body=BodyKind.JSON, body_about="A table configuration.",
        answer=Answer(about="As it was understood.", schema=OBJECT), only_looks=True,
    ),
    Endpoint(
        method="GET", path="/tables/{table}", name="GetTableConfig", access=Access(Role.READ),
        handle=table_config, about="The configuration of a table.", parameters=OfTypedTable,
        answer=Answer(about="By type.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="PUT", path="/tables/{table}", name="UpdateTableConfig", access=Access(Role.ADMIN),
        handle=update_table, about="Change the configuration of a table, for the next push on.",
        parameters=OfTable, body=BodyKind.JSON, body_about="A table configuration.",
        answer=Answer(about="Changed.", schema=STATUS), refusals={**_MISSING, **_EXISTS},
    ),
    Endpoint(
        method="DELETE", path="/tables/{table}", name="DeleteTable", access=Access(Role.ADMIN),
        handle=delete_table, about="Delete a table with its segments and its lineage.",
        parameters=DeleteParameters,
        answer=Answer(about="Deleted.", schema=STATUS), refusals={**_MISSING, **_EXISTS},
    ),
    Endpoint(
        method="GET", path="/tables/{table}/schema", name="GetTableSchema", access=Access(Role.READ),
        handle=table_schema, about="The schema of a table.", parameters=OfTable,
        answer=Answer(about="The schema.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/tables/{table}/size", name="GetTableSize", access=Access(Role.READ),
        handle=table_size, about="How many bytes a table takes.",
        parameters=SizeParameters,
        answer=Answer(about="The figures.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="POST", path="/tables/{table}/consistentPush", name="SwitchConsistentPush",
        access=Access(Role.ADMIN), handle=consistent_push,
        about="Switch consistent push on or off in place.",
        parameters=ConsistentPushParameters,
        answer=Answer(about="Switched.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/schemas", name="GetSchemas", access=Access(Role.READ, On.SOME),
        handle=list_schemas, about="Names of the schemas that the user may read.", parameters=Parameters,
        answer=Answer(about="The names.", schema=TEXTS),
    ),
    Endpoint(
        method="POST", path="/schemas", name="CreateSchema", access=Access(Role.ADMIN, On.SOME),
        handle=add_schema, about="Add a schema, as JSON or as the one file of a form.",
        parameters=AddSchemaParameters,
        body=BodyKind.JSON, body_about="A schema of Pinot's.", answer=_ADDED, refusals=_EXISTS,
    ),
    Endpoint(
        method="POST", path="/schemas/validate", name="ValidateSchema", access=Access(Role.READ, On.SOME),
        handle=validate_schema, about="Check a schema; nothing is changed.", parameters=InDatabase,
        body=BodyKind.JSON, body_about="A schema.", answer=Answer(about="As understood.", schema=OBJECT),
        only_looks=True,
    ),
    Endpoint(
        method="GET", path="/schemas/{table}", name="GetSchema", access=Access(Role.READ), handle=show_schema,
        about="A schema.", parameters=SchemaParameters,
        answer=Answer(about="The schema.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="PUT", path="/schemas/{table}", name="UpdateSchema", access=Access(Role.ADMIN),
        handle=update_schema, about="Change a schema.",
        parameters=UpdateSchemaParameters,
        body=BodyKind.JSON, body_about="A schema.", answer=Answer(about="Changed.", schema=STATUS),
        refusals={**_MISSING, **_EXISTS},
    ),
    Endpoint(
        method="DELETE", path="/schemas/{table}", name="DeleteSchema", access=Access(Role.ADMIN),
        handle=delete_schema, about="Delete a schema that no table uses.",
        parameters=SchemaParameters, answer=Answer(about="Deleted.", schema=STATUS),
        refusals={**_MISSING, **_EXISTS},
    ),
)  # fmt: skip
