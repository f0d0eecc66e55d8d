"""Routes of the protocol: start, end, revert, of one table or several, and what helps a push along."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

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
from holdfast.server.endpoints import (
    COMMON,
    DATABASE_HEADER,
    DRY_RUN,
    KEY_HEADER,
    NEEDED_TYPE,
    NO_TABLE,
    PRECISE_HEADER,
    RULES,
    TABLE,
    TO_EMPTY,
    Answer,
    BodyKind,
    Call,
    Endpoint,
    Parameter,
    Reply,
    flag,
    header,
    path_parameter,
)
from holdfast.server.errors import TooLate
from holdfast.server.service import Service
from holdfast.server.shapes import (
    OBJECT,
    changes_document,
    preflight_document,
    publish_document,
    with_epoch,
)
from holdfast.server.table_names import offline_name, qualify
from holdfast.server.waits import BROKER_PARAMETERS, WAIT_MAX_MS, brokers_within_ms, wait_ms

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


def start(service: Service, call: Call) -> Reply:
    body = call.read(StartBody)
    if body.replace is not None and body.segments_from:
        raise InvalidRequest("segmentsFrom and replace exclude each other", code="BODY_INVALID")
    if not body.segments_from and not body.segments_to and body.replace is None:
        raise InvalidRequest(
            "there is nothing to replace and nothing to add", code="NOTHING_TO_REPLACE",
            hint="name segmentsFrom, segmentsTo or both",
        )  # fmt: skip
    table = offline_name(call.table, call.kind(is_needed=True))
    is_dry_run = call.flag("dryRun")
    started = service.controller.start_replace(
        table,
        StartRequest(
            segments_from=tuple(body.segments_from or ()),
            segments_to=tuple(body.segments_to or ()),
            part=None if body.replace is None else _part(body.replace),
            force=call.flag("forceCleanup"),
            takeover=call.flag("takeover") and call.may(Role.OPERATE, table),
            exclusive=None if call.text("exclusive") is None else call.flag("exclusive"),
            gates_required=call.flag("gatesRequired"),
            lease_ms=_lease_ms(call) if call.flag("lease") else 0,
            expected_bytes=call.whole("expectedBytes"),
            note=body.note,
            source=body.source or {},
        ),
        dry_run=is_dry_run,
        by=service.caller(call, table),
    )
    document: dict[str, Any] = {"segmentLineageEntryId": started.entry_id}
    if call.flag("waitForCleanup") and not is_dry_run:
        within_ms = wait_ms(call, "cleanupTimeoutMs", _CLEANUP_WITHIN_MS)
        left = service.controller.wait_for_cleanup(table, started.changes.removed, within_ms=within_ms)
        document["notCleanedUp"] = list(left)
    if body.replace is not None:
        document["segmentsFrom"] = list(started.segments_from)
    if started.lease_token:
        document |= {"leaseToken": started.lease_token, "leaseExpiresAt": started.lease_expires_at_ms}
    if started.preflight is not None:
        document["preflight"] = preflight_document(started.preflight)
    if is_dry_run:
        document |= {"dryRun": True, "changes": changes_document(started.changes)}
    return Reply(document=document)


def end(service: Service, call: Call) -> Reply:
    body = call.read(EndBody) if call.body.strip() else EndBody()
    table = offline_name(call.table, call.kind(is_needed=True))
    is_dry_run = call.flag("dryRun")
    run = partial(
        service.controller.end_replace,
        table,
        call.require_text("segmentLineageEntryId"),
        segments_to=tuple(body.segments_to or ()),
        lease_token=call.text("X-Lease-Token") or "",
        override_gates=call.flag("override"),
        cleanup=call.flag("cleanup"),
        online_within_ms=wait_ms(call, "onlineTimeoutMs", _ONLINE_WITHIN_MS),
        brokers_within_ms=brokers_within_ms(call),
        dry_run=is_dry_run,
        by=service.caller(call, table),
        in_turn=_in_turn(service, call),
    )
    if call.flag("async") and not is_dry_run:
        asked = EndJob(
            id=call.request_id, table=table, entry_id=call.require_text("segmentLineageEntryId"),
            actor=call.principal.name,
        )  # fmt: skip
        return Reply(document={"jobId": service.ends.begin(asked, run).id})
    switched = run()
    if is_dry_run:
        return Reply(document=publish_document(switched, is_dry_run=True))
    return with_epoch(switched, _broker_document(call, switched) or None)


def end_job(service: Service, call: Call) -> Reply:
    """How an end goes that was asked for with `async`."""
    job = service.ends.find(call.require_text("id"))
    if job is None or not call.may(Role.READ, job.table):
        raise InvalidRequest(
            "there is no such job", job=call.require_text("id")[:80], code="JOB_NOT_FOUND",
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


def revert(service: Service, call: Call) -> Reply:
    if call.body.strip():
        call.read(RevertBody)
    table = offline_name(call.table, call.kind(is_needed=True))
    is_dry_run = call.flag("dryRun")
    switched = service.controller.revert_replace(
        table,
        call.require_text("segmentLineageEntryId"),
        force=call.flag("forceRevert"),
        only_open=call.flag("onlyOpen"),
        may_empty=call.flag("toEmpty"),
        brokers_within_ms=brokers_within_ms(call),
        dry_run=is_dry_run,
        by=service.caller(call, table),
    )
    if is_dry_run:
        return Reply(document=publish_document(switched, is_dry_run=True))
    already = {"alreadyReverted": True} if switched.already else {}
    return with_epoch(switched, {**already, **_broker_document(call, switched)} or None)


def end_group(service: Service, call: Call) -> Reply:
    return _switch_group(
        service,
        call,
        partial(
            service.controller.end_group,
            override_gates=call.flag("override"),
            in_turn=_in_turn(service, call),
        ),
    )


def revert_group(service: Service, call: Call) -> Reply:
    return _switch_group(
        service, call, partial(service.controller.revert_group, force=call.flag("forceRevert"))
    )


def heartbeat(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    expires_at_ms = service.controller.heartbeat(
        table,
        call.require_text("segmentLineageEntryId"),
        lease_token=call.text("X-Lease-Token") or "",
        by=service.caller(call, table),
    )
    return Reply(document={"leaseExpiresAt": expires_at_ms})


def validate(service: Service, call: Call) -> Reply:
    if time.monotonic() >= deadline(service, call):
        raise TooLate("all places for queries were taken until the deadline", code="TOO_LATE")
    body = call.read(ValidateBody) if call.body.strip() else ValidateBody()
    table = offline_name(call.table, call.kind())
    report = service.controller.validate(
        table,
        call.require_text("segmentLineageEntryId"),
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


def preflight(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    expected_bytes = call.whole("expectedBytes")
    if expected_bytes is None or expected_bytes < 0:
        raise InvalidRequest(
            "how many bytes are expected?", parameter="expectedBytes", code="PARAMETER_INVALID"
        )
    document = preflight_document(service.controller.preflight(table, expected_bytes=expected_bytes))
    if call.may(Role.WRITE, table):
        document["deepStore"] = service.controller.views.deep_store_uri
        run = call.text("run")
        if run is not None:
            document["seesRun"] = service.controller.views.sees_run(table, run)
    return Reply(document=document)


def deadline(service: Service, call: Call) -> float:
    """When the questions of gates must be answered, waiting for a place included."""
    return call.began_s + service.settings.limits.query_timeout_ms / 1000


def _in_turn(service: Service, call: Call) -> InTurn:
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


def _group(call: Call) -> dict[str, str]:
    """Entries by typed table; each table checked, because only the body names them."""
    entries: dict[str, str] = {}
    for one in call.read(list[GroupEntry]):
        name = qualify(one.table, call.database)
        call.require(Role.WRITE, name)
        table = offline_name(name, None)
        if table in entries:
            raise InvalidRequest("a table stands twice", table=table, code="BODY_INVALID")
        entries[table] = one.segment_lineage_entry_id
    if not entries:
        raise InvalidRequest("no table is named", code="BODY_INVALID")
    return entries


def _switch_group(service: Service, call: Call, switch: Callable[..., dict[str, PublishResult]]) -> Reply:
    entries = _group(call)
    is_dry_run = call.flag("dryRun")
    # An operator of all of them, or of none: the table on which the caller may least decides.
    least = min(entries, key=lambda table: call.principal.role_on(table) or 0)
    switched = switch(entries, dry_run=is_dry_run, by=service.caller(call, least))
    tables = {table: publish_document(one, is_dry_run=is_dry_run) for table, one in switched.items()}
    return Reply(document={"tables": tables})


def _broker_document(call: Call, switched: PublishResult) -> dict[str, Any]:
    """What the brokers had applied, for callers who waited for them."""
    if not call.flag("waitForBrokers"):
        return {}
    return {"epoch": switched.epoch, "brokers": dict(switched.brokers)}


def _lease_ms(call: Call) -> int:
    given = call.whole("leaseMs")
    return _LEASE_MS if given is None else max(_LEASE_MS_MIN, min(given, WAIT_MAX_MS))


_ENTRY = Parameter("segmentLineageEntryId", "The entry, as start named it.", is_required=True)
_LEASE = header("X-Lease-Token", "The token that start gave with a lease.")
_CHANGING = (DATABASE_HEADER, PRECISE_HEADER, KEY_HEADER)

ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/startReplaceSegments", name="StartReplaceSegments",
        access=Access(Role.WRITE), handle=start,
        about="Open a push: segmentsTo stay hidden until it ends, segmentsFrom stay visible.",
        parameters=(
            TABLE, NEEDED_TYPE, *_CHANGING, DRY_RUN,
            flag("forceCleanup", "Revert open pushes that overlap, and make room."),
            flag("takeover", "With forceCleanup, also one whose lease holds; for operators."),
            Parameter("exclusive", "Only this push may upload while it is open.", kind="boolean"),
            flag("gatesRequired", "The end is refused until the gates were evaluated and passed."),
            flag("lease", "Ask for a lease, which heartbeats, uploads and the end must present."),
            Parameter("leaseMs", "How long it holds after each sign of life.", kind="integer"),
            Parameter("expectedBytes", "Refuse at once if so many bytes will not fit.", kind="integer"),
            flag("waitForCleanup", "Answer when the files that forceCleanup let go are deleted."),
            Parameter("cleanupTimeoutMs", "How long to wait for that.", kind="integer"),
        ),
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
        parameters=(
            TABLE, NEEDED_TYPE, _ENTRY, *_CHANGING, _LEASE, DRY_RUN,
            flag("cleanup", "Run retention for the table afterwards."),
            flag("override", "Publish although a gate failed; for operators, and audited."),
            Parameter("onlineTimeoutMs", "How long to wait for the segments to be online.", kind="integer"),
            *BROKER_PARAMETERS,
            flag("async", "Answer at once with a jobId, and wait in the background."),
        ),
        body=BodyKind.OPTIONAL_JSON, body_type=EndBody, has_list=True,
        body_about="A subset of the announced segments.",
        answer=Answer(about="Published. The body is empty, unless brokers were waited for."),
        refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/revertReplaceSegments", name="RevertReplaceSegments",
        access=Access(Role.WRITE), handle=revert,
        about="Take a push back: queries see segmentsFrom again. Of others' pushes: for operators.",
        parameters=(
            TABLE, NEEDED_TYPE, _ENTRY, *_CHANGING, DRY_RUN,
            flag("forceRevert", "Also give up a push that is still open."),
            flag("onlyOpen", "Refuse if it was published meanwhile."), TO_EMPTY, *BROKER_PARAMETERS,
        ),
        body=BodyKind.OPTIONAL_JSON, body_type=RevertBody, body_about="Passed over, as in Pinot.",
        answer=Answer(
            about="Reverted. The body is empty, unless it had been before, or brokers were waited for."
        ),
        refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/lineage/group/end", name="EndGroup", access=Access(Role.WRITE, On.SOME),
        handle=end_group, about="Publish pushes of several tables in one step.",
        parameters=(*_CHANGING, DRY_RUN, flag("override", "Publish although a gate failed; for operators.")),
        body=BodyKind.JSON, body_type=list[GroupEntry], body_about="One entry for each table.",
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/lineage/group/revert", name="RevertGroup", access=Access(Role.WRITE, On.SOME),
        handle=revert_group, about="Take pushes of several tables back in one step.",
        parameters=(*_CHANGING, DRY_RUN, flag("forceRevert", "Also give up pushes that are still open.")),
        body=BodyKind.JSON, body_type=list[GroupEntry], body_about="One entry for each table.",
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/lineage/jobs/{id}", name="GetEndJob", access=Access(Role.READ, On.SOME),
        handle=end_job, about="How an end goes that was asked for with async.",
        parameters=(path_parameter("id", "The jobId."),),
        answer=Answer(about="RUNNING, DONE or FAILED.", schema=OBJECT),
        refusals={404: "No such job is known to this process."},
    ),
    Endpoint(
        method="POST", path="/segments/{table}/heartbeat", name="Heartbeat", access=Access(Role.WRITE),
        handle=heartbeat, about="Renew the lease of an open push.",
        parameters=(*COMMON, _ENTRY, _LEASE, PRECISE_HEADER),
        answer=Answer(about="Until when it holds.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/validateReplaceSegments", name="ValidateReplaceSegments",
        access=Access(Role.WRITE), handle=validate, is_query=True, deadline=deadline,
        about="Evaluate gates on the hidden side of an open push.",
        parameters=(*COMMON, _ENTRY, PRECISE_HEADER),
        body=BodyKind.OPTIONAL_JSON, body_type=ValidateBody, body_about="The gates.",
        answer=Answer(about="How each gate did.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/preflight", name="Preflight", access=Access(Role.READ),
        handle=preflight,
        about="Whether a push of a size would fit; for who may write, also where to build it.",
        parameters=(
            *COMMON,
            Parameter("expectedBytes", "The size of the push.", kind="integer", is_required=True),
            Parameter("run", "A push job: say whether its record is seen in the deep store."),
        ),
        answer=Answer(about="The figures.", schema=OBJECT), refusals=NO_TABLE,
    ),
)  # fmt: skip
