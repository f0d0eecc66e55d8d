"""`holdfast savepoints` and `holdfast savepoint`: commits whose files stay."""

from collections.abc import Mapping
from dataclasses import asdict

import click

from holdfast.cli.arguments import ask, asking, opened, table_command
from holdfast.cli.output import counted, iso, print_json, print_line, print_table
from holdfast.cli.restore import run_restore
from holdfast.cli.with_pushes import with_pushes_option
from holdfast.errors import UnknownInstant
from holdfast.model.reports import Savepoint
from holdfast.read.savepoints import savepoints as all_savepoints
from holdfast.table.opened import OpenTable

_HEADER = ("SavepointTime", "User", "Comments", "Created (UTC)", "Files", "Partitions")


@click.group
def savepoints() -> None:
    """The savepoints of a table."""


@click.group
def savepoint() -> None:
    """One savepoint of a table."""


@savepoints.command("show")
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show the savepoints of the table at PATH, newest first.

    \b
    Example: holdfast savepoints show lake/trips
    """
    found = all_savepoints(opened(path, storage_options))[::-1]
    if as_json:
        print_json({"savepoints": [_document(one) for one in found]})
    elif found:
        print_table(_HEADER, [_row(one) for one in found])
    else:
        print_line("no savepoints")


@savepoint.command("create")
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
    Example: holdfast savepoint create lake/trips --comments "before the migration"
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.savepoints import create_savepoint

    made = create_savepoint(opened(path, storage_options), time, user=user, comment=comments)
    if as_json:
        print_json(_document(made))
    else:
        print_line(f"savepointed {made.instant}, {counted(made.files, 'file')} kept")


@savepoint.command("delete")
@table_command
@click.option("--commit", "time", required=True, metavar="T", help="The savepointed commit's time.")
@asking
def delete(
    path: str, *, time: str, yes: bool, dry_run: bool, as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Delete a savepoint of the table at PATH; the next clean may remove its files.

    \b
    Example: holdfast savepoint delete lake/trips --commit 20240131093000123
    """
    from holdfast.services.savepoints import delete_savepoint

    table = opened(path, storage_options)
    found = _find(table, time)
    if not as_json:
        print_table(_HEADER, [_row(found)])
    if not dry_run:
        ask(f"Delete the savepoint of {found.instant}?", yes=yes)
        delete_savepoint(table, found.instant)
    if as_json:
        print_json({"dry_run": dry_run, "savepoint": _document(found)})
    elif not dry_run:
        print_line(f"deleted the savepoint of {found.instant}")


@savepoint.command("rollback")
@table_command
@click.option("--savepoint", "time", required=True, metavar="T", help="The savepointed commit's time.")
@with_pushes_option
@asking
def rollback(
    path: str,
    *,
    time: str,
    with_pushes: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Take the table at PATH back to a savepoint; every younger commit is deleted.

    \b
    Example: holdfast savepoint rollback lake/trips --savepoint 20240131093000123
    """
    table = opened(path, storage_options)
    target = _find(table, time).instant
    run_restore(table, target, with_pushes=with_pushes, yes=yes, dry_run=dry_run, as_json=as_json)


def _find(table: OpenTable, time: str) -> Savepoint:
    for one in all_savepoints(table):
        if one.instant == time:
            return one
    raise UnknownInstant(
        "there is no savepoint of this commit", instant=time, hint="see holdfast savepoints show PATH"
    )


def _row(one: Savepoint) -> tuple[object, ...]:
    return one.instant, one.user, one.comment, one.created_at, one.files, len(one.partitions)


def _document(one: Savepoint) -> dict[str, object]:
    return asdict(one) | {"created_at": iso(one.created_at)}
