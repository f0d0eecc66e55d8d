"""Routes that operators and their tools use: health, metrics, periodic tasks, who am I."""

from typing import Annotated, Any

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.server.auth import OPEN, Access, On
from holdfast.server.endpoints import Answer, Call, Endpoint, Reply
from holdfast.server.parameters import InDatabase, Parameter, Parameters, TableType
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, TEXTS, changes_document
from holdfast.server.table_names import offline_name, qualify, raw_name

RETENTION = "RetentionManager"
_TEXT: dict[str, Any] = {"type": "string"}
_ACCESS_TYPES = {"READ": Role.READ, "CREATE": Role.WRITE, "UPDATE": Role.WRITE, "DELETE": Role.OPERATE}
_REFUSED = 100
_REFUSED_MAX = 1000


class VerifyParameters(InDatabase, frozen=True, kw_only=True):
    table_name: Annotated[str | None, Parameter("On this table; on all of them if it is absent.")] = None
    access_type: Annotated[str, Parameter("What.", choices=tuple(_ACCESS_TYPES))] = "READ"
    endpoint_url: Annotated[str | None, Parameter("Accepted for Pinot's clients; changes nothing.")] = None


class RunParameters(InDatabase, frozen=True, kw_only=True):
    taskname: Annotated[str, Parameter(f"The task: {RETENTION}.")]
    table_name: Annotated[str | None, Parameter("Only this table; all of them if it is absent.")] = None
    type: TableType = None
    dry_run: Annotated[bool, Parameter("Tell what would go; with tableName only.")] = False


class RefusedCallsParameters(Parameters, frozen=True, kw_only=True):
    limit: Annotated[int | None, Parameter("How many at most: 100 by default, 1000 at the most.")] = None


def health(service: Service, _call: Call[Parameters]) -> Reply:
    if not service.catalog.metastore.is_connected():
        trouble = "the store is not connected"
    elif not service.broker.is_well():
        trouble = "the query engine does not answer"
    else:
        trouble = ""
    return Reply(text=trouble or "OK", status=503 if trouble else 200, media_type="text/plain")


def uptime(service: Service, _call: Call[Parameters]) -> Reply:
    seconds = (service.clock.monotonic_ms() - service.started_at_ms) // 1000
    return Reply(text=str(seconds), media_type="text/plain")


def auth_info(service: Service, _call: Call[Parameters]) -> Reply:
    return Reply(document={"workflow": "BASIC" if service.users.is_on else "NONE"})


def verify(service: Service, call: Call[VerifyParameters]) -> Reply:
    """True if the credentials in the header may do this; never says why not."""
    principal = service.users.principal(call.headers.get("authorization"), call.client)
    role = _ACCESS_TYPES.get(call.parameters.access_type.upper())
    if role is None:
        raise InvalidRequest("not an access type", parameter="accessType", code="PARAMETER_INVALID")
    name = call.parameters.table_name
    if name is None:
        return Reply(document=principal.may_everywhere(role))
    return Reply(document=principal.may(role, raw_name(qualify(name, call.parameters.database))))


def task_names(_service: Service, _call: Call[Parameters]) -> Reply:
    return Reply(document=[RETENTION])


def run_task(service: Service, call: Call[RunParameters]) -> Reply:
    if call.parameters.taskname != RETENTION:
        raise InvalidRequest("there is no such task", parameter="taskname", code="TASK_NOT_FOUND")
    name = call.parameters.table_name
    if name is None and call.parameters.dry_run:
        raise InvalidRequest(
            "a dry run is of one table", parameter="dryRun", code="PARAMETER_INVALID", hint="give tableName"
        )
    if name is None:
        reports = service.controller.upkeep.run_retention_now(by=service.caller(call, ""))
    else:
        table = offline_name(qualify(name, call.parameters.database), call.parameters.type)
        reports = (
            service.controller.upkeep.run_retention(
                table, dry_run=call.parameters.dry_run, by=service.caller(call, table)
            ),
        )
    return Reply(
        document={
            "Log Request Id": call.request_id,
            "Controllers notified": True,
            "reports": [
                {
                    "table": one.table,
                    "deleted": list(one.deleted),
                    "waiting": list(one.waiting),
                    "orphans": list(one.orphans),
                    "expired": one.expired,
                    "changes": changes_document(one.changes),
                }
                for one in reports
            ],
        }
    )


def list_refused_calls(service: Service, call: Call[RefusedCallsParameters]) -> Reply:
    limit = call.parameters.limit
    found = service.refused.newest(_REFUSED if limit is None else max(0, min(limit, _REFUSED_MAX)))
    return Reply(document={"calls": [msgspec.to_builtins(one) for one in found]})


def metrics(service: Service, _call: Call[Parameters]) -> Reply:
    return Reply(text=service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


_RAN = Answer(about="What it did.", schema=OBJECT)
_NO_TABLE = {404: "The table is not known.", 409: "Somebody else was faster."}

HEALTH = Endpoint(
    method="GET", path="/health", name="GetHealth", access=OPEN, handle=health, about="Whether it serves.",
    parameters=Parameters,
    is_immediate=True,
    answer=Answer(about="It does.", schema=_TEXT, media_type="text/plain"),
)  # fmt: skip
UPTIME = Endpoint(
    method="GET", path="/uptime", name="GetUptime", access=Access(Role.READ, On.SOME), handle=uptime,
    about="For how many seconds it has been running.", parameters=Parameters,
    answer=Answer(about="Seconds.", schema=_TEXT, media_type="text/plain"),
)  # fmt: skip
METRICS = Endpoint(
    method="GET", path="/metrics", name="GetMetrics", access=Access(Role.READ, On.EVERY), handle=metrics,
    about="Figures for Prometheus.", parameters=Parameters,
    answer=Answer(about="The figures.", schema=_TEXT, media_type="text/plain"),
)  # fmt: skip
ENDPOINTS = (
    HEALTH,
    UPTIME,
    METRICS,
    Endpoint(
        method="GET", path="/refusedCalls", name="GetRefusedCalls", access=Access(Role.ADMIN, On.EVERY),
        handle=list_refused_calls, about="Who tried to change what and was refused, newest first.",
        parameters=RefusedCallsParameters,
        answer=Answer(about="The calls.", schema=OBJECT), only_looks=True,
    ),
    Endpoint(
        method="GET", path="/auth/info", name="GetAuthInfo", access=OPEN, handle=auth_info,
        about="How to log in.", parameters=Parameters, answer=Answer(about="BASIC or NONE.", schema=OBJECT),
    ),
    Endpoint(
        method="GET", path="/auth/verify", name="VerifyAuth", access=OPEN, handle=verify,
        about="Whether the credentials in the header may do something.",
        parameters=VerifyParameters,
        answer=Answer(about="true or false.", schema={"type": "boolean"}),
        refusals={401: "No credentials, or unknown ones."},
    ),
    Endpoint(
        method="GET", path="/periodictask/names", name="GetPeriodicTasks", access=Access(Role.READ, On.SOME),
        handle=task_names, about="The tasks that can be run.", parameters=Parameters,
        answer=Answer(about="Names.", schema=TEXTS),
    ),
    Endpoint(
        method="POST", path="/periodictask/run", name="RunPeriodicTask",
        access=Access(Role.OPERATE, On.QUERY_OR_EVERY), handle=run_task, about="Run a task now.",
        parameters=RunParameters, answer=_RAN, refusals=_NO_TABLE,
    ),
)  # fmt: skip
