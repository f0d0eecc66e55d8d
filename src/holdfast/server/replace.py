"""Routes of the protocol: start, end, revert, of one table or several, and what helps a push along."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import anyio
import anyio.from_thread
import msgspec

from holdfast.config.gates import parse_gates
from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.calls import PublishResult, StartRequest, moment_ms
from holdfast.push.state.table_state import Part
from holdfast.push.validation import InTurn
from holdfast.server.auth import Access, On
from holdfast.server.end_jobs import EndJob
from holdfast.server.endpoints import NO_TABLE, RULES, Answer, BodyKind, Call, Endpoint, Reply
from holdfast.server.errors import TooLate
from holdfast.server.parameters import (
    WAIT_MAX_MS,
    DryRun,
    EntryId,
    IdempotencyKey,
    InDatabase,
    LeaseToken,
    NeededType,
    OfTypedTable,
    Parameter,
    Parameters,
    Precise,
    TimeoutMs,
    ToEmpty,
    WaitForBrokers,
    brokers_within_ms,
    in_path,
    wait_ms,
)
from holdfast.server.service import Service
from holdfast.server.shapes import (
    OBJECT,
    changes_document,
    preflight_document,
    publish_document,
    with_epoch,
)
from holdfast.server.table_names import offline_name, qualify

_ONLINE_WITHIN_MS = 600_000
_CLEANUP_WITHIN_MS = 60_000
_LEASE_MS = 600_000
_LEASE_MS_MIN = 1_000


class PartitionBody(msgspec.Struct, frozen=True):
    column: str
    value: str


class PartBody(msgspec.Struct, rename="camel", frozen=True):
    """The part of the table that a push replaces; all of its segments lie in it, or outside."""

    time_range: tuple[str | int, str | int] | None = None
    """From, and to without it: milliseconds, or ISO times, of UTC unless they say."""
    partition: PartitionBody | None = None


class StartBody(msgspec.Struct, rename="camel", frozen=True):
    """What to replace by what; at least one list has a name."""

    segments_from: list[str] | None = None
    segments_to: list[str] | None = None
    replace: PartBody | None = None
    """Instead of segmentsFrom."""
    custom_map: dict[str, str] | None = None
    """Passed over, as in Pinot; what Holdfast keeps beside an entry is `source` and `note`."""
    source: dict[str, str] | None = None
    note: str = ""


class EndBody(msgspec.Struct, rename="camel", frozen=True):
    """The segments that were really made, if they are fewer than announced."""

    segments_to: list[str] | None = None
    custom_map: dict[str, str] | None = None


class RevertBody(msgspec.Struct, rename="camel", frozen=True):
    custom_map: dict[str, str] | None = None


class GroupEntry(msgspec.Struct, rename="camel", frozen=True):
    table: str
    segment_lineage_entry_id: str


class ValidateBody(msgspec.Struct, frozen=True):
    """The gates to evaluate; without any, those of the table's configuration."""

    gates: list[dict[str, Any]] | None = None


class ChangeParameters(OfTypedTable, frozen=True, kw_only=True):
    """Those of start, end and revert."""

    type: NeededType
    dry_run: DryRun = False
    precise: Precise = None
    idempotency_key: IdempotencyKey = None


class StartParameters(ChangeParameters, frozen=True, kw_only=True):
    force_cleanup: Annotated[bool, Parameter("Revert open pushes that overlap, and make room.")] = False
    takeover: Annotated[bool, Parameter("With forceCleanup, also one whose lease holds; for operators.")] = (
        False
    )
    exclusive: Annotated[bool | None, Parameter("Only this push may upload while it is open.")] = None
    gates_required: Annotated[
        bool, Parameter("The end is refused until the gates were evaluated and passed.")
    ] = False
    lease: Annotated[
        bool, Parameter("Ask for a lease, which heartbeats, uploads and the end must present.")
    ] = False
    lease_ms: Annotated[int | None, Parameter("How long it holds after each sign of life.")] = None
    expected_bytes: Annotated[int | None, Parameter("Refuse at once if this many bytes will not fit.")] = None
    wait_for_cleanup: Annotated[
        bool, Parameter("Answer when the files that forceCleanup let go are deleted.")
    ] = False
    cleanup_timeout_ms: TimeoutMs = None


class EndParameters(ChangeParameters, frozen=True, kw_only=True):
    segment_lineage_entry_id: EntryId
    lease_token: LeaseToken = ""
    cleanup: Annotated[bool, Parameter("Run retention for the table afterwards.")] = False
    override: Annotated[bool, Parameter("Publish although a gate failed; for operators, and audited.")] = (
        False
    )
    online_timeout_ms: Annotated[int | None, Parameter("How long to wait for the segments to be online.")] = (
        None
    )
    wait_for_brokers: WaitForBrokers = False
    broker_timeout_ms: TimeoutMs = None
    in_background: Annotated[
        bool, Parameter("Answer at once with a jobId, and wait in the background.", "async")
    ] = False


class RevertParameters(ChangeParameters, frozen=True, kw_only=True):
    segment_lineage_entry_id: EntryId
    force_revert: Annotated[bool, Parameter("Also give up a push that is still open.")] = False
    only_open: Annotated[bool, Parameter("Refuse if it was published meanwhile.")] = False
    to_empty: ToEmpty = True
    wait_for_brokers: WaitForBrokers = False
    broker_timeout_ms: TimeoutMs = None


class GroupParameters(InDatabase, frozen=True, kw_only=True):
    dry_run: DryRun = False
    precise: Precise = None
    idempotency_key: IdempotencyKey = None


class EndGroupParameters(GroupParameters, frozen=True, kw_only=True):
    override: Annotated[bool, Parameter("Publish although a gate failed; for operators.")] = False


class RevertGroupParameters(GroupParameters, frozen=True, kw_only=True):
    force_revert: Annotated[bool, Parameter("Also give up pushes that are still open.")] = False


class EndJobParameters(Parameters, frozen=True, kw_only=True):
    id: Annotated[str, in_path("The jobId.")]


class ValidateParameters(OfTypedTable, frozen=True, kw_only=True):
    segment_lineage_entry_id: EntryId
    precise: Precise = None


class HeartbeatParameters(ValidateParameters, frozen=True, kw_only=True):
    lease_token: LeaseToken = ""


class PreflightParameters(OfTypedTable, frozen=True, kw_only=True):
    expected_bytes: Annotated[int, Parameter("The size of the push.")]
    run: Annotated[str | None, Parameter("A push job: say whether its record is seen in the deep store.")] = (
        None
    )


def start(service: Service, call: Call[StartParameters]) -> Reply:
    body, parameters = call.read(StartBody), call.parameters
    if body.replace is not None and body.segments_from:
        raise InvalidRequest("segmentsFrom and replace exclude each other", code="BODY_INVALID")
    if not body.segments_from and not body.segments_to and body.replace is None:
        raise InvalidRequest(
            "there is nothing to replace and nothing to add", code="NOTHING_TO_REPLACE",
            hint="name segmentsFrom, segmentsTo or both",
        )  # fmt: skip
    table = parameters.typed
    started = service.controller.start_replace(
        table,
        StartRequest(
            segments_from=tuple(body.segments_from or ()),
            segments_to=tuple(body.segments_to or ()),
            part=None if body.replace is None else _part(body.replace),
            force=parameters.force_cleanup,
            takeover=parameters.takeover and call.may(Role.OPERATE, table),
            exclusive=parameters.exclusive,
            gates_required=parameters.gates_required,
            lease_ms=_lease_ms(parameters.lease_ms) if parameters.lease else 0,
            expected_bytes=parameters.expected_bytes,
            note=body.note,
            source=body.source or {},
        ),
        dry_run=parameters.dry_run,
        by=service.caller(call, table),
    )
    document: dict[str, Any] = {"segmentLineageEntryId": started.entry_id}
    if parameters.wait_for_cleanup and not parameters.dry_run:
        within_ms = wait_ms(parameters.cleanup_timeout_ms, _CLEANUP_WITHIN_MS)
        left = service.controller.wait_for_cleanup(table, started.changes.removed, within_ms=within_ms)
        document["notCleanedUp"] = list(left)
    if body.replace is not None:
        document["segmentsFrom"] = list(started.segments_from)
    if started.lease_token:
        document |= {"leaseToken": started.lease_token, "leaseExpiresAt": started.lease_expires_at_ms}
    if started.preflight is not None:
        document["preflight"] = preflight_document(started.preflight)
    if parameters.dry_run:
        document |= {"dryRun": True, "changes": changes_document(started.changes)}
    return Reply(document=document)


def end(service: Service, call: Call[EndParameters]) -> Reply:
    body = call.read(EndBody) if call.body.strip() else EndBody()
    parameters, table = call.parameters, call.parameters.typed
    run = partial(
        service.controller.end_replace,
        table,
        parameters.segment_lineage_entry_id,
        segments_to=tuple(body.segments_to or ()),
        lease_token=parameters.lease_token,
        override_gates=parameters.override,
        cleanup=parameters.cleanup,
        online_within_ms=wait_ms(parameters.online_timeout_ms, _ONLINE_WITHIN_MS),
        brokers_within_ms=brokers_within_ms(parameters.broker_timeout_ms, waits=parameters.wait_for_brokers),
        dry_run=parameters.dry_run,
        by=service.caller(call, table),
        in_turn=_in_turn(service, call),
    )
    if parameters.in_background and not parameters.dry_run:
        job = EndJob(
            id=call.request_id, table=table, entry_id=parameters.segment_lineage_entry_id,
            actor=call.principal.name,
        )  # fmt: skip
        return Reply(document={"jobId": service.ends.begin(job, run).id})
    switched = run()
    if parameters.dry_run:
        return Reply(document=publish_document(switched, is_dry_run=True))
    return with_epoch(switched, _broker_document(switched, waited=parameters.wait_for_brokers) or None)


def end_job(service: Service, call: Call[EndJobParameters]) -> Reply:
    """How an end goes that was asked for with `async`."""
    job = service.ends.find(call.parameters.id)
    if job is None or not call.may(Role.READ, job.table):
        raise InvalidRequest(
            "there is no such job", job=call.parameters.id[:80], code="JOB_NOT_FOUND",
            hint="it may have been another process's: look at the lineage, or end the push again",
        )  # fmt: skip
    document: dict[str, Any] = {
        "jobId": job.id,
        "table": job.table,
        "segmentLineageEntryId": job.entry_id,
        "state": job.state,
    }
    if job.state == "RUNNING":
        state = service.controller.views.state(job.table)
        entry = state.lineage.entry(job.entry_id)
        named = frozenset(entry.segments_to) if entry is not None else frozenset[str]()
        document["segments"] = len(named)
        document["online"] = len((named & state.segments) - state.offline)
    if job.epoch is not None:
        document["epoch"] = job.epoch
    if job.error:
        document |= {"error": job.error, "errorCode": job.error_code}
    return Reply(document=document)


def revert(service: Service, call: Call[RevertParameters]) -> Reply:
    if call.body.strip():
        call.read(RevertBody)
    parameters, table = call.parameters, call.parameters.typed
    switched = service.controller.revert_replace(
        table,
        parameters.segment_lineage_entry_id,
        force=parameters.force_revert,
        only_open=parameters.only_open,
        may_empty=parameters.to_empty,
        brokers_within_ms=brokers_within_ms(parameters.broker_timeout_ms, waits=parameters.wait_for_brokers),
        dry_run=parameters.dry_run,
        by=service.caller(call, table),
    )
    if parameters.dry_run:
        return Reply(document=publish_document(switched, is_dry_run=True))
    already = {"alreadyReverted": True} if switched.already else {}
    brokers = _broker_document(switched, waited=parameters.wait_for_brokers)
    return with_epoch(switched, {**already, **brokers} or None)


def end_group(service: Service, call: Call[EndGroupParameters]) -> Reply:
    return _switch_group(
        service,
        call,
        partial(
            service.controller.end_group,
            override_gates=call.parameters.override,
            in_turn=_in_turn(service, call),
        ),
    )


def revert_group(service: Service, call: Call[RevertGroupParameters]) -> Reply:
    return _switch_group(
        service, call, partial(service.controller.revert_group, force=call.parameters.force_revert)
    )


def heartbeat(service: Service, call: Call[HeartbeatParameters]) -> Reply:
    table = call.parameters.typed
    expires_at_ms = service.controller.heartbeat(
        table,
        call.parameters.segment_lineage_entry_id,
        lease_token=call.parameters.lease_token,
        by=service.caller(call, table),
    )
    return Reply(document={"leaseExpiresAt": expires_at_ms})


def validate(service: Service, call: Call[ValidateParameters]) -> Reply:
    if time.monotonic() >= deadline(service, call):
        raise TooLate("all places for queries were taken until the deadline", code="TOO_LATE")
    body = call.read(ValidateBody) if call.body.strip() else ValidateBody()
    table = call.parameters.typed
    report = service.controller.validate(
        table,
        call.parameters.segment_lineage_entry_id,
        None if body.gates is None else parse_gates(body.gates),
        by=service.caller(call, table),
    )
    return Reply(
        document={
            "segmentLineageEntryId": report.entry_id,
            "passed": report.passed,
            "gates": [
                {"name": one.name, "passed": one.passed, "found": one.found, "expected": one.expected}
                for one in report.outcomes
            ],
        }
    )


def preflight(service: Service, call: Call[PreflightParameters]) -> Reply:
    table, run = call.parameters.typed, call.parameters.run
    expected_bytes = call.parameters.expected_bytes
    if expected_bytes < 0:
        raise InvalidRequest(
            "how many bytes are expected?", parameter="expectedBytes", code="PARAMETER_INVALID"
        )
    document = preflight_document(service.controller.preflight(table, expected_bytes=expected_bytes))
    if call.may(Role.WRITE, table):
        document["deepStore"] = service.controller.views.deep_store_uri
        if run is not None:
            document["seesRun"] = service.controller.views.sees_run(table, run)
    return Reply(document=document)


def deadline(service: Service, call: Call[ValidateParameters]) -> float:
    """When the questions of gates must be answered, waiting for a place included."""
    return call.began_s + service.settings.limits.query_timeout_ms / 1000


def _in_turn(service: Service, call: Call[Parameters]) -> InTurn:
    """Gates that an end evaluates take one of the places for queries, as those of a validation do."""
    loop = anyio.from_thread.run_sync(asyncio.get_running_loop)

    def in_turn(ask: Callable[[], object]) -> object:
        # Also from the thread of a job, which the loop knows nothing of.
        until_s = time.monotonic() + service.settings.limits.query_timeout_ms / 1000
        asked = service.bounds.queries.run(call.principal.name, ask, deadline_s=until_s)
        return asyncio.run_coroutine_threadsafe(asked, loop).result()

    return in_turn


def _part(body: PartBody) -> Part:
    start_ms, end_ms = (None, None) if body.time_range is None else map(_moment, body.time_range)
    named = body.partition
    return Part(
        start_ms=start_ms,
        end_ms=end_ms,
        column="" if named is None else named.column,
        value="" if named is None else named.value,
    )


def _moment(given: str | int) -> int:
    try:
        return given if isinstance(given, int) else moment_ms(given)
    except (ValueError, OverflowError):
        raise InvalidRequest("not a time", value=str(given)[:80], code="PART_INVALID") from None


def _group(call: Call[GroupParameters]) -> dict[str, str]:
    """Entries by typed table; each table checked, because only the body names them."""
    entries: dict[str, str] = {}
    for one in call.read(list[GroupEntry]):
        name = qualify(one.table, call.parameters.database)
        call.require(Role.WRITE, name)
        table = offline_name(name, None)
        if table in entries:
            raise InvalidRequest("a table stands twice", table=table, code="BODY_INVALID")
        entries[table] = one.segment_lineage_entry_id
    if not entries:
        raise InvalidRequest("no table is named", code="BODY_INVALID")
    return entries


def _switch_group(
    service: Service, call: Call[GroupParameters], switch: Callable[..., dict[str, PublishResult]]
) -> Reply:
    entries, is_dry_run = _group(call), call.parameters.dry_run
    # An operator of all of them, or of none: the table on which the caller may least decides.
    least = min(entries, key=lambda table: call.principal.role_on(table) or 0)
    switched = switch(entries, dry_run=is_dry_run, by=service.caller(call, least))
    tables = {table: publish_document(one, is_dry_run=is_dry_run) for table, one in switched.items()}
    return Reply(document={"tables": tables})


def _broker_document(switched: PublishResult, *, waited: bool) -> dict[str, Any]:
    """What the brokers had applied, for callers who waited for them."""
    if not waited:
        return {}
    return {"epoch": switched.epoch, "brokers": dict(switched.brokers)}


def _lease_ms(given: int | None) -> int:
    return _LEASE_MS if given is None else max(_LEASE_MS_MIN, min(given, WAIT_MAX_MS))


ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/startReplaceSegments", name="StartReplaceSegments",
        access=Access(Role.WRITE), handle=start,
        about="Open a push: segmentsTo stay hidden until it ends, segmentsFrom stay visible.",
        parameters=StartParameters,
        body=BodyKind.JSON, body_type=StartBody, has_list=True, body_about="What to replace by what.",
        answer=Answer(about="The entry is open.", schema={
            "type": "object", "properties": {"segmentLineageEntryId": {"type": "string"}},
            "required": ["segmentLineageEntryId"]}),
        refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/endReplaceSegments", name="EndReplaceSegments",
        access=Access(Role.WRITE), handle=end,
        about="Publish a push: from now on queries see segmentsTo in place of segmentsFrom.",
        parameters=EndParameters,
        body=BodyKind.OPTIONAL_JSON, body_type=EndBody, has_list=True,
        body_about="A subset of the announced segments.",
        answer=Answer(about="Published. The body is empty, unless brokers were waited for."),
        refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/revertReplaceSegments", name="RevertReplaceSegments",
        access=Access(Role.WRITE), handle=revert,
        about="Take a push back: queries see segmentsFrom again. Of others' pushes: for operators.",
        parameters=RevertParameters,
        body=BodyKind.OPTIONAL_JSON, body_type=RevertBody, body_about="Passed over, as in Pinot.",
        answer=Answer(
            about="Reverted. The body is empty, unless it had been before, or brokers were waited for."
        ),
        refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/lineage/group/end", name="EndGroup", access=Access(Role.WRITE, On.SOME),
        handle=end_group, about="Publish pushes of several tables in one step.",
        parameters=EndGroupParameters,
        body=BodyKind.JSON, body_type=list[GroupEntry], body_about="One entry for each table.",
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/lineage/group/revert", name="RevertGroup", access=Access(Role.WRITE, On.SOME),
        handle=revert_group, about="Take pushes of several tables back in one step.",
        parameters=RevertGroupParameters,
        body=BodyKind.JSON, body_type=list[GroupEntry], body_about="One entry for each table.",
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/lineage/jobs/{id}", name="GetEndJob", access=Access(Role.READ, On.SOME),
        handle=end_job, about="How an end goes that was asked for with async.",
        parameters=EndJobParameters,
        answer=Answer(about="RUNNING, DONE or FAILED.", schema=OBJECT),
        refusals={404: "No such job is known to this process."},
    ),
    Endpoint(
        method="POST", path="/segments/{table}/heartbeat", name="Heartbeat", access=Access(Role.WRITE),
        handle=heartbeat, about="Renew the lease of an open push.",
        parameters=HeartbeatParameters,
        answer=Answer(about="Until when it holds.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/validateReplaceSegments", name="ValidateReplaceSegments",
        access=Access(Role.WRITE), handle=validate, is_query=True, deadline=deadline,
        about="Evaluate gates on the hidden side of an open push.",
        parameters=ValidateParameters,
        body=BodyKind.OPTIONAL_JSON, body_type=ValidateBody, body_about="The gates.",
        answer=Answer(about="How each gate did.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/preflight", name="Preflight", access=Access(Role.READ),
        handle=preflight,
        about="Whether a push of a size would fit; for who may write, also where to build it.",
        parameters=PreflightParameters,
        answer=Answer(about="The figures.", schema=OBJECT), refusals=NO_TABLE,
    ),
)  # fmt: skip
