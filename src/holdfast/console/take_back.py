"""What taking something back would do, as a page shows it, and doing exactly that.

A plan has a digest. The form that confirms it carries the digest, and what
stands then must have the same; else nothing is done, and the new plan is shown.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from holdfast.console.site import Site
from holdfast.console.tasks import Progress
from holdfast.console.visits import Visit
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.model.instant import InstantTime
from holdfast.model.pushes import source_text
from holdfast.model.reports import RestorePlan, TakenBack
from holdfast.push.calls import PublishResult, RollbackTarget
from holdfast.push.replacement.snapshots import Snapshot, snapshots
from holdfast.push.state.table_state import TableState
from holdfast.read.comparison import Comparison, compare_snapshots
from holdfast.read.savepoints import commit_of_savepoint
from holdfast.server.errors import public_text
from holdfast.services.documents import Document, Line, Warned, quantity
from holdfast.services.presentation import (
    show_recovery_plan,
    show_restore_plan,
    show_restore_report,
    show_rollback,
    show_rollbacks,
    show_taken_back,
)
from holdfast.services.pushes import push_records
from holdfast.services.rehearsals import Rehearsed, rehearse
from holdfast.services.restore.restore import execute_restore, rehearse_restore
from holdfast.services.rollback.plan import plan_rollback_of, plan_undo
from holdfast.services.rollback.recovery import execute_recovery, plan_recovery
from holdfast.services.rollback.rollback import roll_back_failed_writes
from holdfast.services.rollback.undo import execute_rollback, roll_back_instant
from holdfast.services.targets import exact_instant
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

_FILES_LISTED = 100
_BROKERS_WITHIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One action on a table, before it is done."""

    act: str
    table: str
    title: str
    command: str
    digest: str
    does_something: bool
    run: Callable[[Progress], Document]
    blocked_by: str = ""
    now: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    after: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    emptied: tuple[str, ...] = ()
    empties_all: bool = False
    vanishing: tuple[str, ...] = ()
    follows: tuple[Mapping[str, Any], ...] = ()
    """Pushes that show what is taken back."""
    redo: str = ""
    """What can be had again, and until when."""
    rows: Mapping[str, Any] | None = None
    why_no_rows: str = ""
    shown: Document = field(default_factory=Document)

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "act": self.act, "table": self.table, "title": self.title, "command": self.command,
            "digest": self.digest, "does_something": self.does_something, "blocked_by": self.blocked_by,
            "now": dict(self.now), "after": dict(self.after), "emptied": list(self.emptied),
            "empties_all": self.empties_all, "vanishing": list(self.vanishing[:_FILES_LISTED]),
            "vanishing_of": len(self.vanishing), "follows": [dict(one) for one in self.follows],
            "redo": self.redo, "rows": self.rows, "why_no_rows": self.why_no_rows,
            "planned": self.shown.fields.get("planned"),
        }  # fmt: skip


def make_plan(site: Site, visit: Visit, act: str, to: str) -> Plan:
    """The plan of an action; what the service refuses is raised."""
    makers: Mapping[str, Callable[[Site, Visit, str], Plan]] = {
        "undo": _plan_undo,
        "restore": _plan_restore,
        "rollback": _plan_rollback,
        "recover": _plan_recovery,
        "revert": _plan_revert,
        "push_rollback": _plan_push_rollback,
        "redo": _plan_redo,
    }
    maker = makers.get(act)
    if maker is None:
        raise InvalidRequest("there is no such action", act=act[:40], known=", ".join(makers))
    return maker(site, visit, to)


def _plan_undo(site: Site, visit: Visit, _to: str) -> Plan:
    table = site.open(visit.table)
    return _plan_taking_back(
        visit, table, plan_undo(table), act="undo", command=f"holdfast undo {_path(table)}"
    )


def _plan_rollback(site: Site, visit: Visit, to: str) -> Plan:
    table = site.open(visit.table)
    instant = exact_instant(table, to)
    command = f"holdfast commits rollback {_path(table)} --commit {instant}"
    return _plan_taking_back(visit, table, plan_rollback_of(table, instant), act="rollback", command=command)


def _plan_taking_back(visit: Visit, table: OpenTable, plan: TakenBack, *, act: str, command: str) -> Plan:
    rehearsed = rehearse(table, lambda one: roll_back_instant(one, plan.instant))
    older = [one.time for one in load_timeline(table.store).completed_commits if one.time < plan.instant]
    target = (older[-1] if older else InstantTime("")) if plan.is_committed else None
    compared = compare_snapshots(table, None, target)
    word = "Take back" if plan.is_committed else "Roll back"

    def run(_progress: Progress) -> Document:
        report = execute_rollback(table, plan)
        return show_rollback(report) + _prove(table, compared)

    return _lake_plan(
        visit, table, compared, act=act, title=f"{word} {plan.action} {plan.instant}", command=command,
        removing=[plan.instant], vanishing=rehearsed.vanishing, blocked_by=rehearsed.blocked_by,
        shown=show_taken_back(plan), run=run,
    )  # fmt: skip


def _plan_restore(site: Site, visit: Visit, to: str) -> Plan:
    table = site.open(visit.table)
    if not to.strip():
        raise InvalidRequest("to which commit?", parameter="to", hint="choose one, or give a date and time")
    plan: RestorePlan = rehearse_restore(table, commit_of_savepoint(table, to))
    compared = compare_snapshots(table, None, plan.target)

    def run(_progress: Progress) -> Document:
        report = execute_restore(table, plan)
        return show_restore_report(report) + _prove(table, compared)

    return _lake_plan(
        visit, table, compared, act="restore", title=f"Restore the table to {plan.target}",
        command=f"holdfast restore {_path(table)} --to {plan.target}",
        removing=[one.instant for one in plan.instants], vanishing=plan.vanishing,
        blocked_by=plan.hindrance, run=run,
        # Its files and what stands in its way have places of their own on the page.
        shown=show_restore_plan(replace(plan, vanishing=(), hindrance="")),
        does_something=bool(plan.instants or plan.resumes),
    )  # fmt: skip


def _plan_recovery(site: Site, visit: Visit, _to: str) -> Plan:
    table = site.open(visit.table)
    plan = plan_recovery(table)
    rehearsed: Rehearsed[Any] = rehearse(table, roll_back_failed_writes)
    compared = compare_snapshots(table, None, None)

    def run(_progress: Progress) -> Document:
        return show_rollbacks(execute_recovery(table, plan))

    return _lake_plan(
        visit, table, compared, act="recover",
        title=f"Roll back {quantity(len(plan.doomed), 'failed write')}",
        command=f"holdfast rollbacks run {_path(table)}", removing=[], vanishing=rehearsed.vanishing,
        blocked_by=rehearsed.blocked_by, shown=show_recovery_plan(plan), run=run,
        does_something=bool(plan.doomed or plan.unpublished),
    )  # fmt: skip


def _lake_plan(
    visit: Visit,
    table: OpenTable,
    compared: Comparison,
    *,
    act: str,
    title: str,
    command: str,
    removing: Collection[InstantTime],
    vanishing: tuple[str, ...],
    blocked_by: str,
    shown: Document,
    run: Callable[[Progress], Document],
    does_something: bool = True,
) -> Plan:
    follows = tuple(
        {"table": push.table, "entry": push.entry_id, "instant": push.instant, "controller": push.controller}
        for push in push_records(table).pushes
        if push.instant in removing
    )
    return Plan(
        act=act, table=visit.table, title=title, command=command,
        digest=digest_of_plan(act, title, sorted(vanishing), sorted(removing)),
        does_something=does_something, run=run, blocked_by=blocked_by,
        now=_side_fields(compared.before), after=_side_fields(compared.after), emptied=compared.emptied,
        empties_all=bool(compared.before.files) and not compared.after.files, vanishing=vanishing,
        follows=follows, rows=None if compared.rows is None else asdict(compared.rows),
        why_no_rows=compared.why_no_rows, shown=shown,
        redo="Nothing brings it back: the files of what is taken back are deleted. Write the rows again.",
    )  # fmt: skip


def _side_fields(side: Any) -> dict[str, Any]:
    return {
        "instant": side.instant, "rows": side.rows, "files": side.files, "size_bytes": side.size_bytes,
        "partitions": len(side.partitions),
    }  # fmt: skip


def _prove(table: OpenTable, planned: Comparison) -> Document:
    """Whether the table shows the files now that the plan named."""
    now = compare_snapshots(table, None, None, sample=0)
    if now.paths_after == planned.paths_after:
        files = quantity(now.after.files, "file")
        return Document((Line(f"proven: queries see the {files} that the plan named, and no other"),))
    return Document((Warned("queries see other files than planned: somebody has written since"),))


def _plan_revert(site: Site, visit: Visit, to: str) -> Plan:
    def call(table: str, *, dry_run: bool) -> PublishResult:
        return site.service().controller.revert_replace(
            table, to, force=False, brokers_within_ms=_BROKERS_WITHIN_MS, dry_run=dry_run,
            by=site.caller(visit),
        )  # fmt: skip

    return _push_plan(
        site,
        visit,
        "revert",
        f"Revert push {to}",
        f"holdfast push revert {visit.table} --entry {shlex.quote(to)} --controller {_controller(site)}",
        call,
    )


def _plan_redo(site: Site, visit: Visit, to: str) -> Plan:
    def call(table: str, *, dry_run: bool) -> PublishResult:
        return site.service().controller.redo(
            table, to, brokers_within_ms=_BROKERS_WITHIN_MS, dry_run=dry_run, by=site.caller(visit)
        )

    command = f"holdfast push redo {visit.table} --entry {shlex.quote(to)} --controller {_controller(site)}"
    return _push_plan(site, visit, "redo", f"Redo push {to}", command, call)


def _plan_push_rollback(site: Site, visit: Visit, to: str) -> Plan:
    if not to.isdigit():
        raise InvalidRequest("an epoch is a whole number", parameter="to")
    state = site.service().controller.views.state(site.push_table(visit.table))
    # A push that is published meanwhile is not to be taken back with those that were shown.
    newest = state.completed_entries[-1].id if state.completed_entries else None
    target = RollbackTarget(epoch=int(to), newest=newest)

    def call(table: str, *, dry_run: bool) -> PublishResult:
        return site.service().controller.rollback(
            table, target, brokers_within_ms=_BROKERS_WITHIN_MS, dry_run=dry_run, by=site.caller(visit)
        )

    return _push_plan(
        site, visit, "push_rollback", f"Go back to the snapshot of epoch {to}",
        f"curl -X POST '{_controller(site)}/segments/{visit.table}/rollback?type=OFFLINE&toEpoch={to}'", call,
    )  # fmt: skip


def _push_plan(
    site: Site, visit: Visit, act: str, title: str, command: str, call: Callable[..., PublishResult]
) -> Plan:
    table = site.push_table(visit.table)
    views = site.service().controller.views
    state = views.state(table)
    planned, blocked_by = None, ""
    try:
        planned = call(table, dry_run=True)
    except HoldfastError as error:
        blocked_by = public_text(error)
    shown = () if planned is None else planned.changes.shown
    hidden = () if planned is None else (*planned.changes.hidden, *planned.changes.removed)
    after = (state.visible | frozenset(shown)) - frozenset(hidden)

    def run(_progress: Progress) -> Document:
        # The plan of the moment in which the form came is what was confirmed; the controller decides
        # against the state that it finds, and refuses what the rules forbid.
        done = call(table, dry_run=False)
        now = views.state(table).visible
        word = "proven: queries see the segments that the plan named, and no other"
        proof = Line(word) if now == after else Warned("queries see other segments than planned")
        late = [name for name, epoch in done.brokers.items() if epoch < done.epoch]
        told = [Warned(f"has not switched yet: {name}") for name in late]
        return Document((Line(f"{title}: epoch {done.epoch}"), proof, *told), {"epoch": done.epoch})

    known = views.segments(table)
    return Plan(
        act=act, table=visit.table, title=title,
        command=command,
        digest=digest_of_plan(act, title, state.push.epoch, sorted(after)),
        does_something=planned is not None and not planned.already, run=run, blocked_by=blocked_by,
        now=_segment_fields(known, state.visible, state.push.epoch),
        after=_segment_fields(known, after, None),
        empties_all=planned is not None and planned.empties, vanishing=tuple(sorted(hidden)),
        redo=redo_text(state),
        shown=Document((), {"planned": {"shown": list(shown), "hidden": list(hidden)}}),
    )  # fmt: skip


def _segment_fields(known: Mapping[str, Any], names: Collection[str], epoch: int | None) -> dict[str, Any]:
    some = [known[name] for name in names if name in known]
    return {
        "instant": None if epoch is None else f"epoch {epoch}",
        "rows": sum(one.docs for one in some),
        "files": len(names),
        "size_bytes": sum(one.size_bytes for one in some),
        "partitions": None,
    }


def redo_text(state: TableState) -> str:
    """What of a served table can be had again."""
    found: Sequence[Snapshot] = snapshots(state)
    kept = max(0, len(found) - 1)
    return (
        f"It can be had again: {quantity(kept, 'other snapshot')} kept, at most "
        f"{state.config.retained_snapshots} by the table's retention; a pin keeps one longer."
    )


def choices(site: Site, visit: Visit) -> dict[str, Any]:
    """What there is to take back."""
    found: dict[str, Any] = {"lake": None, "served": None}
    kinds = list(site.kinds(visit.table))
    if "lake" in kinds:
        table = site.open(visit.table)
        commits = load_timeline(table.store).completed_commits
        found["lake"] = {
            "newest": commits[-1].time if commits else None,
            "commits": [
                {"instant": one.time, "action": one.action.value, "completed_at": one.completed_at}
                for one in reversed(commits[-50:])
            ],
            "commits_of": len(commits),
        }
    if "served" in kinds:
        state = site.service().controller.views.state(site.push_table(visit.table))
        found["served"] = {
            "snapshots": [
                {
                    "epoch": one.epoch, "entry": one.entry_id, "position": one.position,
                    "published_at_ms": one.published_at_ms, "source_text": source_text(one.source),
                    "segments": len(one.segments), "is_current": one.is_current,
                }
                for one in snapshots(state)
            ],
        }  # fmt: skip
    return found


def _controller(site: Site) -> str:
    listener = site.service().settings.controller
    scheme = "https" if site.service().settings.has_tls else "http"
    return f"{scheme}://{listener.host}:{listener.port}"


def _path(table: OpenTable) -> str:
    return shlex.quote(table.location.uri)


def digest_of_plan(*parts: object) -> str:
    """What tells one plan from another."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
