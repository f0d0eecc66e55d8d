"""Queries: SQL over a snapshot, as a table, as a simple chart and as CSV; and two snapshots compared."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from holdfast.console.charts import draw_bars
from holdfast.console.lake_queries import DOWNLOAD_ROWS_MAX, ROWS_MAX, Rows, one_of_few, run_query
from holdfast.console.rendering import cell_text
from holdfast.console.site import Site
from holdfast.console.visits import Answer, File, Page, View, Visit
from holdfast.errors import HoldfastError, InvalidRequest, TableNotFound
from holdfast.read.comparison import compare_snapshots
from holdfast.read.savepoints import commit_of_savepoint
from holdfast.server.errors import public_text, status_of
from holdfast.services.targets import commit_at
from holdfast.timeline.timeline import load_timeline

_BARS = 60
_COMMITS = 100
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would take for a formula, at the beginning of a text."""


def query(site: Site, visit: Visit) -> Answer:
    kinds = list(site.kinds(visit.table))
    if not kinds:
        raise TableNotFound("no table has this name", table=visit.table)
    kind = visit.query.get("of", "") if visit.query.get("of") in kinds else kinds[0]
    sql = visit.query.get("sql", "")
    as_of = visit.query.get("as_of", "").strip()
    is_download = visit.query.get("format") == "csv"
    found, failure, status = None, "", 200
    if sql.strip():
        try:
            most = DOWNLOAD_ROWS_MAX if is_download else ROWS_MAX
            found = _run(site, visit, kind, sql, as_of, most)
        except HoldfastError as error:
            failure, status = public_text(error), status_of(error, is_precise=True)
    if is_download and found is not None:
        return File(_csv(found), "text/csv; charset=utf-8", name=f"{visit.table}.csv")
    values = {
        "of": kind,
        "kinds_of": kinds,
        "sql": sql or f'SELECT *\nFROM "{visit.table}"\nLIMIT 50',
        "as_of": as_of,
        "commits": _commits(site, visit) if kind == "lake" else [],
        "columns": [] if found is None else list(found.columns),
        "rows": [] if found is None else [list(row) for row in found.rows],
        "is_cut": found is not None and found.is_cut,
        "is_run": found is not None,
        "failure": failure,
    }
    chart = None if found is None else _chart(found)
    return View(
        template="query.html", title=f"{visit.table}: query", values=values, status=status,
        drawn={"chart": chart, "link": _download_link(visit)},
    )  # fmt: skip


def compare(site: Site, visit: Visit) -> Answer:
    table = site.open(visit.table)
    commits = _commits(site, visit)
    first, second = visit.query.get("before", "").strip(), visit.query.get("after", "").strip()
    compared, failure, status = None, "", 200
    if first:
        try:
            timeline = load_timeline(table.store)
            times = [
                commit_at(table, timeline, commit_of_savepoint(table, each)).time if each else None
                for each in (first, second)
            ]
            with one_of_few():
                compared = compare_snapshots(table, times[0], times[1], sample=20)
        except HoldfastError as error:
            failure, status = public_text(error), status_of(error, is_precise=True)
    values: dict[str, Any] = {
        "commits": commits, "before": first, "after": second, "failure": failure,
        "compared": None if compared is None else {
            "before": asdict(compared.before), "after": asdict(compared.after),
            "files_left": compared.files_left, "emptied": list(compared.emptied),
            "rows": None if compared.rows is None else asdict(compared.rows),
            "why_no_rows": compared.why_no_rows,
        },
    }  # fmt: skip
    return View(template="compare.html", title=f"{visit.table}: compare", values=values, status=status)


def _run(site: Site, visit: Visit, kind: str, sql: str, as_of: str, most: int) -> Rows:
    if kind == "lake":
        table = site.open(visit.table)
        moment = commit_of_savepoint(table, as_of) if as_of else None
        return run_query(table, sql, name=visit.table, as_of=moment, most=most)
    if as_of:
        raise InvalidRequest(
            "queries of served tables see what is published", hint="take the lake table for the past"
        )
    answer = site.service().broker.answer(sql, {}, visit.principal, request_id=visit.request_id)
    exceptions = answer.get("exceptions") or []
    if exceptions:
        raise InvalidRequest(
            str(exceptions[0].get("message")), code=str(exceptions[0].get("errorCode")),
        )  # fmt: skip
    result = answer.get("resultTable") or {"dataSchema": {"columnNames": []}, "rows": []}
    rows: Sequence[Sequence[Any]] = result["rows"]
    return Rows(tuple(result["dataSchema"]["columnNames"]), tuple(map(tuple, rows[:most])), len(rows) > most)


def _commits(site: Site, visit: Visit) -> list[dict[str, Any]]:
    if visit.table not in site.tables:
        return []
    newest = load_timeline(site.open(visit.table).store).completed_commits[-_COMMITS:]
    return [{"instant": one.time, "action": one.action.value} for one in reversed(newest)]


def _chart(found: Rows) -> Markup | None:
    """Bars of the first column of numbers, named by the first other one; None if there are no numbers."""
    some = found.rows[:_BARS]
    if len(some) < 2:
        return None
    numeric = [
        at
        for at in range(len(found.columns))
        if all(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in some)
    ]
    if not numeric:
        return None
    named = next((at for at in range(len(found.columns)) if at not in numeric), 0)
    value = next((at for at in numeric if at != named), numeric[0])
    return draw_bars(
        [cell_text(row[named]) for row in some], [float(row[value]) for row in some],
        label=f"{found.columns[value]} by {found.columns[named]}, {len(some)} rows",
    )  # fmt: skip


def _csv(found: Rows) -> bytes:
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(map(_safe_cell, found.columns))
    writer.writerows([_safe_cell(value) for value in row] for row in found.rows)
    return sink.getvalue().encode(errors="replace")


def _safe_cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def _download_link(visit: Visit) -> str:
    return "?" + urlencode({**{k: v for k, v in visit.query.items() if k != "format"}, "format": "csv"})


PAGES = (
    Page(method="GET", path="/console/table/{table}/query", name="query", handle=query),
    Page(method="GET", path="/console/table/{table}/compare", name="query_compare", handle=compare),
)
