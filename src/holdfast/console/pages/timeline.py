"""A table's timeline: everything that happened, on one axis, and one instant of it in detail."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.console.charts import Mark, draw_timeline
from holdfast.console.site import Site
from holdfast.console.visits import Answer, Page, Redirect, View, Visit
from holdfast.errors import HoldfastError, TableNotFound
from holdfast.jobs.ingested import decode_intake
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, moment_of
from holdfast.model.lineage import EntryState
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE
from holdfast.read.history import (
    NotedInstant,
    add_notes,
    clean_record,
    commit_record,
    rollback_records,
    totals,
)
from holdfast.read.savepoints import savepoints
from holdfast.server.errors import public_text
from holdfast.server.table_names import raw_name
from holdfast.services.pushes import push_records
from holdfast.services.status import pending_instants
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.table.zone import timeline_zone
from holdfast.timeline.timeline import Timeline

LANES = {
    "commits": "commits",
    "services": "compactions",
    "cleans": "cleans",
    "back": "taking back",
    "savepoints": "savepoints",
    "pushes": "pushes",
}
_LANE_OF = {
    Action.COMPACTION: "services", Action.LOGCOMPACTION: "services", Action.INDEXING: "services",
    Action.CLEAN: "cleans", Action.ROLLBACK: "back", Action.RESTORE: "back", Action.SAVEPOINT: "savepoints",
}  # fmt: skip
_SHAPES = {
    Action.COMMIT: "circle", Action.DELTACOMMIT: "square", Action.REPLACECOMMIT: "diamond",
    Action.COMPACTION: "triangle", Action.LOGCOMPACTION: "triangle", Action.INDEXING: "triangle",
    Action.CLEAN: "bar", Action.ROLLBACK: "back", Action.RESTORE: "back", Action.SAVEPOINT: "flag",
}  # fmt: skip
_AT_FIRST = 40
"""Instants that the axis shows before somebody zooms."""
_LISTED = 40
_FILES_LISTED = 200
_EDGE = 0.03
_ROOM_MS = 500
"""At each end of the axis at first, where all happened at once."""
_SHORTEST_MS = 20
"""How far the axis can be zoomed in."""
_REFRESH_S = 2


@dataclass(frozen=True, slots=True)
class _Window:
    from_ms: float
    to_ms: float

    def contains(self, at_ms: float) -> bool:
        return self.from_ms <= at_ms <= self.to_ms


def table_page(site: Site, visit: Visit) -> Answer:
    name = quote(visit.table)
    kinds = list(site.kinds(visit.table))
    if not kinds:
        raise TableNotFound("no table has this name", table=visit.table)
    return Redirect(f"/console/table/{name}/{'timeline' if 'lake' in kinds else 'pushes'}")


def timeline(site: Site, visit: Visit) -> Answer:
    table = site.open(visit.table)
    active, state = timeline_and_ledger(table)
    zone = timeline_zone(table)
    pushes = [*_pushes(site, visit, table)]
    outlooks = {one.time: one for one in pending_instants(table, active, state)}
    known = {instant.time: _ms(instant.time, zone) for instant in active.instants}
    # Of what was taken back the timeline says only which rollback did it.
    window = _window(visit, active, known, pushes, now_ms=site.clock.now_ms())
    noted = _notes_since(table, active, window, known)
    rows = [*_rows(noted, outlooks, known), *_undone_rows(noted, known, zone), *pushes]
    inside = sorted((one for one in rows if window.contains(one["at_ms"])), key=lambda one: one["at_ms"])
    chosen = visit.query.get("instant", "")
    base = f"/console/table/{quote(visit.table)}/timeline?"
    link = base + urlencode({"from": int(window.from_ms), "to": int(window.to_ms)}) + "&"
    values = {
        "from_ms": int(window.from_ms),
        "to_ms": int(window.to_ms),
        "instants": len(active.instants),
        "shown": [_public(one) for one in reversed(inside[-_LISTED:])],
        "shown_of": len(inside),
        "zoom": _zoom_links(base, window, active, known),
        "chosen": chosen or None,
        "details": details(site, visit, table, chosen) if chosen else None,
        "is_newest": window.to_ms >= max([*known.values(), *(one["at_ms"] for one in pushes)], default=0),
        "refresh_s": _REFRESH_S,
    }
    marks = [_mark(one, link, chosen) for one in inside]
    chart = draw_timeline(marks, LANES, from_ms=window.from_ms, to_ms=window.to_ms, zoom=base)
    return View(
        template="timeline.html", part="parts/timeline.html", title=f"{visit.table}: timeline", values=values,
        drawn={"chart": chart, "link": link},
    )  # fmt: skip


def _window(
    visit: Visit,
    active: Timeline,
    known: Mapping[InstantTime, float],
    pushes: Sequence[Mapping[str, Any]],
    *,
    now_ms: int,
) -> _Window:
    """The part of the axis that is asked for; by default that of the newest instants."""
    recent = [known[one.time] for one in active.instants[-_AT_FIRST:]]
    recent += [one["at_ms"] for one in pushes if recent and one["at_ms"] >= recent[0]]
    first, last = (min(recent), max(recent)) if recent else (now_ms - 60_000, now_ms)
    room = max(_ROOM_MS, (last - first) * _EDGE)
    given_from = visit.whole("from", int(first - room), 0, 2**45)
    given_to = visit.whole("to", int(last + room) + 1, 1, 2**45)
    if given_to - given_from < _SHORTEST_MS:
        middle = (given_from + given_to) // 2
        given_from, given_to = middle - _SHORTEST_MS // 2, middle + _SHORTEST_MS // 2
    return _Window(given_from, given_to)


def _zoom_links(
    base: str, window: _Window, active: Timeline, known: Mapping[InstantTime, float]
) -> dict[str, str]:
    span = window.to_ms - window.from_ms
    middle = (window.from_ms + window.to_ms) / 2
    times = sorted(known.values())
    parts = {
        "in": (middle - span / 4, middle + span / 4),
        "out": (middle - span, middle + span),
        "older": (window.from_ms - span * 0.8, window.to_ms - span * 0.8),
        "newer": (window.from_ms + span * 0.8, window.to_ms + span * 0.8),
    }
    if times:
        room = max(_ROOM_MS, (times[-1] - times[0]) * _EDGE)
        parts["all"] = (times[0] - room, times[-1] + room)
    links = {name: base + urlencode({"from": max(0, int(a)), "to": int(b)}) for name, (a, b) in parts.items()}
    return {**links, "newest": base.rstrip("?")}


def _notes_since(
    table: OpenTable, active: Timeline, window: _Window, known: Mapping[InstantTime, float]
) -> list[NotedInstant]:
    """What is in the window, and every later rollback and restore, which may name something in it."""
    undoing = (Action.ROLLBACK, Action.RESTORE)
    wanted = [
        one
        for one in reversed(active.instants)
        if known[one.time] >= window.from_ms and (known[one.time] <= window.to_ms or one.action in undoing)
    ]
    return add_notes(table, wanted, active=frozenset(wanted))


def _rows(
    noted: Sequence[NotedInstant], outlooks: Mapping[InstantTime, Any], known: Mapping[InstantTime, float]
) -> Iterator[dict[str, Any]]:
    for one in noted:
        instant = one.instant
        pending = None if instant.is_completed else outlooks.get(instant.time)
        is_undone = one.rolled_back_by is not None
        state = "undone" if is_undone else "completed" if instant.is_completed else "pending"
        notes = [one.notes] if one.notes else []
        if pending is not None and not is_undone:
            notes.append(pending.fate + (f", {pending.owner}" if pending.owner else ""))
        yield {
            "instant": instant.time, "action": instant.action.value, "state": state,
            "reached": instant.state.value, "completed_at": instant.completed_at,
            "note": "; ".join(notes), "at_ms": known[instant.time],
            "lane": _LANE_OF.get(instant.action, "commits"), "shape": _SHAPES[instant.action], "entry": None,
        }  # fmt: skip


def _undone_rows(
    noted: Sequence[NotedInstant], known: Mapping[InstantTime, float], zone: dt.tzinfo
) -> Iterator[dict[str, Any]]:
    """What is not on the timeline any more, and is named by what took it back."""
    for one in noted:
        for time in one.rolls_back:
            if time not in known:
                yield {
                    "instant": time, "action": "write", "state": "undone", "reached": "TAKEN BACK",
                    "completed_at": None, "note": f"rolled back by {one.instant.time}",
                    "at_ms": _ms(time, zone), "lane": "commits", "shape": "circle", "entry": None,
                }  # fmt: skip


def _pushes(site: Site, visit: Visit, table: OpenTable) -> Iterator[dict[str, Any]]:
    """The pushes of the table: from this service, or as the table remembers them."""
    if site.push is None:
        for push in push_records(table).pushes:
            if push.published_at is not None:
                yield _push_row(
                    push.published_at.timestamp() * 1000, raw_name(push.table), push.entry_id, push.instant,
                    "completed", "published, as recorded",
                )  # fmt: skip
        return
    for typed in site.push_tables(visit.principal):
        try:
            state = site.push.controller.views.state(typed)
        except HoldfastError:
            continue  # The overview says what is wrong with it.
        for entry in state.lineage.entries:
            details = state.details_of(entry.id)
            if details.source.get(LAKE_TABLE) != table.location.uri:
                continue
            words = {
                EntryState.COMPLETED: ("completed", "published"),
                EntryState.IN_PROGRESS: ("pending", "open"),
                EntryState.REVERTED: ("undone", "reverted"),
            }
            word = words[entry.state]
            yield _push_row(
                entry.changed_at_ms, raw_name(typed), entry.id, details.source.get(LAKE_INSTANT, ""), *word
            )


def _push_row(at_ms: float, name: str, entry: str, instant: str, state: str, reached: str) -> dict[str, Any]:
    return {
        "instant": instant, "action": "push", "state": state, "reached": reached.upper(),
        "completed_at": dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC), "note": f"to {name}, entry {entry}",
        "at_ms": at_ms, "lane": "pushes", "shape": "up", "entry": entry, "served": name,
    }  # fmt: skip


def _mark(one: Mapping[str, Any], link: str, chosen: str) -> Mark:
    note = f", {one['note']}" if one["note"] else ""
    if one["entry"] is not None:
        href = f"/console/table/{quote(one['served'])}/pushes#{quote(one['entry'])}"
        is_chosen = False
    else:
        href = f"{link}instant={quote(str(one['instant']))}#details"
        is_chosen = chosen == one["instant"]
    return Mark(
        at_ms=one["at_ms"], lane=one["lane"], shape=one["shape"], state=one["state"], href=href,
        is_chosen=is_chosen, label=f"{one['action']} {one['instant']}, {one['reached'].lower()}{note}",
    )  # fmt: skip


def _public(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name not in ("lane", "at_ms")}


def _ms(time: InstantTime, zone: dt.tzinfo) -> float:
    return moment_of(time, zone).timestamp() * 1000


def details(site: Site, visit: Visit, table: OpenTable, time: str) -> dict[str, Any]:
    """Everything that is known of the instants with one time."""
    active, state = timeline_and_ledger(table)
    found = [one for one in active.instants if one.time == time]
    outlooks = {one.time: one for one in pending_instants(table, active, state)}
    begun = outlooks.get(InstantTime(time))
    shown: dict[str, Any] = {
        "instant": time,
        "kinds": [_instant_fields(one) for one in found],
        "owner": None if begun is None else begun.owner,
        "fate": None if begun is None else begun.fate,
        "rolled_back_by": next(
            (one.instant for one in rollback_records(table, active) if time in one.metadata.commits), None
        ),
        "commit": None, "clean": None, "savepoint": None, "error": "",
        "pushes": [_public(one) for one in _pushes(site, visit, table) if one["instant"] == time],
    }  # fmt: skip
    if shown["rolled_back_by"] is not None:
        shown["rolled_back_by"] = shown["rolled_back_by"].time
    try:
        shown |= _contents(table, found, time)
    except HoldfastError as error:
        shown["error"] = public_text(error)
    return shown


def _instant_fields(one: Instant) -> dict[str, Any]:
    return {"action": one.action.value, "state": one.state.value, "completed_at": one.completed_at}


def _contents(table: OpenTable, found: Sequence[Instant], time: str) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for one in found:
        if not one.is_completed:
            continue
        if one.action in COMMIT_ACTIONS:
            shown["commit"] = commit_fields(table, time, one)
        elif one.action is Action.CLEAN:
            metadata = clean_record(table, time).metadata
            shown["clean"] = {
                "earliest": metadata.earliest, "deleted": metadata.deleted_count, "took_ms": metadata.took_ms,
            }  # fmt: skip
        elif one.action is Action.SAVEPOINT:
            shown["savepoint"] = next(
                (asdict(each) for each in savepoints(table) if each.instant == time), None
            )
    return shown


def commit_fields(table: OpenTable, time: str, instant: Instant) -> dict[str, Any]:
    """What a commit says of itself."""
    metadata = commit_record(table, time).metadata
    stats = [
        (partition, stat)
        for partition, some in sorted(metadata.partition_to_write_stats.items())
        for stat in some
    ]
    intake = decode_intake(metadata.extra_metadata)
    began_ms = _ms(InstantTime(time), timeline_zone(table))
    ended = instant.completed_at
    return {
        "operation": metadata.operation_type,
        "totals": asdict(totals(stat for _, stat in stats)),
        "partitions": sorted(metadata.partition_to_write_stats),
        "took_ms": None if ended is None else max(0, round(ended.timestamp() * 1000 - began_ms)),
        "sources": [] if intake is None else [file.uri for file in intake.sources()],
        "stream": None if intake is None or not intake.query else f"{intake.query}, batch {intake.batch}",
        "files": [
            {
                "partition": partition, "path": stat.path, "rows": stat.num_writes,
                "inserted": stat.num_inserts, "updated": stat.num_update_writes, "deleted": stat.num_deletes,
                "size_bytes": stat.file_size_in_bytes, "previous": stat.prev_commit,
            }
            for partition, stat in stats[:_FILES_LISTED]
        ],
        "files_of": len(stats),
        "said": {k: v for k, v in metadata.extra_metadata.items() if k != "schema" and v is not None},
    }  # fmt: skip


PAGES = (
    Page(method="GET", path="/console/table/{table}", name="table", handle=table_page),
    Page(method="GET", path="/console/table/{table}/timeline", name="timeline", handle=timeline),
)
