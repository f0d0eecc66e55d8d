"""`holdfast write`: the rows of files into a table, with Spark."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.arguments import pairs, table_command
from holdfast.cli.output import Bytes, counted, print_facts, print_json, print_warning
from holdfast.cli.rollbacks import print_reports
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidRequest, SchemaMismatch
from holdfast.lake import open_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.model.reports import Commit

_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_PACKINGS = frozenset({".gz", ".bz2", ".zst", ".lz4", ".snappy"})
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_STANDARD_ERROR = 2
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
    sources = [_checked(file) for file in files]
    kind = file_format or (_format_of(files) if files else "")
    WriteSettings.from_options(options)
    table = open_table(path, storage_options=storage_options)
    table.settings.check_writable()
    schema = table.schema()
    with _progress(f"writing into {table.settings.name}"):
        if operation == _DELETE_PARTITIONS:
            commit = table.delete_partitions(partitions, options=options)
        else:
            is_partial = operation == "delete"
            session = _session(master)
            frame = _frame(session, sources, kind=kind, schema=schema, header=header, is_partial=is_partial)
            commit = getattr(table, operation)(frame, options=options)
    if as_json:
        print_json(asdict(commit))
    else:
        _print_commit(commit)


def _checked(file: str) -> str:
    """The file as Spark must be told it; `InvalidRequest` if Spark would not read it."""
    if _URI.match(file):
        return file
    if not os.path.exists(file):
        raise InvalidRequest("there is no such file", file=file)
    if os.path.basename(os.path.abspath(file)).startswith(("_", ".")):
        raise InvalidRequest("Spark skips files whose name begins so", file=file, hint="rename the file")
    return "file://" + re.sub(r"([*?\[\]{}\\])", r"\\\1", os.path.abspath(file))


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


def _session(master: str) -> SparkSession:
    # Loaded here because only this command needs Spark, and it is large.
    try:
        from holdfast.engines.spark.session import local_session
    except ModuleNotFoundError as error:
        hint = "pip install 'holdfast[spark]'"
        raise InvalidRequest("Spark is not installed", missing=error.name, hint=hint) from error
    session = local_session("holdfast write", master=master)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def _frame(
    session: SparkSession,
    sources: list[str],
    *,
    kind: str,
    schema: pa.Schema | None,
    header: bool,
    is_partial: bool,
) -> DataFrame:
    """The rows of the files. Columns that JSON files lack are null, unless rows may be partial."""
    # A value that does not fit its column must stop the write, not become null.
    reader = session.read.option("mode", "FAILFAST")
    if kind == "parquet":
        return reader.parquet(*sources)
    if schema is None:
        reader = reader.option("inferSchema", True).option("header", header)
        return reader.csv(sources) if kind == "csv" else reader.json(sources)
    from holdfast.engines.spark.types import spark_schema_of

    wanted = spark_schema_of(schema)
    if kind == "json":
        found = session.read.option("primitivesAsString", True).json(sources).columns
        _refuse_unknown(found, schema)
        if is_partial:
            wanted = type(wanted)([wanted[name] for name in found])
        return reader.schema(wanted).json(sources)
    if header:
        # Spark goes by position even if there are names; so the schema is brought into their order,
        # and every file's names are compared with it.
        found = session.read.option("header", True).csv(sources).columns
        _refuse_unknown(found, schema)
        wanted = type(wanted)([wanted[name] for name in found])
    reader = reader.option("header", header).option("enforceSchema", not header)
    return reader.schema(wanted).csv(sources)


def _refuse_unknown(found: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in found if name not in schema.names]
    if unknown:
        columns = ", ".join(schema.names)
        raise SchemaMismatch("the table has no such column", column=unknown[0], columns=columns)


@contextmanager
def _progress(text: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    # Loaded here because nobody looks at it in a pipe.
    from rich.console import Console

    with os.fdopen(os.dup(_STANDARD_ERROR), "w") as terminal, Console(file=terminal).status(text):
        yield


def _print_commit(commit: Commit) -> None:
    print_reports(commit.rolled_back)
    print_facts(
        [
            ("commit", commit.instant),
            ("operation", commit.operation),
            ("records written", commit.records_written),
            ("inserted, updated, deleted", _changes(commit)),
            ("files written", f"{commit.files_written}, {Bytes(commit.bytes_written)}"),
            ("partitions", counted(len(commit.partitions), "partition")),
        ]
    )
    for problem in commit.post_commit_errors:
        print_warning(f"the commit stands, but afterwards: {problem}")


def _changes(commit: Commit) -> str:
    return f"{commit.records_inserted}, {commit.records_updated}, {commit.records_deleted}"
