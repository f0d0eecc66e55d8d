"""Routes of a table's lineage: its entries, who changed them, what is wrong with them."""

from typing import Annotated, Any

import msgspec

from holdfast.config.push_support import settings_without_effect
from holdfast.config.server import Role
from holdfast.model.lineage import EntryState, LineageEntry
from holdfast.push.replacement.checks import lease_expires_at_ms
from holdfast.push.state.table_state import TableState
from holdfast.server.auth import Access
from holdfast.server.endpoints import NO_TABLE, RULES, Answer, Call, Endpoint, Reply
from holdfast.server.parameters import NeededType, OfTypedTable, Parameter
from holdfast.server.service import Service
from holdfast.server.shapes import OBJECT, entry_document


class LineageParameters(OfTypedTable, frozen=True, kw_only=True):
    type: NeededType


class AuditParameters(OfTypedTable, frozen=True, kw_only=True):
    since: Annotated[int | None, Parameter("At or after this time, in milliseconds.")] = None
    limit: Annotated[int | None, Parameter("How many at most: 100 by default, 1000 at the most.")] = None


def lineage(service: Service, call: Call[LineageParameters]) -> Reply:
    table = call.parameters.typed
    state = service.controller.views.state(table)
    document: dict[str, Any] = {
        "tableNameWithType": table,
        "lineageEntries": {entry.id: _entry(state, entry) for entry in state.lineage.entries},
    }
    if state.lineage.custom:
        document["customMap"] = dict(state.lineage.custom)
    return Reply(document=document)


def audit(service: Service, call: Call[AuditParameters]) -> Reply:
    limit = call.parameters.limit
    found = service.controller.views.audit(
        call.parameters.typed,
        since=call.parameters.since or 0,
        limit=100 if limit is None else max(0, min(limit, 1000)),
    )
    return Reply(document={"records": [msgspec.to_builtins(one) for one in found]})


def doctor(service: Service, call: Call[OfTypedTable]) -> Reply:
    return _findings(service, call, fix=False)


def fix(service: Service, call: Call[OfTypedTable]) -> Reply:
    return _findings(service, call, fix=True)


def _findings(service: Service, call: Call[OfTypedTable], *, fix: bool) -> Reply:
    table = call.parameters.typed
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
            ],
            # No findings: nothing is wrong with a table because of them.
            "settingsWithoutEffect": settings_without_effect(service.catalog.table(table).raw),
        }
    )


def _entry(state: TableState, entry: LineageEntry) -> dict[str, Any]:
    """An entry as Pinot lists it, and what Holdfast knows beside."""
    details = state.details_of(entry.id)
    document = entry_document(entry)
    if details.source:
        document["source"] = dict(details.source)
    if entry.state is EntryState.IN_PROGRESS:
        document |= {"actor": details.actor, "leaseExpiresAt": lease_expires_at_ms(state, entry.id)}
    return document


ENDPOINTS = (
    Endpoint(
        method="GET", path="/segments/{table}/lineage", name="GetSegmentLineage", access=Access(Role.READ),
        handle=lineage, about="The lineage entries of a table, oldest change first.",
        parameters=LineageParameters,
        answer=Answer(about="The entries.", schema={
            "type": "object", "required": ["tableNameWithType", "lineageEntries"],
            "properties": {"tableNameWithType": {"type": "string"}, "lineageEntries": OBJECT}}),
        refusals=NO_TABLE,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/lineage/audit", name="GetAudit", access=Access(Role.READ),
        handle=audit, about="Who changed what, newest first.",
        parameters=AuditParameters,
        answer=Answer(about="The records.", schema=OBJECT), refusals=NO_TABLE,
    ),
    Endpoint(
        method="GET", path="/segments/{table}/lineage/doctor", name="GetDoctor", access=Access(Role.READ),
        handle=doctor, about="What is wrong with a table.", parameters=OfTypedTable,
        answer=Answer(about="The findings.", schema=OBJECT), refusals=NO_TABLE,
    ),
    Endpoint(
        method="POST", path="/segments/{table}/lineage/doctor", name="RunDoctor",
        access=Access(Role.OPERATE), handle=fix, about="Mend what can be mended safely.",
        parameters=OfTypedTable,
        answer=Answer(about="The findings.", schema=OBJECT), refusals=RULES,
    ),
)  # fmt: skip
