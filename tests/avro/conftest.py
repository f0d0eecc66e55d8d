"""Avro needs a jar of Spark's. `make test-avro` says where it is; otherwise nothing is collected."""

import os

import pytest

from harness.lake_pushes import service
from harness.push_client import Client

JAR = os.environ.get("HOLDFAST_AVRO")
collect_ignore_glob = [] if JAR else ["test_*.py"]
if JAR:
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {JAR} pyspark-shell"


@pytest.fixture
def client(tmp_path):
    with service(tmp_path / "service") as running:
        client = Client(running)
        yield client
        client.close()
