"""A service whose queries run on Spark."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from harness.push_client import Client, make_table

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class _Addresses:
    controller_url: str
    broker_url: str


@pytest.fixture
def addresses(tmp_path):
    """A process of its own: a session that ends with the service must not end the tests' one."""
    (tmp_path / "serve.yaml").write_text(
        "engine: local[1]\ncontroller: {port: 0}\nbroker: {port: 0}\n"
        f"store: sqlite:///{tmp_path}/push.db\ndeep_store: {tmp_path}/segments\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--config", str(tmp_path / "serve.yaml"), "--json"],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "SECRET": "canary"},
    )  # fmt: skip
    try:
        document = json.loads(process.stdout.readline())
        yield _Addresses(document["controller"], document["broker"])
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_spark_answers_from_the_snapshot_that_is_published(addresses):
    table = make_table(Client(addresses))
    table.push([], ["a"])
    entry = table.started(["a"], ["b"])
    table.upload("b", rows=3)
    assert table.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000).status_code == 200

    def asked(sql):
        answer = table.client.sql(sql, queryOptions="timeoutMs=120000")
        assert answer["exceptions"] == [], answer["exceptions"]
        return answer["resultTable"]["rows"]

    query = f"SELECT city, count(*) FROM {table.name} GROUP BY city ORDER BY city"
    assert asked(query) == [["bergen", 1], ["oslo", 2]]
    assert table.revert(entry).status_code == 200
    assert asked(f"SET minSnapshotEpoch=3; {query}") == [["bergen", 1], ["oslo", 1]]


def test_one_statement_takes_the_engine_from_nobody(addresses):
    """Text that Spark would replace; in a JVM with one core a regular expression without end; a full heap."""
    table = make_table(Client(addresses))
    entry = table.started([], ["a"])
    table.upload("a")
    assert table.end(entry, waitForBrokers=True, brokerTimeoutMs=20_000).status_code == 200

    def ask(sql, *, timeout_ms):
        answer = table.client.sql(sql, queryOptions=f"timeoutMs={timeout_ms}")
        return answer["exceptions"] or answer["resultTable"]["rows"]

    text = "${env:SECRET} ${spark.app.name}"
    assert ask(f"SELECT '{text}' FROM {table.name} LIMIT 1", timeout_ms=120_000) == [[text]]

    endless = "regexp_like(repeat('a', 40) || city, '^(a+)+\\1b$')"
    [failure] = ask(f"SELECT count(*) FROM {table.name} WHERE {endless}", timeout_ms=20_000)
    assert failure["errorCode"] == 250, failure
    assert 503 in _states_until_well(table.client, after=503)
    assert ask(f"SELECT count(*) FROM {table.name}", timeout_ms=60_000) == [[2]]

    large = f"SELECT arrayagg(repeat(city, 250000000), 'STRING') FROM {table.name}"
    [failure] = ask(large, timeout_ms=20_000)
    assert failure["errorCode"] in (200, 250), failure
    # The JVM may end after its last answer, and `/health` says so only when somebody has looked.
    until = time.monotonic() + 180
    while (answer := ask(f"SELECT count(*) FROM {table.name}", timeout_ms=60_000)) != [[2]]:
        assert time.monotonic() < until, answer
        _states_until_well(table.client)
        time.sleep(0.5)


def _states_until_well(client, *, after=200):
    """What `/health` answers, each time within seconds, until it is well; or well again after a bad state."""
    states = []
    until = time.monotonic() + 180
    while time.monotonic() < until:
        begun = time.monotonic()
        states.append(client.get("/health").status_code)
        assert time.monotonic() - begun < 5
        if states[-1] == 200 and after in states:
            return states
        time.sleep(0.5)
    raise AssertionError(f"never well again: {states}")
