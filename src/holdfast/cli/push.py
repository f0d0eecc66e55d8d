"""`holdfast push`: what was pushed to a serving table, and taking it back."""

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from holdfast.cli.arguments import Mode, ask, asking, remember_debug, wide_option
from holdfast.cli.output import print_facts, print_json, print_line, print_table
from holdfast.cli.push_run import push_run
from holdfast.cli.with_pushes import run_reverts
from holdfast.errors import InvalidRequest
from holdfast.jobs.lake_pushes import plan_reverts
from holdfast.jobs.service_client import DEFAULT_CONTROLLER, ServiceClient, segments_path
from holdfast.model.pushes import source_text
from holdfast.services.documents import Bytes, quantity
from holdfast.table.opened import open_at

Function = TypeVar("Function", bound=Callable[..., None])

_LINEAGE_HEADER = ("Entry", "State", "Changed (UTC)", "From", "To", "Source")
_SNAPSHOT_HEADER = ("Epoch", "Published (UTC)", "Entry", "Segments", "Rows", "Size", "", "Source")
_TYPE = "OFFLINE"


def service_command(function: Function) -> Function:
    """Give a command TABLE and the options of every command that calls the controller."""
    for decorate in (
        wide_option,
        click.option(
            "--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks."
        ),
        click.option("--json", "as_json", is_flag=True, help="Give one JSON document instead of text."),
        click.option(
            "--controller", default=DEFAULT_CONTROLLER, show_default=True, metavar="URL",
            envvar="HOLDFAST_CONTROLLER", help="The controller. HOLDFAST_TOKEN holds the credentials.",
        ),
        click.argument("table"),
    ):  # fmt: skip
        function = decorate(function)
    return function


@click.group
def push() -> None:
    """Pushes to the tables of the push service."""


push.add_command(push_run)


@push.command("lineage")
@service_command
def lineage(table: str, *, controller: str, as_json: bool) -> None:
    """Show the lineage of TABLE: which segments replaced which, oldest change first.

    \b
    Example: holdfast push lineage orders
    """
    found = ServiceClient(controller).get(segments_path(table, "lineage"), type=_TYPE)
    if as_json:
        print_json(found)
    elif found["lineageEntries"]:
        print_table(
            _LINEAGE_HEADER, [_entry_row(entry_id, one) for entry_id, one in found["lineageEntries"].items()]
        )
    else:
        print_line("no lineage entries")


@push.command("snapshots")
@service_command
def snapshots(table: str, *, controller: str, as_json: bool) -> None:
    """Show the contents of TABLE that one call can bring back, newest first.

    \b
    Example: holdfast push snapshots orders
    """
    found = ServiceClient(controller).get(segments_path(table, "snapshots"))
    if as_json:
        print_json(found)
    else:
        print_table(_SNAPSHOT_HEADER, [_snapshot_row(one) for one in found["snapshots"]])


@push.command("revert")
@service_command
@click.option("--entry", "entry_id", metavar="ID", help="The lineage entry; the newest completed by default.")
@click.option("--force", is_flag=True, help="Also give up a push that is still open.")
@click.option("--from-lake", metavar="PATH", help="Instead, every push of commits that this table took back.")
@asking
def revert(
    table: str,
    *,
    entry_id: str | None,
    force: bool,
    from_lake: str | None,
    controller: str,
    mode: Mode,
) -> None:
    """Take a push to TABLE back: queries see what it replaced.

    With --from-lake the pushes are chosen by what the lake table has taken
    back: the newest retained snapshot is published again that has nothing of it.

    \b
    Example: holdfast push revert orders --dry-run
    Example: holdfast push revert orders --from-lake lake/orders
    """
    if from_lake is not None:
        if entry_id is not None or force:
            raise InvalidRequest(
                "--from-lake chooses the pushes by itself", hint="leave out --entry and --force"
            )
        lake = open_at(from_lake, {})
        typed = f"{table.removesuffix(f'_{_TYPE}')}_{_TYPE}"
        plans = plan_reverts(lake, table=typed, controller=controller)
        if not plans and not mode.as_json:
            print_line(f"nothing that {from_lake} has taken back was pushed to {table}")
        run_reverts(lake, plans, mode=mode)
        return
    client = ServiceClient(controller)
    chosen = entry_id or _newest_completed(client, table)
    path = segments_path(table, "revertReplaceSegments")
    call = partial(client.post, path, type=_TYPE, segmentLineageEntryId=chosen, forceRevert=force)
    plan = call(dryRun=True)
    if not mode.as_json:
        _print_plan(chosen, plan)
    answer: dict[str, Any] | None = None
    if not mode.dry_run:
        ask(f"Revert {chosen}?", yes=mode.yes)
        answer = call()
    if mode.as_json:
        print_json(
            {
                "dry_run": mode.dry_run,
                "entry": chosen,
                "planned": plan["changes"],
                "reverted": not mode.dry_run,
            }
        )
    elif answer is not None:
        print_line(f"{'had been reverted before' if answer.get('alreadyReverted') else 'reverted'}: {chosen}")


def _newest_completed(client: ServiceClient, table: str) -> str:
    entries = client.get(segments_path(table, "lineage"), type=_TYPE)["lineageEntries"]
    completed = [entry_id for entry_id, one in entries.items() if one["state"] == "COMPLETED"]
    if not completed:
        raise InvalidRequest(
            "there is no completed push to revert", table=table, hint="see holdfast push lineage"
        )
    return str(completed[-1])


def _print_plan(entry_id: str, plan: dict[str, Any]) -> None:
    changes = plan["changes"]
    print_facts(
        [
            ("entry", entry_id),
            ("queries will see", quantity(len(changes["shown"]), "segment") + " again"),
            ("and no longer", quantity(len(changes["hidden"]) + len(changes["removed"]), "segment")),
            ("of these go for good", quantity(len(changes["removed"]), "segment")),
            ("bytes freed", Bytes(changes["bytesFreed"])),
        ]
    )


def _entry_row(entry_id: str, one: dict[str, Any]) -> tuple[object, ...]:
    segments = len(one["segmentsFrom"]), len(one["segmentsTo"])
    return entry_id, one["state"], _moment(one["timestamp"]), *segments, source_text(one.get("source", {}))


def _snapshot_row(one: dict[str, Any]) -> tuple[object, ...]:
    marks = ["now"] if one["isCurrent"] else ["redo"] if one["position"] < 0 else []
    if one["pinnedUntil"]:
        marks.append("pinned")
    return (
        one["epoch"], _moment(one["publishedAt"]), one["segmentLineageEntryId"], len(one["segments"]),
        one["docs"], Bytes(one["bytes"]), ", ".join(marks), source_text(one.get("source", {})),
    )  # fmt: skip


def _moment(at_ms: int | None) -> dt.datetime | None:
    return None if at_ms is None else dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
