"""`holdfast show`: what a table is, how large it is, and what is unfinished in it."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import table_command
from holdfast.cli.output import show as show_document
from holdfast.jobs.lake_pushes import ask_services
from holdfast.services.presentation import show_status
from holdfast.table.opened import open_at


@click.command
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show what the table at PATH is and holds.

    Its settings, the latest commit, sizes, pending work with its owners, leases
    of readers, warnings, and what push services show of it now; they are asked.

    \b
    Example: holdfast show lake/trips
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.status import table_status

    table = open_at(path, storage_options)
    show_document(show_status(table, table_status(table, ask=ask_services)), as_json=as_json)
