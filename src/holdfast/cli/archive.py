"""`holdfast archive`: keep the active timeline short."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import CommandGroup, conf_option, table_command
from holdfast.cli.output import show
from holdfast.config.write import WriteSettings
from holdfast.services.documents import Document
from holdfast.services.presentation import show_archive_plan, show_archive_report, show_vanishing
from holdfast.services.rehearsals import rehearse
from holdfast.table.opened import open_at


@click.group(cls=CommandGroup)
def archive() -> None:
    """Old instants that no query needs."""


@archive.command("run")
@table_command
@conf_option("An option of archiving, such as hoodie.keep.min.commits=20. Repeats.", "--hoodie-conf")
@click.option("--dry-run", is_flag=True, help="Show the plan, and stop.")
def run(
    path: str, *, conf: Mapping[str, str], dry_run: bool, as_json: bool, storage_options: Mapping[str, str]
) -> None:
    """Take the oldest instants of the table at PATH from its timeline, if enough commits have gathered.

    No query gives another result afterwards. `timeline show --archived` shows
    them. What savepoints, leases, cleans or unfinished writes need stays.

    \b
    Example: holdfast archive run lake/trips --hoodie-conf hoodie.keep.max.commits=50 --dry-run
    """
    # Loaded here because they need Arrow, which other commands must not wait for.
    from holdfast.services.archive.archive import archive_instants, plan_next_archive

    settings = WriteSettings.from_options(conf)
    table = open_at(path, storage_options)
    if dry_run:
        rehearsed = rehearse(table, lambda one: archive_instants(one, settings))
        document = show_archive_plan(plan_next_archive(table, settings.archive)) + show_vanishing(rehearsed)
    else:
        document = show_archive_report(archive_instants(table, settings))
    fields = {"dry_run": dry_run, **document.fields}
    show(Document(document.blocks, fields), as_json=as_json)
