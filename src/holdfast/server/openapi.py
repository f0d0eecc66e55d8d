"""`/openapi.json`: the declarations of the routes, in the form that tools read."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.server.endpoints import BodyKind, Endpoint
from holdfast.server.parameters import Declaration, Parameters, declarations

_COMMON: Mapping[int, str] = {
    400: "The request is malformed.",
    401: "No credentials, or unknown ones.",
    403: "The user may not do this.",
    413: "The body is too large.",
    429: "Too many requests; wait.",
    500: "A bug, or damaged records; the log tells more under the request id.",
    503: "The store or the storage does not answer.",
    504: "It is not known whether the change was made; look before you repeat it.",
}
"""What any route may answer."""
_OPEN: Mapping[int, str] = {400: _COMMON[400], 413: _COMMON[413], 429: _COMMON[429], 503: _COMMON[503]}

_ERROR = "Error"
_CONVERTER = re.compile(r":\w+}")
_REFERENCE = "#/components/schemas/{name}"


def describe(endpoints: Iterable[Endpoint[Any]], *, title: str, is_broker: bool) -> dict[str, Any]:
    """The document for one application."""
    listed = list(endpoints)
    kinds = [one.body_type for one in listed if one.body_type is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    bodies = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in listed:
        paths.setdefault(_CONVERTER.sub("}", one.path), {})[one.method.lower()] = _operation(one, bodies)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, _ERROR: _error_schema(is_broker=is_broker)},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(one: Endpoint[Any], bodies: Mapping[type, Any]) -> dict[str, Any]:
    parameters: type[Parameters] = one.parameters
    operation: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.about,
        "parameters": [_parameter(parameter) for parameter in declarations(parameters)],
        "responses": _responses(one),
        "security": [] if one.access.role is None else [{"basic": []}, {"bearer": []}],
        "x-access": "open"
        if one.access.role is None
        else f"{one.access.role.name.lower()}: {one.access.on.value}",
    }
    body = _body(one, bodies)
    return operation if body is None else {**operation, "requestBody": body}


def _parameter(one: Declaration) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": one.kind}
    if one.choices:
        schema["enum"] = list(one.choices)
    if one.kind == "boolean" and one.default is not None:
        schema["default"] = one.default
    if one.is_repeated:
        schema = {"type": "array", "items": schema}
    return {
        "name": one.name,
        "in": one.place.value,
        "description": one.about,
        "required": one.is_required,
        "schema": schema,
    }


def _body(one: Endpoint[Any], bodies: Mapping[type, Any]) -> dict[str, Any] | None:
    match one.body:
        case BodyKind.NONE:
            return None
        case BodyKind.UPLOAD:
            part = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
            content = {"multipart/form-data": {"schema": part}}
        case BodyKind.JSON | BodyKind.OPTIONAL_JSON:
            schema = {"type": "object"} if one.body_type is None else bodies[one.body_type]
            content = {"application/json": {"schema": schema}}
    return {"description": one.body_about, "required": one.body is BodyKind.JSON, "content": content}


def _responses(one: Endpoint[Any]) -> dict[str, Any]:
    schema = dict(one.answer.schema)
    content = {"content": {one.answer.media_type: {"schema": schema}}} if schema else {}
    refusals = {**(_OPEN if one.access.role is None else _COMMON), **one.refusals}
    error = {"application/json": {"schema": {"$ref": _REFERENCE.format(name=_ERROR)}}}
    return {
        "200": {"description": one.answer.about, **content},
        **{
            str(status): {"description": about, "content": error}
            for status, about in sorted(refusals.items())
        },
    }


def _error_schema(*, is_broker: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "code": {"type": "integer", "description": "The HTTP status."},
        "error": {"type": "string", "description": "What is wrong, where, and what to do."},
        "errorCode": {"type": "string", "description": "A stable word for programs."},
        "details": {"type": "object"},
        "requestId": {"type": "string"},
    }
    if is_broker:
        # Clients of Pinot look at these before anything else.
        properties |= {"numServersQueried": {"type": "integer"}, "numServersResponded": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": list(properties)}
