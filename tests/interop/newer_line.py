"""Tables of versions 8 and 9, as one line of Hudi makes them: `8|9 [short]`. One JVM, one process.

Hudi makes each table and is asked everything about it; we have to give the same answers. hudi-rs is the
second judge of the snapshot. Where Hudi fails to read what it wrote, or leaves rows out, that is said.
HOLDFAST_INTEROP_ONLY, a regular expression, chooses tables by their names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast
from harness.hudi_fixtures import as_json
from harness.hudi_reader import hudi_snapshot
from holdfast.errors import HoldfastError, SnapshotExpired, UnsupportedTable
from interop.engines import start_session
from interop.lines import NEWER
from interop.newer import RECIPES, Recipe, answers, make

_SHORT = ("cow_complex", "cow_archived", "mor_event_time", "mor_compaction_pending", "mor_archived_logs")
_BEGINNING = "19700101000000000"
_PARTLY_CHANGES = "changes, a part of which Hudi gives,"
_LEFT_OUT = ("_hoodie_commit_seqno", "_hoodie_file_name", "at")
"""Of the column of a timestamp key generator, Hudi gives its text or its path."""


def main() -> int:
    version = sys.argv[1]
    line = NEWER[version]
    only = os.environ.get("HOLDFAST_INTEROP_ONLY", "")
    shutil.rmtree(line.tables, ignore_errors=True)
    line.tables.mkdir(parents=True)
    spark = start_session(line, line.tables)
    counts: Counter[str] = Counter(held=0, FAILED=0, comparisons=0)
    for name, recipe in RECIPES.items():
        is_asked = name in _SHORT or "short" not in sys.argv[2:]
        if version not in recipe.only or not is_asked or not re.search(only, name):
            continue
        began, path = time.monotonic(), line.tables / name
        make(spark, name, recipe, path)
        wrong = _compare(recipe, path, {} if recipe.refused else answers(spark, path), counts, version)
        counts["FAILED" if wrong else "held"] += 1
        _say(f"{'FAILED' if wrong else 'held'}  {name}  {time.monotonic() - began:.0f} s")
        for text in wrong:
            _say(f"    {text}")
    spark.stop()
    _say(json.dumps(counts))
    return 0


def _compare(
    recipe: Recipe, path: Path, said: dict[str, Any], counts: Counter[str], version: str
) -> list[str]:
    """What we say differently."""
    table, before = holdfast.open_table(str(path)), _files(path)
    if recipe.refused:
        try:
            table.to_arrow()
        except UnsupportedTable as error:
            return [] if recipe.refused in str(error) else [f"refused for another reason: {error}"]
        return ["it was to be refused"]
    asked: list[tuple[str, Any, Any]] = [
        ("snapshot", said["snapshot"], lambda: table.to_arrow(meta_columns=True)),
        ("hudi-rs", _rows(table.to_arrow(meta_columns=True)), lambda: hudi_snapshot(path)),
        (
            "read optimized", said["read_optimized"],
            lambda: table.to_arrow(meta_columns=True, read_optimized=True),
        ),
    ]  # fmt: skip
    for moments in (said["as_of"], said["as_of_completion"]):
        for moment, rows in moments.items():
            asked.append(
                (f"as of {moment}", rows, lambda m=moment: table.to_arrow(meta_columns=True, as_of=m))
            )
    changes = _PARTLY_CHANGES if version == "8" else "changes"
    for since, until, rows in said["changes"]:
        start = _BEGINNING if since == "000" else since
        asked.append(
            (
                f"{changes} {since} {until}",
                _in_range(rows, said["commits"], since, until),
                lambda s=start, u=until: table.changes_to_arrow(since=s, until=u, meta_columns=True),
            )
        )  # fmt: skip
    wrong = [text for text in (_differs(*each, counts) for each in asked) if text]
    return wrong + (["reading changed the table"] if _files(path) != before else [])


def _in_range(rows: Any, commits: list[tuple[str, str]], since: str, until: str) -> Any:
    """Of Hudi's rows those of the range: 1.0 gives older ones of merge-on-read tables in their place."""
    if isinstance(rows, str):
        return rows
    if since == "000":
        return None
    within = {request for request, end in commits if since < end <= until}
    return [row for row in rows if row["_hoodie_commit_time"] in within]


def _differs(what: str, theirs: Any, ask: Any, counts: Counter[str]) -> str:
    if theirs is None or isinstance(theirs, str):
        return ""  # Hudi has no answer, or not the whole one.
    try:
        ours = _rows(ask())
    except SnapshotExpired:
        return ""  # A clean took files; Hudi gives what is left.
    except HoldfastError as error:
        return f"{what}: {error}"
    except Exception as error:  # noqa: BLE001  # hudi-rs, which cannot read every table
        return "" if what == "hudi-rs" else f"{what}: {error}"
    counts["comparisons"] += 1
    if ours == _plain(theirs):
        return ""
    # Where Hudi 1.0 leaves a row out, or gives an older one, its answer is a part of ours.
    if what.startswith(_PARTLY_CHANGES) and set(_plain(theirs)) <= set(ours):
        return ""
    return f"{what}: {sorted(set(ours) ^ set(_plain(theirs)))[:2]}"


def _rows(rows: pa.Table) -> list[str]:
    return _plain(rows.to_pylist())


def _plain(rows: list[Any]) -> list[str]:
    if rows and isinstance(rows[0], str):
        return rows
    # Hudi's changes have the columns of now, null, where ours have those of then.
    kept = ({k: as_json(v) for k, v in row.items() if k not in _LEFT_OUT and v is not None} for row in rows)
    return sorted(json.dumps(row, sort_keys=True) for row in kept)


def _files(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in sorted(folder.rglob("*"))}


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
