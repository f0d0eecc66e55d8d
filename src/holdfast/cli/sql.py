"""`holdfast sql`: statements over tables, one by one or as they are typed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.arguments import limit_option, pairs, remember_debug, wide_option
from holdfast.cli.failures import one_line
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.cli.write import print_commit
from holdfast.errors import HoldfastError
from holdfast.jobs.process import spark_session
from holdfast.model.reports import Commit
from holdfast.services.documents import quantity

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from holdfast.statements.catalog import Catalog

_ROWS_FOR_PEOPLE = 20
_KEYWORDS = (
    "SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN ON AS WITH UNION ALL DISTINCT CASE WHEN THEN ELSE "
    "END INSERT INTO OVERWRITE VALUES PARTITION UPDATE SET DELETE MERGE USING MATCHED NOT SOURCE "
    "CREATE TABLE IF EXISTS PARTITIONED TBLPROPERTIES LOCATION DROP ALTER ADD COLUMNS COLUMN TYPE "
    "TRUNCATE SHOW TABLES DESCRIBE HISTORY EXTENDED CALL TIMESTAMP VERSION OF AND OR IN IS NULL LIKE "
    "BETWEEN"
)
_STARTS_WITHOUT_SPARK = ("SHOW", "DESCRIBE", "DESC", "CALL")


@click.command("sql", short_help="Run SQL statements over tables.")
@click.argument("statement", required=False)
@click.option(
    "--catalog",
    metavar="FILE",
    envvar="HOLDFAST_CATALOG",
    help="A YAML file with the names of tables. HOLDFAST_CATALOG.",
)
@click.option(
    "--engine", type=click.Choice(["spark", "duckdb"]), default="spark", show_default=True,
    help="What runs queries; DuckDB reads only, and needs no Java.",
)  # fmt: skip
@click.option(
    "--master", default="local[*]", show_default=True, help="The Spark master, or a Spark Connect URL."
)
@click.option(
    "--option", "options", multiple=True, callback=pairs, metavar="KEY=VALUE",
    help="A write option by Hudi's name. Repeats.",
)  # fmt: skip
@click.option(
    "--storage-option", "storage_options", multiple=True, callback=pairs, metavar="KEY=VALUE",
    help="An option of the object store, such as region or endpoint. Repeats.",
)  # fmt: skip
@limit_option("At most N rows. Without it people get 20; --json gives all.")
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Give one JSON document instead of text.")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks.")
def sql(
    statement: str | None,
    *,
    catalog: str | None,
    engine: str,
    master: str,
    options: Mapping[str, str],
    storage_options: Mapping[str, str],
    limit: int | None,
    as_json: bool,
) -> None:
    """Run STATEMENT, or the statements of standard input, which semicolons separate.

    On a terminal without STATEMENT statements are read as they are typed, with
    a history and completion. A table is a name of the catalog, or
    holdfast.`PATH`. Spark starts with the first statement that needs it.

    \b
    Example: holdfast sql "SELECT city, count(*) FROM holdfast.`lake/trips` GROUP BY city"
    """
    from holdfast.statements.catalog import open_catalog
    from holdfast.statements.syntax import split_statements

    runner = _Runner(
        catalog=open_catalog(catalog, storage_options=storage_options), engine=engine, master=master,
        options=options, limit=limit,
    )  # fmt: skip
    if statement is not None:
        runner.show(runner.run(statement), as_json=as_json)
    elif as_json or not sys.stdin.isatty():
        answers: list[object] = []
        for text in split_statements(sys.stdin.read()):
            answer = runner.run(text)
            answers.append(answer)
            if not as_json:
                runner.show(answer, as_json=False)
        if as_json:
            print_json({"results": [runner.document(answer) for answer in answers]})
    else:
        _converse(runner)


@dataclass(frozen=True)
class _Runner:
    catalog: Catalog
    engine: str
    master: str
    options: Mapping[str, str]
    limit: int | None

    @cached_property
    def spark(self) -> SparkSession:
        return spark_session("holdfast sql", self.master)

    def run(self, text: str) -> object:
        from holdfast.statements.duck import run_with_duckdb
        from holdfast.statements.names import Context
        from holdfast.statements.run import run_statement

        needs_spark = self.engine == "spark" and not text.lstrip().upper().startswith(_STARTS_WITHOUT_SPARK)
        context = Context(
            text=text, catalog=self.catalog, options=self.options, spark=self.spark if needs_spark else None
        )
        return run_with_duckdb(context) if self.engine == "duckdb" else run_statement(context)

    def show(self, answer: object, *, as_json: bool) -> None:
        if as_json:
            print_json(self.document(answer))
        elif isinstance(answer, Commit):
            print_commit(answer)
        elif _has_rows(answer):
            self._print_rows(answer)
        else:
            print_line("done" if answer is None else str(answer))

    def document(self, answer: object) -> object:
        """The answer as programs read it."""
        from holdfast.cli.values import row_documents

        if _has_rows(answer):
            rows = _rows(answer, self.limit)
            return {"columns": rows.column_names, "rows": list(row_documents(rows))}
        if is_dataclass(answer) and not isinstance(answer, type):
            return asdict(answer)
        return {"result": None if answer is None else str(answer)}

    def _print_rows(self, answer: object) -> None:
        from holdfast.cli.values import cell, row_documents

        wanted = _ROWS_FOR_PEOPLE if self.limit is None else self.limit
        rows = _rows(answer, wanted + 1)
        shown = rows.slice(0, wanted)
        documents = list(row_documents(shown))
        if documents:
            header = rows.column_names
            print_table(header, [[cell(document[name]) for name in header] for document in documents])
        more = "; there are more: --limit shows them" if rows.num_rows > wanted else ""
        print_line(f"{quantity(len(documents), 'row')}{more}")


def _has_rows(answer: object) -> bool:
    return hasattr(answer, "column_names") or hasattr(answer, "mapInArrow")


def _rows(answer: Any, limit: int | None) -> pa.Table:
    if hasattr(answer, "mapInArrow"):
        from holdfast.engines.spark.failures import spark_failures_as_ours
        from holdfast.engines.spark.statements import collect_rows

        with spark_failures_as_ours():
            return collect_rows(answer, limit)
    rows: pa.Table = answer if limit is None else answer.slice(0, limit)
    return rows


def _converse(runner: _Runner) -> None:
    """Run statements as they are typed, until the end of input. One that fails ends nothing."""
    from holdfast.statements.syntax import split_statements

    with suppress(ImportError):
        _remember_lines(runner)
    for text in _read_statements():
        try:
            for statement in split_statements(text):
                runner.show(runner.run(statement), as_json=False)
        except HoldfastError as error:
            click.echo(f"holdfast: {one_line(error)}", err=True)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)


def _read_statements() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            line = input("   ...> " if lines else "holdfast> ")
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            lines = []
            continue
        if not lines and line.strip().lower() in ("exit", "quit"):
            return
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []


def _remember_lines(runner: _Runner) -> None:
    """Let the terminal keep a history between runs, and complete keywords, tables and columns."""
    import atexit
    import readline

    file = history_file()
    os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
    with suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(1000)
    atexit.register(_keep_history, file)
    words = completions(runner.catalog)
    readline.set_completer_delims(" \t\n(),;=<>`")
    readline.set_completer(lambda text, at: find_completion(words, text, at))
    readline.parse_and_bind("tab: complete")


def history_file() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "holdfast", "sql_history")


def _keep_history(file: str) -> None:
    import readline

    with suppress(OSError):
        readline.write_history_file(file)
        os.chmod(file, 0o600)


def completions(catalog: Catalog) -> list[str]:
    """The words that statements consist of: keywords, tables, and the columns of these."""
    from holdfast.lake import open_table

    words = _KEYWORDS.split()
    for name, path in catalog.names().items():
        words.append(name)
        with suppress(HoldfastError):
            schema = open_table(path, storage_options=catalog.storage_options).schema()
            words += schema.names if schema is not None else []
    return list(dict.fromkeys(words))


def find_completion(words: list[str], text: str, number: int) -> str | None:
    """What a beginning may become, one number after the other, then None."""
    fitting = [word for word in words if word.lower().startswith(text.lower())]
    return fitting[number] if number < len(fitting) else None
