"""Going back in the lake, and what is served of it: `--with-pushes` and `push revert --from-lake`."""

import json
import shlex
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

import holdfast
from harness.lake_pushes import PushedLake, service
from holdfast.cli.main import cli
from holdfast.services.pushes import write_push


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def lake(tmp_path, running):
    """Two commits, each pushed."""
    lake = PushedLake(tmp_path, running)
    lake.commit_and_push()
    lake.commit_and_push()
    return lake


def _ways(lake):
    """Every command that takes the second commit back."""
    lake.lake.savepoint(lake.instants[0])
    return {
        "undo": ["undo", lake.path],
        "restore": ["restore", lake.path, "--to", lake.instants[0]],
        "savepoint": ["savepoint", "rollback", lake.path, "--savepoint", lake.instants[0]],
        "commit": ["commit", "rollback", lake.path, "--commit", lake.instants[1]],
    }


WAYS = ["undo", "restore", "savepoint", "commit"]


@pytest.mark.parametrize("way", WAYS)
def test_the_push_of_a_commit_is_reverted_with_it(run, lake, way):
    result = run(*_ways(lake)[way], "--with-pushes", "--yes")

    assert result.exit_code == 0, result.stderr
    assert f"is reverted: queries see {lake.path} at {lake.instants[0]}" in result.stdout
    assert f"reverted push {lake.entries[1]} of {lake.served.typed}" in result.stdout
    assert "warning" not in result.stdout
    assert lake.served.visible() == {"s1"}
    assert lake.lake.to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("way", WAYS)
def test_a_dry_run_names_the_push_and_touches_nothing(run, lake, way):
    words = _ways(lake)[way]
    for more in ([], ["--with-pushes"]):
        text = run(*words, *more, "--dry-run")
        document = json.loads(run(*words, *more, "--dry-run", "--json").stdout)

        assert (text.exit_code, lake.entries[1] in text.stdout) == (0, True)
        [push] = document["pushes"]
        assert (push["entry"], push["instant"]) == (lake.entries[1], lake.instants[1])
        assert ("reverted: queries see" in push["then"]) is bool(more)
        assert (document["reverted"], document["warnings"]) == ([], [])
    assert lake.served.visible() == {"s2"}
    assert len(lake.lake.to_arrow()) == 2


@pytest.mark.parametrize("way", WAYS)
def test_without_the_flag_a_warning_names_what_is_served_and_the_command_that_reverts_it(run, lake, way):
    result = run(*_ways(lake)[way], "--yes")

    assert result.exit_code == 0, result.stderr
    assert lake.served.visible() == {"s2"}
    [warning] = [line for line in result.stdout.splitlines() if line.startswith("warning: ")]
    assert f"{lake.served.typed} at {lake.client.url} shows rows that were taken back" in warning
    command = shlex.split(warning[warning.index("holdfast push revert") :])
    assert run(*command[1:], "--yes").exit_code == 0
    assert lake.served.visible() == {"s1"}


def test_the_warning_is_in_the_document_too(run, lake):
    document = json.loads(run("undo", lake.path, "--yes", "--json").stdout)

    assert (document["reverted"], len(document["warnings"]), len(document["pushes"])) == ([], 1, 1)
    assert document["rolled_back"]["rolled_back"] == lake.instants[1]


def test_a_commit_that_was_never_pushed_says_nothing_about_pushes(run, lake):
    lake.commit()

    result = run("undo", lake.path, "--with-pushes", "--yes")

    assert (result.exit_code, "push" in result.stdout) == (0, False)
    assert lake.served.visible() == {"s2"}


def test_whoever_declines_keeps_both(lake):
    words = ["undo", str(lake.path), "--with-pushes"]

    result = CliRunner().invoke(cli, words, input="n\n")

    assert (result.exit_code, lake.served.visible()) == (1, {"s2"})
    assert len(lake.lake.to_arrow()) == 2


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_touched_if_the_service_does_not_answer(run, lake, way):
    [_, push] = lake.lake.pushes()
    write_push(lake.opened, replace(push, controller="http://127.0.0.1:9"))

    result = run(*_ways(lake)[way], "--with-pushes", "--yes")

    assert (result.exit_code, result.stderr.count("\n")) == (4, 1)
    assert len(lake.lake.to_arrow()) == 2


def test_nothing_is_touched_if_the_service_refuses(run, lake):
    """An open push builds on the one that would go."""
    open_push = lake.start(lake.instants[0])

    result = run("undo", lake.path, "--with-pushes", "--yes")

    assert (result.exit_code, open_push.entry_id in result.stderr) == (3, True)
    assert len(lake.lake.to_arrow()) == 2
    assert lake.served.visible() == {"s2"}


@pytest.mark.parametrize("way", WAYS)
def test_the_same_command_finishes_what_a_crash_left(run, lake, way):
    """The commit is gone, its push is not: as if the process had died between the two."""
    words = _ways(lake)[way]
    lake.lake.undo()

    result = run(*words, "--with-pushes", "--yes")

    assert result.exit_code == 0, result.stderr
    assert lake.served.visible() == {"s1"}
    assert lake.lake.to_arrow()["id"].to_pylist() == [1], "no other commit is taken back"


def test_an_undo_that_only_reverts_says_so_and_gives_the_same_document(run, lake):
    lake.lake.undo()

    shown = run("undo", lake.path, "--with-pushes", "--dry-run")
    document = json.loads(run("undo", lake.path, "--with-pushes", "--yes", "--json").stdout)

    assert "no other is taken back now" in shown.stdout
    assert (document["planned"], document["rolled_back"]) == (None, None)
    assert document["reverted"] == [lake.entries[1]]


def test_a_commit_that_is_gone_and_not_served_is_unknown_as_before(run, lake):
    lake.lake.undo()
    assert run("undo", lake.path, "--with-pushes", "--yes").exit_code == 0

    for more in ([], ["--with-pushes"]):
        result = run("commit", "rollback", lake.path, "--commit", lake.instants[1], "--yes", *more)
        assert (result.exit_code, "no write on the active timeline" in result.stderr) == (2, True)


def test_a_push_that_cannot_be_taken_back_is_left_with_a_warning(run, tmp_path, running):
    lake = PushedLake(tmp_path, running, retained=2)
    for _ in range(4):
        lake.commit_and_push()
    lake.run_retention()

    result = run("restore", lake.path, "--to", lake.instants[0], "--with-pushes", "--yes")

    assert result.exit_code == 0
    assert "push again" in result.stdout
    assert "warning: " in result.stdout
    assert lake.served.visible() == {"s4"}
    assert lake.lake.to_arrow()["id"].to_pylist() == [1]


def test_a_record_that_cannot_be_read_does_not_stop_an_undo(run, lake):
    for record in (lake.path / ".hoodie/.holdfast/pushes").iterdir():
        record.write_bytes(b"{")

    assert run("undo", lake.path, "--with-pushes", "--yes").exit_code == 5
    result = run("undo", lake.path, "--yes")

    assert result.exit_code == 0
    assert "holdfast repair" in result.stdout


def test_revert_from_a_lake_table_needs_no_entry(run, lake):
    words = ["push", "revert", lake.served.name, "--from-lake", lake.path, "--controller", lake.client.url]
    nothing = run(*words, "--yes")
    assert (nothing.exit_code, "has taken back" in nothing.stdout) == (0, True)
    lake.lake.undo()

    planned = json.loads(run(*words, "--dry-run", "--json").stdout)
    done = json.loads(run(*words, "--yes", "--json").stdout)

    assert (planned["reverted"], done["reverted"]) == ([], [lake.entries[1]])
    assert lake.served.visible() == {"s1"}
    wrong = run(*words, "--entry", "x", "--yes")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)


def test_a_service_that_moved_is_asked_at_its_new_address(run, lake):
    for push in lake.lake.pushes():
        write_push(lake.opened, replace(push, controller="http://127.0.0.1:9"))
    lake.lake.undo()

    result = run(
        "push", "revert", lake.served.name, "--from-lake", lake.path, "--controller", lake.client.url, "--yes"
    )

    assert result.exit_code == 0, result.stderr
    assert lake.served.visible() == {"s1"}


def test_lineage_and_snapshots_tell_where_rows_came_from(run, lake):
    for command in ("lineage", "snapshots"):
        shown = run("push", command, lake.served.name, "--controller", lake.client.url)
        assert f"{lake.path} at {lake.instants[1]}" in shown.stdout, command
    words = ["push", "snapshots", lake.served.name, "--controller", lake.client.url, "--json"]
    sources = [one["source"] for one in json.loads(run(*words).stdout)["snapshots"]]
    assert sources[0] == {"lake.table": str(lake.path), "lake.instant": lake.instants[1]}
    assert sources[-1] == {}


def test_taking_the_first_commit_back_leaves_no_rows_and_wants_to_be_told(run, tmp_path, running):
    lake = PushedLake(tmp_path, running)
    lake.commit_and_push()

    planned = run("undo", lake.path, "--with-pushes", "--dry-run")
    refused = run("undo", lake.path, "--with-pushes", "--yes")

    assert "queries see NO ROWS" in planned.stdout
    assert (refused.exit_code, "--to-empty" in refused.stderr) == (2, True)
    assert len(lake.lake.to_arrow()) == 1
    assert lake.served.visible() == {"s1"}
    assert run("undo", lake.path, "--to-empty", "--yes").exit_code == 2
    done = run("undo", lake.path, "--with-pushes", "--to-empty", "--yes")
    assert (done.exit_code, lake.served.visible()) == (0, set())
    assert len(lake.lake.to_arrow()) == 0


def test_what_was_pushed_from_a_lost_commit_wants_to_be_told_too(run, tmp_path, running):
    lake = PushedLake(tmp_path, running)
    lake.commit_and_push()
    lake.lake.undo()
    words = ["push", "revert", lake.served.name, "--from-lake", lake.path, "--controller", lake.client.url]

    refused = run(*words, "--yes")
    assert (refused.exit_code, lake.served.visible()) == (2, {"s1"})
    assert run(*words, "--to-empty", "--yes").exit_code == 0
    assert lake.served.visible() == set()


def test_show_and_verify_tell_what_is_served_now(run, lake):
    lake.lake.undo()
    assert "shows rows that were taken back:" in run("show", lake.path).stdout
    assert "was pushed from it" in run("verify", lake.path).stdout

    words = ["--controller", lake.client.url, "--yes"]
    assert run("push", "revert", lake.served.name, *words).exit_code == 0

    shown = run("show", lake.path).stdout
    [served] = json.loads(run("show", lake.path, "--json").stdout)["served"]
    assert "warning" not in shown
    assert (served["instant"], served["is_confirmed"]) == (lake.instants[0], True)
    assert "seen now" in shown
    assert "was pushed from it" not in run("verify", lake.path).stdout

    assert run("push", "redo", lake.served.name, *words).exit_code == 0
    assert "shows rows that were taken back:" in run("show", lake.path).stdout
    assert "was pushed from it" in run("verify", lake.path).stdout


def test_a_service_that_does_not_answer_is_said_to_be_silent(run, lake):
    for push in lake.lake.pushes():
        write_push(lake.opened, replace(push, controller="http://127.0.0.1:9"))
    lake.lake.undo()

    shown = run("show", lake.path)

    assert (shown.exit_code, "the service does not tell" in shown.stdout) == (0, True)
    assert "unless that was reverted" in shown.stdout
    assert "if that push is still served" in run("verify", lake.path).stdout


@pytest.mark.parametrize("answer", [b"[]", b'{"lineageEntries": 3}', b"<html>", b'{"lineageEntries": {}}'])
def test_only_the_own_controller_is_sent_credentials(run, lake, monkeypatch, answer):
    """A table may come from anybody, and with it the address of something else than a service."""
    with stranger(answer) as (url, heard):
        for push in lake.lake.pushes():
            write_push(lake.opened, replace(push, controller=url))
        monkeypatch.setenv("HOLDFAST_TOKEN", "canary")
        assert run("show", lake.path).exit_code == 0
        assert heard
        assert "canary" not in str(heard)
        heard.clear()
        monkeypatch.setenv("HOLDFAST_CONTROLLER", f"{url}/")
        assert run("show", lake.path).exit_code == 0
        assert "canary" in str(heard)


@contextmanager
def stranger(answer):
    """Whatever is asked, it answers this; what it heard is in the list."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            heard.append((self.path, dict(self.headers)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


def test_show_tells_what_is_served_and_warns_when_it_is_gone(run, lake):
    shown = run("show", lake.path)
    [served] = json.loads(run("show", lake.path, "--json").stdout)["served"]

    assert lake.served.typed in shown.stdout
    assert "warning" not in shown.stdout
    assert (served["table"], served["instant"]) == (lake.served.typed, lake.instants[1])
    holdfast.open_table(str(lake.path)).undo()
    assert "holdfast push revert" in run("show", lake.path).stdout
