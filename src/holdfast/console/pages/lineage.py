"""Lineage: from source files through commits and pushes to the segments that queries read, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from holdfast.console.charts import draw_chains
from holdfast.console.site import Site
from holdfast.console.visits import Answer, Page, View, Visit
from holdfast.errors import HoldfastError
from holdfast.format.malformed import Malformed
from holdfast.jobs.ingested import decode_intake
from holdfast.model.lineage import EntryState
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE
from holdfast.read.history import commit_records
from holdfast.server.table_names import raw_name
from holdfast.services.pushes import push_records
from holdfast.table.opened import OpenTable

_COMMITS = 12
_FILES_OF_A_COMMIT = 6
_SEGMENTS_OF_A_PUSH = 6
_STATES = {
    EntryState.COMPLETED: "completed", EntryState.IN_PROGRESS: "pending", EntryState.REVERTED: "undone",
}  # fmt: skip


def lineage(site: Site, visit: Visit) -> Answer:
    table = site.open(visit.table)
    limit = visit.whole("commits", _COMMITS, 1, 100)
    commits, sources, links = _commits(table, visit.table, limit)
    known = {one["id"] for one in commits}
    pushes: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    for push, its_segments in _pushes(site, visit, table):
        if push["instant"] in known:
            pushes.append(push)
            links.append((push["instant"], push["id"]))
        for segment in its_segments if push["instant"] in known else ():
            segments.append(segment)
            links.append((push["id"], segment["id"]))
    values = {
        "sources": sources, "commits": commits, "pushes": pushes, "segments": segments,
        "links": [list(link) for link in links], "limit": limit,
    }  # fmt: skip
    columns = [("source files", sources), ("commits", commits), ("pushes", pushes), ("segments", segments)]
    return View(
        template="lineage.html", title=f"{visit.table}: lineage", values=values,
        drawn={"chart": draw_chains(columns, links)},
    )  # fmt: skip


def _commits(
    table: OpenTable, name: str, limit: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[str, str]]]:
    commits: list[dict[str, Any]] = []
    sources: dict[str, dict[str, Any]] = {}
    links: list[tuple[str, str]] = []
    for number, record in enumerate(commit_records(table, limit=limit)):
        time = record.instant.time
        commits.append(
            {
                "id": time, "name": time, "detail": record.metadata.operation_type or record.instant.action,
                "state": "current" if number == 0 else "completed",
                "href": f"/console/table/{quote(name)}/timeline?instant={time}#details",
            }
        )  # fmt: skip
        try:
            intake = decode_intake(record.metadata.extra_metadata)
        except Malformed:
            continue  # The timeline shows what the commit says; verify names what is wrong.
        if intake is None:
            continue
        if intake.query:
            source = f"stream {intake.query}"
            sources.setdefault(source, _source(source, source, f"batch {intake.batch}"))
            links.append((source, time))
        files = list(intake.sources())
        for file in files[:_FILES_OF_A_COMMIT]:
            sources.setdefault(file.uri, _source(file.uri, file.uri.rpartition("/")[2], f"{file.size} bytes"))
            links.append((file.uri, time))
        if len(files) > _FILES_OF_A_COMMIT:
            more = f"more of {time}"
            sources[more] = _source(more, f"{len(files) - _FILES_OF_A_COMMIT} more files", intake.folder)
            links.append((more, time))
    return commits, list(sources.values()), links


def _source(key: str, name: str, detail: str) -> dict[str, Any]:
    return {"id": key, "name": name, "detail": detail, "state": "completed", "href": None}


def _pushes(
    site: Site, visit: Visit, table: OpenTable
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    if site.push is None:
        for push in push_records(table).pushes:
            yield {
                "id": push.entry_id, "name": raw_name(push.table), "instant": push.instant,
                "detail": f"{push.segments} segments, as recorded", "state": "completed", "href": None,
            }, []  # fmt: skip
        return
    for typed in site.push_tables(visit.principal):
        try:
            state = site.push.controller.views.state(typed)
        except HoldfastError:
            continue  # The overview says what is wrong with it.
        for entry in state.lineage.entries:
            source = state.details_of(entry.id).source
            if source.get(LAKE_TABLE) != table.location.uri:
                continue
            href = f"/console/table/{quote(raw_name(typed))}/pushes#{quote(entry.id)}"
            shown = [name for name in entry.segments_to if name in state.visible]
            word = "seen by queries" if shown else entry.state.value.lower().replace("_", " ")
            shown_push: dict[str, Any] = {
                "id": entry.id, "name": raw_name(typed), "instant": source.get(LAKE_INSTANT, ""),
                "detail": word, "state": "current" if shown else _STATES[entry.state], "href": href,
            }  # fmt: skip
            yield shown_push, [
                {
                    "id": f"{typed}/{name}", "name": name, "href": href,
                    "detail": "seen by queries" if name in state.visible else "hidden",
                    "state": "current" if name in state.visible else "undone",
                }
                for name in entry.segments_to[:_SEGMENTS_OF_A_PUSH]
                if name in state.segments
            ]  # fmt: skip


PAGES = (Page(method="GET", path="/console/table/{table}/lineage", name="lineage", handle=lineage),)
