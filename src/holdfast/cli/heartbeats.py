"""`holdfast heartbeats`: which writes show a sign of life."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import opened, table_command
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.concurrency.heartbeats import HeartbeatStatus
from holdfast.concurrency.heartbeats import heartbeats as all_heartbeats

_HEADER = ("Instant", "Owner", "Age in seconds", "State")


@click.group
def heartbeats() -> None:
    """Signs of life of running writes."""


@heartbeats.command("show")
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the heartbeats of the table at PATH, oldest instant first.

    Alive and expired are as seen from this machine's clock. Undecided writes
    without a heartbeat are missing theirs, which proves nothing about them.

    \b
    Example: holdfast heartbeats show lake/trips
    """
    found = all_heartbeats(opened(path, storage_options))
    if as_json:
        print_json({"heartbeats": [_document(status) for status in found]})
    elif found:
        print_table(_HEADER, [_row(status) for status in found])
    else:
        print_line("no heartbeats")


def _row(status: HeartbeatStatus) -> tuple[object, ...]:
    age = None if status.age_ms is None else round(status.age_ms / 1000, 1)
    return status.instant, status.owner, age, status.state


def _document(status: HeartbeatStatus) -> dict[str, object]:
    return {
        "instant": status.instant,
        "owner": None if status.owner is None else str(status.owner),
        "age_ms": status.age_ms,
        "state": status.state,
        "sequence": status.sequence,
    }
