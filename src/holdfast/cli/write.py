"""`holdfast write`: the rows of files into a table, with Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import pairs, table_command
from holdfast.cli.output import draw, print_facts, print_json, print_line, print_warning
from holdfast.cli.progress import spinner
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidRequest
from holdfast.jobs.process import spark_session
from holdfast.lake import open_table, write_rows
from holdfast.services.documents import Bytes, Document, quantity
from holdfast.services.presentation import rollback_lines

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from holdfast.model.reports import Commit

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_PACKINGS = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_FROM_FILES = ("insert", "bulk_insert", "upsert", "delete", "insert_overwrite", "insert_overwrite_table")
_DELETE_PARTITIONS = "delete_partitions"


class FilesCommand(click.Command):
    """A command whose --from takes every word up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spread: list[str] = []
        is_file = False
        for word in args:
            if word.startswith("-"):
                is_file = word == "--from"
            elif is_file and spread[-1] != "--from":
                spread.append("--from")
            spread.append(word)
        return super().parse_args(ctx, spread)


@click.command(cls=FilesCommand)
@table_command
@click.option(
    "--from",
    "files",
    multiple=True,
    metavar="FILES...",
    help="Files to read: all words up to the next option, so PATH comes before it. Repeats.",
)
@click.option(
    "--operation",
    required=True,
    type=click.Choice([*_FROM_FILES, _DELETE_PARTITIONS]),
    help="How to write. Only upsert and delete look for keys that exist already.",
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="PARTITION",
    help="A partition for delete_partitions, by its path, such as city=paris. Repeats.",
)
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=pairs,
    metavar="KEY=VALUE",
    help="A write option by Hudi's name. Repeats.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json", "parquet"]),
    help="What the files are, if their suffix does not say.",
)
@click.option(
    "--header/--no-header", default=True, help="Whether CSV files begin with the names. [default: yes]"
)
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
def write(
    path: str,
    *,
    files: tuple[str, ...],
    operation: str,
    partitions: tuple[str, ...],
    options: Mapping[str, str],
    file_format: str | None,
    header: bool,
    master: str,
    as_json: bool,
    storage_options: Mapping[str, str],
) -> None:
    """Write files into the table at PATH.

    The files are Parquet, CSV or JSON, and Spark reads them.
    CSV and JSON are read in the table's schema if it has one, else their types
    are guessed. CSV columns are matched by name. JSON files hold one object per
    line. Times without a zone are UTC. A value that does not fit fails the whole
    write, and nothing of it is seen. For delete the files need the key columns
    only, and those of the partition; delete_partitions takes no files.

    \b
    Example: holdfast write lake/trips --from day1.csv day2.csv --operation upsert
    """
    if bool(partitions) != (operation == _DELETE_PARTITIONS):
        raise click.UsageError("--partition belongs to --operation delete_partitions, which needs it")
    if bool(files) != (operation != _DELETE_PARTITIONS):
        raise click.UsageError("--from names the files to write, which all but delete_partitions need")
    sources = [_check_source(file) for file in files]
    kind = file_format or (_format_of(files) if files else "")
    WriteSettings.from_options(options)
    table = open_table(path, storage_options=storage_options)
    table.settings.check_writable()
    schema = table.schema()
    with spinner(f"writing into {table.settings.name}"):
        if operation == _DELETE_PARTITIONS:
            commit = table.delete_partitions(partitions, options=options)
        else:
            is_partial = operation == "delete"
            frame = _frame(master, sources, kind=kind, schema=schema, header=header, is_partial=is_partial)
            commit = write_rows(table, Operation(operation), frame, options=options)
    if as_json:
        print_json(asdict(commit))
    else:
        print_commit(commit)


def _check_source(file: str) -> str:
    """An absolute path, or the URI; `InvalidRequest` if Spark would not read it."""
    if _URI.match(file):
        return file
    if not os.path.exists(file):
        raise InvalidRequest("there is no such file", file=file)
    if os.path.basename(os.path.abspath(file)).startswith(("_", ".")):
        raise InvalidRequest("Spark skips files whose name begins so", file=file, hint="rename the file")
    return os.path.abspath(file)


def _format_of(files: Sequence[str]) -> str:
    found = {_FORMATS.get(_suffix(file)) for file in files}
    kind = found.pop()
    if kind is None or found:
        raise InvalidRequest(
            "the files' suffixes do not name one format", files=", ".join(files), hint="give --format"
        )
    return kind


def _suffix(file: str) -> str:
    stem, suffix = os.path.splitext(file.lower())
    return os.path.splitext(stem)[1] if suffix in _PACKINGS else suffix


def _frame(
    master: str, files: list[str], *, kind: str, schema: pa.Schema | None, header: bool, is_partial: bool
) -> DataFrame:
    session = spark_session("holdfast write", master)
    # Loaded here because only commands that write need Spark, and it is large.
    from holdfast.engines.spark.inputs import file_frame, spark_path

    return file_frame(
        session,
        # A URI may be a pattern; what the shell left in a path is none.
        [file if _URI.match(file) else spark_path(file) for file in files],
        file_format=kind,
        options={"header": str(header).lower()} if kind == "csv" else {},
        schema=schema,
        is_partial=is_partial,
    )


def print_commit(commit: Commit) -> None:
    """What a write did, and what it removed of failed ones before."""
    if commit.repeated:
        print_line("nothing was written: a write of this number is committed already")
    draw(Document(rollback_lines(commit.rolled_back)))
    print_facts(
        [
            ("commit", commit.instant),
            ("operation", commit.operation),
            ("records written", commit.records_written),
            ("inserted, updated, deleted", _changes(commit)),
            ("files written", f"{commit.files_written}, {Bytes(commit.bytes_written)}"),
            ("partitions", quantity(len(commit.partitions), "partition")),
        ]
    )
    for problem in commit.post_commit_errors:
        print_warning(f"the commit stands, but afterwards: {problem}")


def _changes(commit: Commit) -> str:
    return f"{commit.records_inserted}, {commit.records_updated}, {commit.records_deleted}"
