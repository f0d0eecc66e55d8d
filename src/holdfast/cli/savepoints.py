"""`holdfast savepoints`: commits whose files stay."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import Mode, ShownByDefault, asking, table_command
from holdfast.cli.output import show as show_document
from holdfast.cli.plans import carry_out
from holdfast.cli.restore import run_restore
from holdfast.cli.with_pushes import WithPushes, with_pushes_option
from holdfast.errors import UnknownInstant
from holdfast.model.reports import Savepoint
from holdfast.read.savepoints import commit_of_savepoint
from holdfast.read.savepoints import savepoints as all_savepoints
from holdfast.services.documents import Document, Line, quantity
from holdfast.services.presentation import savepoint_fields, show_savepoint, show_savepoints, show_vanishing
from holdfast.services.rehearsals import Rehearsed, rehearse
from holdfast.table.opened import OpenTable, open_at

_WHICH = "The savepointed commit's time, or the savepoint's comment."


@click.group(cls=ShownByDefault)
def savepoints() -> None:
    """The savepoints of a table."""


@savepoints.command("show")
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the savepoints of the table at PATH, newest first.

    \b
    Example: holdfast savepoints show lake/trips
    """
    found = all_savepoints(open_at(path, storage_options))[::-1]
    show_document(show_savepoints(found), as_json=as_json)


@savepoints.command("create")
@table_command
@click.option("--commit", "time", metavar="T", help="The commit's time; the newest if it is not given.")
@click.option("--user", default="", help="Who wants it.")
@click.option("--comments", default="", help="What it is for.")
def create(
    path: str,
    *,
    time: str | None,
    user: str,
    comments: str,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Keep the files of a commit of the table at PATH, so that it can be restored.

    \b
    Example: holdfast savepoints create lake/trips --comments "before the migration"
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.savepoints import create_savepoint

    made = create_savepoint(open_at(path, storage_options), time, user=user, comment=comments)
    line = Line(f"savepointed {made.instant}, {quantity(made.files, 'file')} kept")
    show_document(Document((line,), savepoint_fields(made)), as_json=as_json)


@savepoints.command("delete")
@table_command
@click.option(
    "--commit",
    "time",
    required=True,
    metavar="T",
    help=_WHICH,
)
@asking
def delete(path: str, *, time: str, mode: Mode, storage_options: Mapping[str, str]) -> None:
    """Delete a savepoint of the table at PATH; the next clean may remove its files.

    \b
    Example: holdfast savepoints delete lake/trips --commit 20240131093000123
    """
    from holdfast.services.savepoints import delete_savepoint, execute_deletion

    table = open_at(path, storage_options)

    def make() -> tuple[Savepoint, Rehearsed[None] | None]:
        planned = _find(table, commit_of_savepoint(table, time))
        is_shown = mode.lists_files
        rehearsed = rehearse(table, lambda one: delete_savepoint(one, planned.instant)) if is_shown else None
        return planned, rehearsed

    carry_out(
        make,
        lambda made: execute_deletion(table, made[0]),
        show_plan=lambda made: show_savepoint(made[0]) + show_vanishing(made[1]),
        question=lambda made: f"Delete the savepoint of {made[0].instant}?",
        show_report=lambda made, _: Document((Line(f"deleted the savepoint of {made[0].instant}"),)),
        mode=mode,
    )


@savepoints.command("rollback")
@table_command
@click.option(
    "--savepoint",
    "time",
    required=True,
    metavar="T",
    help=_WHICH,
)
@with_pushes_option
@asking
def rollback(
    path: str,
    *,
    time: str,
    with_pushes: WithPushes | None,
    mode: Mode,
    storage_options: Mapping[str, str],
) -> None:
    """Take the table at PATH back to a savepoint; every younger commit is deleted.

    \b
    Example: holdfast savepoints rollback lake/trips --savepoint 20240131093000123
    """
    table = open_at(path, storage_options)
    target = _find(table, commit_of_savepoint(table, time)).instant
    run_restore(table, target, with_pushes=with_pushes, mode=mode)


def _find(table: OpenTable, time: str) -> Savepoint:
    for one in all_savepoints(table):
        if one.instant == time:
            return one
    raise UnknownInstant(
        "there is no savepoint of this commit", instant=time, hint="see holdfast savepoints show PATH"
    )
