"""`holdfast push`: what was pushed to a serving table, and taking it back."""

from functools import partial
from typing import Any

import click

from holdfast.cli.arguments import CommandGroup, Mode, asking
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.push_run import push_run
from holdfast.cli.push_snapshots import push_pin, push_redo, push_snapshots, push_unpin
from holdfast.cli.service_calls import (
    TYPE,
    Switch,
    moment,
    run_switch,
    service_command,
    to_empty_option,
)
from holdfast.cli.with_pushes import run_reverts
from holdfast.errors import InvalidRequest
from holdfast.jobs.lake_pushes import plan_reverts
from holdfast.jobs.service_client import ServiceClient, segments_path
from holdfast.model.pushes import source_text
from holdfast.table.opened import open_at

_LINEAGE_HEADER = ("Entry", "State", "Changed (UTC)", "From", "To", "Source")


@click.group(cls=CommandGroup)
def push() -> None:
    """Pushes to the tables of the push service."""


for command in (push_run, push_snapshots, push_redo, push_pin, push_unpin):
    push.add_command(command)


@push.command("lineage")
@service_command
def lineage(table: str, *, controller: str, as_json: bool) -> None:
    """Show the lineage of TABLE: which segments replaced which, oldest change first.

    \b
    Example: holdfast push lineage orders
    """
    found = ServiceClient(controller).get(segments_path(table, "lineage"), type=TYPE)
    if as_json:
        print_json(found)
    elif found["lineageEntries"]:
        print_table(
            _LINEAGE_HEADER, [_entry_row(entry_id, one) for entry_id, one in found["lineageEntries"].items()]
        )
    else:
        print_line("no lineage entries")


@push.command("revert")
@service_command
@click.option("--entry", "entry_id", metavar="ID", help="The lineage entry; the newest completed by default.")
@click.option("--force", is_flag=True, help="Also give up a push that is still open.")
@click.option("--from-lake", metavar="PATH", help="Instead, every push of commits that this table took back.")
@to_empty_option
@asking
def revert(
    table: str,
    *,
    entry_id: str | None,
    force: bool,
    from_lake: str | None,
    to_empty: bool,
    controller: str,
    mode: Mode,
) -> None:
    """Take a push to TABLE back: queries see what it replaced.

    It ends when every broker has switched. With --from-lake the pushes are
    chosen by what the lake table has taken back: the newest retained snapshot
    is published again that has nothing of it.

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
        typed = f"{table.removesuffix(f'_{TYPE}')}_{TYPE}"
        plans = plan_reverts(lake, table=typed, controller=controller)
        if not plans and not mode.as_json:
            print_line(f"nothing that {from_lake} has taken back was pushed to {table}")
        run_reverts(lake, plans, to_empty=to_empty, mode=mode)
        return
    client = ServiceClient(controller)
    chosen = entry_id or _newest_completed(client, table)
    path = segments_path(table, "revertReplaceSegments")
    call = partial(client.post, path, type=TYPE, segmentLineageEntryId=chosen, forceRevert=force)
    switch = Switch(verb="Revert", done="reverted", table=table, entry_id=chosen, call=call)
    run_switch(switch, to_empty=to_empty, mode=mode)


def _newest_completed(client: ServiceClient, table: str) -> str:
    entries = client.get(segments_path(table, "lineage"), type=TYPE)["lineageEntries"]
    completed = [entry_id for entry_id, one in entries.items() if one["state"] == "COMPLETED"]
    if not completed:
        raise InvalidRequest(
            "there is no completed push to revert", table=table, hint="see holdfast push lineage"
        )
    return str(completed[-1])


def _entry_row(entry_id: str, one: dict[str, Any]) -> tuple[object, ...]:
    segments = len(one["segmentsFrom"]), len(one["segmentsTo"])
    return entry_id, one["state"], moment(one["timestamp"]), *segments, source_text(one.get("source", {}))
