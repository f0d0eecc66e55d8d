"""`holdfast timeline`: the instants of a table."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from holdfast.cli.arguments import (
    ShownByDefault,
    archive_of,
    include_archived_option,
    limit_option,
    table_command,
)
from holdfast.cli.output import show as show_document
from holdfast.model.instant import Action, Instant, InstantTime
from holdfast.read.history import undone_by
from holdfast.services.documents import Document, Line, Rows, iso
from holdfast.table.opened import OpenTable, open_at
from holdfast.timeline.archived import ArchivedTimeline
from holdfast.timeline.timeline import load_timeline

_HEADER = ("No.", "Instant", "Action", "State", "Completed Time (UTC)", "Notes")
_UNDOING = (Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True, slots=True)
class Shown:
    """An instant and what is known about it beside its files' names."""

    instant: Instant
    rolls_back: tuple[InstantTime, ...] = ()
    rolled_back_by: InstantTime | None = None
    is_unreadable: bool = False
    is_archived: bool = False

    @property
    def notes(self) -> str:
        notes = [f"rolls back {time}" for time in self.rolls_back]
        if self.rolled_back_by is not None:
            notes.append(f"rolled back by {self.rolled_back_by}")
        if self.is_unreadable:
            notes.append("cannot be read")
        if self.is_archived:
            notes.append("archived")
        return ", ".join(notes)


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
    shown = _add_notes(table, instants, active=frozenset(active.instants), archive=archive)
    rows = [_row(number, one) for number, one in enumerate(shown)]
    block = Rows(_HEADER, rows, ("No.", "Completed Time (UTC)")) if rows else Line("no instants yet")
    fields = {"instants": [_document(one) for one in shown]}
    show_document(Document((block,), fields), as_json=as_json)


def _add_notes(
    table: OpenTable, instants: list[Instant], *, active: frozenset[Instant], archive: ArchivedTimeline
) -> list[Shown]:
    """The instants with their notes. A rollback is newer than what it names, so it is among them."""
    targets = {i.time: undone_by(table, i, archived=archive) for i in instants if i.action in _UNDOING}
    rolled_back_by = {target: time for time, found in targets.items() for target in found or ()}
    return [
        Shown(
            instant,
            rolls_back=targets.get(instant.time) or () if instant.action in _UNDOING else (),
            rolled_back_by=rolled_back_by.get(instant.time),
            is_unreadable=instant.action in _UNDOING and targets[instant.time] is None,
            is_archived=instant not in active,
        )
        for instant in instants
    ]


def _row(number: int, one: Shown) -> tuple[object, ...]:
    instant = one.instant
    return (
        number,
        instant.time,
        instant.action,
        instant.state,
        instant.completed_at,
        one.notes,
    )


def _document(one: Shown) -> dict[str, object]:
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
