"""Routes by which Pinot's clients and tools find brokers, and look at what a cluster is made of.

A service is a cluster of one tenant, whose controller, broker and server share a process.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

from holdfast.config.push import name_with_type, raw_name
from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.format.znode import decode_record
from holdfast.push.state.records import external_view_path, ideal_state_path
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import NO_TABLE, Answer, Call, Endpoint, Reply
from holdfast.server.parameters import OfTable, OfTypedTable, Parameter, Parameters, in_path
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, TEXTS, status

TENANT = "DefaultTenant"
_ANY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared with, not listened on
_NO_RELOAD = "nothing to reload: a segment is one file, and brokers read every change as it is made"


class StateParameters(Parameters, frozen=True, kw_only=True):
    state: Annotated[str | None, Parameter("ONLINE or OFFLINE; every broker that is named is online.")] = None


class LiveBrokersParameters(Parameters, frozen=True, kw_only=True):
    tables: Annotated[tuple[str, ...], Parameter("Only these tables. Repeats.")] = ()


class TenantParameters(StateParameters, frozen=True, kw_only=True):
    tenant: Annotated[str, in_path("A tenant; there is one.")]
    type: Annotated[str | None, Parameter("Accepted for Pinot's clients; changes nothing.")] = None


class TableBrokersParameters(OfTypedTable, frozen=True, kw_only=True):
    state: Annotated[str | None, Parameter("ONLINE or OFFLINE; every broker that is named is online.")] = None


class InstanceParameters(Parameters, frozen=True, kw_only=True):
    instance: Annotated[str, in_path("An instance, as /instances names it.")]


class ReloadParameters(OfTypedTable, frozen=True, kw_only=True):
    force_download: Annotated[bool, Parameter("Accepted for Pinot's clients; changes nothing.")] = False


class ReloadSegmentParameters(ReloadParameters, frozen=True, kw_only=True):
    segment: Annotated[str, in_path("A segment's name.")]


def show_version(_service: Service, _call: Call[Parameters]) -> Reply:
    try:
        number = version("holdfast-lake")
    except PackageNotFoundError:
        number = "unknown"
    return Reply(document={"holdfast": number})


def cluster_info(service: Service, _call: Call[Parameters]) -> Reply:
    return Reply(document={"clusterName": service.settings.cluster})


def list_instances(service: Service, call: Call[Parameters]) -> Reply:
    return Reply(document={"instances": list(_instances(service, call))})


def show_instance(service: Service, call: Call[InstanceParameters]) -> Reply:
    found = _instances(service, call).get(call.parameters.instance)
    if found is None:
        raise InvalidRequest(
            "there is no such instance", instance=call.parameters.instance[:80], code="INSTANCE_NOT_FOUND"
        )
    return Reply(document=found)


def list_tenants(_service: Service, _call: Call[Parameters]) -> Reply:
    return Reply(document={"SERVER_TENANTS": [TENANT], "BROKER_TENANTS": [TENANT]})


def show_tenant(service: Service, call: Call[TenantParameters]) -> Reply:
    _check_tenant(call)
    names = list(_instances(service, call))
    return Reply(
        document={
            "tenantName": TENANT,
            "ServerInstances": [name for name in names if name.startswith("Server_")],
            "BrokerInstances": [name for name in names if name.startswith("Broker_")],
        }
    )


def brokers(service: Service, call: Call[StateParameters]) -> Reply:
    names = [one["instanceName"] for one in _brokers(service, call)]
    return Reply(
        document={"tables": dict.fromkeys(_tables(service, call), names), "tenants": {TENANT: names}}
    )


def brokers_v2(service: Service, call: Call[StateParameters]) -> Reply:
    found = _brokers(service, call)
    return Reply(
        document={"tables": dict.fromkeys(_tables(service, call), found), "tenants": {TENANT: found}}
    )


def tenant_brokers(service: Service, call: Call[StateParameters]) -> Reply:
    return Reply(document={TENANT: [one["instanceName"] for one in _brokers(service, call)]})


def tenant_brokers_v2(service: Service, call: Call[StateParameters]) -> Reply:
    return Reply(document={TENANT: _brokers(service, call)})


def brokers_of_tenant(service: Service, call: Call[TenantParameters]) -> Reply:
    _check_tenant(call)
    return Reply(document=[one["instanceName"] for one in _brokers(service, call)])


def brokers_of_tenant_v2(service: Service, call: Call[TenantParameters]) -> Reply:
    _check_tenant(call)
    return Reply(document=_brokers(service, call))


def table_brokers(service: Service, call: Call[StateParameters]) -> Reply:
    names = [one["instanceName"] for one in _brokers(service, call)]
    return Reply(document=dict.fromkeys(_tables(service, call), names))


def table_brokers_v2(service: Service, call: Call[StateParameters]) -> Reply:
    return Reply(document=dict.fromkeys(_tables(service, call), _brokers(service, call)))


def brokers_of_table(service: Service, call: Call[TableBrokersParameters]) -> Reply:
    service.catalog.table(call.parameters.typed)
    return Reply(document=[one["instanceName"] for one in _brokers(service, call)])


def brokers_of_table_v2(service: Service, call: Call[TableBrokersParameters]) -> Reply:
    service.catalog.table(call.parameters.typed)
    return Reply(document=_brokers(service, call))


def all_live_brokers(service: Service, call: Call[LiveBrokersParameters]) -> Reply:
    """By typed name, as Pinot's Java client reads it."""
    wanted = {raw_name(name) for name in call.parameters.tables}
    names = [name for name in _tables(service, call) if not wanted or name in wanted]
    return Reply(document=dict.fromkeys(map(name_with_type, names), _brokers(service, call)))


def live_brokers(service: Service, call: Call[OfTable]) -> Reply:
    service.catalog.table(call.parameters.typed)
    return Reply(document=[f"{one['host']}:{one['port']}" for one in _brokers(service, call)])


def table_instances(service: Service, call: Call[OfTypedTable]) -> Reply:
    service.catalog.table(call.parameters.typed)
    names = list(_instances(service, call))
    return Reply(
        document={
            "tableName": raw_name(call.parameters.typed),
            "brokers": [{"tableType": "offline", "instances": _of_kind(names, "Broker_")}],
            "server": [{"tableType": "offline", "instances": _of_kind(names, "Server_")}],
        }
    )


def ideal_state(service: Service, call: Call[OfTypedTable]) -> Reply:
    return _segment_map(service, call, ideal_state_path(call.parameters.typed))


def external_view(service: Service, call: Call[OfTypedTable]) -> Reply:
    return _segment_map(service, call, external_view_path(call.parameters.typed))


def reload(service: Service, call: Call[ReloadParameters]) -> Reply:
    service.catalog.table(call.parameters.typed)
    return Reply(document=status(_NO_RELOAD))


def reload_segment(service: Service, call: Call[ReloadSegmentParameters]) -> Reply:
    table, segment = call.parameters.typed, call.parameters.segment
    if segment not in service.controller.views.state(table).segments:
        raise InvalidRequest("the segment is not in the table", segment=segment, code="SEGMENT_NOT_FOUND")
    return Reply(document=status(_NO_RELOAD))


def _segment_map(service: Service, call: Call[OfTypedTable], path: str) -> Reply:
    """Which server holds which segment, by type."""
    service.catalog.table(call.parameters.typed)
    record = service.catalog.metastore.read(path)
    held: Mapping[str, Any] = {} if record is None else decode_record(record.data).maps
    return Reply(document={"OFFLINE": {name: dict(held[name]) for name in sorted(held)}, "REALTIME": None})


def _tables(service: Service, call: Call[Parameters]) -> Iterable[str]:
    names = sorted(raw_name(table) for table in service.catalog.tables())
    return [name for name in names if call.principal.may(Role.READ, name)]


def _brokers(service: Service, call: Call[Parameters]) -> list[dict[str, Any]]:
    """The broker of this process; none if those are asked for that are offline."""
    wanted = getattr(call.parameters, "state", None)
    if wanted is not None and wanted.upper() == "OFFLINE":
        return []
    host, port = _reachable(service.broker_address, call)
    return [{"instanceName": f"Broker_{host}_{port}", "host": host, "port": port}]


def _instances(service: Service, call: Call[Parameters]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind, address in (
        ("Controller", service.controller_address),
        ("Broker", service.broker_address),
        ("Server", service.broker_address),
    ):
        host, port = _reachable(address, call)
        name = f"{kind}_{host}_{port}"
        found[name] = {
            "instanceName": name,
            "hostName": host,
            "enabled": True,
            "port": str(port),
            "tags": [f"{TENANT}_{'BROKER' if kind == 'Broker' else 'OFFLINE'}"],
            "pools": None,
        }
    return found


def _of_kind(names: list[str], kind: str) -> list[str]:
    return [name for name in names if name.startswith(kind)]


def _reachable(address: tuple[str, int], call: Call[Parameters]) -> tuple[str, int]:
    """Where clients find it: a service that listens on every address is where the caller found it."""
    host, port = address
    if host in _ANY_ADDRESS:
        called = call.headers.get("host", "")
        host = called.rpartition(":")[0] if called.rpartition(":")[2].isdigit() else called
    return host or "localhost", port


def _check_tenant(call: Call[TenantParameters]) -> None:
    if call.parameters.tenant != TENANT:
        raise InvalidRequest(
            "there is no such tenant", tenant=call.parameters.tenant[:80], code="TENANT_NOT_FOUND"
        )


_SOME = Access(Role.READ, On.SOME)
_TABLE = Access(Role.READ)
_BROKERS = Answer(about="Their instances.", schema={"type": "array"})
_BY_NAME = Answer(about="By name.", schema=OBJECT)
_NO_INSTANCE = {404: "Not known."}
_LIST: dict[str, Any] = {"type": "array"}


def _look(
    path: str, name: str, about: str, handle: Any, parameters: type[Parameters], answer: Answer = _BY_NAME
) -> Endpoint[Any]:
    of_table = "{table}" in path
    return Endpoint(
        method="GET", path=path, name=name, access=_TABLE if of_table else _SOME, handle=handle, about=about,
        parameters=parameters, answer=answer,
        refusals=NO_TABLE if of_table else (_NO_INSTANCE if "{" in path else {}),
    )  # fmt: skip


ENDPOINTS = (
    _look("/version", "GetVersion", "The version of the service.", show_version, Parameters),
    _look("/cluster/info", "GetClusterInfo", "The name of the cluster.", cluster_info, Parameters),
    _look("/instances", "GetAllInstances", "The parts of the service.", list_instances, Parameters),
    _look("/instances/{instance}", "GetInstance", "One of them.", show_instance, InstanceParameters),
    _look("/tenants", "GetAllTenants", "The one tenant.", list_tenants, Parameters),
    _look("/tenants/{tenant}", "GetTenant", "What belongs to it.", show_tenant, TenantParameters),
    _look("/brokers", "GetBrokers", "Brokers by table and tenant.", brokers, StateParameters),
    _look("/v2/brokers", "GetBrokersV2", "The same, with addresses.", brokers_v2, StateParameters),
    _look("/brokers/tenants", "GetTenantBrokers", "Brokers by tenant.", tenant_brokers, StateParameters),
    _look(
        "/v2/brokers/tenants", "GetTenantBrokersV2", "The same, with addresses.", tenant_brokers_v2,
        StateParameters,
    ),
    _look(
        "/brokers/tenants/{tenant}", "GetBrokersOfTenant", "Brokers of a tenant.", brokers_of_tenant,
        TenantParameters, Answer(about="Their names.", schema=TEXTS),
    ),
    _look(
        "/v2/brokers/tenants/{tenant}", "GetBrokersOfTenantV2", "The same, with addresses.",
        brokers_of_tenant_v2, TenantParameters, _BROKERS,
    ),
    _look("/brokers/tables", "GetTableBrokers", "Brokers by table.", table_brokers, StateParameters),
    _look(
        "/v2/brokers/tables", "GetTableBrokersV2", "The same, with addresses.", table_brokers_v2,
        StateParameters,
    ),
    _look(
        "/brokers/tables/{table}", "GetBrokersOfTable", "Brokers of a table.", brokers_of_table,
        TableBrokersParameters, Answer(about="Their names.", schema=TEXTS),
    ),
    _look(
        "/v2/brokers/tables/{table}", "GetBrokersOfTableV2", "The same, with addresses.",
        brokers_of_table_v2, TableBrokersParameters, _BROKERS,
    ),
    _look(
        "/tables/livebrokers", "GetAllLiveBrokers", "Where the brokers of each table listen.",
        all_live_brokers, LiveBrokersParameters,
    ),
    _look(
        "/tables/{table}/livebrokers", "GetLiveBrokers", "Where its brokers listen.", live_brokers, OfTable,
        Answer(about="Host and port of each.", schema=TEXTS),
    ),
    _look(
        "/tables/{table}/instances", "GetTableInstances", "What serves a table.", table_instances,
        OfTypedTable,
    ),
    _look(
        "/tables/{table}/idealstate", "GetIdealState", "Which segments the table has, and where.",
        ideal_state, OfTypedTable,
    ),
    _look(
        "/tables/{table}/externalview", "GetExternalView", "Which segments are held, and where.",
        external_view, OfTypedTable,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/reload", name="ReloadAllSegments", access=Access(Role.WRITE),
        handle=reload, about="Nothing: there is nothing to reload, and the answer says why.",
        parameters=ReloadParameters, answer=Answer(about="Why.", schema=OBJECT), refusals=NO_TABLE,
        only_looks=True,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/{segment}/reload", name="ReloadSegment",
        access=Access(Role.WRITE), handle=reload_segment,
        about="Nothing: there is nothing to reload, and the answer says why.",
        parameters=ReloadSegmentParameters, answer=Answer(about="Why.", schema=OBJECT),
        refusals={404: "The table or the segment is not known."}, only_looks=True,
    ),
)  # fmt: skip
