"""`holdfast timeline`: the instants of a table."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import (
    ShownByDefault,
    archive_of,
    include_archived_option,
    limit_option,
    table_command,
)
from holdfast.cli.output import show as show_document
from holdfast.read.history import NotedInstant, add_notes
from holdfast.services.documents import Document, Line, Rows, iso
from holdfast.table.opened import open_at
from holdfast.timeline.timeline import load_timeline

_HEADER = ("No.", "Instant", "Action", "State", "Completed Time (UTC)", "Notes")


@click.group(cls=ShownByDefault)
def timeline() -> None:
    """What happened to a table."""


@timeline.command("show")
@table_command
@limit_option("Show only the newest N instants.")
@include_archived_option
def show(
    path: str, *, limit: int | None, archived: bool, as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Show the instants of the table at PATH, newest first. Times are in UTC.

    \b
    Example: holdfast timeline show lake/trips --limit 10
    """
    table = open_at(path, storage_options)
    active = load_timeline(table.store)
    archive = archive_of(table, archived=archived)
    instants = list(reversed(archive.with_active(active).instants))[:limit]
    shown = add_notes(table, instants, active=frozenset(active.instants), archive=archive)
    rows = [_row(number, one) for number, one in enumerate(shown)]
    block = Rows(_HEADER, rows, ("No.", "Completed Time (UTC)")) if rows else Line("no instants yet")
    fields = {"instants": [_document(one) for one in shown]}
    show_document(Document((block,), fields), as_json=as_json)


def _row(number: int, one: NotedInstant) -> tuple[object, ...]:
    instant = one.instant
    return (
        number,
        instant.time,
        instant.action,
        instant.state,
        instant.completed_at,
        one.notes,
    )


def _document(one: NotedInstant) -> dict[str, object]:
    return {
        "instant": one.instant.time,
        "action": one.instant.action,
        "state": one.instant.state,
        "completed_at": iso(one.instant.completed_at),
        "rolls_back": one.rolls_back,
        "rolled_back_by": one.rolled_back_by,
        "is_unreadable": one.is_unreadable,
        "is_archived": one.is_archived,
    }
