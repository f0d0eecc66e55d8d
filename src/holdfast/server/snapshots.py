"""Routes of retained snapshots: which there are, going back to one and forth again, keeping one."""

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.calls import RollbackTarget
from holdfast.server.auth import Access
from holdfast.server.endpoints import (
    COMMON,
    DRY_RUN,
    KEY_HEADER,
    NO_TABLE,
    PRECISE_HEADER,
    RULES,
    TABLE,
    TO_EMPTY,
    Answer,
    Call,
    Endpoint,
    Parameter,
    Reply,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, publish_document, with_epoch
from holdfast.server.table_names import offline_name
from holdfast.server.waits import BROKER_PARAMETERS, brokers_within_ms


def rollback(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    target = RollbackTarget(
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
    switched = service.controller.rollback(
        table,
        target,
        may_empty=call.flag("toEmpty"),
        brokers_within_ms=brokers_within_ms(call),
        dry_run=is_dry_run,
        by=service.caller(call, table),
    )
    return with_epoch(switched, publish_document(switched, is_dry_run=is_dry_run))


def redo(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    is_dry_run = call.flag("dryRun")
    switched = service.controller.redo(
        table,
        call.require_text("entryId"),
        may_empty=call.flag("toEmpty"),
        brokers_within_ms=brokers_within_ms(call),
        dry_run=is_dry_run,
        by=service.caller(call, table),
    )
    return with_epoch(switched, publish_document(switched, is_dry_run=is_dry_run))


def snapshots(service: Service, call: Call) -> Reply:
    table = offline_name(call.table, call.kind())
    found = service.controller.views.snapshots(table)
    details = service.controller.views.segments(table)
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


def _epoch(call: Call) -> int:
    epoch = call.whole("epoch")
    assert epoch is not None, "the path holds an epoch"
    return epoch


_EPOCH = Parameter("epoch", "A snapshot's epoch.", TABLE.place, kind="integer", is_required=True)

ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/rollback", name="Rollback", access=Access(Role.OPERATE),
        handle=rollback, about="Go back to a retained snapshot, over several pushes in one write.",
        parameters=(
            *COMMON, PRECISE_HEADER, KEY_HEADER, DRY_RUN,
            Parameter("steps", "So many pushes back.", kind="integer"),
            Parameter("toEntryId", "To the snapshot that this entry published."),
            Parameter("toEpoch", "To the snapshot of this epoch.", kind="integer"),
            Parameter("fromEntryId", "Refuse unless this is the newest published entry."),
            TO_EMPTY, *BROKER_PARAMETERS,
        ),
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/redo", name="Redo", access=Access(Role.OPERATE), handle=redo,
        about="Publish a reverted push again; nothing is uploaded.",
        parameters=(
            *COMMON, PRECISE_HEADER, KEY_HEADER, DRY_RUN,
            Parameter("entryId", "The reverted entry.", is_required=True), TO_EMPTY, *BROKER_PARAMETERS,
        ),
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/snapshots", name="GetSnapshots", access=Access(Role.READ),
        handle=snapshots, about="The contents that a revert, rollback or redo can bring back, newest first.",
        parameters=COMMON, answer=Answer(about="The snapshots.", schema=OBJECT), refusals=NO_TABLE,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/snapshots/{epoch:int}/pin", name="PinSnapshot",
        access=Access(Role.OPERATE), handle=pin, about="Keep a snapshot from retention.",
        parameters=(
            *COMMON, _EPOCH, PRECISE_HEADER,
            Parameter("until", "When it ends, in milliseconds since the epoch.", kind="integer",
                      is_required=True),
        ),
        answer=Answer(about="Kept.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="DELETE", path="/segments/{table}/snapshots/{epoch:int}/pin", name="UnpinSnapshot",
        access=Access(Role.OPERATE), handle=unpin, about="Let retention have a snapshot again.",
        parameters=(*COMMON, _EPOCH, PRECISE_HEADER),
        answer=Answer(about="No longer kept.", schema=OBJECT), refusals=RULES,
    ),
)  # fmt: skip
