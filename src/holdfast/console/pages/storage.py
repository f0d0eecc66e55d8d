"""Storage: what takes the room, why each file stays or goes, and what another retention would free."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any

from holdfast.config.server import Role
from holdfast.config.write import WriteSettings
from holdfast.console.charts import draw_bars, draw_shares
from holdfast.console.site import Site
from holdfast.console.take_back import digest_of_plan
from holdfast.console.tasks import Progress
from holdfast.console.visits import Answer, Page, Redirect, View, Visit
from holdfast.model.reports import CleanPlan, FindingKind
from holdfast.services.clean.clean import execute_clean, plan_clean
from holdfast.services.clean.plan import explain_clean
from holdfast.services.clean.policy import Reason
from holdfast.services.documents import Bytes, Document
from holdfast.services.presentation import show_clean_report
from holdfast.services.verify.verify import verify
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

KINDS = {
    "latest": "the newest version of each file group",
    "retained": "older versions, within retention",
    "savepoint": "kept by savepoints",
    "lease": "kept by readers' leases",
    "pending": "kept for work that is not finished",
    "doomed": "the next clean deletes it",
    "orphan": "belongs to no commit",
}
_KIND_OF = {
    Reason.LATEST: "latest", Reason.WINDOW: "retained", Reason.WINDOW_START: "retained",
    Reason.VERSION_COUNT: "retained", Reason.SAVEPOINT: "savepoint", Reason.LEASE: "lease",
    Reason.PENDING_SERVICE: "pending", Reason.REPLACED: "doomed", Reason.SUPERSEDED: "doomed",
}  # fmt: skip
_COMMITS_MAX = 200
_LISTED = 300
_ORPHANS_UP_TO = 20_000
"""Files of a table in which orphans are looked for at each look at this page."""


def storage(site: Site, visit: Visit) -> Answer:
    table = site.open(visit.table)
    retained = visit.whole("retain", _settings(table).clean.commits_retained, 1, _COMMITS_MAX)
    settings = _with_retention(retained)
    plan = explain_clean(table, settings.clean)
    orphans = _orphans(table, plan)
    sizes = _sizes(plan, orphans)
    values: dict[str, Any] = {
        "retained": retained,
        "retained_most": max(retained, min(_COMMITS_MAX, len(load_timeline(table.store).completed_commits))),
        "sizes": [
            {"kind": kind, "about": about, "size_bytes": sizes[kind][0], "files": sizes[kind][1]}
            for kind, about in KINDS.items()
            if kind != "orphan" or orphans is not None
        ],
        "size_bytes": sum(size for size, _ in sizes.values()),
        "files": [*_file_rows(plan, "doomed"), *_file_rows(plan, "kept")][:_LISTED],
        "files_of": len(plan.doomed) + len(plan.kept),
        "forecast": [
            {"commits_retained": one.commits_retained, "files": one.files, "size_bytes": one.size_bytes}
            for one in plan.forecast
        ],
        "freed_bytes": plan.bytes_freed,
        "freed_files": len(plan.doomed),
        "earliest": plan.earliest_commit_to_retain,
        "lost_commits": _commits_lost(table, plan),
        "why_nothing": plan.why_nothing,
        "may": visit.may(Role.OPERATE),
        "command": _command(table, retained),
    }
    shares = [(kind, f"{KINDS[kind]}: {Bytes(size)}", size) for kind, (size, _) in sizes.items()]
    bars = draw_bars(
        [str(one.commits_retained) for one in plan.forecast],
        [float(one.size_bytes) for one in plan.forecast],
        label="Bytes freed by the number of commits retained",
    )
    return View(
        template="storage.html", part="parts/forecast.html", title=f"{visit.table}: storage", values=values,
        drawn={"shares": draw_shares(shares, label="What takes the room"), "bars": bars},
    )  # fmt: skip


def clean_plan(site: Site, visit: Visit) -> Answer:
    return _clean_page(site, visit, visit.query.get("retain", ""), "")


def clean(site: Site, visit: Visit) -> Answer:
    table = site.open(visit.table)
    text = visit.form.get("retain", "")
    settings = _with_retention(_whole(text, _settings(table).clean.commits_retained))
    plan = plan_clean(table, settings)
    if visit.form.get("confirm", "").strip() != visit.table:
        return _clean_page(site, visit, text, "Type the name of the table to confirm.", status=400)
    if visit.form.get("digest") != _digest(plan):
        return _clean_page(
            site, visit, text, "The table changed meanwhile, and nothing was done. This is the plan now.",
            status=409,
        )  # fmt: skip

    def run(progress: Progress) -> Document:
        return show_clean_report(execute_clean(table, plan, settings, progress=progress))

    task = site.tasks.start(
        f"Clean {visit.table}", table=visit.table, actor=visit.principal.name,
        command=_command(table, settings.clean.commits_retained), act=run,
    )  # fmt: skip
    return Redirect(f"/console/task/{task.id}")


def _clean_page(site: Site, visit: Visit, text: str, failure: str, *, status: int = 200) -> View:
    table = site.open(visit.table)
    retained = _whole(text, _settings(table).clean.commits_retained)
    plan = plan_clean(table, _with_retention(retained))
    values = {
        "retained": retained, "failure": failure, "may": visit.may(Role.OPERATE), "digest": _digest(plan),
        "command": _command(table, retained), "vanishing": list(plan.vanishing[:_LISTED]),
        "vanishing_of": len(plan.vanishing), "freed_bytes": plan.bytes_freed,
        "freed_files": len(plan.doomed), "earliest": plan.earliest_commit_to_retain,
        "lost_commits": _commits_lost(table, plan), "why_nothing": plan.why_nothing,
        "blocked_by": plan.hindrance,
    }  # fmt: skip
    return View(template="clean.html", title=f"{visit.table}: clean", values=values, status=status)


def _settings(table: OpenTable) -> WriteSettings:
    return WriteSettings.from_options({})


def _with_retention(commits: int) -> WriteSettings:
    return WriteSettings.from_options(_options(commits))


def _options(commits: int) -> Mapping[str, str]:
    # Archiving may not be tighter than cleaning, so it moves along.
    return {
        "hoodie.clean.commits.retained": str(commits),
        "hoodie.keep.min.commits": str(commits + 10),
        "hoodie.keep.max.commits": str(commits + 20),
    }


def _command(table: OpenTable, commits: int) -> str:
    path = shlex.quote(table.location.uri)
    return f"holdfast cleans run {path} --hoodie-conf hoodie.clean.commits.retained={commits}"


def _whole(text: str, default: int) -> int:
    return max(1, min(_COMMITS_MAX, int(text))) if text.strip().isdigit() else default


def _digest(plan: CleanPlan) -> str:
    return digest_of_plan("clean", sorted(plan.vanishing))


def _orphans(table: OpenTable, plan: CleanPlan) -> dict[str, int] | None:
    """Files that belong to no commit, with their sizes; None if the table is too large to look each time."""
    if len(plan.kept) + len(plan.doomed) > _ORPHANS_UP_TO:
        return None
    found = [one.path for one in verify(table).findings if one.kind is FindingKind.ORPHAN]
    stored = {path: table.store.stat(path) for path in found}
    return {path: 0 if stat is None else stat.size for path, stat in stored.items()}


def _sizes(plan: CleanPlan, orphans: Mapping[str, int] | None) -> dict[str, tuple[int, int]]:
    """Bytes and files of each kind."""
    sizes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for one in (*plan.kept, *plan.doomed):
        kind = _KIND_OF.get(Reason(one.reason), "retained")
        sizes[kind] += one.size
        files[kind] += 1
    for size in (orphans or {}).values():
        sizes["orphan"] += size
        files["orphan"] += 1
    return {kind: (sizes[kind], files[kind]) for kind in KINDS}


def _file_rows(plan: CleanPlan, fate: str) -> list[dict[str, Any]]:
    files = plan.doomed if fate == "doomed" else plan.kept
    return [
        {"path": one.path, "size_bytes": one.size, "reason": one.reason, "fate": fate,
         "kind": _KIND_OF.get(Reason(one.reason), "retained")}
        for one in files
    ]  # fmt: skip


def _commits_lost(table: OpenTable, plan: CleanPlan) -> int:
    """Commits on the timeline that could not be read any more."""
    earliest = plan.earliest_commit_to_retain
    if earliest is None:
        return 0
    return sum(one.time < earliest for one in load_timeline(table.store).completed_commits)


PAGES = (
    Page(method="GET", path="/console/table/{table}/storage", name="storage", handle=storage),
    Page(method="GET", path="/console/table/{table}/clean", name="storage_clean", handle=clean_plan),
    Page(
        method="POST", path="/console/table/{table}/clean", name="clean", handle=clean, role=Role.OPERATE
    ),
)  # fmt: skip
