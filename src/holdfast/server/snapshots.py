"""Routes of retained snapshots: which there are, going back to one and forth again, keeping one."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

from holdfast.config.server import Role
from holdfast.errors import InvalidRequest
from holdfast.push.calls import PublishResult, RollbackTarget
from holdfast.server.auth import Access
from holdfast.server.endpoints import NO_TABLE, RULES, Answer, Call, Endpoint, Reply
from holdfast.server.parameters import (
    DryRun,
    IdempotencyKey,
    OfTypedTable,
    OfTypedTablePrecisely,
    Parameter,
    TimeoutMs,
    ToEmpty,
    WaitForBrokers,
    brokers_within_ms,
    in_path,
)
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, publish_document, with_epoch


class SwitchParameters(OfTypedTablePrecisely, frozen=True, kw_only=True):
    """Those of rollback and redo."""

    idempotency_key: IdempotencyKey = None
    dry_run: DryRun = False
    to_empty: ToEmpty = True
    wait_for_brokers: WaitForBrokers = False
    broker_timeout_ms: TimeoutMs = None


class RollbackParameters(SwitchParameters, frozen=True, kw_only=True):
    steps: Annotated[int | None, Parameter("How many pushes to go back.")] = None
    to_entry_id: Annotated[str | None, Parameter("To the snapshot that this entry published.")] = None
    to_epoch: Annotated[int | None, Parameter("To the snapshot of this epoch.")] = None
    from_entry_id: Annotated[str | None, Parameter("Refuse unless this is the newest published entry.")] = (
        None
    )


class RedoParameters(SwitchParameters, frozen=True, kw_only=True):
    entry_id: Annotated[str, Parameter("The reverted entry.")]


class UnpinParameters(OfTypedTablePrecisely, frozen=True, kw_only=True):
    epoch: Annotated[int, in_path("A snapshot's epoch.")]


class PinParameters(UnpinParameters, frozen=True, kw_only=True):
    until: Annotated[int, Parameter("When it ends, in milliseconds since the epoch.")]


def rollback(service: Service, call: Call[RollbackParameters]) -> Reply:
    parameters = call.parameters
    target = RollbackTarget(
        steps=parameters.steps,
        entry_id=parameters.to_entry_id,
        epoch=parameters.to_epoch,
        newest=parameters.from_entry_id,
    )
    if sum(one is not None for one in (target.steps, target.entry_id, target.epoch)) != 1:
        raise InvalidRequest(
            "a rollback needs one target", code="PARAMETER_INVALID", hint="give steps, toEntryId or toEpoch"
        )
    return _switch(service, call, partial(service.controller.rollback, parameters.typed, target))


def redo(service: Service, call: Call[RedoParameters]) -> Reply:
    parameters = call.parameters
    return _switch(service, call, partial(service.controller.redo, parameters.typed, parameters.entry_id))


def _switch(service: Service, call: Call[SwitchParameters], switch: Callable[..., PublishResult]) -> Reply:
    parameters = call.parameters
    switched = switch(
        may_empty=parameters.to_empty,
        brokers_within_ms=brokers_within_ms(parameters.broker_timeout_ms, waits=parameters.wait_for_brokers),
        dry_run=parameters.dry_run,
        by=service.caller(call, parameters.typed),
    )
    return with_epoch(switched, publish_document(switched, is_dry_run=parameters.dry_run))


def snapshots(service: Service, call: Call[OfTypedTable]) -> Reply:
    table = call.parameters.typed
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


def pin(service: Service, call: Call[PinParameters]) -> Reply:
    parameters, table = call.parameters, call.parameters.typed
    by = service.caller(call, table)
    kept = service.controller.pin(table, parameters.epoch, until_ms=parameters.until, by=by)
    return Reply(document={"epoch": kept.epoch, "pinnedUntil": kept.pinned_until_ms})


def unpin(service: Service, call: Call[UnpinParameters]) -> Reply:
    table, epoch = call.parameters.typed, call.parameters.epoch
    service.controller.unpin(table, epoch, by=service.caller(call, table))
    return Reply(document={"epoch": epoch, "pinnedUntil": None})


ENDPOINTS = (
    Endpoint(
        method="POST", path="/segments/{table}/rollback", name="Rollback", access=Access(Role.OPERATE),
        handle=rollback, about="Go back to a retained snapshot, over several pushes in one write.",
        parameters=RollbackParameters,
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/redo", name="Redo", access=Access(Role.OPERATE), handle=redo,
        about="Publish a reverted push again; nothing is uploaded.",
        parameters=RedoParameters,
        answer=Answer(about="What changed.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/snapshots", name="GetSnapshots", access=Access(Role.READ),
        handle=snapshots, about="The contents that a revert, rollback or redo can bring back, newest first.",
        parameters=OfTypedTable, answer=Answer(about="The snapshots.", schema=OBJECT), refusals=NO_TABLE,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/snapshots/{epoch:int}/pin", name="PinSnapshot",
        access=Access(Role.OPERATE), handle=pin, about="Keep a snapshot from retention.",
        parameters=PinParameters,
        answer=Answer(about="Kept.", schema=OBJECT), refusals=RULES,
    ),
    Endpoint(
        method="DELETE", path="/segments/{table}/snapshots/{epoch:int}/pin", name="UnpinSnapshot",
        access=Access(Role.OPERATE), handle=unpin, about="Let retention have a snapshot again.",
        parameters=UnpinParameters,
        answer=Answer(about="No longer kept.", schema=OBJECT), refusals=RULES,
    ),
)  # fmt: skip
