"""Routes of the protocol: start, end, revert, and what goes beyond Pinot's three calls."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast.config.gates import parse_gates
from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.leases import lease_expires_at_ms
from holdfast.push.moments import moment_ms
from holdfast.push.reports import Switched
from holdfast.push.rules import StartRequest, Target
from holdfast.push.snapshots import details_of
from holdfast.push.state import Part, TableState
from holdfast.server.auth import Access, On
from holdfast.server.end_jobs import EndJob
from holdfast.server.endpoints import (
    DATABASE_HEADER,
    DRY_RUN,
    PRECISE_HEADER,
    TABLE,
    TYPE,
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
from holdfast.server.service import Service
from holdfast.server.shapes import (
    OBJECT,
    changes_document,
    entry_document,
    preflight_document,
    switched_document,
)
from holdfast.server.table_names import offline_name, qualified

_ONLINE_WITHIN_MS = 600_000
_BROKERS_WITHIN_MS = 60_000
_CLEANUP_WITHIN_MS = 60_000
_WAIT_MAX_MS = 3_600_000
_LEASE_MS = 600_000
_LEASE_MS_MIN = 1_000
_EPOCH_HEADER = "X-Snapshot-Epoch"


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
        within_ms = _wait(call, "cleanupTimeoutMs", _CLEANUP_WITHIN_MS)
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
    waits = call.flag("waitForBrokers")
    run = partial(
        service.controller.end_replace,
        table,
        call.needed("segmentLineageEntryId"),
        segments_to=tuple(body.segments_to or ()),
        lease_token=call.text("X-Lease-Token") or "",
        override_gates=call.flag("override"),
        cleanup=call.flag("cleanup"),
        online_within_ms=_wait(call, "onlineTimeoutMs", _ONLINE_WITHIN_MS),
        brokers_within_ms=_wait(call, "brokerTimeoutMs", _BROKERS_WITHIN_MS) if waits else 0,
        dry_run=is_dry_run,
        by=service.caller(call, table),
    )
    if call.flag("async") and not is_dry_run:
        asked = EndJob(id=call.request_id, table=table, entry_id=call.needed("segmentLineageEntryId"))
        return Reply(document={"jobId": service.ends.begin(asked, run).id})
    switched = run()
    if is_dry_run:
        return Reply(document=switched_document(switched, is_dry_run=True))
    if waits:
        return _published(switched, {"epoch": switched.epoch, "brokers": dict(switched.brokers)})
    return _published(switched)


def end_job(service: Service, call: Call) -> Reply:
    """How an end goes that was asked for with `async`."""
    job = service.ends.find(call.needed("id"))
    if job is None or not call.may(Role.READ, job.table):
        raise InvalidRequest(
            "there is no such job", job=call.needed("id")[:80], code="JOB_NOT_FOUND",
            hint="it may have been another process's: look at the lineage, or end the push again",
        )  # fmt: skip
    document: dict[str, Any] = {
        "jobId": job.id,
        "table": job.table,
        "segmentLineageEntryId": job.entry_id,
        "state": job.state,
    }
    if job.state == "RUNNING":
        state = service.controller.state(job.table)
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
        call.needed("segmentLineageEntryId"),
        force=call.flag("forceRevert"),
        only_open=call.flag("onlyOpen"),
        dry_run=is_dry_run,
        by=service.caller(call, table),
    )
    if is_dry_run:
        return Reply(document=switched_document(switched, is_dry_run=True))
    return _published(switched, {"alreadyReverted": True} if switched.already else None)


def rollback(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    target = Target(
        steps=call.whole("steps"),
        entry_id=call.text("toEntryId"),
        epoch=call.whole("toEpoch"),
        newest=call.text("fromEntryId"),
    )
    if sum(one is not None for one in (target.steps, target.entry_id, target.epoch)) != 1:
        raise InvalidRequest(
            "a rollback needs one target", code="PARAMETER_INVALID", hint="give steps, toEntryId or toEpoch"
        )
    is_dry_run = call.flag("dryRun")
    switched = service.controller.rollback(table, target, dry_run=is_dry_run, by=service.caller(call, table))
    return _published(switched, switched_document(switched, is_dry_run=is_dry_run))


def redo(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    is_dry_run = call.flag("dryRun")
    switched = service.controller.redo(
        table, call.needed("entryId"), dry_run=is_dry_run, by=service.caller(call, table)
    )
    return _published(switched, switched_document(switched, is_dry_run=is_dry_run))


def end_group(service: Service, call: Call) -> Reply:
    return _switched_group(
        service, call, partial(service.controller.end_group, override_gates=call.flag("override"))
    )


def revert_group(service: Service, call: Call) -> Reply:
    return _switched_group(
        service, call, partial(service.controller.revert_group, force=call.flag("forceRevert"))
    )


def heartbeat(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    expires_at_ms = service.controller.heartbeat(
        table,
        call.needed("segmentLineageEntryId"),
        lease_token=call.text("X-Lease-Token") or "",
        by=service.caller(call, table),
    )
    return Reply(document={"leaseExpiresAt": expires_at_ms})


def validate(service: Service, call: Call) -> Reply:
    body = call.read(ValidateBody) if call.body.strip() else ValidateBody()
    table = offline_name(call.table, call.kind())
    report = service.controller.validate(
        table,
        call.needed("segmentLineageEntryId"),
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
        document["deepStore"] = service.controller.deep_store_uri
        run = call.text("run")
        if run is not None:
            document["seesRun"] = service.controller.sees_run(table, run)
    return Reply(document=document)


def lineage(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind(is_needed=True))
    state = service.controller.state(table)
    document: dict[str, Any] = {
        "tableNameWithType": table,
        "lineageEntries": {entry.id: _entry(state, entry) for entry in state.lineage.entries},
    }
    if state.lineage.custom:
        document["customMap"] = dict(state.lineage.custom)
    return Reply(document=document)


def snapshots(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    found = service.controller.snapshots(table)
    details = service.controller.segments(table)
    return Reply(
        document={
            "tableNameWithType": table,
            "snapshots": [
                {
                    "position": one.position,
                    "epoch": one.epoch,
                    "segmentLineageEntryId": one.entry_id,
                    "publishedAt": one.published_at_ms,
                    "isCurrent": one.is_current,
                    "pinnedUntil": one.pinned_until_ms,
                    "steps": list(one.steps),
                    "source": dict(one.source),
                    "segments": sorted(one.segments),
                    "docs": sum(details[name].docs for name in one.segments if name in details),
                    "bytes": sum(details[name].size_bytes for name in one.segments if name in details),
                }
                for one in found
            ],
        }
    )


def pin(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    until_ms = call.whole("until")
    if until_ms is None:
        raise InvalidRequest("until when?", parameter="until", code="PARAMETER_MISSING")
    kept = service.controller.pin(table, _epoch(call), until_ms=until_ms, by=service.caller(call, table))
    return Reply(document={"epoch": kept.epoch, "pinnedUntil": kept.pinned_until_ms})


def unpin(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    service.controller.unpin(table, _epoch(call), by=service.caller(call, table))
    return Reply(document={"epoch": _epoch(call), "pinnedUntil": None})


def audit(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    limit = call.whole("limit")
    since = call.whole("since")
    found = service.controller.audit(
        table, since=since or 0, limit=100 if limit is None else max(0, min(limit, 1000))
    )
    return Reply(document={"records": [msgspec.to_builtins(one) for one in found]})


def doctor(service: Service, call: Call) -> Reply:
    return _findings(service, call, fix=False)


def fix(service: Service, call: Call) -> Reply:
    return _findings(service, call, fix=True)


def consistent_push(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    call.needed("enabled")
    is_enabled = call.flag("enabled")
    switched = service.controller.set_consistent_push(
        table, enabled=is_enabled, by=service.caller(call, table)
    )
    document: dict[str, Any] = {"consistentDataPush": is_enabled}
    if switched is not None:
        document |= switched_document(switched, is_dry_run=False)
    return Reply(document=document)


def _findings(service: Service, call: Call, *, fix: bool) -> Reply:
    table = offline_name(call.table, call.kind())
    found = service.controller.upkeep.doctor(table, fix=fix, by=service.caller(call, table))
    return Reply(
        document={
            "findings": [
                {
                    "code": one.code,
                    "message": one.message,
                    "names": list(one.names),
                    "isFixable": one.is_fixable,
                }
                for one in found
            ]
        }
    )


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
        name = qualified(one.table, call.database)
        call.require(Role.WRITE, name)
        table = offline_name(name, None)
        if table in entries:
            raise InvalidRequest("a table stands twice", table=table, code="BODY_INVALID")
        entries[table] = one.segment_lineage_entry_id
    if not entries:
        raise InvalidRequest("no table is named", code="BODY_INVALID")
    return entries


def _switched_group(service: Service, call: Call, switch: Callable[..., dict[str, Switched]]) -> Reply:
    entries = _group(call)
    is_dry_run = call.flag("dryRun")
    # An operator of all of them, or of none: the table on which the caller may least decides.
    least = min(entries, key=lambda table: call.principal.role_on(table) or 0)
    switched = switch(entries, dry_run=is_dry_run, by=service.caller(call, least))
    tables = {table: switched_document(one, is_dry_run=is_dry_run) for table, one in switched.items()}
    return Reply(document={"tables": tables})


def _published(switched: Switched, document: dict[str, Any] | None = None) -> Reply:
    return Reply(document=document, headers={_EPOCH_HEADER: str(switched.epoch)})


def _entry(state: TableState, entry: LineageEntry) -> dict[str, Any]:
    """An entry as Pinot lists it, and what Holdfast knows beside."""
    details = details_of(state, entry.id)
    document = entry_document(entry)
    if details.source:
        document["source"] = dict(details.source)
    if entry.state is EntryState.IN_PROGRESS:
        document |= {"actor": details.actor, "leaseExpiresAt": lease_expires_at_ms(state, entry.id)}
    return document


def _lease_ms(call: Call) -> int:
    given = call.whole("leaseMs")
    return _LEASE_MS if given is None else max(_LEASE_MS_MIN, min(given, _WAIT_MAX_MS))


def _wait(call: Call, name: str, default_ms: int) -> int:
    given = call.whole(name)
    return default_ms if given is None else max(0, min(given, _WAIT_MAX_MS))


def _epoch(call: Call) -> int:
    epoch = call.whole("epoch")
    assert epoch is not None, "the path holds an epoch"
    return epoch


_ENTRY = Parameter("segmentLineageEntryId", "The entry, as start named it.", is_required=True)
_NEEDED_TYPE = Parameter("type", "The table's type.", choices=("OFFLINE", "REALTIME"), is_required=True)
_EPOCH = Parameter("epoch", "A snapshot's epoch.", TABLE.place, kind="integer", is_required=True)
_LEASE = header("X-Lease-Token", "The token that start gave with a lease.")
_KEY = header("Idempotency-Key", "Chosen by the client: a repeat with the same key gets the same answer.")
_COMMON = (TABLE, TYPE, DATABASE_HEADER)
_CHANGING = (DATABASE_HEADER, PRECISE_HEADER, _KEY)
_RULES = {
    404: "The table or the entry is not known.",
    409: "A rule forbids it, or somebody else was faster (precise statuses).",
    500: "A rule forbids it, as Pinot answers; errorCode names the rule. Or a bug.",
}
_MISSING = {404: "The table is not known."}

ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/startReplaceSegments", name="StartReplaceSegments",
        access=Access(Role.WRITE), handle=start,
        about="Open a push: segmentsTo stay hidden until it ends, segmentsFrom stay visible.",
        parameters=(
            TABLE, _NEEDED_TYPE, *_CHANGING, DRY_RUN,
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
        body=BodyKind.JSON, body_type=StartBody, body_about="What to replace by what.",
        answer=Answer(about="The entry is open.", schema={
            "type": "object", "properties": {"segmentLineageEntryId": {"type": "string"}},
            "required": ["segmentLineageEntryId"]}),
        refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/endReplaceSegments", name="EndReplaceSegments",
        access=Access(Role.WRITE), handle=end,
        about="Publish a push: from now on queries see segmentsTo in place of segmentsFrom.",
        parameters=(
            TABLE, _NEEDED_TYPE, _ENTRY, *_CHANGING, _LEASE, DRY_RUN,
            flag("cleanup", "Run retention for the table afterwards."),
            flag("override", "Publish although a gate failed; for operators, and audited."),
            Parameter("onlineTimeoutMs", "How long to wait for the segments to be online.", kind="integer"),
            flag("waitForBrokers", "Answer when every broker has switched."),
            Parameter("brokerTimeoutMs", "How long to wait for that.", kind="integer"),
            flag("async", "Answer at once with a jobId, and wait in the background."),
        ),
        body=BodyKind.OPTIONAL_JSON, body_type=EndBody, body_about="A subset of the announced segments.",
        answer=Answer(about="Published. The body is empty, unless brokers were waited for."),
        refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/revertReplaceSegments", name="RevertReplaceSegments",
        access=Access(Role.WRITE), handle=revert,
        about="Take a push back: queries see segmentsFrom again. Of others' pushes: for operators.",
        parameters=(
            TABLE, _NEEDED_TYPE, _ENTRY, *_CHANGING, DRY_RUN,
            flag("forceRevert", "Also give up a push that is still open."),
            flag("onlyOpen", "Refuse if it was published meanwhile."),
        ),
        body=BodyKind.OPTIONAL_JSON, body_type=RevertBody, body_about="Passed over, as in Pinot.",
        answer=Answer(about="Reverted. The body is empty, unless it had been before."),
        refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/rollback", name="Rollback", access=Access(Role.OPERATE),
        handle=rollback, about="Go back to a retained snapshot, over several pushes in one write.",
        parameters=(
            *_COMMON, PRECISE_HEADER, _KEY, DRY_RUN,
            Parameter("steps", "So many pushes back.", kind="integer"),
            Parameter("toEntryId", "To the snapshot that this entry published."),
            Parameter("toEpoch", "To the snapshot of this epoch.", kind="integer"),
            Parameter("fromEntryId", "Refuse unless this is the newest published entry."),
        ),
        answer=Answer(about="What changed.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/redo", name="Redo", access=Access(Role.OPERATE), handle=redo,
        about="Publish a reverted push again; nothing is uploaded.",
        parameters=(
            *_COMMON, PRECISE_HEADER, _KEY, DRY_RUN,
            Parameter("entryId", "The reverted entry.", is_required=True),
        ),
        answer=Answer(about="What changed.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/lineage/group/end", name="EndGroup", access=Access(Role.WRITE, On.SOME),
        handle=end_group, about="Publish pushes of several tables in one step.",
        parameters=(*_CHANGING, DRY_RUN, flag("override", "Publish although a gate failed; for operators.")),
        body=BodyKind.JSON, body_type=list[GroupEntry], body_about="One entry for each table.",
        answer=Answer(about="What changed.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/lineage/group/revert", name="RevertGroup", access=Access(Role.WRITE, On.SOME),
        handle=revert_group, about="Take pushes of several tables back in one step.",
        parameters=(*_CHANGING, DRY_RUN, flag("forceRevert", "Also give up pushes that are still open.")),
        body=BodyKind.JSON, body_type=list[GroupEntry], body_about="One entry for each table.",
        answer=Answer(about="What changed.", schema=OBJECT), refusals=_RULES,
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
        parameters=(*_COMMON, _ENTRY, _LEASE, PRECISE_HEADER),
        answer=Answer(about="Until when it holds.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/validateReplaceSegments", name="ValidateReplaceSegments",
        access=Access(Role.WRITE), handle=validate, is_query=True,
        about="Evaluate gates on the hidden side of an open push.",
        parameters=(*_COMMON, _ENTRY, PRECISE_HEADER),
        body=BodyKind.OPTIONAL_JSON, body_type=ValidateBody, body_about="The gates.",
        answer=Answer(about="How each gate did.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/preflight", name="Preflight", access=Access(Role.READ),
        handle=preflight,
        about="Whether a push of a size would fit; for who may write, also where to build it.",
        parameters=(
            *_COMMON,
            Parameter("expectedBytes", "The size of the push.", kind="integer", is_required=True),
            Parameter("run", "A push job: say whether its record is seen in the deep store."),
        ),
        answer=Answer(about="The figures.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/lineage", name="GetSegmentLineage", access=Access(Role.READ),
        handle=lineage, about="The lineage entries of a table, oldest change first.",
        parameters=(TABLE, _NEEDED_TYPE, DATABASE_HEADER),
        answer=Answer(about="The entries.", schema={
            "type": "object", "required": ["tableNameWithType", "lineageEntries"],
            "properties": {"tableNameWithType": {"type": "string"}, "lineageEntries": OBJECT}}),
        refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/lineage/audit", name="GetAudit", access=Access(Role.READ),
        handle=audit, about="Who changed what, newest first.",
        parameters=(
            *_COMMON, Parameter("since", "At or after this time, in milliseconds.", kind="integer"),
            Parameter("limit", "At most so many, 100 by default, 1000 at most.", kind="integer"),
        ),
        answer=Answer(about="The records.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/lineage/doctor", name="GetDoctor", access=Access(Role.READ),
        handle=doctor, about="What is wrong with a table.", parameters=_COMMON,
        answer=Answer(about="The findings.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/lineage/doctor", name="RunDoctor",
        access=Access(Role.OPERATE), handle=fix, about="Mend what can be mended safely.", parameters=_COMMON,
        answer=Answer(about="The findings.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/snapshots", name="GetSnapshots", access=Access(Role.READ),
        handle=snapshots, about="The contents that a revert, rollback or redo can bring back, newest first.",
        parameters=_COMMON, answer=Answer(about="The snapshots.", schema=OBJECT), refusals=_MISSING,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/snapshots/{epoch:int}/pin", name="PinSnapshot",
        access=Access(Role.OPERATE), handle=pin, about="Keep a snapshot from retention.",
        parameters=(
            *_COMMON, _EPOCH, PRECISE_HEADER,
            Parameter("until", "When it ends, in milliseconds since the epoch.", kind="integer",
                      is_required=True),
        ),
        answer=Answer(about="Kept.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="DELETE", path="/segments/{table}/snapshots/{epoch:int}/pin", name="UnpinSnapshot",
        access=Access(Role.OPERATE), handle=unpin, about="Let retention have a snapshot again.",
        parameters=(*_COMMON, _EPOCH, PRECISE_HEADER),
        answer=Answer(about="No longer kept.", schema=OBJECT), refusals=_RULES,
    ),
    Endpoint(
        method="POST", path="/tables/{table}/consistentPush", name="SwitchConsistentPush",
        access=Access(Role.ADMIN), handle=consistent_push,
        about="Switch consistent push on or off in place.",
        parameters=(
            *_COMMON, PRECISE_HEADER,
            Parameter("enabled", "On or off.", kind="boolean", is_required=True),
        ),
        answer=Answer(about="Switched.", schema=OBJECT), refusals=_RULES,
    ),
)  # fmt: skip
