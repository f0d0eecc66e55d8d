"""Shapes of answers that several routes share, as JSON and as their schemas."""

from collections.abc import Mapping
from typing import Any

from holdfast.model.lineage import LineageEntry
from holdfast.push.calls import (
    Changes,
    Preflight,
    PublishResult,
)
from holdfast.server.endpoints import Reply

STATUS: Mapping[str, Any] = {
    "type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"],
}  # fmt: skip
TEXTS: Mapping[str, Any] = {"type": "array", "items": {"type": "string"}}
OBJECT: Mapping[str, Any] = {"type": "object"}
_EPOCH_HEADER = "X-Snapshot-Epoch"


def status(text: str) -> dict[str, str]:
    return {"status": text}


def entry_document(entry: LineageEntry) -> dict[str, Any]:
    """An entry as Pinot lists it."""
    return {
        "segmentsFrom": list(entry.segments_from),
        "segmentsTo": list(entry.segments_to),
        "state": entry.state.value,
        "timestamp": entry.changed_at_ms,
        "autoCompleteLineageEntry": entry.auto_complete,
    }


def changes_document(changes: Changes) -> dict[str, Any]:
    """What a call changes, or would change."""
    return {
        "table": changes.table,
        "shown": list(changes.shown),
        "hidden": list(changes.hidden),
        "removed": list(changes.removed),
        "entriesBefore": {entry.id: entry_document(entry) for entry in changes.entries_before},
        "entriesAfter": {entry.id: entry_document(entry) for entry in changes.entries_after},
        "epochBefore": changes.epoch_before,
        "epochAfter": changes.epoch_after,
        "bytesFreed": changes.bytes_freed,
        "reasons": list(changes.reasons),
    }


def publish_document(switched: PublishResult, *, is_dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": is_dry_run,
        "segmentLineageEntryIds": list(switched.entry_ids),
        "epoch": switched.epoch,
        "already": switched.already,
        "empties": switched.empties,
        "brokers": dict(switched.brokers),
        "changes": changes_document(switched.changes),
    }


def preflight_document(preflight: Preflight) -> dict[str, Any]:
    return {
        "fits": preflight.fits,
        "allowedBytes": preflight.allowed_bytes,
        "usedBytes": preflight.used_bytes,
        "incomingBytes": preflight.incoming_bytes,
        "freedBytes": preflight.freed_bytes,
        "advice": list(preflight.advice),
    }


def with_epoch(switched: PublishResult, document: dict[str, Any] | None = None) -> Reply:
    """An answer that says, in its header, which epoch queries see now."""
    return Reply(document=document, headers={_EPOCH_HEADER: str(switched.epoch)})
