"""A table as notebooks show it. It costs two reads: of the timeline and of the newest commit."""

from html import escape

from holdfast.errors import HoldfastError
from holdfast.model.shown import html_table
from holdfast.read.snapshot import table_schema
from holdfast.table.opened import OpenTable
from holdfast.timeline.timeline import load_timeline

_COMMITS_MAX = 5


def table_html(table: OpenTable) -> str:
    settings = table.settings
    rows: list[tuple[str, str]] = [
        ("path", escape(table.location.uri)),
        ("type", escape(settings.table_type)),
        ("record key", escape(", ".join(settings.record_key)) or "none"),
        ("partitioned by", escape(", ".join(settings.partition_by)) or "nothing"),
        ("ordering", escape(settings.ordering or "none")),
    ]
    try:
        rows += _contents(table)
    except HoldfastError as error:
        # A notebook that shows a table must not end in a traceback for it.
        rows.append(("cannot be read", escape(str(error))))
    return html_table(settings.name, rows)


def _contents(table: OpenTable) -> list[tuple[str, str]]:
    timeline = load_timeline(table.store)
    schema = table_schema(table, timeline)
    commits = timeline.completed_commits
    newest = [f"{commit.time} {commit.action}" for commit in reversed(commits[-_COMMITS_MAX:])]
    older = len(commits) - len(newest)
    if older:
        newest.append(f"and {older} older")
    columns = [f"{field.name} {field.type}" for field in schema or ()]
    return [
        ("columns", "<br>".join(map(escape, columns)) or "none yet"),
        ("commits", "<br>".join(map(escape, newest)) or "none yet"),
    ]
