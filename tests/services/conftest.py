"""A table with some history, made once for each module; every test has a copy of its own."""

import pytest

from harness.planted import Lake


@pytest.fixture(scope="module")
def history():
    return Lake()


@pytest.fixture
def fresh_lake(history):
    """Makes a copy whenever it is called."""

    def copied():
        lake = object.__new__(Lake)
        lake.__dict__ = {**history.__dict__, "world": history.world.copy()}
        return lake

    return copied


@pytest.fixture
def lake(fresh_lake):
    return fresh_lake()
