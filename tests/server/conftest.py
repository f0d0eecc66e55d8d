"""Running services: real ports, real SQLite, real workers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.push_client import Client, PushedTable, make_table
from holdfast.config.server import Listener, ServerSettings
from holdfast.server.run import Running, serving

pytest.register_assert_rewrite("server.replace_rules")


def settings(folder: Path, **more: Any) -> ServerSettings:
    return ServerSettings(
        **{
            "store": f"sqlite:///{folder}/push.db",
            "deep_store": str(folder / "segments"),
            "controller": Listener(port=0),
            "broker": Listener(port=0),
            **more,
        }
    )


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for all tests that need nothing special of it; each makes tables of its own."""
    with serving(settings(tmp_path_factory.mktemp("service"))) as running:
        yield running


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    client = Client(running)
    yield client
    client.close()


@pytest.fixture
def table(client: Client) -> PushedTable:
    """A REFRESH table without consistent push: Pinot's rules and nothing on top."""
    return make_table(client)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """A service of one's own."""
    with ExitStack() as opened:
        yield lambda **more: opened.enter_context(serving(settings(tmp_path, **more)))
