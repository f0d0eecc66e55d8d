"""`holdfast create`: make an empty table."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import names, pairs, table_command
from holdfast.cli.output import print_json, print_line
from holdfast.config.choices import TableType
from holdfast.lake import create_table


@click.command
@table_command
@click.option("--name", required=True, help="The table's name.")
@click.option(
    "--record-key",
    required=True,
    multiple=True,
    callback=names,
    metavar="COLUMN[,COLUMN]",
    help="The columns that identify a record. Repeats.",
)
@click.option(
    "--partition-by",
    multiple=True,
    callback=names,
    metavar="COLUMN[,COLUMN]",
    help="The columns that become folders. Repeats.",
)
@click.option("--ordering", metavar="COLUMN", help="The column that says which of two records is newer.")
@click.option(
    "--type",
    "table_type",
    type=click.Choice([kind.value for kind in TableType], case_sensitive=False),
    default=TableType.COPY_ON_WRITE.value,
    show_default=True,
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="A table property, such as hoodie.table.create.schema. Repeats.",
)
def create(
    path: str,
    *,
    name: str,
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    ordering: str | None,
    table_type: str,
    properties: Mapping[str, str],
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Make an empty table at PATH.

    \b
    Example: holdfast create lake/trips --name trips --record-key trip_id --partition-by city --ordering ts
    """
    table = create_table(
        path,
        name=name,
        record_key=record_key,
        partition_by=partition_by,
        ordering=ordering,
        table_type=table_type,
        properties=properties,
        storage_options=storage_options,
    )
    settings = table.settings
    if as_json:
        print_json(
            {
                "path": table.path,
                "name": settings.name,
                "type": settings.table_type,
                "record_key": settings.record_key,
                "partition_by": settings.partition_by,
                "ordering": settings.ordering,
            }
        )
    else:
        print_line(f"created {settings.table_type} table {settings.name} at {table.path}")
