"""`holdfast heartbeats`: which writes show a sign of life."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import ShownByDefault, table_command
from holdfast.cli.output import show as show_document
from holdfast.concurrency.heartbeats import HeartbeatStatus
from holdfast.concurrency.heartbeats import heartbeats as all_heartbeats
from holdfast.services.documents import Document, Line, Rows
from holdfast.table.opened import open_at

_HEADER = ("Instant", "Owner", "Age in seconds", "State")


@click.group(cls=ShownByDefault)
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
    found = all_heartbeats(open_at(path, storage_options))
    block = Rows(_HEADER, [_row(status) for status in found]) if found else Line("no heartbeats")
    fields = {"heartbeats": [_document(status) for status in found]}
    show_document(Document((block,), fields), as_json=as_json)


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
