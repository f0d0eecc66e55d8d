"""The stores that must all keep the promises of the port."""

import socket
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.servers import wait_until_it_listens
from holdfast.storage.disk import Disk
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation

BUCKET = "holdfast"


@dataclass(frozen=True)
class S3Server:
    endpoint: str

    def location(self, prefix: str) -> StoreLocation:
        options = {
            "endpoint": self.endpoint,
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
            "virtual_hosted_style_request": "false",
            "allow_http": "true",
        }
        return StoreLocation(f"s3://{BUCKET}/{prefix}", options)

    def put_raw(self, key: str, content: bytes) -> None:
        """Put an object past every client, under a key that a client might refuse."""
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}/{key}", data=content, method="PUT")
        urllib.request.urlopen(request).close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(Path(__file__).with_name("s3_server.py")), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_it_listens(process, port)
        server = S3Server(f"http://127.0.0.1:{port}")
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")).close()
        yield server
    finally:
        process.kill()
        process.wait()


OpenStore = Callable[[], Store]


@pytest.fixture(params=["local", "local-staged", "memory", "s3"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    """Opens one and the same, at first empty, table root, each time as another program would."""
    root = str(tmp_path / "table")
    match request.param:
        case "local":
            return lambda: LocalStore(root)
        case "local-staged":
            return lambda: LocalStore(root, disk=Disk(has_nameless_files=False))
        case "memory":
            shared = MemoryStore()
            return lambda: shared
        case "s3":
            location = request.getfixturevalue("s3_server").location(f"tables/{uuid.uuid4().hex}")
            return lambda: open_store(location)
    raise AssertionError(request.param)


@pytest.fixture
def store(reopen: OpenStore) -> Store:
    return reopen()
