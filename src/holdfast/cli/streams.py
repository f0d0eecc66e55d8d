"""`holdfast streams`: which streams read and write a table, and how far they are."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import ShownByDefault, table_command
from holdfast.cli.output import print_json, print_line
from holdfast.cli.output import show as show_document
from holdfast.services.documents import Document, Line, Rows, iso
from holdfast.table.opened import open_at

_HEADER = ("Stream", "Direction", "Instant", "Batch", "Commits Behind", "Seconds Behind", "Held Until")


@click.group(cls=ShownByDefault)
def streams() -> None:
    """The streams of a table."""


@streams.command("show")
@table_command
def show(path: str, *, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Show who reads the table at PATH as a stream, how far and how far behind, and who appends to it.

    What a stream that reads goes on from is held until the time shown, unless it goes on before.
    Those that write are the applications that number their writes.

    \b
    Example: holdfast streams show lake/trips
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.streams import streams as all_streams

    found = all_streams(open_at(path, storage_options))
    documents = [
        {
            "stream": each.stream,
            "direction": each.direction,
            "instant": each.instant,
            "batch": each.batch,
            "commits_behind": each.commits_behind,
            "seconds_behind": None if each.behind is None else round(each.behind.total_seconds(), 3),
            "held_until": None if each.expires_at is None else iso(each.expires_at),
            "is_expired": each.is_expired,
        }
        for each in found
    ]
    rows = [[value for name, value in each.items() if name != "is_expired"] for each in documents]
    block = Rows(_HEADER, rows) if rows else Line("no streams")
    show_document(Document((block,), {"streams": documents}), as_json=as_json)


@streams.command("release")
@table_command
@click.option("--query", required=True, metavar="NAME", help="The stream, as `streams show` names it.")
def release(path: str, *, query: str, as_json: bool, storage_options: Mapping[str, str]) -> None:
    """Let go of what is held for a stream of the table at PATH that will not go on.

    A stream that goes on nevertheless may find that a clean has removed what it has not read.

    \b
    Example: holdfast streams release lake/trips --query hourly
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.leases import release_stream

    was_held = release_stream(open_at(path, storage_options), query)
    if as_json:
        print_json({"query": query, "released": was_held})
    else:
        print_line(f"released {query}" if was_held else f"nothing is held for {query}")
