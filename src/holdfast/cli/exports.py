"""`holdfast exports`: the table in the formats of other engines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import click

from holdfast.cli.arguments import ShownByDefault, ask, table_command
from holdfast.cli.output import print_line
from holdfast.cli.output import show as show_document
from holdfast.cli.progress import spinner
from holdfast.config.option import split_names
from holdfast.config.table import parse_export_formats
from holdfast.errors import InvalidRequest
from holdfast.lake import open_table
from holdfast.model.reports import Export
from holdfast.services.documents import Block, Document, Line, Rows, quantity

_COLUMNS = ("Format", "Instant", "Lag", "Complete Until", "Where")
_SPARE = ("Complete Until",)
_NO_EXPORTS = "the table is not exported"


@click.group(cls=ShownByDefault)
def exports() -> None:
    """The table in the formats of other engines."""


@exports.command("show")
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show in which other formats the table at PATH is kept, how far each is, and where.

    \b
    Example: holdfast exports show lake/trips
    """
    show_document(_document(open_table(path, storage_options=storage_options).exports()), as_json=as_json)


@exports.command("run")
@table_command
@click.option("--merge", is_flag=True, help="Compact the log files before, which exports do not have.")
def run(path: str, *, merge: bool, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Bring the exports of the table at PATH to its newest commit.

    Every write does it after its commit; this makes up for one that could not.

    \b
    Example: holdfast exports run lake/trips
    """
    table = open_table(path, storage_options=storage_options)
    with spinner(f"exporting {table.settings.name}"):
        found = table.export(merge=merge)
    show_document(_document(found), as_json=as_json)


@exports.command("set")
@table_command
@click.argument("formats", nargs=-1, metavar="[FORMAT]...")
@click.option("--yes", is_flag=True, help="Delete exports that are not named without asking.")
def set_formats(
    path: str,
    *,
    formats: tuple[str, ...],
    yes: bool,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Keep the table at PATH in these formats, and in no others: delta.

    What was exported to a format that is not named any more is deleted; without one, all is.

    \b
    Example: holdfast exports set lake/trips delta
    """
    table = open_table(path, storage_options=storage_options)
    wanted = parse_export_formats(name for text in formats for name in split_names(text))
    going = [one for one in table.exports() if one.format not in wanted]
    if going and not yes:
        if as_json:
            raise InvalidRequest("--json does not ask", hint="add --yes")
        for one in going:
            print_line(f"deletes the export to {one.format}, with its history; no rows of the table")
        ask(f"Delete {quantity(len(going), 'export')}?", yes=False)
    show_document(_document(table.set_exports(wanted)), as_json=as_json)


def _document(found: Sequence[Export]) -> Document:
    rows = [(one.format, one.instant or "", one.lag, one.complete_until or "", one.where) for one in found]
    block: Block = Rows(_COLUMNS, rows, _SPARE) if rows else Line(_NO_EXPORTS)
    return Document((block,), {"exports": [asdict(one) for one in found]})
