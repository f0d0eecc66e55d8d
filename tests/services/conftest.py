"""A table with some history, made once for each module; every test has a copy of its own."""

import pytest

from harness.planted import Lake


@pytest.fixture(scope="module")
def history():
    return Lake()


@pytest.fixture
def lake(history):
    copied = object.__new__(Lake)
    copied.__dict__ = {**history.__dict__, "world": history.world.copy()}
    return copied
