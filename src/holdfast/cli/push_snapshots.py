"""`holdfast push snapshots`, `redo`, `pin`, `unpin`: the contents that a table can be brought back to."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from holdfast.cli.arguments import Mode, asking
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.service_calls import (
    TYPE,
    Switch,
    moment,
    run_switch,
    service_command,
    to_empty_option,
)
from holdfast.errors import InvalidRequest
from holdfast.jobs.service_client import ServiceClient, segments_path
from holdfast.model.pushes import source_text
from holdfast.push.calls import moment_ms
from holdfast.services.documents import Bytes

_HEADER = ("Epoch", "Published (UTC)", "Entry", "Segments", "Rows", "Size", "", "Source")
_DAY_MS = 24 * 3_600_000


@click.command("snapshots")
@service_command
def push_snapshots(table: str, *, controller: str, as_json: bool) -> None:
    """Show the contents of TABLE that one call can bring back, newest first.

    \b
    Example: holdfast push snapshots orders
    """
    found = ServiceClient(controller).get(segments_path(table, "snapshots"))
    if as_json:
        print_json(found)
    else:
        print_table(_HEADER, [_snapshot_row(one) for one in found["snapshots"]])


@click.command("redo")
@service_command
@click.option(
    "--entry", "entry_id", metavar="ID", help="The lineage entry; the one reverted last by default."
)
@to_empty_option
@asking
def push_redo(table: str, *, entry_id: str | None, to_empty: bool, controller: str, mode: Mode) -> None:
    """Publish a push to TABLE again that was taken back; nothing is uploaded.

    Repeated, it goes one push further each time, as far as retention has kept them.

    \b
    Example: holdfast push redo orders --dry-run
    """
    client = ServiceClient(controller)
    chosen = entry_id or _next_redo(client, table)
    call = partial(client.post, segments_path(table, "redo"), type=TYPE, entryId=chosen)
    switch = Switch(verb="Redo", done="redone", table=table, entry_id=chosen, call=call)
    run_switch(switch, to_empty=to_empty, mode=mode)


@click.command("pin")
@service_command
@click.option("--epoch", type=int, metavar="N", help="The snapshot; what queries see now by default.")
@click.option("--until", metavar="TIME", help="Until when; by default, a week from now.")
def push_pin(table: str, *, epoch: int | None, until: str | None, controller: str, as_json: bool) -> None:
    """Keep a snapshot of TABLE, and the way back to it, from retention.

    \b
    Example: holdfast push pin orders --until 2027-01-31
    """
    until_ms = _moment_of(until)
    client = ServiceClient(controller)
    chosen = _current_epoch(client, table) if epoch is None else epoch
    answer = client.post(segments_path(table, "snapshots", str(chosen), "pin"), type=TYPE, until=until_ms)
    if as_json:
        print_json(answer)
    else:
        print_line(f"epoch {chosen} is kept until {moment(answer['pinnedUntil']):%Y-%m-%d %H:%M:%S} UTC")


@click.command("unpin")
@service_command
@click.option("--epoch", type=int, metavar="N", help="The snapshot; the one that is pinned by default.")
def push_unpin(table: str, *, epoch: int | None, controller: str, as_json: bool) -> None:
    """Let retention have a snapshot of TABLE again.

    \b
    Example: holdfast push unpin orders --epoch 3
    """
    client = ServiceClient(controller)
    chosen = _only_pin(client, table) if epoch is None else epoch
    answer = client.delete(segments_path(table, "snapshots", str(chosen), "pin"), type=TYPE)
    if as_json:
        print_json(answer)
    else:
        print_line(f"epoch {chosen} is no longer kept")


def _next_redo(client: ServiceClient, table: str) -> str:
    """Of what can be redone in one step, what was taken back last."""
    lineage = client.get(segments_path(table, "lineage"), type=TYPE)["lineageEntries"]
    known = [one for one in _snapshots(client, table) if one["position"] < 0]
    nearest = max((one["position"] for one in known), default=0)
    near = {one["segmentLineageEntryId"] for one in known if one["position"] == nearest}
    # The lineage is in the order of the last change.
    chosen = next((entry_id for entry_id in reversed(lineage) if entry_id in near), None)
    if chosen is None:
        raise InvalidRequest(
            "there is nothing that was taken back and is still there", table=table,
            hint="see holdfast push snapshots",
        )  # fmt: skip
    return str(chosen)


def _current_epoch(client: ServiceClient, table: str) -> int:
    return int(next(one["epoch"] for one in _snapshots(client, table) if one["isCurrent"]))


def _only_pin(client: ServiceClient, table: str) -> int:
    pinned = [int(one["epoch"]) for one in _snapshots(client, table) if one["pinnedUntil"]]
    if len(pinned) != 1:
        raise InvalidRequest(
            "which snapshot?" if pinned else "no snapshot is pinned", table=table,
            pinned=", ".join(map(str, pinned)), hint="see holdfast push snapshots",
        )  # fmt: skip
    return pinned[0]


def _snapshots(client: ServiceClient, table: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = client.get(segments_path(table, "snapshots"))["snapshots"]
    return found


def _moment_of(until: str | None) -> int:
    if until is None:
        return time.time_ns() // 1_000_000 + 7 * _DAY_MS
    try:
        return moment_ms(until)
    except (ValueError, OverflowError):
        raise InvalidRequest("not a time", until=until, hint="such as 2027-01-31T12:00:00") from None


def _snapshot_row(one: Mapping[str, Any]) -> tuple[object, ...]:
    marks = ["now"] if one["isCurrent"] else ["redo"] if one["position"] < 0 else []
    if one["pinnedUntil"]:
        marks.append("pinned")
    return (
        one["epoch"], moment(one["publishedAt"]), one["segmentLineageEntryId"], len(one["segments"]),
        one["docs"], Bytes(one["bytes"]), ", ".join(marks), source_text(one.get("source", {})),
    )  # fmt: skip
