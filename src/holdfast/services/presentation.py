"""How plans, reports and states are shown, on a terminal, to programs or on a page: a document for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from holdfast.config.table import TableSettings
from holdfast.model.instant import COMMIT_ACTIONS, Instant
from holdfast.model.names import META_FOLDER
from holdfast.model.pushes import Fate
from holdfast.model.reports import (
    ArchiveReport,
    CleanFile,
    CleanPlan,
    CleanReport,
    DropPlan,
    DropReport,
    Finding,
    RepairReport,
    RestorePlan,
    RestoreReport,
    RollbackReport,
    Savepoint,
    Severity,
    TakenBack,
    VerifyReport,
)
from holdfast.services.documents import Block, Bytes, Document, Facts, Line, Rows, Warned, iso, quantity

if TYPE_CHECKING:
    from holdfast.model.pushes import Push
    from holdfast.services.archive.plan import ArchivePlan
    from holdfast.services.leases import LeaseStatus
    from holdfast.services.rehearsals import Rehearsed
    from holdfast.services.repair.plan import RepairPlan
    from holdfast.services.rollback.failed_writes import FailedWrite
    from holdfast.services.rollback.recovery import RecoveryPlan
    from holdfast.services.status import PendingInstant, TableStatus
    from holdfast.table.opened import OpenTable

_SHOWN = 20
"""Files in a list for people; programs get all of them."""
_ALL = "--json lists all"


def show_vanishing(rehearsed: Rehearsed[object] | None, *, leave_out: Iterable[str] = ()) -> Document:
    """What would be gone, or why the command would be refused now; nothing if it was not asked."""
    if rehearsed is None:
        return Document(fields={"vanishing": None, "hindrance": ""})
    others = [path for path in rehearsed.vanishing if path not in set(leave_out)]
    fields = {"vanishing": rehearsed.vanishing, "hindrance": rehearsed.blocked_by}
    return Document(tuple(_vanishing(others, blocked_by=rehearsed.blocked_by)), fields)


def show_clean_plan(plan: CleanPlan | None, *, is_explained: bool) -> Document:
    if plan is None:
        return Document(fields={"planned": None})
    fields = {"planned": asdict(plan) | {"bytes_freed": plan.bytes_freed}}
    return Document(tuple(_clean_plan(plan, is_explained=is_explained)), fields)


def _clean_plan(plan: CleanPlan, *, is_explained: bool) -> Iterator[Block]:
    if plan.why_nothing:
        yield Line(f"nothing to clean: {plan.why_nothing}")
    if plan.earliest_commit_to_retain is not None:
        yield Line(f"earliest commit that stays readable: {plan.earliest_commit_to_retain}")
    if is_explained:
        rows = [*_clean_files(plan.doomed, "deleted"), *_clean_files(plan.kept, "kept")]
        yield Rows(("File", "Size", "Fate", "Reason"), rows)
    else:
        yield from _vanishing([file.path for file in plan.doomed], and_more="--explain lists all")
    yield Line(f"to be deleted in all: {quantity(len(plan.doomed), 'file')}, {Bytes(plan.bytes_freed)}")
    doomed = {file.path for file in plan.doomed}
    others = [path for path in plan.vanishing if path not in doomed]
    if others:
        yield Line(f"and {quantity(len(others), 'file')} of what the table keeps beside, or a dead run left:")
        yield from _vanishing(others)
    if is_explained:
        yield Line("with other numbers of commits retained:")
        forecasts = [(one.commits_retained, one.files, Bytes(one.size_bytes)) for one in plan.forecast]
        yield Rows(("Commits Retained", "Files", "Size"), forecasts)


def _clean_files(files: Sequence[CleanFile], fate: str) -> list[tuple[object, ...]]:
    return [(file.path, Bytes(file.size), fate, file.reason) for file in files]


def show_clean_report(report: CleanReport | None) -> Document:
    if report is None:
        return Document(fields={"cleaned": None})
    return Document(tuple(_clean_report(report)), {"cleaned": asdict(report)})


def _clean_report(report: CleanReport) -> Iterator[Block]:
    if report.instant is None:
        yield Line(f"nothing to clean: {report.why_nothing}")
        return
    for one in (*report.resumed, report):
        if one.metadata_table:
            files = quantity(len(one.metadata_table), "file")
            yield Line(f"dropped Hudi's metadata table, which would list what is gone: {files}")
        files = quantity(len(one.deleted), "file")
        yield Line(f"cleaned with {one.instant}: {files} deleted, {Bytes(one.bytes_freed)} freed")
        for path in one.failed:
            yield Line(f"not deleted, the next clean tries again: {path}")


def show_taken_back(planned: TakenBack) -> Document:
    return Document((_rows_of_instants([planned]),), {"planned": asdict(planned)})


def show_restore_plan(plan: RestorePlan) -> Document:
    fields = {"planned": asdict(plan) | {"files": plan.files, "size_bytes": plan.size_bytes}}
    return Document(tuple(_restore_plan(plan)), fields)


def _restore_plan(plan: RestorePlan) -> Iterator[Block]:
    if plan.resumes is not None:
        yield Line(f"restore {plan.resumes} was begun and is to be finished")
    if not plan.instants:
        yield Line(f"nothing to take back: {plan.target} is the newest commit")
        return
    yield _rows_of_instants(plan.instants)
    yield Line(f"to be deleted in all: {quantity(plan.files, 'data file')}, {Bytes(plan.size_bytes)}")
    yield from _vanishing(plan.vanishing, blocked_by=plan.hindrance)


def _rows_of_instants(instants: Sequence[TakenBack]) -> Rows:
    rows = []
    for one in instants:
        state = "committed" if one.is_committed else f"unfinished, by {one.owner or 'another program'}"
        rows.append((one.instant, one.action, state, one.records, one.files, Bytes(one.size_bytes)))
    return Rows(("Instant", "Action", "State", "Records", "Files", "Size"), rows)


def show_restore_report(report: RestoreReport | None) -> Document:
    if report is None:
        return Document(fields={"restored": None})
    blocks = [
        Line(f"took back {one.action} {one.rolled_back}, {quantity(len(one.deleted), 'file')} deleted")
        for one in report.rolled_back
    ]
    if report.instant is not None:
        blocks.append(Line(f"restored the table to {report.target} with {report.instant}"))
    return Document(tuple(blocks), {"restored": asdict(report)})


def show_rollback(report: RollbackReport | None) -> Document:
    """The rollback of one instant."""
    if report is None:
        return Document(fields={"rolled_back": None})
    return Document(rollback_lines([report]), {"rolled_back": asdict(report)})


def show_rollbacks(reports: Sequence[RollbackReport]) -> Document:
    return Document(rollback_lines(reports), {"rolled_back": [asdict(report) for report in reports]})


def rollback_lines(reports: Iterable[RollbackReport]) -> tuple[Block, ...]:
    return tuple(
        Line(
            f"rolled back {one.action} {one.rolled_back} with {one.instant},"
            f" {quantity(len(one.deleted), 'file')} deleted"
        )
        for one in reports
    )


def show_recovery_plan(plan: RecoveryPlan) -> Document:
    fields = {
        "planned": [_write_fields(one.write) | {"files": one.files} for one in plan.doomed],
        "running": [_write_fields(write) for write in plan.running],
        "unpublished": [instant.time for instant in plan.unpublished],
    }
    return Document(tuple(_recovery_plan(plan)), fields)


def _recovery_plan(plan: RecoveryPlan) -> Iterator[Block]:
    for write in plan.running:
        owner = write.owner or "another program"
        yield Line(f"left alone: {write.action} {write.time}, may still be written by {owner}")
    for instant in plan.unpublished:
        yield Line(f"to be shown: {instant.action} {instant.time}, committed by a writer that died")
    if plan.doomed:
        rows = [(one.write.time, one.write.action, one.write.owner, len(one.files)) for one in plan.doomed]
        yield Rows(("Instant", "Action", "Owner", "Files"), rows)
    else:
        yield Line("nothing to roll back")


def _write_fields(write: FailedWrite) -> dict[str, object]:
    owner = None if write.owner is None else str(write.owner)
    return {"instant": write.time, "action": write.action, "owner": owner}


def show_drop_plan(plan: DropPlan) -> Document:
    return Document(tuple(_drop_plan(plan)), {"planned": asdict(plan)})


def _drop_plan(plan: DropPlan) -> Iterator[Block]:
    yield Facts(
        [
            ("table", f"{plan.name} at {plan.path}"),
            ("to be deleted", f"{quantity(len(plan.files), 'file')}, {Bytes(plan.size_bytes)}"),
            ("commits", plan.commits),
            ("savepoints", ", ".join(plan.savepoints) or "none"),
        ]
    )
    if plan.resumes:
        yield Line("it was being dropped before; this finishes it")
    yield from (Warned(f"a write may be running: {writer}") for writer in plan.writers)
    yield from (Warned(f"a lease is held: {lease}") for lease in plan.leases)
    yield from (Line(f"stays served: {push}") for push in plan.pushes)
    yield from _list("stays, it is not the table's", plan.left)


def show_drop_report(report: DropReport | None, plan: DropPlan) -> Document:
    if report is None:
        return Document(fields={"dropped": None})
    files = quantity(report.deleted, "file")
    line = Line(f"dropped {plan.name}: {files}, {Bytes(report.bytes_freed)} deleted")
    return Document((line,), {"dropped": asdict(report)})


def show_verify_report(report: VerifyReport, remedy: Callable[[str], str] = str) -> Document:
    wrong = sum(finding.severity is not Severity.INFO for finding in report.findings)
    verdict = "nothing is wrong" if report.is_clean else quantity(wrong, "finding")
    line = Line(f"{quantity(report.files_checked, 'base file')} checked, {verdict}")
    fields = {
        "is_clean": report.is_clean,
        "files_checked": report.files_checked,
        "findings": [asdict(finding) for finding in report.findings],
    }
    return Document((*_findings(report.findings, remedy), line), fields)


def show_repair_plan(plan: RepairPlan, remedy: Callable[[str], str] = str) -> Document:
    planned = {
        "moved": [asdict(finding) for finding in plan.moved],
        "finished": [asdict(finding) for finding in plan.finished],
        "taken_back": [asdict(finding) for finding in plan.taken_back],
    }
    blocks = [
        *_findings(plan.left, remedy),
        *_list("to be moved", [finding.path for finding in plan.moved]),
        *(Line(f"to be finished: {finding.path}, {finding.detail}") for finding in plan.finished),
        *(Line(f"to be taken back: {finding.path}, {finding.detail}") for finding in plan.taken_back),
    ]
    if not plan.moved and not plan.finished and not plan.taken_back:
        blocks.append(Line("nothing to repair"))
    return Document(tuple(blocks), {"planned": planned})


def show_repair_report(done: RepairReport) -> Document:
    blocks = list(rollback_lines(done.rolled_back))
    if done.quarantine is not None:
        files = quantity(len(done.moved), "file")
        blocks.append(
            Line(f"moved {files} to quarantine {done.quarantine}; --undo {done.quarantine} puts back")
        )
    fields = {
        "quarantine": done.quarantine,
        "moved": done.moved,
        "rolled_back": [asdict(report) for report in done.rolled_back],
        "taken_back": done.taken_back,
        "left": [asdict(finding) for finding in done.left],
    }
    return Document(tuple(blocks), fields)


def show_quarantine(quarantine: str, paths: Sequence[str], emptied: Sequence[str]) -> Document:
    """What undoing a repair would put back."""
    blocks = (*_list("to be put back", paths), *_vanishing(emptied))
    return Document(blocks, {"quarantine": quarantine, "planned": paths, "vanishing": emptied})


def _findings(findings: Sequence[Finding], remedy: Callable[[str], str]) -> list[Block]:
    rows = [(f.severity, f.kind, f.path, f.detail, remedy(f.remedy)) for f in findings]
    return [Rows(("Severity", "Kind", "Path", "Detail", "Remedy"), rows)] if rows else []


def show_archive_plan(plan: ArchivePlan) -> Document:
    fields = {
        "archived": [_instant_fields(instant) for instant in plan.instants],
        "held_back": plan.held_back,
    }
    rows = [(i.time, i.action, i.completed_at) for i in plan.instants]
    blocks: list[Block] = [
        Rows(("Instant", "Action", "Completed Time (UTC)"), rows) if rows else Line("nothing to archive")
    ]
    return Document((*blocks, *_reason_line(plan.held_back)), fields)


def show_archive_report(report: ArchiveReport) -> Document:
    blocks: list[Block] = []
    if report.resumed:
        blocks.append(Line(f"finished what was begun: {_count_instants(report.resumed)}"))
    if report.archived:
        blocks.append(Line(f"archived {_count_instants(report.archived)} in {report.file}"))
        blocks.append(Line(f"{quantity(report.commits_left, 'commit')} left on the timeline"))
    elif not report.resumed:
        blocks.append(Line("nothing to archive"))
    fields = asdict(report) | {
        "archived": [_instant_fields(instant) for instant in report.archived],
        "resumed": [_instant_fields(instant) for instant in report.resumed],
    }
    return Document((*blocks, *_reason_line(report.held_back)), fields)


def _reason_line(reason: str) -> list[Block]:
    return [Line(f"not more, because {reason}")] if reason else []


def _count_instants(instants: Sequence[Instant]) -> str:
    commits = sum(instant.action in COMMIT_ACTIONS for instant in instants)
    others = len(instants) - commits
    text = quantity(commits, "commit")
    return f"{text} and {quantity(others, 'other instant')}" if others else text


def show_savepoints(savepoints: Sequence[Savepoint]) -> Document:
    fields = {"savepoints": [savepoint_fields(one) for one in savepoints]}
    return Document((_savepoint_rows(savepoints) if savepoints else Line("no savepoints"),), fields)


def show_savepoint(savepoint: Savepoint) -> Document:
    return Document((_savepoint_rows([savepoint]),), {"savepoint": savepoint_fields(savepoint)})


def savepoint_fields(savepoint: Savepoint) -> dict[str, object]:
    return asdict(savepoint) | {"created_at": iso(savepoint.created_at)}


def _savepoint_rows(savepoints: Sequence[Savepoint]) -> Rows:
    return Rows(
        ("SavepointTime", "User", "Comments", "Created (UTC)", "Files", "Partitions"),
        [(s.instant, s.user, s.comment, s.created_at, s.files, len(s.partitions)) for s in savepoints],
        spare=("Partitions", "User"),
    )


def show_status(table: OpenTable, status: TableStatus) -> Document:
    settings = table.settings
    fields = {
        "name": settings.name,
        "type": settings.table_type,
        "path": table.location.uri,
        "version": int(table.settings.version),
        "record_key": settings.record_key,
        "partition_by": settings.partition_by,
        "ordering": settings.ordering,
        "columns": [{"name": name, "type": kind} for name, kind in status.columns.items()],
        "latest_commit": status.latest_commit and _instant_fields(status.latest_commit),
        "commits": status.commits,
        "snapshot": {
            "files": status.files,
            "bytes": status.size_bytes,
            "partitions": status.partitions,
        },
        "pending": [_pending_fields(one) for one in status.pending],
        "leases": [_lease_fields(lease) for lease in status.leases],
        "leftovers": {"files": status.leftovers, "bytes": status.leftover_bytes},
        "served": [
            {**_push_fields(push), "is_confirmed": status.fates.get(push.entry_id) is Fate.SERVED}
            for push in status.served
        ],
        "warnings": status.warnings,
    }
    return Document(tuple(_status(table, status)), fields)


def _access(settings: TableSettings) -> str:
    return ", which is only read" if settings.is_read_only else ""


def _status(table: OpenTable, status: TableStatus) -> Iterator[Block]:
    settings, latest = table.settings, status.latest_commit
    yield Facts(
        [
            ("name", settings.name),
            ("type", f"{settings.table_type}, table version {settings.version}{_access(settings)}"),
            ("path", table.location.uri),
            ("record key", ", ".join(settings.record_key) or None),
            ("partitioned by", ", ".join(settings.partition_by) or None),
            ("ordering", settings.ordering),
            ("columns", ", ".join(f"{name} {kind}" for name, kind in status.columns.items()) or None),
            ("latest commit", latest and latest.time),
            ("completed (UTC)", latest and latest.completed_at),
            ("commits", status.commits),
            ("files", status.files),
            ("size", Bytes(status.size_bytes)),
            ("partitions", status.partitions),
        ]
    )
    if status.pending:
        yield Line()
        yield Rows(
            ("Instant", "Action", "State", "Owner", "Process", "Fate"),
            [(p.time, p.action, p.state, p.owner, p.liveness, p.fate) for p in status.pending],
        )
    if status.leases:
        yield Line()
        yield Rows(
            ("Leased instant", "Owner", "Process", "Expires (UTC)", "State"),
            [(h.instant, h.owner, h.process, h.expires_at, _lease_state(h)) for h in status.leases],
        )
    if status.served:
        yield Line()
        yield Rows(
            ("Served as", "Service", "Of commit", "Rows", "Published (UTC)", ""),
            [
                (p.table, p.controller, p.instant, p.rows, p.published_at, _confirmation(p, status.fates))
                for p in status.served
            ],
        )
    yield from (Warned(warning) for warning in status.warnings)


def _pending_fields(one: PendingInstant) -> dict[str, object]:
    return {
        "instant": one.time,
        "action": one.action,
        "state": one.state,
        "owner": one.owner,
        "liveness": one.liveness.value,
        "fate": one.fate,
        "silent_ms": one.silent_ms,
    }


def _lease_fields(lease: LeaseStatus) -> dict[str, object]:
    return {
        "id": lease.id,
        "instant": lease.instant,
        "owner": lease.owner,
        "process": lease.process,
        "began_at": iso(lease.began_at),
        "expires_at": iso(lease.expires_at),
        "state": _lease_state(lease),
    }


def _lease_state(lease: LeaseStatus) -> str:
    return "expired" if lease.is_expired else "held"


def _confirmation(push: Push, fates: Mapping[str, Fate]) -> str:
    return "seen now" if fates.get(push.entry_id) is Fate.SERVED else "as recorded: the service does not tell"


def _push_fields(push: Push) -> dict[str, object]:
    return {
        "table": push.table,
        "controller": push.controller,
        "entry": push.entry_id,
        "instant": push.instant,
        "rows": push.rows,
        "published_at": iso(push.published_at),
    }


def _instant_fields(instant: Instant) -> Mapping[str, object]:
    return {"instant": instant.time, "action": instant.action, "completed_at": iso(instant.completed_at)}


def _vanishing(paths: Sequence[str], *, blocked_by: str = "", and_more: str = _ALL) -> Iterator[Block]:
    if blocked_by:
        yield Line(f"would be refused now: {blocked_by}")
    # Rows before records: they are what people look for.
    ordered = sorted(paths, key=lambda path: path.startswith(f"{META_FOLDER}/"))
    yield from _list("to be deleted", ordered, and_more=and_more)


def _list(verb: str, paths: Sequence[str], *, and_more: str = _ALL) -> Iterator[Block]:
    yield from (Line(f"{verb}: {path}") for path in paths[:_SHOWN])
    if len(paths) > _SHOWN:
        yield Line(f"and {quantity(len(paths) - _SHOWN, 'more file')}; {and_more}")
