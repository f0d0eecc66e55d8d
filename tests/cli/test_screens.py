"""What people see: nothing is wider than the screen, and no instant, file or entry is broken."""

import re

import click
import pytest

import holdfast
from harness.screens import broken_identifiers, show_on_screen
from holdfast.cli.layout import width_of
from holdfast.cli.main import cli

SIZES = [(80, 24), (120, 40)]


@pytest.fixture
def rich_table(table, trips, times):
    """A table with something to show for every command."""
    lake = holdfast.open_table(str(table))
    lake.savepoint(user="ana", comment="before the import")
    for first in range(3):
        lake.upsert(trips(first, 12))
    lake.upsert(trips(0, 3))
    lake.undo()
    lake.clean({"hoodie.clean.commits.retained": "1"})
    return table


def _commands(path, times, clean):
    newest = times[-1]
    return [
        ["show"],
        ["timeline"],
        ["timeline", "show", "--archived", "--limit", "3"],
        ["commits"],
        ["commits", "showfiles", "--commit", newest],
        ["commits", "showpartitions", "--commit", newest],
        ["fsview"],
        ["read", "--limit", "3"],
        ["read", "--since", times[0], "--limit", "3"],
        ["heartbeats"],
        ["verify"],
        ["rollbacks"],
        ["rollbacks", "run", "--dry-run"],
        ["savepoints"],
        ["undo", "--dry-run"],
        ["undo", "--to", "latest-savepoint", "--dry-run"],
        ["restore", "--to", "before the import", "--dry-run"],
        ["savepoints", "delete", "--commit", "before the import", "--dry-run"],
        ["cleans"],
        ["cleans", "showpartitions", "--clean", clean],
        ["cleans", "run", "--explain", "--dry-run", "--hoodie-conf", "hoodie.clean.commits.retained=1"],
        ["archive", "run", "--dry-run"],
        ["repair", "--dry-run"],
        ["drop", "--dry-run"],
        ["restore", "--to", "20990101000000000", "--dry-run"],
    ]


def _identifiers(path):
    lake = holdfast.open_table(str(path))
    instants = [instant.time for instant in lake.timeline()]
    files = [file.name for file in path.rglob("*.parquet")]
    return [*instants, *files, *(name.partition("_")[0] for name in files)]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_every_command_fits_on_the_screen_with_its_identifiers_whole(rich_table, failed_write, columns, rows):
    timeline = holdfast.open_table(str(rich_table)).timeline()
    commits = [one.time for one in timeline if one.action == "commit" and one.is_completed]
    clean = next(one.time for one in timeline if one.action == "clean")
    commands = _commands(rich_table, commits, clean)
    placed = [[*words, str(rich_table)] for words in commands]

    screens = show_on_screen(placed, columns, rows)

    identifiers = _identifiers(rich_table)
    for words, (code, lines) in zip(commands, screens, strict=True):
        assert code in (0, 1, 2, 5), (words, lines)
        assert lines, words
        assert "internal error" not in "\n".join(lines), words
        assert [line for line in lines if width_of(line) > columns] == [], words
        assert broken_identifiers(lines, identifiers) == [], words


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_log_files_and_compactions_fit_on_the_screen(tmp_path, trips, columns, rows):
    path = tmp_path / "stock"
    stock = holdfast.create_table(
        str(path), name="stock", record_key="trip_id", partition_by="city", table_type="MERGE_ON_READ"
    )
    stock.bulk_insert(trips(0, 100))
    stock.upsert(trips(0, 4), options={"holdfast.mor.max.log.ratio": "1000"})
    planned = stock.schedule_compaction()
    commands = [
        ["fsview"], ["compactions"], ["compaction", "show", "--instant", planned], ["verify"], ["show"]
    ]  # fmt: skip

    screens = show_on_screen([[*words, str(path)] for words in commands], columns, rows)

    logs = [file.name for file in path.rglob(".*.log.*") if not file.name.endswith(".crc")]
    assert logs
    for words, (code, lines) in zip(commands, screens, strict=True):
        assert code == 0, (words, lines)
        # A name may be longer than the screen; then it has a line of its own.
        assert [one for one in lines if width_of(one) > columns and one.strip() not in logs] == [], words
        assert broken_identifiers(lines, [*_identifiers(path), *logs]) == [], words


def test_a_narrow_screen_leaves_out_columns_and_says_which(rich_table):
    (_, narrow), (_, wide) = show_on_screen(
        [["timeline", str(rich_table)], ["timeline", str(rich_table), "--wide"]], 80, 24
    )

    assert "not shown:" in " ".join(narrow)
    assert "--wide shows all" in " ".join(narrow)
    assert "Completed Time (UTC)" in wide[0]
    assert max(map(width_of, wide)) > 80


def test_an_error_has_a_line_for_each_fact(table):
    [(code, lines)] = show_on_screen([["restore", "--to", "20200101000000000", "--yes", str(table)]], 80, 24)

    assert code == 2
    assert lines[0].startswith("holdfast: ")
    assert any(re.fullmatch(r"  \w+: .*", line) for line in lines[1:])


@pytest.mark.parametrize("columns", [80, 120])
def test_help_lists_every_command_by_what_it_is_for_and_cuts_nothing_off(columns):
    [(_, lines)] = show_on_screen([["--help"]], columns, 24)

    assert [line for line in lines if re.fullmatch(r"\w[\w ]*:", line)] == [
        "Options:", "Write:", "Look:", "Go back:", "Serve:", "Maintain:",
    ]  # fmt: skip
    assert [line for line in lines if line.endswith("...") and not line.startswith("Usage")] == []


def test_help_of_a_group_cuts_nothing_off():
    groups = [name for name, command in cli.commands.items() if isinstance(command, click.Group)]

    screens = show_on_screen([[name, "--help"] for name in groups], 80, 24)

    for (_, lines), name in zip(screens, groups, strict=True):
        assert [line for line in lines if line.endswith("...") and not line.startswith("Usage")] == [], name
