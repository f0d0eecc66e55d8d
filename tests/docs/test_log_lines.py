"""Every log line about a table says which."""

import ast
from collections.abc import Iterator
from pathlib import Path

import holdfast

SOURCES = Path(holdfast.__file__).parent
OF_THE_PUSH_SERVICE = ("push", "server")
LEVELS = frozenset({"debug", "info", "warning", "error", "exception"})

WITHOUT_TABLE = {
    "timer.failed": "the clock knows no table; the timer's name is that of its work",
    "options.ignored": "options are read before any table is opened",
    "options.contradictory": "the same",
    "engine.restarted": "of the Spark session",
    "engine.query_goes_on": "of the Spark session",
    "engine.not_restarted": "of the Spark session",
    "engine.no_answer": "of the Spark session",
    "job.not_cancelled": "of the Spark session",
    "push_job.repeats": "of a call to the push service",
    "storage.closed_to_others": "names the whole path",
}
OF_ZOOKEEPER = frozenset({"lock.lost", "lock.holder_unknown"})
"""The lock of several tables, if they are told so; the line has its whole path."""


def _lines() -> Iterator[tuple[Path, str, ast.Call]]:
    for path in sorted(SOURCES.rglob("*.py")):
        if path.relative_to(SOURCES).parts[0] in OF_THE_PUSH_SERVICE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[first, *_]):
                    if level in LEVELS:
                        assert isinstance(first, ast.Constant), (path, node.lineno)
                        yield path, str(first.value).partition(":")[0], node


def _facts(call: ast.Call) -> set[str]:
    extra = [word.value for word in call.keywords if word.arg == "extra"]
    keys = (key for one in extra if isinstance(one, ast.Dict) for key in one.keys)
    return {key.value for key in keys if isinstance(key, ast.Constant)}


def test_every_log_line_names_its_table_or_is_known_to_be_of_none():
    nameless = {
        (path.name, event)
        for path, event, call in _lines()
        if "table" not in _facts(call)
        and event not in WITHOUT_TABLE
        and not (path.name == "zookeeper.py" and event in OF_ZOOKEEPER)
    }

    assert nameless == set()


def test_the_exceptions_are_there():
    assert {event for _, event, _ in _lines()} >= {*WITHOUT_TABLE, *OF_ZOOKEEPER}
