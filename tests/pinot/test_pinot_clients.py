"""Pinot's own Java clients, of an old and a newer release, against a running service.

`make test-pinot` fetches them; HOLDFAST_PINOT names their folder.
"""

import os
import subprocess
from pathlib import Path

import pytest

from harness.push_client import Client, parquet
from holdfast.config.server import Listener, ServerSettings
from holdfast.server.run import serving

_FOLDER = os.environ.get("HOLDFAST_PINOT", "")
_RELEASES = sorted(os.listdir(_FOLDER)) if _FOLDER else ["none"]
_PROGRAM = Path(__file__).with_name("PinotClients.java")

pytestmark = pytest.mark.skipif(not _FOLDER, reason="HOLDFAST_PINOT names no folder with Pinot's clients")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    settings = ServerSettings(
        store=f"sqlite:///{folder}/push.db",
        deep_store=str(folder / "segments"),
        controller=Listener(port=0),
        broker=Listener(port=0),
    )
    with serving(settings) as running:
        client = Client(running)
        yield client
        client.close()


@pytest.fixture(scope="module", params=_RELEASES)
def run(request, client, tmp_path_factory):
    """Runs the program with the clients of a release; what it prints, by line."""
    jars, classes = f"{_FOLDER}/{request.param}/lib/*", tmp_path_factory.mktemp("classes")
    compiled = subprocess.run(
        ["javac", "-cp", jars, "-d", str(classes), str(_PROGRAM)], capture_output=True, text=True
    )
    assert compiled.returncode == 0, compiled.stderr

    def run(*arguments):
        ran = subprocess.run(
            [
                "java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", f"{classes}:{jars}",
                "PinotClients", arguments[0], client.running.controller_url, *arguments[1:],
            ],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-3000:]
        return ran.stdout.splitlines()

    run.table = f"orders{request.param.replace('.', '')}"
    return run


@pytest.fixture(scope="module")
def pushed(run, client, tmp_path_factory):
    """A table made, and a segment pushed, by Pinot's own code."""
    (added,) = run("add", run.table)
    assert "successfully added" in added
    segment = tmp_path_factory.mktemp("segments") / "monday"
    segment.write_bytes(parquet(20, snapshot=7))
    assert run("push", run.table, str(segment))[-1] == "200"
    assert client.get(f"/segments/{run.table}", type="OFFLINE").json() == [{"OFFLINE": ["monday"]}]
    return run


def test_the_java_client_finds_brokers_by_the_controller(pushed):
    sql = f"SELECT id, city FROM {pushed.table} WHERE id < 2 ORDER BY id LIMIT 1000000"

    assert pushed("client", pushed.table, sql) == ["0 oslo", "1 bergen"]


def test_jdbc_answers_rows_with_any_limit(pushed):
    sql = f"SELECT id, city FROM {pushed.table} WHERE id < 2 ORDER BY id LIMIT 2147483647"

    assert pushed("jdbc", pushed.table, sql) == ["0 oslo", "1 bergen", "true"]
