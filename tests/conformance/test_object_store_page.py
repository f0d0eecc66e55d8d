"""The page on object stores is true of an S3 server, and of how many requests a commit makes."""

import urllib.request
from collections import Counter

import pyarrow as pa

import holdfast
from harness.guides import Guide
from holdfast.storage.local import LocalStore

_METHODS = (
    "create", "delete", "delete_all", "list_abandoned", "open", "put", "read", "read_all", "replace", "stat",
    "walk",
)  # fmt: skip


def test_the_page_on_object_stores_runs_against_an_s3_server(s3_server, tmp_path, monkeypatch):
    urllib.request.urlopen(urllib.request.Request(f"{s3_server.endpoint}/lake", method="PUT")).close()
    monkeypatch.chdir(tmp_path)
    port = s3_server.endpoint.rpartition(":")[2]

    printed = Guide("docs/object-stores.md", ports={"9900": port}).run()

    assert "s3://lake/orders" in printed


def test_a_small_commit_makes_no_more_requests_than_the_page_says(tmp_path, monkeypatch):
    counts: Counter[str] = Counter()
    for name in _METHODS:
        monkeypatch.setattr(LocalStore, name, _count(getattr(LocalStore, name), name, counts))
    table = holdfast.create_table(str(tmp_path / "orders"), name="orders", record_key="id")

    requests = []
    for number in range(54):
        counts.clear()
        table.upsert(pa.table({"id": [1, 2], "amount": [number, number]}))
        requests.append(counts.total())

    assert max(requests[:10]) <= 75, requests
    assert max(requests) <= 240, requests
    assert sum(requests[43:54]) <= 1.05 * sum(requests[32:43]), requests


def _count(method, name, counts):
    def call(self, *arguments, **named):
        counts[name] += 1
        return method(self, *arguments, **named)

    return call
