"""A read-only Iceberg REST catalog: the lake tables that the server's `catalog` names.

A client asks for a table by name, and gets the metadata of its export to Iceberg; the
files it reads by itself. A table without such an export is not found. Names
without a dot are in the namespace `default`.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from holdfast.config.server import Role
from holdfast.errors import TableNotFound
from holdfast.exports.iceberg import metadata_path, read_iceberg
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import Answer, Call, Endpoint, Reply
from holdfast.server.parameters import Parameter, Parameters, in_path
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT
from holdfast.table.opened import open_at

_ROOT = "/iceberg/v1"
_DEFAULT = "default"
_NOT_FOUND = {404: "There is no such namespace or table, or none that this user may read."}
_READERS = Access(Role.READ, On.SOME)
_SERVED = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
"""As clients look for them before they ask."""


class ConfigParameters(Parameters, frozen=True, kw_only=True):
    warehouse: Annotated[str | None, Parameter("Passed over: a service has one catalog.")] = None


class NamespacesParameters(Parameters, frozen=True, kw_only=True):
    parent: Annotated[str | None, Parameter("A namespace, in which there are no others.")] = None


class NamespaceParameters(Parameters, frozen=True, kw_only=True):
    namespace: Annotated[str, in_path("A namespace.")]


class TableParameters(NamespaceParameters, frozen=True, kw_only=True):
    name: Annotated[str, in_path("A table of it.")]


def config(_service: Service, _call: Call[ConfigParameters]) -> Reply:
    return Reply(document={"defaults": {}, "overrides": {}, "endpoints": list(_SERVED)})


def namespaces(service: Service, call: Call[NamespacesParameters]) -> Reply:
    found = () if call.parameters.parent else sorted({space for space, _ in _names(service, call)})
    return Reply(document={"namespaces": [[space] for space in found]})


def namespace(service: Service, call: Call[NamespaceParameters]) -> Reply:
    wanted = call.parameters.namespace
    if wanted not in {space for space, _ in _names(service, call)}:
        raise TableNotFound("there is no such namespace", namespace=wanted)
    return Reply(document={"namespace": [wanted], "properties": {}})


def tables(service: Service, call: Call[NamespaceParameters]) -> Reply:
    wanted = call.parameters.namespace
    found = sorted(name for space, name in _names(service, call) if space == wanted)
    if not found:
        raise TableNotFound("there is no such namespace", namespace=wanted)
    return Reply(document={"identifiers": [{"namespace": [wanted], "name": name} for name in found]})


def load_table(service: Service, call: Call[TableParameters]) -> Reply:
    space, name = call.parameters.namespace, call.parameters.name
    if (space, name) not in _names(service, call):
        raise TableNotFound("there is no such table in the catalog", namespace=space, table=name)
    full = name if space == _DEFAULT else f"{space}.{name}"
    opened = open_at(service.settings.catalog.tables[full])
    state = read_iceberg(opened.store)
    if state is None or not state.is_here:
        raise TableNotFound(
            "the table is not exported to iceberg",
            table=full,
            hint="holdfast exports set PATH iceberg",
        )
    location = opened.store.uri(metadata_path(state.version))
    document = {"metadata-location": location, "metadata": state.metadata, "config": {}}
    return Reply(document=document)


def _names(service: Service, call: Call[Any]) -> set[tuple[str, str]]:
    """Namespace and name of each table that the caller may read."""
    readable = (full for full in service.settings.catalog.tables if call.principal.may_read(full))
    return set(map(_split, readable))


def _split(full: str) -> tuple[str, str]:
    space, dot, name = full.rpartition(".")
    return (space, name) if dot else (_DEFAULT, full)


def _endpoint(path: str, name: str, about: str, parameters: Any, handle: Any) -> Endpoint[Any]:
    return Endpoint(
        method="GET",
        path=_ROOT + path,
        name=name,
        access=_READERS,
        handle=handle,
        about=about,
        parameters=parameters,
        answer=Answer(about="It, as Iceberg's REST specification has it.", schema=OBJECT),
        refusals=_NOT_FOUND,
    )


def _endpoints() -> Iterable[Endpoint[Any]]:
    space = "/namespaces/{namespace}"
    yield _endpoint("/config", "IcebergConfig", "What this catalog serves.", ConfigParameters, config)
    yield _endpoint("/namespaces", "IcebergNamespaces", "The namespaces.", NamespacesParameters, namespaces)
    yield _endpoint(space, "IcebergNamespace", "One namespace.", NamespaceParameters, namespace)
    yield _endpoint(f"{space}/tables", "IcebergTables", "Its tables.", NamespaceParameters, tables)
    yield _endpoint(
        f"{space}/tables/{{name}}", "IcebergTable", "A table's metadata.", TableParameters, load_table
    )


ENDPOINTS = tuple(_endpoints())
