"""`serve`, `push` and `query` against a real service."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.certificates import make_certificate
from harness.push_client import Client, basic, make_table
from harness.screens import broken_identifiers, show_on_screen
from holdfast.cli import service_calls
from holdfast.cli.layout import width_of
from holdfast.config.server import Listener, Role, ServerSettings, User
from holdfast.push.metastore.open import open_metastore
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.records import BrokerEpochs
from holdfast.server.run import serving
from holdfast.server.secrets import hash_secret, parse_hash


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    ana = User(name="ana", secret_hash=str(hash_secret("pw")), is_token=True, roles={"*": Role.ADMIN})
    settings = ServerSettings(
        store=f"sqlite:///{folder}/push.db", deep_store=str(folder / "segments"),
        controller=Listener(port=0), broker=Listener(port=0), users=(ana,),
    )  # fmt: skip
    with serving(settings) as running:
        yield running


@pytest.fixture
def table(running):
    """Two pushes, the first of two rows, the second of three."""
    client = Client(running, {"Authorization": "Bearer ana.pw"})
    table = make_table(client)
    table.first = table.push([], ["a"])
    entry = table.started(["a"], ["b"])
    table.upload("b", rows=3)
    assert table.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000).status_code == 200
    table.second = entry
    return table


@pytest.fixture
def push(run, running, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TOKEN", "ana.pw")
    return lambda *words: run("push", *words, "--controller", running.controller_url)


@pytest.fixture
def query(run, running, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TOKEN", "ana.pw")
    return lambda *words: run("query", *words, "--broker", running.broker_url)


def test_lineage_shows_every_entry(push, table):
    shown = push("lineage", table.name)
    listed = json.loads(push("lineage", table.name, "--json").stdout)

    assert shown.exit_code == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()[2:]] == [
        [table.first, "COMPLETED"], [table.second, "COMPLETED"]
    ]  # fmt: skip
    assert list(listed["lineageEntries"]) == [table.first, table.second]


def test_snapshots_show_what_can_be_brought_back(push, table):
    shown = push("snapshots", table.name)
    listed = json.loads(push("snapshots", table.name, "--json").stdout)["snapshots"]

    assert "now" in shown.stdout.splitlines()[2]
    assert [one["docs"] for one in listed][:2] == [3, 2]


@pytest.mark.parametrize("columns", [80, 120])
def test_entries_are_whole_on_a_screen(running, table, columns):
    commands = [
        ["push", "lineage", table.name],
        ["push", "snapshots", table.name],
        ["push", "revert", table.name, "--dry-run"],
        ["query", f"SELECT * FROM {table.name}"],
    ]
    environment = {
        "HOLDFAST_CONTROLLER": running.controller_url, "HOLDFAST_BROKER": running.broker_url,
        "HOLDFAST_TOKEN": "ana.pw",
    }  # fmt: skip

    screens = show_on_screen(commands, columns, 24, environment=environment)

    for words, (code, lines) in zip(commands, screens, strict=True):
        assert code == 0, lines
        assert [line for line in lines if width_of(line) > columns] == [], words
        assert broken_identifiers(lines, [table.first, table.second]) == [], words
    assert all(any(entry in line for line in screens[0][1]) for entry in (table.first, table.second))


def test_revert_takes_the_newest_push_after_showing_the_plan(push, table):
    planned = push("revert", table.name, "--dry-run")
    assert planned.exit_code == 0
    assert table.second in planned.stdout
    assert table.visible() == {"b"}

    declined = push("revert", table.name)
    assert (declined.exit_code, table.visible()) == (1, {"b"})

    done = push("revert", table.name, "--yes", "--json")
    assert json.loads(done.stdout)["planned"]["shown"] == ["a"]
    assert json.loads(done.stdout)["reverted"] is True
    assert table.visible() == {"a"}
    again = push("revert", table.name, "--entry", table.second, "--yes")
    assert "before" in again.stdout


def test_a_revert_that_empties_the_table_says_so_and_wants_to_be_told(push, table):
    push("revert", table.name, "--yes")

    planned = push("revert", table.name, "--dry-run")
    refused = push("revert", table.name, "--yes")

    assert "NO ROWS: THE TABLE BECOMES EMPTY" in planned.stdout
    assert (refused.exit_code, "--to-empty" in refused.stderr) == (2, True)
    assert table.visible() == {"a"}
    done = push("revert", table.name, "--to-empty", "--yes", "--json")
    assert (json.loads(done.stdout)["empties"], table.visible()) == (True, set())


def test_redo_takes_reverts_back_one_by_one(push, table):
    nothing = push("redo", table.name, "--yes")
    assert (nothing.exit_code, "nothing that was taken back" in nothing.stderr) == (2, True)
    push("revert", table.name, "--yes")
    push("revert", table.name, "--to-empty", "--yes")

    planned = push("redo", table.name, "--dry-run")
    assert (table.first in planned.stdout, table.visible()) == (True, set())
    first = json.loads(push("redo", table.name, "--yes", "--json").stdout)
    assert (first["entry"], first["redone"], first["late_brokers"]) == (table.first, True, [])
    assert table.visible() == {"a"}
    assert f"redone: {table.second}" in push("redo", table.name, "--yes").stdout
    assert table.visible() == {"b"}
    again = push("redo", table.name, "--entry", table.second, "--yes")
    assert "had been redone before" in again.stdout


def test_queries_see_at_once_what_revert_and_redo_leave(push, query, table):
    """No time between the command's end and the query."""
    rows = f"SELECT count(*) FROM {table.name}"
    for _ in range(3):
        push("revert", table.name, "--yes")
        assert json.loads(query(rows, "--json").stdout)["resultTable"]["rows"] == [[2]]
        push("redo", table.name, "--yes")
        assert json.loads(query(rows, "--json").stdout)["resultTable"]["rows"] == [[3]]


def test_a_broker_that_does_not_switch_is_named(push, table, running, monkeypatch):
    monkeypatch.setattr(
        service_calls, "WAITING_FOR_BROKERS", {"waitForBrokers": True, "brokerTimeoutMs": 100}
    )
    store = open_metastore(running.service.settings.store)
    try:
        Catalog(store).announce_epoch(table.typed, "Broker_ghost_1", BrokerEpochs(epoch=0, applied=0))

        result = push("revert", table.name, "--yes")

        assert (result.exit_code, "Broker_ghost_1 had not switched" in result.stdout) == (0, True)
    finally:
        Catalog(store).withdraw_epoch(table.typed, "Broker_ghost_1")
        store.close()


def test_a_snapshot_is_pinned_and_let_go(push, table):
    pinned = push("pin", table.name, "--until", "2100-01-02")
    assert pinned.exit_code == 0, pinned.stderr
    assert "2100-01-02 00:00:00 UTC" in pinned.stdout
    listed = push("snapshots", table.name).stdout.splitlines()
    assert ["now, pinned" in line for line in listed[2:]].count(True) == 1

    assert push("unpin", table.name).exit_code == 0
    assert "pinned" not in push("snapshots", table.name).stdout
    nothing = push("unpin", table.name)
    assert (nothing.exit_code, "no snapshot is pinned" in nothing.stderr) == (2, True)
    assert json.loads(push("pin", table.name, "--json").stdout)["pinnedUntil"] > time.time() * 1000
    assert push("pin", table.name, "--epoch", "999").exit_code == 2
    assert push("pin", table.name, "--until", "1999-01-01").exit_code == 2
    assert push("pin", table.name, "--until", "soon").exit_code == 2


def test_revert_of_an_open_push_needs_force(push, table):
    entry = table.started(["b"], ["c"])

    refused = push("revert", table.name, "--entry", entry, "--yes")
    assert refused.exit_code == 3
    assert "REVERT_NEEDS_FORCE" in refused.stderr
    assert push("revert", table.name, "--entry", entry, "--force", "--yes").exit_code == 0
    assert table.entries()[entry]["state"] == "REVERTED"


def test_json_does_not_ask(push, table):
    assert push("revert", table.name, "--json").exit_code == 2
    assert table.visible() == {"b"}


def test_a_table_without_a_completed_push_has_nothing_to_revert(push, running):
    table = make_table(Client(running, {"Authorization": "Bearer ana.pw"}))

    result = push("revert", table.name, "--yes")

    assert (result.exit_code, "no completed push" in result.stderr) == (2, True)
    assert push("lineage", table.name).stdout == "no lineage entries\n"


def test_an_unknown_table_and_a_service_that_is_not_there_have_their_exit_codes(push, run):
    assert push("lineage", "nobody").exit_code == 2
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for words in (["push", "lineage", "x", "--controller"], ["query", "SELECT 1", "--broker"]):
        gone = run(*words, f"http://127.0.0.1:{port}")
        assert (gone.exit_code, "holdfast serve" in gone.stderr) == (4, True)
        assert run(*words, "nonsense").exit_code == 2


def test_without_credentials_the_variable_is_named(run, running, monkeypatch):
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)

    result = run("push", "lineage", "x", "--controller", running.controller_url)

    assert (result.exit_code, "HOLDFAST_TOKEN" in result.stderr) == (2, True)
    monkeypatch.setenv("HOLDFAST_TOKEN", basic("ana", "canary-wrong")["Authorization"])
    wrong = run("push", "lineage", "x", "--controller", running.controller_url)
    assert wrong.exit_code == 2
    assert "canary" not in wrong.stderr


def test_a_query_is_printed_as_a_table_or_as_json(query, table):
    shown = query(f"SELECT count(*) AS n, max(city) AS city FROM {table.name}")
    answer = json.loads(query(f"SELECT count(*) FROM {table.name}", "--json").stdout)

    assert shown.stdout.splitlines()[0].split() == ["n", "city"]
    assert shown.stdout.splitlines()[2].split() == ["3", "oslo"]
    assert answer["resultTable"]["rows"] == [[3]]


def test_a_query_that_fails_is_one_line_and_an_exit_code(query, table):
    for sql, code in (("SELEC", 2), ("SELECT 1 FROM nobody", 2), (f"SELECT nope FROM {table.name}", 2)):
        failed = query(sql)
        assert (failed.exit_code, failed.stdout, failed.stderr.count("\n")) == (code, "", 1), failed.stderr
    assert query("SELECT 1", "--options", "novalue").exit_code == 2


def _serve(folder, *words, config="", **more):
    (folder / "serve.yaml").write_text(config or "controller: {port: 0}\nbroker: {port: 0}\n")
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--config", str(folder / "serve.yaml"), *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_it_is_and_stops_cleanly(tmp_path, number):
    process = _serve(tmp_path, "--json")

    where = json.loads(process.stdout.readline())
    client = Client(
        type("Where", (), {"controller_url": where["controller"], "broker_url": where["broker"]})()
    )
    assert client.get("/health").text == "OK"
    assert where["store"] == f"sqlite:///{tmp_path}/holdfast-data/push.db"
    assert where["deep_store"] == f"{tmp_path}/holdfast-data/segments"
    process.send_signal(number)
    rest, complaints = process.communicate(timeout=60)

    assert (process.returncode, rest, complaints) == (0, "", "")
    assert not _children_of(process.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_stops_cleanly_if_its_workers_are_told_too(tmp_path, number):
    """As Ctrl-C in a terminal and service managers do."""
    process = _serve(tmp_path, start_new_session=True)
    while not (line := process.stdout.readline()).startswith("Ctrl-C"):
        assert line
    os.killpg(process.pid, number)
    rest, complaints = process.communicate(timeout=60)

    assert (process.returncode, rest, complaints) == (0, "stopped\n", "")


def _children_of(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            found += [name] if fields[1] == str(pid) else []
    return found


def test_serve_tells_people_how_to_try_it(tmp_path):
    process = _serve(tmp_path)
    lines = []
    deadline = time.monotonic() + 60
    while not lines or (not lines[-1].startswith("Ctrl-C") and time.monotonic() < deadline):
        lines.append(process.stdout.readline())
    process.terminate()
    rest, _ = process.communicate(timeout=60)

    text = "".join(lines)
    assert "holdfast-data/push.db" in text
    assert "try: curl http://127.0.0.1:" in text
    assert "holdfast query" in text
    assert rest == "stopped\n"


def test_serve_writes_events_as_lines_of_json(tmp_path):
    process = _serve(tmp_path, "--json", "--log", "info")
    where = json.loads(process.stdout.readline())
    client = Client(
        type("Where", (), {"controller_url": where["controller"], "broker_url": where["broker"]})()
    )
    make_table(client, "logged")
    process.terminate()
    _, written = process.communicate(timeout=60)

    events = [json.loads(line) for line in written.splitlines()]
    assert events[0]["event"] == "service.started"
    created = [one for one in events if one.get("route") == "CreateTable"]
    assert [(one["actor"], one["status"]) for one in created] == [("anonymous", 200)]
    assert {"time", "level", "request_id", "took_ms"} <= created[0].keys()


def test_serve_refuses_a_wrong_configuration_in_one_line(tmp_path):
    for config in ("contrller: {}", "controller: {host: 0.0.0.0}"):
        process = _serve(tmp_path, config=config)
        printed, complaint = process.communicate(timeout=60)

        assert (process.returncode, printed, complaint.count("\n")) == (2, "", 1), complaint
    assert not (tmp_path / "holdfast-data").exists()


def test_serve_checks_a_configuration_without_starting(run, tmp_path):
    (tmp_path / "serve.yaml").write_text("cluster: Mine\nbroker: {port: 8100}\n")

    result = run("serve", "--config", tmp_path / "serve.yaml", "--check", "--json")

    assert json.loads(result.stdout)["cluster"] == "Mine"
    assert json.loads(result.stdout)["broker"] == "127.0.0.1:8100"
    assert "Mine" in run("serve", "--config", tmp_path / "serve.yaml", "--check").stdout


@pytest.mark.parametrize(
    "config",
    ["auth: {users: [{name: ana, password: canary-secret, role: read}]}", "store: 'env:canary secret'"],
    ids=["a password that is no hash", "a secret in the place of a variable's name"],
)
def test_serve_checks_secrets_and_shows_none(run, tmp_path, config):
    (tmp_path / "serve.yaml").write_text(config)

    result = run("serve", "--config", tmp_path / "serve.yaml", "--check")

    assert result.exit_code == 2
    assert "canary" not in result.stdout + result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("read by everybody", "everybody on this machine can read the key"),
        ("gone", "No such file"),
        ("empty", "cannot be used"),
    ],
)
@pytest.mark.parametrize("check", [("--check",), ()], ids=["checked", "started"])
def test_serve_looks_at_the_key_of_tls(run, tmp_path, harm, told, check):
    tls = make_certificate(tmp_path)
    key = Path(tls.key)
    if harm == "gone":
        key.unlink()
    elif harm == "empty":
        key.write_text("")
    else:
        key.chmod(0o644)
    (tmp_path / "serve.yaml").write_text(
        f"tls: {{certificate: {tls.certificate}, key: {key}}}\ncontroller: {{port: 0}}\nbroker: {{port: 0}}\n"
    )

    result = run("serve", "--config", tmp_path / "serve.yaml", *check)

    assert result.exit_code == 2
    assert told in result.stderr
    assert "tls.key" in result.stderr
    assert result.stderr.count("\n") == 1


def test_serve_hashes_a_secret_that_is_piped_in():
    command = [sys.executable, "-m", "holdfast", "serve", "--hash-secret"]

    made = subprocess.run(command, input="s3cret\n", capture_output=True, text=True, check=True)

    assert parse_hash(made.stdout.strip(), user="ana").matches("s3cret")
    empty = subprocess.run(command, input="\n", capture_output=True, text=True)
    assert empty.returncode == 2
