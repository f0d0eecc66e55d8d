import pytest

from fuzz.feeding import Tally
from fuzz.inputs import SHARE

LEAST = {"test_sql": 12_000, "test_http": 10_000, "test_codecs": 45_000}
"""Inputs of a full run; each file has a process of its own, so each has a number of its own."""

assert sum(LEAST.values()) >= 50_000


@pytest.fixture(scope="module")
def tally(request):
    counted = Tally()
    yield counted
    request.config.summary_lines.append(str(counted))
    is_whole = SHARE >= 1 and not request.config.option.keyword and not request.session.testsfailed
    least = LEAST[request.module.__name__.rpartition(".")[2]]
    assert not is_whole or counted.inputs >= least, f"{counted.inputs} inputs, and {least} at least are tried"
