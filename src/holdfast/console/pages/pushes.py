"""Pushes: the lineage of a served table, its gates, its snapshots, and what retention does next."""

from dataclasses import asdict
from typing import Any

from holdfast.console.pages.overview import open_push
from holdfast.console.site import Site
from holdfast.console.take_back import choices
from holdfast.console.visits import Answer, Page, View, Visit
from holdfast.model.lineage import EntryState
from holdfast.model.pushes import source_text
from holdfast.push.replacement.checks import lease_expires_at_ms
from holdfast.push.state.table_state import TableState

_REFRESH_S = 2
_ENTRIES = 100
_NAMES = 12
_WORDS = {
    EntryState.COMPLETED: ("well", "published"),
    EntryState.IN_PROGRESS: ("busy", "open"),
    EntryState.REVERTED: ("undone", "reverted"),
}


def pushes(site: Site, visit: Visit) -> Answer:
    table = site.push_table(visit.table)
    service = site.service()
    state = service.controller.views.state(table)
    now_ms = site.clock.now_ms()
    planned = service.controller.upkeep.run_retention(table, dry_run=True, by=site.caller(visit))
    values = {
        "typed": table,
        "epoch": state.push.epoch,
        "visible": len(state.visible),
        "segments": len(state.segments),
        "entries": [
            _entry(state, one.id, now_ms=now_ms) for one in reversed(state.lineage.entries[-_ENTRIES:])
        ],
        "entries_of": len(state.lineage.entries),
        "open": [open_push(state, one.id, now_ms=now_ms) for one in state.open_entries],
        "snapshots": choices(site, visit)["served"]["snapshots"],
        "retained": state.config.retained_snapshots,
        "retention": {"removed": list(planned.changes.removed), "reasons": list(planned.changes.reasons)},
        "deletions": [
            {"segments": list(one.segments), "files": list(one.files), "epoch": one.epoch}
            for one in state.push.deletions
        ],
        "refresh_s": _REFRESH_S,
    }
    return View(
        template="pushes.html", part="parts/pushes.html", title=f"{visit.table}: pushes", values=values
    )


def _entry(state: TableState, entry_id: str, *, now_ms: int) -> dict[str, Any]:
    entry = state.lineage.entry(entry_id)
    assert entry is not None, "it was just found there"
    details = state.details_of(entry_id)
    kind, word = _WORDS[entry.state]
    lease = lease_expires_at_ms(state, entry_id) if entry.state is EntryState.IN_PROGRESS else None
    return {
        "id": entry_id,
        "kind": kind,
        "word": word,
        "state": entry.state.value,
        "changed_at_ms": entry.changed_at_ms,
        "actor": details.actor,
        "note": details.note,
        "epoch": details.epoch,
        "from": list(entry.segments_from[:_NAMES]),
        "from_of": len(entry.segments_from),
        "to": list(entry.segments_to[:_NAMES]),
        "to_of": len(entry.segments_to),
        "source": dict(details.source),
        "source_text": source_text(details.source),
        "gates": [asdict(gate) for gate in details.gates],
        "lease_expires_at_ms": lease,
        "lease_left_ms": None if lease is None else max(0, lease - now_ms),
        "is_final": details.finalised,
    }


PAGES = (Page(method="GET", path="/console/table/{table}/pushes", name="pushes", handle=pushes),)
