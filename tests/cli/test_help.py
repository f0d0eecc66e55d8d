"""Help, version and what a command must not load."""

import json
import os
import pty
import subprocess
import sys

import click
import pytest

from holdfast import __version__
from holdfast.cli.main import cli

WITHOUT_PATH = ("run", "serve", "push", "query", "console")
"""Commands that are about a pipeline, the push service or several tables, and not about one at a path."""


def _commands(group=cli, words=()):
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name)


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_every_command_explains_itself_with_an_example_and_has_the_shared_options(run, words):
    result = run(*words, "--help")

    assert result.exit_code == 0
    about, options = (
        ("", ()) if words[0] in WITHOUT_PATH else (" lake/trips", ("--storage-option KEY=VALUE",))
    )
    assert f"Example: holdfast {' '.join(words)}{about}" in result.stdout
    for option in ("--json", "--debug", *options):
        assert option in result.stdout


def test_the_version_is_printed(run_process):
    result = run_process("--version")

    assert (result.returncode, result.stdout) == (0, f"holdfast, version {__version__}\n")


def test_without_arguments_the_commands_are_listed(run):
    result = run()

    assert result.exit_code == 2
    assert "rollbacks" in result.stderr


_CHILD = """
import json, sys
from holdfast.cli.main import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as leaving:
    heavy = ("pyarrow", "numpy", "pyspark", "obstore", "rich", "duckdb", "sqlglot", "starlette", "yaml")
    loaded = {name for name in sys.modules if name in heavy}
    print(json.dumps([leaving.code, sorted(loaded)]), file=sys.stderr)
"""


def _loaded(*arguments):
    command = [sys.executable, "-c", _CHILD, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stderr)


def test_looking_at_the_timeline_loads_neither_arrow_nor_spark(table, times):
    for words in (
        ["timeline", "show"],
        ["commits", "show"],
        ["commit", "showfiles", "--commit", times[0]],
        ["commit", "showpartitions", "--commit", times[0]],
        ["rollbacks", "show"],
        ["heartbeats", "show"],
        ["cleans", "show"],
        ["savepoints", "show"],
    ):
        assert _loaded(*words, table) == [0, []], words


def test_reading_does_not_load_spark(table):
    for words in (["read"], ["show"], ["fsview"]):
        code, loaded = _loaded(*words, table)

        assert code == 0
        assert "pyarrow" in loaded
        assert "pyspark" not in loaded


def test_on_a_terminal_nothing_of_an_instant_is_cut_off(table, times):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-m", "holdfast", "timeline", "show", str(table)]

    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        process.wait(timeout=60)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)

    assert all(time in shown for time in times)
    assert "\x1b[32mCOMPLETED" in shown


@pytest.mark.parametrize("group", ["timeline", "commits", "rollbacks", "cleans", "savepoints", "heartbeats"])
def test_a_group_of_things_shows_them(run, table, group):
    shown = run(group, table)

    assert shown.exit_code == 0
    assert shown.stdout == run(group, "show", table).stdout


def test_the_words_of_hudi_cli_are_other_names(run, table, times):
    ours = run("commits", "showfiles", table, "--commit", times[0])

    assert ours.exit_code == 0
    assert run("commit", "showfiles", table, "--commit", times[0]).stdout == ours.stdout


def test_a_slip_of_a_command_is_not_taken_for_a_path(run, table):
    result = run("commits", "showfile", table)

    assert result.exit_code == 2
    assert "No such command 'showfile'" in result.stderr
