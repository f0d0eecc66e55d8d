"""A service whose queries run on Spark."""

import json
import os
import signal
import subprocess
import sys
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
        stdout=subprocess.PIPE, text=True, env=os.environ,
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
