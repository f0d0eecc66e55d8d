"""Care: what is wrong with a table and how it is mended; heartbeats, leases, the lock, the audit, metrics."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from holdfast.concurrency.heartbeats import heartbeats
from holdfast.config.server import Role
from holdfast.console.site import Site
from holdfast.console.take_back import digest_of_plan
from holdfast.console.tasks import Progress
from holdfast.console.visits import Answer, Page, Redirect, View, Visit
from holdfast.errors import TableNotFound
from holdfast.model.reports import Finding, Severity, VerifyReport
from holdfast.services.documents import Document
from holdfast.services.leases import readable_leases
from holdfast.services.presentation import show_repair_plan, show_repair_report
from holdfast.services.repair.plan import RepairPlan, plan_repair
from holdfast.services.repair.repair import repair
from holdfast.services.status import pending_instants
from holdfast.services.verify.verify import verify
from holdfast.table.opened import OpenTable
from holdfast.table.stable_read import timeline_and_ledger

_KINDS = {Severity.INFO: "idle", Severity.WARNING: "attention", Severity.DAMAGE: "wrong"}
_AUDIT = 50
_LINES = 400


def care(site: Site, visit: Visit) -> Answer:
    return _page(site, visit, "")


def mend(site: Site, visit: Visit) -> Answer:
    table = site.open(visit.table)
    report = verify(table)
    plan = plan_repair(report.findings)
    if visit.form.get("confirm", "").strip() != visit.table:
        return _page(site, visit, "Type the name of the table to confirm.", status=400)
    if visit.form.get("digest") != _digest(plan):
        return _page(
            site,
            visit,
            "The table changed meanwhile, and nothing was done. This is the plan now.",
            status=409,
        )

    def run(_progress: Progress) -> Document:
        return show_repair_report(repair(table, report))

    task = site.tasks.start(
        f"Repair {visit.table}", table=visit.table, actor=visit.principal.name,
        command=f"holdfast repair {shlex.quote(table.location.uri)}", act=run,
    )  # fmt: skip
    return Redirect(f"/console/task/{task.id}")


def _page(site: Site, visit: Visit, failure: str, *, status: int = 200) -> View:
    kinds = list(site.kinds(visit.table))
    if not kinds:
        raise TableNotFound("no table has this name", table=visit.table)
    lake, blocks = _lake(site, visit) if "lake" in kinds else (None, ())
    values = {
        "failure": failure,
        "lake": lake,
        "served": _push_side(site, visit) if "served" in kinds else None,
        "metrics": _metrics(site, visit),
        "may": visit.may(Role.OPERATE),
    }
    return View(
        template="care.html", title=f"{visit.table}: care", values=values, status=status,
        drawn={"blocks": blocks},
    )  # fmt: skip


def _lake(site: Site, visit: Visit) -> tuple[dict[str, Any], Sequence[Any]]:
    table = site.open(visit.table)
    report: VerifyReport = verify(table)
    plan = plan_repair(report.findings)
    active, state = timeline_and_ledger(table)
    held, torn = readable_leases(table)
    return {
        "is_clean": report.is_clean,
        "files_checked": report.files_checked,
        "findings": [_finding(one) for one in report.findings],
        "repairs": bool(plan.moved or plan.finished or plan.taken_back),
        "digest": _digest(plan),
        "command": f"holdfast repair {shlex.quote(table.location.uri)}",
        "heartbeats": [
            {
                "instant": one.instant, "owner": None if one.owner is None else str(one.owner),
                "state": one.state.value, "age_ms": one.age_ms,
            }
            for one in heartbeats(table)
        ],
        "pending": [
            {"instant": one.time, "action": one.action.value, "owner": one.owner, "fate": one.fate}
            for one in pending_instants(table, active, state)
        ],
        "leases": [asdict(one) for one in held],
        "torn_leases": len(torn),
        "lock": _lock(table),
    }, show_repair_plan(plan).blocks  # fmt: skip


def _lock(table: OpenTable) -> dict[str, Any]:
    """Who holds the right to act on the table, as far as its files tell."""
    state = table.ledger.read()
    alone = [
        {"instant": time, "owner": str(begun.owner)}
        for time, begun in state.begun.items()
        if not begun.shared
    ]
    return {"alone": alone, "is_free": not alone}


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "severity": one.severity.value, "kind": one.kind.value, "state": _KINDS[one.severity],
        "path": one.path, "detail": one.detail, "remedy": one.remedy,
    }  # fmt: skip


def _push_side(site: Site, visit: Visit) -> dict[str, Any]:
    service, table = site.service(), site.push_table(visit.table)
    found = service.controller.upkeep.doctor(table, fix=False, by=site.caller(visit))
    return {
        "findings": [asdict(one) for one in found],
        "audit": [msgspec.to_builtins(one) for one in service.controller.views.audit(table, limit=_AUDIT)],
        "brokers": {
            name: {"epoch": one.epoch, "applied": one.applied}
            for name, one in service.catalog.broker_epochs(table).items()
        },
    }


def _metrics(site: Site, visit: Visit) -> list[dict[str, str]]:
    """The figures of the service that are about this table, or about no table."""
    if site.push is None:
        return []
    mine = f'table="{visit.table}"'
    lines = [line for line in site.push.metrics.text().splitlines() if line and not line.startswith("#")]
    chosen = [line for line in lines if mine in line or 'table="' not in line]
    pairs = (line.rpartition(" ") for line in chosen if "_bucket{" not in line and "_created" not in line)
    return [{"name": name, "value": value} for name, _, value in pairs][:_LINES]


def _digest(plan: RepairPlan) -> str:
    findings = (*plan.moved, *plan.finished, *plan.taken_back)
    return digest_of_plan("repair", sorted((one.kind.value, one.path) for one in findings))


PAGES = (
    Page(method="GET", path="/console/table/{table}/care", name="care", handle=care),
    Page(method="POST", path="/console/table/{table}/care", name="mend", handle=mend, role=Role.OPERATE),
)
