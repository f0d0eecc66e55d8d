"""`holdfast convert`: a table of a version that is only read, made anew in one that is written."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import table_command
from holdfast.cli.output import show
from holdfast.services.documents import Document, Facts
from holdfast.table.opened import open_at


@click.command
@table_command
@click.option("--to", type=click.Choice(["6"]), required=True, help="The table version to convert to.")
@click.option("--into", required=True, metavar="NEWPATH", help="Where the new table comes to be.")
def convert(path: str, *, to: str, into: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Make a version-6 table of one of version 8 or 9.

    The old table stays as it is. Base files become hard links where the disk
    is the same, else copies; log files are copied; the history comes along.
    Every snapshot is compared before the new table is there. Writes that did
    not finish, and plans that were not carried out, stay behind. Local disks only.

    \b
    Example: holdfast convert lake/trips --to 6 --into lake/trips6
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.convert.convert import convert as run

    report = run(open_at(path, storage_options), into)
    facts = (
        ("table", report.into),
        ("version", f"{to}, made of {report.version}"),
        ("base files", f"{report.base_files}, of which {report.linked} are hard links"),
        ("log files", report.log_files),
        ("instants", f"{report.instants}, and {report.archived} archived"),
        ("left behind", ", ".join(report.left) or "nothing"),
        ("compared", f"{report.snapshots_compared} snapshots, {report.rows_compared} rows of the newest"),
    )
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__}
    show(Document((Facts(facts),), {**fields, "to": to}), as_json=as_json)
