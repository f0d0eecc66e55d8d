"""One push service for all tests of jobs; every test has tables of its own."""

import pytest

from harness.lake_pushes import PushedLake, service


@pytest.fixture(scope="session")
def running(tmp_path_factory):
    with service(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def lake(tmp_path, running):
    """An empty lake table and the served table it is pushed to."""
    return PushedLake(tmp_path, running)
