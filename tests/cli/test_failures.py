"""Exit codes and the one line on standard error."""

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress

import click
import pytest

import holdfast
from holdfast import errors
from holdfast.cli.failures import exit_code, one_line
from holdfast.cli.main import cli


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.HoldfastError, 1),
        (errors.InvalidRequest, 2),
        (errors.TableNotFound, 2),
        (errors.SnapshotExpired, 2),
        (errors.Conflict, 3),
        (errors.WriterActive, 3),
        (errors.Fenced, 3),
        (errors.StorageUnavailable, 4),
        (errors.TableDamaged, 5),
        (errors.OutcomeUnknown, 6),
    ],
)
def test_each_kind_of_error_has_its_exit_code(kind, code):
    assert exit_code(kind("something happened")) == code


def test_an_error_that_is_not_listed_has_the_code_of_its_nearest_ancestor():
    class MoreSpecial(errors.LockTimeout):
        pass

    assert exit_code(MoreSpecial("the lock was busy")) == 3


def test_any_other_exception_is_an_internal_error():
    error = ZeroDivisionError("division by zero\nin many\nlines")

    assert exit_code(error) == 1
    assert one_line(error) == "internal error: ZeroDivisionError: division by zero; --debug shows where"


def test_the_line_names_message_facts_hint_and_notes():
    error = errors.Refused("a rule forbids it", instant="1", hint="ask first")
    error.add_note("and a second thing failed")

    assert one_line(error) == "a rule forbids it (instant: 1); ask first; and a second thing failed"


def test_control_characters_cannot_break_the_line_or_steer_the_terminal():
    error = errors.InvalidRequest("bad", name="a\nb\x1b[31m")

    assert one_line(error) == "bad (name: a\\nb\\x1b[31m)"


def _fails_with(result, code, text):
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("holdfast: ")
    assert text in result.stderr
    assert result.stderr.count("\n") == 1
    return True


def test_an_unknown_table_is_one_line_and_code_2(run, tmp_path):
    assert _fails_with(run("timeline", "show", tmp_path / "none"), 2, "there is no table here")


def test_programs_get_the_error_as_a_document(run, tmp_path):
    path = tmp_path / "none"

    result = run("timeline", "show", path, "--json")

    assert result.exit_code == 2
    assert json.loads(result.stdout) == {
        "error": {
            "kind": "TableNotFound",
            "message": "there is no table here",
            "facts": {"path": str(path)},
            "hint": "check the path, or create the table first",
            "exit_code": 2,
        }
    }
    assert result.stderr.startswith("holdfast: there is no table here")


def test_programs_get_wrong_usage_as_a_document_too(run):
    error = json.loads(run("timeline", "show", "--nonsense", "--json").stdout)["error"]

    assert (error["kind"], error["exit_code"]) == ("WrongUsage", 2)
    assert "--nonsense" in error["message"]


def test_a_document_is_not_asked_for_by_a_value(run, tmp_path):
    assert run("show", "--", "--json").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["timeline", "show"], "Missing argument 'PATH'; see holdfast timeline show --help"),
        (["timeline", "show", "x", "--nonsense"], "No such option '--nonsense'"),
        (["timeline", "show", "x", "--limit", "-1"], "--limit"),
        (["nonsense"], "No such command 'nonsense'"),
        (["show", "x", "--storage-option", "region"], "'region' is not KEY=VALUE"),
        (["show", "ftp://host/x"], "the scheme is not known"),
        (["show", ""], "not a path"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(run, arguments, text):
    assert _fails_with(run(*arguments), 2, text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["commit", "showfiles", "--commit", "20200101000000000"],
        ["commit", "showpartitions", "--commit", "20200101000000000"],
        ["fsview", "--as-of", "yesterday"],
        ["read", "--as-of", "yesterday"],
    ],
)
def test_an_unknown_instant_has_code_2(run, table, arguments):
    result = run(*arguments, table)

    assert result.exit_code == 2
    assert result.stderr.startswith(
        ("holdfast: no completed commit has this time", "holdfast: not an instant")
    )


def test_storage_that_refuses_has_code_4(run, tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    assert _fails_with(run("show", tmp_path / "loop"), 4, "storage refused")


def test_a_truncated_properties_file_has_code_5(run, table, truncated):
    truncated(table / ".hoodie" / "hoodie.properties")

    assert _fails_with(run("show", table), 5, "file: .hoodie/hoodie.properties")


@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff" * 50, b"[1]"])
@pytest.mark.parametrize("command", [["show"], ["read"], ["commits", "show"]])
def test_a_commit_that_cannot_be_read_has_code_5(run, table, times, command, content):
    (table / ".hoodie" / f"{times[-1]}.commit").write_bytes(content)

    assert _fails_with(run(*command, table), 5, f"file: .hoodie/{times[-1]}.commit")


def test_a_commit_whose_statistics_make_no_sense_has_code_5(run, table, times):
    (table / ".hoodie" / f"{times[-1]}.commit").write_bytes(b'{"partitionToWriteStats": 7}')

    assert _fails_with(run("commits", "show", table), 5, f"file: .hoodie/{times[-1]}.commit")


@pytest.mark.parametrize("arguments", [[], ["--to", "rows.csv"]])
def test_a_truncated_data_file_has_code_5_and_leaves_no_output(
    run, table, truncated, arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    truncated(next(table.glob("city=paris/*.parquet")))

    assert _fails_with(run("read", table, *arguments), 5, "a data file cannot be read (file: city=paris/")
    assert os.listdir(tmp_path) == [table.name]


def test_a_damaged_ledger_has_code_5(run, table, truncated):
    truncated(table / ".hoodie" / ".holdfast" / "ledger" / f"{2:020d}")

    assert _fails_with(run("rollbacks", "run", table, "--yes"), 5, "ledger entry cannot be read")


def test_a_traceback_is_shown_with_debug_only(run_process, table):
    (table / ".hoodie" / "hoodie.properties").write_bytes(b"broken")

    quiet = run_process("show", table)
    loud = run_process("show", table, "--debug")

    assert (quiet.returncode, loud.returncode) == (5, 5)
    assert "Traceback" not in quiet.stderr
    assert loud.stderr.startswith("Traceback")
    assert loud.stderr.splitlines()[-1] == quiet.stderr.strip()


def test_a_bug_in_a_command_is_an_internal_error_without_a_traceback(run):
    @click.command("broken")
    def broken() -> None:
        raise KeyError("surprise")

    cli.add_command(broken)
    try:
        result = run("broken")
    finally:
        del cli.commands["broken"]

    assert _fails_with(result, 1, "internal error: KeyError: 'surprise'")


def test_a_reader_that_leaves_early_causes_no_complaint(empty_table, trips):
    holdfast.open_table(str(empty_table)).insert(trips(0, 20_000))
    command = [sys.executable, "-m", "holdfast", "read", str(empty_table), "--json"]
    # Without buffers Python takes a write that the reader cut short for a whole one.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=buffered) as process:
        process.stdout.read(10)
        process.stdout.close()

        complaint = process.stderr.read()

    assert complaint == b""
    assert process.returncode == 1


def test_an_interrupt_is_one_line_and_code_130(table, begin):
    begin("dead", is_gone=True)
    command = [sys.executable, "-m", "holdfast", "rollbacks", "run", str(table)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe,
        # Whoever runs the tests in the background ignores the signal, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        asked = process.stderr.read(len("Roll back 1 failed write? [y/N]:"))
        while process.poll() is None:
            # A signal that comes just before the process waits for its input does not wake it.
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2)
        rest = process.stderr.read()

    assert asked == b"Roll back 1 failed write? [y/N]:"
    assert rest.strip() == b"holdfast: interrupted"
    assert process.returncode == 130


def test_python_without_asserts_is_refused():
    command = [sys.executable, "-O", "-m", "holdfast", "--version"]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 2
    assert result.stderr.startswith("holdfast: python -O removes checks")


def test_the_commands_that_a_message_proposes_name_the_table(run, tmp_path, table, times):
    spaced = tmp_path / "a lake" / "trips"
    spaced.parent.mkdir()
    table.rename(spaced)
    assert run("savepoint", "create", spaced).exit_code == 0

    result = run("undo", spaced, "--yes")

    assert result.exit_code == 2
    command = result.stderr.strip().partition("first: holdfast ")[2]
    assert command == f"savepoint delete '{spaced}' --commit {times[1]}"
    assert run(*shlex.split(command), "--yes").exit_code == 0


def test_damage_proposes_to_verify_and_verify_tells_what_to_do(run, table):
    entry = sorted((table / ".hoodie/.holdfast/ledger").iterdir())[1]
    entry.write_bytes(b"not an entry")

    result = run("show", table)

    assert (result.exit_code, result.stderr.count("\n")) == (5, 1)
    assert f"holdfast verify {table} tells" in result.stderr
    verified = run("verify", table)
    assert (verified.exit_code, "put the file back from a backup" in verified.stdout) == (5, True)


def test_whoever_interrupts_even_the_start_gets_one_line():
    program = """
import runpy, sys
class Impatient:
    def find_spec(self, name, *_):
        if name == "holdfast.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Impatient())
runpy.run_module("holdfast", run_name="__main__")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "holdfast: interrupted\n")
