"""`holdfast query`: ask the broker."""

from typing import Any

import click

from holdfast.cli.arguments import remember_debug, wide_option
from holdfast.cli.output import print_json, print_line, print_table
from holdfast.errors import HoldfastError, InvalidRequest, StorageUnavailable, TableNotFound
from holdfast.jobs.service_client import DEFAULT_BROKER, ServiceClient

_ERRORS: dict[int, type[HoldfastError]] = {
    **dict.fromkeys((100, 150, 180, 700, 710, 720), InvalidRequest),
    **dict.fromkeys((235, 305, 410, 429), StorageUnavailable),
    190: TableNotFound,
}


@click.command
@click.argument("sql")
@click.option(
    "--broker", default=DEFAULT_BROKER, show_default=True, metavar="URL", envvar="HOLDFAST_BROKER",
    help="The broker. HOLDFAST_TOKEN holds the credentials.",
)  # fmt: skip
@click.option("--options", metavar="K=V;...", default="", help="Query options, such as timeoutMs=5000.")
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Give the broker's answer as one JSON document.")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks.")
def query(sql: str, *, broker: str, options: str, as_json: bool) -> None:
    """Answer SQL from the tables of the push service.

    \b
    Example: holdfast query "SELECT count(*) FROM orders"
    """
    document = {"sql": sql} | ({"queryOptions": options} if options else {})
    answer = ServiceClient(broker).post("/query/sql", document)
    _refuse_failed(answer)
    if as_json:
        print_json(answer)
        return
    result = answer.get("resultTable")
    if result is None:
        print_line("no result")
        return
    schema = result["dataSchema"]
    print_table(schema["columnNames"], [[_cell(value) for value in row] for row in result["rows"]])


def _refuse_failed(answer: dict[str, Any]) -> None:
    exceptions = answer.get("exceptions") or []
    if exceptions:
        first = exceptions[0]
        kind = _ERRORS.get(first["errorCode"], HoldfastError)
        raise kind(first["message"], error_code=first["errorCode"])


def _cell(value: object) -> object:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else value
