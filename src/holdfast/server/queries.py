"""Routes of the broker: SQL in Pinot's shape."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.options import split_options
from holdfast.server.auth import Access, On
from holdfast.server.endpoints import Answer, BodyKind, Call, Endpoint, Reply
from holdfast.server.errors import AccessDenied
from holdfast.server.parameters import InDatabase, Parameter, Parameters, header, in_path
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT

_SUCCESS = "-1"
_SQL = Parameter("The statement.")


class QueryBody(msgspec.Struct, rename="camel", frozen=True):
    sql: str
    query_options: str = ""
    trace: bool = False


class QueryParameters(InDatabase, frozen=True, kw_only=True):
    by_status: Annotated[
        bool,
        header("Pinot-Use-Http-Status-For-Errors", "Tell failed queries by status, rather than 200."),
    ] = False
    correlation_id: Annotated[str | None, header("X-Correlation-Id", "Of the client; passed over.")] = None


class ControllerGetParameters(QueryParameters, frozen=True, kw_only=True):
    sql: Annotated[str | None, _SQL] = None
    query_options: Annotated[str, Parameter("key=value, with ; between them.")] = ""
    trace: Annotated[bool, Parameter("Accepted for Pinot's clients; changes nothing.")] = False


class QueryByGetParameters(ControllerGetParameters, frozen=True, kw_only=True):
    sql: Annotated[str, _SQL]


class CancelParameters(Parameters, frozen=True, kw_only=True):
    id: Annotated[str, in_path("Its requestId.")]


def query(service: Service, call: Call[QueryParameters]) -> Reply:
    body = call.read(QueryBody)
    return _answer(service, call, body.sql, body.query_options)


def query_by_get(service: Service, call: Call[QueryByGetParameters]) -> Reply:
    return _answer(service, call, call.parameters.sql, call.parameters.query_options)


def controller_query(service: Service, call: Call[QueryParameters]) -> Reply:
    """As the broker, but a missing statement is an exception in the body, as in Pinot."""
    try:
        body = call.read(QueryBody)
    except InvalidRequest as error:
        return _reply(service, call, _failure(QueryFailed(QueryError.JSON_PARSING, str(error))))
    return _answer(service, call, body.sql, body.query_options)


def controller_get(service: Service, call: Call[ControllerGetParameters]) -> Reply:
    sql = call.parameters.sql
    if sql is None:
        return _reply(service, call, _failure(QueryFailed(QueryError.JSON_PARSING, "there is no sql")))
    return _answer(service, call, sql, call.parameters.query_options)


def validate_syntax(service: Service, call: Call[InDatabase]) -> Reply:
    body = call.read(QueryBody)
    failure = service.broker.check(body.sql, began_s=call.began_s)
    if failure is None:
        return Reply(document={"validationSuccessful": True})
    return Reply(
        document={
            "validationSuccessful": False,
            "errorCode": failure["errorCode"],
            "errorMessage": failure["message"],
        }
    )


def deadline(service: Service, call: Call[Parameters]) -> float:
    """When a query must be answered, waiting included. Errors in it are reported when it runs."""
    try:
        body = call.read(QueryBody)
    except InvalidRequest:
        return _deadline_s(service, call, "", "")
    return _deadline_s(service, call, body.sql, body.query_options)


def deadline_by_get(service: Service, call: Call[ControllerGetParameters]) -> float:
    return _deadline_s(service, call, call.parameters.sql or "", call.parameters.query_options)


def _deadline_s(service: Service, call: Call[Parameters], sql: str, options: str) -> float:
    try:
        given = split_options(options)
    except QueryFailed:
        return service.broker.deadline_s("", {}, call.began_s)
    return service.broker.deadline_s(sql, given, call.began_s)


def running(service: Service, call: Call[Parameters]) -> Reply:
    """The user's own queries; for an operator of all tables those of all users."""
    sees_all = call.principal.may_everywhere(Role.OPERATE)
    found = service.broker.running()
    return Reply(document=[one for one in found if sees_all or one.get("principal") == call.principal.name])


def cancel(service: Service, call: Call[CancelParameters]) -> Reply:
    wanted = call.parameters.id
    owners = {one.get("requestId"): one.get("principal") for one in service.broker.running()}
    is_allowed = call.principal.may_everywhere(Role.OPERATE) or owners.get(wanted) == call.principal.name
    if not is_allowed or not service.broker.cancel(wanted):
        raise InvalidRequest("no such query is running", query=wanted[:80], code="QUERY_NOT_FOUND")
    return Reply(document={"status": f"Cancelled query: {wanted}"})


def _answer(service: Service, call: Call[QueryParameters], sql: str, options: str) -> Reply:
    try:
        given = split_options(options)
    except QueryFailed as error:
        return _reply(service, call, _failure(error))
    answer = service.broker.answer(
        sql,
        given,
        call.principal,
        request_id=call.request_id,
        database=call.parameters.database,
        began_s=call.began_s,
    )
    return _reply(service, call, answer)


def _reply(service: Service, call: Call[QueryParameters], answer: Mapping[str, Any]) -> Reply:
    exceptions = answer.get("exceptions") or []
    code = str(exceptions[0]["errorCode"]) if exceptions else _SUCCESS
    service.metrics.queries.labels(code).inc()
    if code == str(QueryError.ACCESS_DENIED.value):
        raise AccessDenied(exceptions[0]["message"], code="ACCESS_DENIED")
    headers = {"X-Pinot-Error-Code": code}
    if "snapshotEpoch" in answer:
        headers["X-Snapshot-Epoch"] = str(answer["snapshotEpoch"])
    if not exceptions or not call.parameters.by_status:
        return Reply(document=answer, headers=headers)
    kind = QueryError(int(code))
    # A status other than 200 comes with the fields of every other error, beside Pinot's.
    told = {
        "code": kind.http_status,
        "error": exceptions[0]["message"],
        "errorCode": kind.name,
        "details": {},
        "requestId": call.request_id,
    }
    return Reply(document={**answer, **told}, headers=headers, status=kind.http_status)


def _failure(error: QueryFailed) -> dict[str, Any]:
    """The answer to a request that never became a query."""
    return {
        "exceptions": [{"errorCode": error.code.value, "message": error.text}],
        "numServersQueried": 0,
        "numServersResponded": 0,
        "numRowsResultSet": 0,
        "partialResult": False,
        "numGroupsLimitReached": False,
        "timeUsedMs": 0,
        "numDocsScanned": 0,
        "totalDocs": 0,
        "traceInfo": {},
    }


_ACCESS = Access(Role.READ, On.SOME)
_ANSWER = Answer(
    about="The rows, or the exceptions of a query that failed.",
    schema={
        "type": "object",
        "required": ["exceptions", "numServersQueried", "numServersResponded"],
        "properties": {
            "exceptions": {"type": "array"},
            "numServersQueried": {"type": "integer"},
            "numServersResponded": {"type": "integer"},
        },
    },
)
_BODY = "The statement and its options."
_BY_STATUS_ONLY = {
    404: "Only on request by header: unknown table.",
    408: "Only on request by header: too slow.",
}


def _sql_routes(path: str, name: str) -> tuple[Endpoint[QueryParameters], Endpoint[QueryByGetParameters]]:
    return (
        Endpoint(
            method="POST", path=path, name=name, access=_ACCESS, handle=query, is_query=True,
            deadline=deadline, about="Answer a query.", parameters=QueryParameters, body=BodyKind.JSON,
            body_type=QueryBody, has_statement=True, body_about=_BODY, answer=_ANSWER,
            refusals=_BY_STATUS_ONLY,
        ),
        Endpoint(
            method="GET", path=path, name=f"{name}ByGet", access=_ACCESS, handle=query_by_get, is_query=True,
            deadline=deadline_by_get, about="Answer a query.", parameters=QueryByGetParameters,
            answer=_ANSWER, refusals=_BY_STATUS_ONLY,
        ),
    )  # fmt: skip


BROKER_ENDPOINTS = (
    *_sql_routes("/query/sql", "Query"),
    *_sql_routes("/query", "QueryMultiStage"),
    Endpoint(
        method="POST", path="/query/sql/validateSyntax", name="ValidateSyntax", access=_ACCESS,
        handle=validate_syntax, is_query=True, deadline=deadline,
        about="Whether a statement can be read; nothing runs.",
        parameters=InDatabase, body=BodyKind.JSON, body_type=QueryBody, body_about=_BODY,
        has_statement=True, answer=Answer(about="Whether it can.", schema=OBJECT), only_looks=True,
    ),
    Endpoint(
        method="DELETE", path="/query/{id}", name="CancelQuery", access=_ACCESS, handle=cancel,
        about="Stop a running query of one's own.", parameters=CancelParameters,
        answer=Answer(about="Stopped.", schema=OBJECT), refusals={404: "No such query is running."},
    ),
    Endpoint(
        method="GET", path="/queries", name="GetRunningQueries", access=_ACCESS, handle=running,
        about="The running queries of the user.", parameters=Parameters,
        answer=Answer(about="By id.", schema={"type": "array"}),
    ),
)  # fmt: skip

CONTROLLER_ENDPOINTS = (
    Endpoint(
        method="POST", path="/sql", name="ControllerQuery", access=_ACCESS, handle=controller_query,
        is_query=True, deadline=deadline, about="Answer a query through the controller.",
        parameters=QueryParameters, body=BodyKind.OPTIONAL_JSON, body_type=QueryBody, has_statement=True,
        body_about=_BODY, answer=_ANSWER, refusals=_BY_STATUS_ONLY,
    ),
    Endpoint(
        method="GET", path="/sql", name="ControllerQueryByGet", access=_ACCESS, handle=controller_get,
        is_query=True, deadline=deadline_by_get, about="Answer a query through the controller.",
        parameters=ControllerGetParameters, answer=_ANSWER,
        refusals=_BY_STATUS_ONLY,
    ),
)  # fmt: skip
