"""`holdfast show`: what a table is, how large it is, and what is unfinished in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import opened, table_command
from holdfast.cli.output import (
    Bytes,
    counted,
    iso,
    print_facts,
    print_json,
    print_line,
    print_table,
    print_warning,
)
from holdfast.cli.with_pushes import push_warnings
from holdfast.config.table import TABLE_VERSION, TableType
from holdfast.host import Liveness
from holdfast.model.instant import COMMIT_ACTIONS, Action, InstantTime, State
from holdfast.model.pushes import Push, newest_of_each_place
from holdfast.table.opened import OpenTable
from holdfast.table.pushes import push_records, taken_back
from holdfast.timeline.ledger import LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

if TYPE_CHECKING:
    from holdfast.services.leases import LeaseStatus

SHARING = "being written, admits others"
_PENDING = ("Instant", "Action", "State", "Owner", "Process", "Fate")
_SERVED = ("Served as", "Service", "Of commit", "Rows", "Published (UTC)")
_LEASES = ("Leased instant", "Owner", "Process", "Expires (UTC)", "State")


@dataclass(frozen=True, slots=True)
class Pending:
    """An instant that is not completed, and what is known of its fate."""

    time: InstantTime
    action: Action
    state: State | None
    """None if its first file is not there yet."""
    owner: str | None
    """None if another program began it."""
    liveness: Liveness
    fate: str


@dataclass(frozen=True, slots=True)
class Sizes:
    files: int
    size_bytes: int
    partitions: int


@click.command
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show what the table at PATH is and holds.

    Its settings, the latest commit, sizes, pending work with its owners, leases of readers, where the
    push service serves it, warnings.

    \b
    Example: holdfast show lake/trips
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.read.snapshot import snapshot_files
    from holdfast.services.leases import leases
    from holdfast.table.schema import table_schema

    table = opened(path, storage_options)
    timeline = load_timeline(table.store)
    files = snapshot_files(table)
    sizes = Sizes(len(files), sum(f.size for f in files), len({f.partition for f in files}))
    columns = {field.name: str(field.type) for field in table_schema(table, timeline) or ()}
    pending = _pending(table, timeline, table.ledger.read())
    held = leases(table)
    records = push_records(table)
    served = newest_of_each_place(records.pushes)
    gone = taken_back(table, [push.instant for push in served]) if served else frozenset()
    leftovers = table.store.leftovers()
    warnings = _warnings(table, pending, leftovers=len(leftovers)) + push_warnings(table, records, gone)
    document = {
        "name": table.settings.name,
        "type": table.settings.table_type,
        "path": table.location.uri,
        "version": int(TABLE_VERSION),
        "record_key": table.settings.record_key,
        "partition_by": table.settings.partition_by,
        "ordering": table.settings.ordering,
        "columns": [{"name": name, "type": kind} for name, kind in columns.items()],
        "latest_commit": _latest(timeline),
        "commits": len(timeline.completed_commits),
        "snapshot": {"files": sizes.files, "bytes": sizes.size_bytes, "partitions": sizes.partitions},
        "pending": [_pending_document(one) for one in pending],
        "leases": [_lease_document(one) for one in held],
        "leftovers": {"files": len(leftovers), "bytes": sum(file.size for file in leftovers)},
        "served": [_served_document(push) for push in served],
        "warnings": warnings,
    }
    if as_json:
        print_json(document)
        return
    _print_facts(table, timeline, columns, sizes)
    if pending:
        print_line()
        print_table(_PENDING, [(p.time, p.action, p.state, p.owner, p.liveness, p.fate) for p in pending])
    if held:
        print_line()
        print_table(_LEASES, [(h.instant, h.owner, h.process, h.expires_at, _lease_state(h)) for h in held])
    if served:
        print_line()
        print_table(_SERVED, [(p.table, p.controller, p.instant, p.rows, p.published_at) for p in served])
    for warning in warnings:
        print_warning(warning)


def _pending(table: OpenTable, timeline: Timeline, state: LedgerState) -> list[Pending]:
    """Oldest first."""
    states = {(i.time, i.action): i.state for i in timeline.instants if not i.is_completed}
    begun = {(time, found.action): None for time, found in state.begun.items()}
    return [
        _judged(table, state, time, action=action, reached=reached)
        for (time, action), reached in sorted((begun | states).items(), key=lambda item: item[0])
    ]


def _judged(
    table: OpenTable, state: LedgerState, time: InstantTime, *, action: Action, reached: State | None
) -> Pending:
    begun = state.begun.get(time)
    liveness = Liveness.UNKNOWN if begun is None else table.host.liveness(begun.owner)
    is_shared = begun is not None and begun.shared
    if action is Action.RESTORE:
        fate = "to be finished by the same restore"
    elif action not in COMMIT_ACTIONS:
        fate = "to be finished"
    elif time in state.committed:
        fate = "committed, not shown yet"
    elif time in state.aborted:
        fate = f"being rolled back by {state.aborted[time].rollback}"
    elif liveness is Liveness.ALIVE:
        fate = SHARING if is_shared else "being written"
    elif is_shared and liveness is Liveness.UNKNOWN:
        fate = "rolled back when its heartbeat has expired"
    else:
        fate = "rolled back at the next write"
    return Pending(time, action, reached, str(begun.owner) if begun else None, liveness, fate)


def _warnings(table: OpenTable, pending: list[Pending], *, leftovers: int) -> list[str]:
    warnings: list[str] = []
    sharing = sum(one.fate == SHARING for one in pending)
    running = sum(one.liveness is Liveness.ALIVE for one in pending) - sharing
    unshown = sum(one.fate == "committed, not shown yet" for one in pending)
    restoring = sum(one.action is Action.RESTORE for one in pending)
    stopped = len(pending) - running - sharing - unshown - restoring
    if restoring:
        warnings.append("a restore is not finished; nobody can write until it is run again")
    if sharing:
        warnings.append(f"{counted(sharing, 'write')} running; those who write alone are refused meanwhile")
    if running:
        warnings.append(f"{counted(running, 'write')} running; others are refused until it ends")
    if unshown:
        warnings.append(f"{counted(unshown, 'commit')} decided but not shown yet: `rollbacks run` shows it")
    if stopped:
        warnings.append(f"{counted(stopped, 'pending instant')} without a live writer: see `rollbacks run`")
    if table.settings.metadata_partitions:
        warnings.append("the table has a metadata table, which the first write of Holdfast switches off")
    if leftovers:
        warnings.append(f"{counted(leftovers, 'half-written file')} left behind; the next write removes them")
    return warnings


def _latest(timeline: Timeline) -> dict[str, object] | None:
    latest = timeline.last_commit
    if latest is None:
        return None
    return {"instant": latest.time, "action": latest.action, "completed_at": iso(latest.completed_at)}


def _pending_document(one: Pending) -> dict[str, object]:
    return {
        "instant": one.time,
        "action": one.action,
        "state": one.state,
        "owner": one.owner,
        "liveness": one.liveness.value,
        "fate": one.fate,
    }


def _lease_state(lease: "LeaseStatus") -> str:
    return "expired" if lease.is_expired else "held"


def _lease_document(lease: "LeaseStatus") -> dict[str, object]:
    return {
        "id": lease.id,
        "instant": lease.instant,
        "owner": lease.owner,
        "process": lease.process,
        "began_at": iso(lease.began_at),
        "expires_at": iso(lease.expires_at),
        "state": _lease_state(lease),
    }


def _served_document(push: Push) -> dict[str, object]:
    return {
        "table": push.table,
        "controller": push.controller,
        "entry": push.entry_id,
        "instant": push.instant,
        "rows": push.rows,
        "published_at": iso(push.published_at),
    }


def _print_facts(table: OpenTable, timeline: Timeline, columns: Mapping[str, str], sizes: Sizes) -> None:
    settings = table.settings
    latest = timeline.last_commit
    is_base_only = settings.table_type is TableType.MERGE_ON_READ
    print_facts(
        [
            ("name", settings.name),
            ("type", f"{settings.table_type}, table version {TABLE_VERSION}"),
            ("path", table.location.uri),
            ("record key", ", ".join(settings.record_key) or None),
            ("partitioned by", ", ".join(settings.partition_by) or None),
            ("ordering", settings.ordering),
            ("columns", ", ".join(f"{name} {kind}" for name, kind in columns.items()) or None),
            ("latest commit", latest and latest.time),
            ("completed (UTC)", latest and latest.completed_at),
            ("commits", len(timeline.completed_commits)),
            ("base files" if is_base_only else "files", sizes.files),
            ("size", Bytes(sizes.size_bytes)),
            ("partitions", sizes.partitions),
        ]
    )
