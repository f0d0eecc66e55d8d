"""`holdfast console`: lake tables in a browser."""

import os
import signal
import sys
import threading
from collections.abc import Iterable

import click

from holdfast.cli.arguments import remember_debug
from holdfast.cli.output import print_json, print_line
from holdfast.cli.serve import refuse_without_extra
from holdfast.errors import InvalidRequest
from holdfast.table.opened import open_at


@click.command(short_help="See tables, and take them back, in a browser.")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9010, show_default=True, help="0 takes any that is free."
)
@click.option("--catalog", metavar="FILE", help="A file that names more tables, in YAML.")
@click.option("--read-only", is_flag=True, help="Let nobody change anything.")
@click.option("--json", "as_json", is_flag=True, help="Say where it listens as one JSON document.")
@click.option("--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks.")
def console(
    paths: tuple[str, ...], *, port: int, catalog: str | None, read_only: bool, as_json: bool
) -> None:
    """Show the lake tables at PATH in a browser, without the push service.

    It listens on the loopback address only: whoever works on this machine
    can see and take back what you can, unless --read-only is given.

    \b
    Example: holdfast console lake/trips lake/orders --port 9010
    """
    refuse_without_extra()
    # Loaded here because other commands must not wait for the server's packages.
    from holdfast.config.catalog import load_catalog
    from holdfast.console.run import lake_site, serving_console

    tables = {**(load_catalog(catalog).tables if catalog else {}), **name_tables(paths)}
    if not tables:
        raise InvalidRequest("no table is named", hint="give the path of a lake table, or --catalog FILE")
    for path in paths:
        open_at(path)  # A mistyped path is told now, not on a page; tables of a catalog may come later.
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with serving_console(lake_site(tables, is_read_only=read_only), port=port) as url:
        if as_json:
            print_json({"console": f"{url}/", "tables": tables})
        else:
            print_line(f"console: {url}/")
            print_line("Ctrl-C stops it")
        sys.stdout.flush()
        stopped.wait()
    if not as_json:
        print_line("stopped")


def name_tables(paths: Iterable[str]) -> dict[str, str]:
    """A name for each table: the last part of its path, with a number where that is taken."""
    # Loaded here because it brings a reader of YAML, which other commands must not wait for.
    from holdfast.config.catalog import is_name

    found: dict[str, str] = {}
    for path in paths:
        last = path.rstrip("/").rpartition("/")[2]
        wanted = last if is_name(last) else "table"
        names = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, 10_000))
        name = next(name for name in names if name not in found)
        found[name] = path if "://" in path else os.path.abspath(path)
    return found
