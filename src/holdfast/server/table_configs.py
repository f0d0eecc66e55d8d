"""Routes that take a schema and its table in one document, as Pinot's administration tool sends them."""

from typing import Annotated, Any

from holdfast.config.push import parse_table, raw_name, unknown_sections
from holdfast.config.push_schema import parse_schema
from holdfast.config.push_support import settings_without_effect
from holdfast.config.server import Role
from holdfast.errors import InvalidRequest, TableExists, TableNotFound
from holdfast.push.ingestion.rules import check_config, check_schema
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import Answer, BodyKind, Call, Endpoint, Reply
from holdfast.server.parameters import InDatabase, OfTable, Parameter, Parameters
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, STATUS, TEXTS, status
from holdfast.server.table_names import qualify


class AddParameters(InDatabase, frozen=True, kw_only=True):
    validation_types_to_skip: Annotated[
        str | None, Parameter("Accepted for Pinot's clients; changes nothing.")
    ] = None


class UpdateParameters(OfTable, frozen=True, kw_only=True):
    validation_types_to_skip: Annotated[
        str | None, Parameter("Accepted for Pinot's clients; changes nothing.")
    ] = None
    reload: Annotated[bool, Parameter("Accepted for Pinot's clients; changes nothing.")] = False
    force_table_schema_update: Annotated[
        bool, Parameter("Accepted for Pinot's clients; changes nothing.")
    ] = False


def list_all(service: Service, call: Call[Parameters]) -> Reply:
    names = {raw_name(table) for table in service.catalog.tables()}
    return Reply(document=sorted(name for name in names if call.principal.may(Role.READ, name)))


def show(service: Service, call: Call[OfTable]) -> Reply:
    table = call.parameters.typed
    return Reply(
        document={
            "tableName": raw_name(table),
            "schema": dict(service.catalog.schema_of(table).raw),
            "offline": dict(service.catalog.table(table).raw),
            "realtime": None,
        }
    )


def add(service: Service, call: Call[AddParameters]) -> Reply:
    schema, config = _parts(call, call.parameters.database)
    table = parse_table(config).table
    call.require(Role.ADMIN, table)
    if table in service.catalog.tables():
        raise TableExists("the table exists", table=raw_name(table), code="TABLE_EXISTS")
    by = service.caller(call, table)
    is_new = _is_new(service, schema["schemaName"])
    service.controller.tables.put_schema(schema, override=True, by=by)
    try:
        service.controller.tables.create(config, by=by)
    except InvalidRequest:
        if is_new:
            service.controller.tables.delete_schema(schema["schemaName"], by=by)
        raise
    return Reply(document={**_about(config), **status(f"TableConfigs {raw_name(table)} successfully added")})


def update(service: Service, call: Call[UpdateParameters]) -> Reply:
    schema, config = _parts(call, call.parameters.database)
    table = call.parameters.typed
    if parse_table(config).table != table:
        raise InvalidRequest(
            "the name in the body is not the one in the path", table=table, code="NAME_MISMATCH"
        )
    by = service.caller(call, table)
    service.catalog.table(table)
    service.controller.tables.put_schema(schema, override=True, by=by)
    service.controller.update_table(config, by=by)
    return Reply(document={**_about(config), **status(f"TableConfigs updated for {raw_name(table)}")})


def validate(_service: Service, call: Call[AddParameters]) -> Reply:
    schema, config = _parts(call, call.parameters.database)
    table = parse_table(config).table
    call.require(Role.READ, table)
    return Reply(
        document={"tableName": raw_name(table), "schema": schema, "offline": config, **_about(config)}
    )


def delete(service: Service, call: Call[OfTable]) -> Reply:
    table = call.parameters.typed
    by = service.caller(call, table)
    schema = service.catalog.schema_of(table).name
    service.controller.tables.delete(table, by=by)
    if not service.catalog.users_of_schema(schema):
        service.controller.tables.delete_schema(schema, by=by)
    return Reply(document=status(f"Deleted table configs: {raw_name(table)}"))


def _parts(call: Call[Any], database: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema and the table of the body, both checked."""
    body = call.read(dict[str, Any])
    schema, config = body.get("schema"), body.get("offline")
    if body.get("realtime"):
        raise InvalidRequest("only OFFLINE tables are served", code="UNSUPPORTED_TABLE_TYPE")
    if not isinstance(schema, dict) or not isinstance(config, dict):
        raise InvalidRequest("the body has no schema, or no offline table", code="BODY_INVALID")
    for part, key in ((schema, "schemaName"), (config, "tableName")):
        if isinstance(part.get(key), str):
            part[key] = qualify(part[key], database)
    parsed, table = parse_schema(schema), parse_table(config)
    if parsed.name != raw_name(table.table):
        raise InvalidRequest(
            "the schema has another name than the table", schema=parsed.name, code="NAME_MISMATCH"
        )
    check_schema(schema)
    check_config(config)
    return schema, config


def _is_new(service: Service, schema: str) -> bool:
    try:
        service.catalog.schema(schema)
    except TableNotFound:
        return True
    return False


def _about(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "unrecognizedProperties": unknown_sections(config),
        "settingsWithoutEffect": settings_without_effect(config),
    }


_MISSING = {404: "Not known."}
_EXISTS = {409: "It exists already, or is in use."}
_BODY = "tableName, schema, and offline: the table's configuration."

ENDPOINTS = (
    Endpoint(
        method="GET", path="/tableConfigs", name="ListTableConfigs", access=Access(Role.READ, On.SOME),
        handle=list_all, about="Raw names of the tables that the user may read.", parameters=Parameters,
        answer=Answer(about="The names.", schema=TEXTS),
    ),
    Endpoint(
        method="POST", path="/tableConfigs", name="AddTableConfigs", access=Access(Role.ADMIN, On.SOME),
        handle=add, about="Create a schema and its table.", parameters=AddParameters, body=BodyKind.JSON,
        body_about=_BODY, answer=Answer(about="Added.", schema=STATUS), refusals=_EXISTS,
    ),
    Endpoint(
        method="POST", path="/tableConfigs/validate", name="ValidateTableConfigs",
        access=Access(Role.READ, On.SOME), handle=validate, about="Check both; nothing is changed.",
        parameters=AddParameters, body=BodyKind.JSON, body_about=_BODY,
        answer=Answer(about="As understood.", schema=OBJECT), only_looks=True,
    ),
    Endpoint(
        method="GET", path="/tableConfigs/{table}", name="GetTableConfigs", access=Access(Role.READ),
        handle=show, about="The schema of a table and its configuration.", parameters=OfTable,
        answer=Answer(about="Both.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="PUT", path="/tableConfigs/{table}", name="UpdateTableConfigs", access=Access(Role.ADMIN),
        handle=update, about="Change the schema and the configuration of a table.",
        parameters=UpdateParameters, body=BodyKind.JSON, body_about=_BODY,
        answer=Answer(about="Changed.", schema=STATUS), refusals={**_MISSING, **_EXISTS},
    ),
    Endpoint(
        method="DELETE", path="/tableConfigs/{table}", name="DeleteTableConfigs", access=Access(Role.ADMIN),
        handle=delete, about="Delete a table, and its schema, if no other uses it.", parameters=OfTable,
        answer=Answer(about="Deleted.", schema=STATUS), refusals={**_MISSING, **_EXISTS},
    ),
)  # fmt: skip
