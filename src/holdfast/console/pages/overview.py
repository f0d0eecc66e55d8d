"""The overview: every table, what is newest, what is served, who writes, and what wants somebody."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from holdfast.console.site import Site
from holdfast.console.visits import Answer, On, Page, View, Visit
from holdfast.errors import HoldfastError, TableNotFound
from holdfast.model.lineage import EntryState
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE, source_text
from holdfast.push.replacement.snapshots import snapshots
from holdfast.push.state.table_state import TableState
from holdfast.server.errors import public_text
from holdfast.server.table_names import raw_name
from holdfast.services.pushes import find_served, push_records
from holdfast.services.status import Outlook, PendingInstant, TableStatus, table_status
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

_AT_ONCE = 8
_REFRESH_S = 2

_STOPPED = (Outlook.FAILED, Outlook.ROLLING_BACK, Outlook.UNSHOWN, Outlook.RESTORING)
"""Outlooks of work that nobody is doing: the next write does it, or somebody has to."""


def overview(site: Site, visit: Visit) -> Answer:
    served = [_push_row(site, name) for name in site.push_tables(visit.principal)]
    by_lake = _by_lake(served)
    with ThreadPoolExecutor(_AT_ONCE, "holdfast-overview") as pool:
        names = site.lake_tables(visit.principal)
        lake = list(pool.map(lambda name: _lake_row(site, name, by_lake), names))
    values = {
        "lake": lake,
        "served": served,
        "disk": _disk(site),
        "attention": sum(one["state"] in ("wrong", "attention") for one in (*lake, *served)),
        "writing": sum(len(one.get("writing", ())) for one in lake),
        "open_pushes": sum(len(one.get("open", ())) for one in served),
        "refreshed_at_ms": site.clock.now_ms(),
        "refresh_s": _REFRESH_S,
    }
    return View(template="overview.html", title="Overview", values=values, part="parts/overview.html")


def _lake_row(site: Site, name: str, served: Mapping[tuple[str, str], list[Any]]) -> dict[str, Any]:
    try:
        table = site.open(name)
        status = table_status(table)
        shown = [*_places_here(table, status, served), *_as_recorded(site, table, status)]
    except HoldfastError as error:
        is_gone = isinstance(error, TableNotFound)
        return {
            "name": name, "state": "wrong", "word": "not there" if is_gone else "cannot be read",
            "error": public_text(error),
        }  # fmt: skip
    return lake_fields(name, table, status, shown, now_ms=site.clock.now_ms())


def lake_fields(
    name: str, table: OpenTable, status: TableStatus, served: Sequence[Mapping[str, Any]], *, now_ms: int
) -> dict[str, Any]:
    """A lake table in one row."""
    latest = status.latest_commit
    writing = [one for one in status.pending if one.outlook not in _STOPPED]
    stopped = [one for one in status.pending if one.outlook in _STOPPED]
    is_behind = any(one["is_behind"] for one in served)
    state, word = _state(status, writing, stopped, is_behind=is_behind)
    return {
        "name": name,
        "path": table.location.uri,
        "type": table.settings.table_type.value,
        "state": state,
        "word": word,
        "error": "",
        "latest": None if latest is None else latest.time,
        "completed_at": None if latest is None else latest.completed_at,
        "age_ms": None
        if latest is None or latest.completed_at is None
        else max(0, now_ms - round(latest.completed_at.timestamp() * 1000)),
        "commits": status.commits,
        "files": status.files,
        "size_bytes": status.size_bytes,
        "partitions": status.partitions,
        "writing": [_pending_fields(one) for one in writing],
        "stopped": [_pending_fields(one) for one in stopped],
        "served": list(served),
        "leases": len(status.leases),
        "leftover_bytes": status.leftover_bytes,
        "warnings": list(status.warnings),
    }


def _state(
    status: TableStatus,
    writing: Sequence[PendingInstant],
    stopped: Sequence[PendingInstant],
    *,
    is_behind: bool,
) -> tuple[str, str]:
    """What an operator should make of a table: a state, which has a shape, and a word."""
    if any(one.outlook is Outlook.RESTORING for one in stopped):
        return "wrong", "restore unfinished"
    if stopped:
        return "attention", "left unfinished"
    if writing:
        return "busy", "being written"
    if is_behind:
        return "attention", "served behind"
    if status.latest_commit is None:
        return "idle", "empty"
    return "well", "well"


def _pending_fields(one: PendingInstant) -> dict[str, Any]:
    return {
        "instant": one.time,
        "action": one.action.value,
        "owner": one.owner,
        "liveness": one.liveness.value,
        "fate": one.fate,
        "silent_ms": one.silent_ms,
    }


def _places_here(
    table: OpenTable, status: TableStatus, served: Mapping[tuple[str, str], list[Any]]
) -> list[dict[str, Any]]:
    """The tables of this service that show a commit of the table, and how far behind it is."""
    found = []
    commits = [one.time for one in load_timeline(table.store).completed_commits]
    for (lake, instant), rows in served.items():
        if lake != table.location.uri:
            continue
        behind = sum(time > instant for time in commits)
        is_gone = instant not in commits and bool(commits) and instant > commits[0]
        for row in rows:
            row["lake_behind"] = behind
            word = "shows rows that were taken back" if is_gone else drift_text(behind)
            found.append(
                {
                    "table": row["name"], "instant": instant, "behind": behind, "word": word,
                    "is_behind": behind > 0 or is_gone, "is_seen": True,
                }
            )  # fmt: skip
    return found


def _as_recorded(site: Site, table: OpenTable, status: TableStatus) -> list[dict[str, Any]]:
    """What the lake table remembers of its pushes to services that nobody asks here."""
    if site.push is not None:
        return []
    commits = [one.time for one in load_timeline(table.store).completed_commits]
    return [
        {
            "table": raw_name(push.table), "instant": push.instant,
            "behind": sum(time > push.instant for time in commits),
            "word": f"{drift_text(sum(time > push.instant for time in commits))}, as recorded",
            "is_behind": any(time > push.instant for time in commits), "is_seen": False,
        }
        for push in find_served(push_records(table).pushes, {})
    ]  # fmt: skip


def drift_text(behind: int) -> str:
    if not behind:
        return "the newest commit"
    return "1 commit behind" if behind == 1 else f"{behind} commits behind"


def _by_lake(served: Iterable[dict[str, Any]]) -> dict[tuple[str, str], list[Any]]:
    found: dict[tuple[str, str], list[Any]] = {}
    for row in served:
        source = row.get("source", {})
        if LAKE_TABLE in source:
            found.setdefault((source[LAKE_TABLE], source.get(LAKE_INSTANT, "")), []).append(row)
    return found


def _push_row(site: Site, typed: str) -> dict[str, Any]:
    service = site.service()
    try:
        state = service.controller.views.state(typed)
        known = service.controller.views.segments(typed)
    except HoldfastError as error:
        return {"name": raw_name(typed), "state": "wrong", "word": "cannot be read",
                "error": public_text(error), "open": []}  # fmt: skip
    shown = [segment for name, segment in known.items() if name in state.visible]
    opened = [open_push(state, entry.id, now_ms=site.clock.now_ms()) for entry in state.open_entries]
    failed = gates_in_the_way(state)
    source = current_source(state)
    return {
        "name": raw_name(typed),
        "typed": typed,
        "state": "attention" if failed else "busy" if opened else "well",
        "word": "a gate failed" if failed else "a push is open" if opened else "well",
        "error": "",
        "epoch": state.push.epoch,
        "segments": len(state.segments),
        "visible": len(state.visible),
        "docs": sum(one.docs for one in shown),
        "size_bytes": sum(one.size_bytes for one in shown),
        "snapshots": len(snapshots(state)),
        "open": opened,
        "failed_gates": failed,
        "source": source,
        "source_text": source_text(source),
        "waiting": sum(len(one.segments) + len(one.files) for one in state.push.deletions),
        "lake_behind": None,
    }


def current_source(state: TableState) -> dict[str, str]:
    """Where the rows came from that queries see."""
    return next((dict(one.source) for one in snapshots(state) if one.is_current), {})


def open_push(state: TableState, entry_id: str, *, now_ms: int) -> dict[str, Any]:
    details = state.details_of(entry_id)
    began_ms = details.started_at_ms or None
    return {
        "entry": entry_id,
        "actor": details.actor,
        "began_ms": began_ms,
        "age_ms": None if began_ms is None else max(0, now_ms - began_ms),
        "note": details.note,
        "source_text": source_text(details.source),
    }


def gates_in_the_way(state: TableState) -> list[dict[str, Any]]:
    """Gates that stop the newest push, if it was not published."""
    entries = [one for one in state.lineage.entries if one.state is not EntryState.COMPLETED]
    newest = entries[-1:] if entries and entries[-1] == state.lineage.entries[-1] else []
    return [
        {"entry": entry.id, **asdict(gate)}
        for entry in newest
        for gate in state.details_of(entry.id).gates
        if not gate.passed
    ]


def _disk(site: Site) -> list[dict[str, Any]]:
    """How full the disks are that tables lie on."""
    places = dict(site.tables)
    if site.push is not None:
        places["segments"] = site.push.settings.deep_store
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for name, path in places.items():
        if "://" in path:
            continue
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            continue
        row = found.setdefault(
            (usage.total, usage.free),
            {"tables": [], "total": usage.total, "free": usage.free, "used": usage.total - usage.free},
        )
        row["tables"].append(name)
    return list(found.values())


PAGES = (
    Page(method="GET", path="/", name="overview", handle=overview, on=On.SOME),
    Page(method="GET", path="/console", name="overview_too", handle=overview, on=On.SOME),
)
