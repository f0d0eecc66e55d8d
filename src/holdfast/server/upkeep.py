"""Routes that operators and their tools use: health, metrics, periodic tasks, who am I."""

from typing import Any

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.server.auth import OPEN, Access, On
from holdfast.server.endpoints import (
    DATABASE_HEADER,
    TYPE,
    Answer,
    Call,
    Endpoint,
    Parameter,
    Reply,
    flag,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, TEXTS, changes_document
from holdfast.server.table_names import offline_name, qualify, raw_name

RETENTION = "RetentionManager"
_TEXT: dict[str, Any] = {"type": "string"}
_REFUSED = 100
_REFUSED_MAX = 1000


def health(service: Service, _call: Call) -> Reply:
    if not service.catalog.metastore.is_connected():
        trouble = "the store is not connected"
    elif not service.broker.is_well():
        trouble = "the query engine does not answer"
    else:
        trouble = ""
    return Reply(text=trouble or "OK", status=503 if trouble else 200, media_type="text/plain")


def uptime(service: Service, _call: Call) -> Reply:
    seconds = (service.clock.monotonic_ms() - service.started_at_ms) // 1000
    return Reply(text=str(seconds), media_type="text/plain")


def auth_info(service: Service, _call: Call) -> Reply:
    return Reply(document={"workflow": "BASIC" if service.users.is_on else "NONE"})


def verify(service: Service, call: Call) -> Reply:
    """True if the credentials in the header may do this; never says why not."""
    principal = service.users.principal(call.headers.get("authorization"), call.client)
    role = {"READ": Role.READ, "CREATE": Role.WRITE, "UPDATE": Role.WRITE, "DELETE": Role.OPERATE}.get(
        (call.text("accessType") or "READ").upper()
    )
    if role is None:
        raise InvalidRequest("not an access type", parameter="accessType", code="PARAMETER_INVALID")
    name = call.text("tableName")
    if name is None:
        return Reply(document=principal.may_everywhere(role))
    return Reply(document=principal.may(role, raw_name(qualify(name, call.database))))


def task_names(_service: Service, _call: Call) -> Reply:
    return Reply(document=[RETENTION])


def run_task(service: Service, call: Call) -> Reply:
    if call.require_text("taskname") != RETENTION:
        raise InvalidRequest("there is no such task", parameter="taskname", code="TASK_NOT_FOUND")
    name = call.text("tableName")
    if name is None and call.flag("dryRun"):
        raise InvalidRequest(
            "a dry run is of one table", parameter="dryRun", code="PARAMETER_INVALID", hint="give tableName"
        )
    if name is None:
        reports = service.controller.upkeep.run_retention_now(by=service.caller(call, ""))
    else:
        table = offline_name(qualify(name, call.database), call.kind())
        reports = (
            service.controller.upkeep.run_retention(
                table, dry_run=call.flag("dryRun"), by=service.caller(call, table)
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


def list_refused_calls(service: Service, call: Call) -> Reply:
    limit = call.whole("limit")
    found = service.refused.newest(_REFUSED if limit is None else max(0, min(limit, _REFUSED_MAX)))
    return Reply(document={"calls": [msgspec.to_builtins(one) for one in found]})


def metrics(service: Service, _call: Call) -> Reply:
    return Reply(text=service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


_RUN_PARAMETERS = (
    Parameter("taskname", f"The task: {RETENTION}.", is_required=True),
    Parameter("tableName", "Only this table; all of them if it is absent."),
    TYPE, DATABASE_HEADER,
    flag("dryRun", "Tell what would go; with tableName only."),
)  # fmt: skip
_RAN = Answer(about="What it did.", schema=OBJECT)
_NO_TABLE = {404: "The table is not known.", 409: "Somebody else was faster."}

HEALTH = Endpoint(
    method="GET", path="/health", name="GetHealth", access=OPEN, handle=health, about="Whether it serves.",
    is_immediate=True,
    answer=Answer(about="It does.", schema=_TEXT, media_type="text/plain"),
)  # fmt: skip
UPTIME = Endpoint(
    method="GET", path="/uptime", name="GetUptime", access=Access(Role.READ, On.SOME), handle=uptime,
    about="For how many seconds it has been running.",
    answer=Answer(about="Seconds.", schema=_TEXT, media_type="text/plain"),
)  # fmt: skip
METRICS = Endpoint(
    method="GET", path="/metrics", name="GetMetrics", access=Access(Role.READ, On.EVERY), handle=metrics,
    about="Figures for Prometheus.",
    answer=Answer(about="The figures.", schema=_TEXT, media_type="text/plain"),
)  # fmt: skip
ENDPOINTS = (
    HEALTH,
    UPTIME,
    METRICS,
    Endpoint(
        method="GET", path="/refusedCalls", name="GetRefusedCalls", access=Access(Role.ADMIN, On.EVERY),
        handle=list_refused_calls, about="Who tried to change what and was refused, newest first.",
        parameters=(
            Parameter("limit", "At most so many, 100 by default, 1000 at most.", kind="integer"),
        ),
        answer=Answer(about="The calls.", schema=OBJECT), only_looks=True,
    ),
    Endpoint(
        method="GET", path="/auth/info", name="GetAuthInfo", access=OPEN, handle=auth_info,
        about="How to log in.", answer=Answer(about="BASIC or NONE.", schema=OBJECT),
    ),
    Endpoint(
        method="GET", path="/auth/verify", name="VerifyAuth", access=OPEN, handle=verify,
        about="Whether the credentials in the header may do something.",
        parameters=(
            Parameter("tableName", "On this table; on all of them if it is absent."), DATABASE_HEADER,
            Parameter("accessType", "What.", choices=("READ", "CREATE", "UPDATE", "DELETE")),
            Parameter("endpointUrl", "Accepted for Pinot's clients; changes nothing."),
        ),
        answer=Answer(about="true or false.", schema={"type": "boolean"}),
        refusals={401: "No credentials, or unknown ones."},
    ),
    Endpoint(
        method="GET", path="/periodictask/names", name="GetPeriodicTasks", access=Access(Role.READ, On.SOME),
        handle=task_names, about="The tasks that can be run.", answer=Answer(about="Names.", schema=TEXTS),
    ),
    Endpoint(
        method="POST", path="/periodictask/run", name="RunPeriodicTask",
        access=Access(Role.OPERATE, On.QUERY_OR_EVERY), handle=run_task, about="Run a task now.",
        parameters=_RUN_PARAMETERS, answer=_RAN, refusals=_NO_TABLE,
    ),
)  # fmt: skip
