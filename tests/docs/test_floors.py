"""Every floor in pyproject.toml is a version that `make test-matrix` runs on."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("spark", "server", "zookeeper")
ASKED = [
    *PROJECT["dependencies"],
    *(one for extra in EXTRAS for one in PROJECT["optional-dependencies"][extra]),
]


def _release(text):
    """1.4 and 1.4.0 are one release."""
    numbers = [int(number) for number in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


def _locked(path):
    return dict(re.findall(r"^([a-z0-9._-]+)==([0-9.]+)", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("asked", ASKED)
def test_a_floor_is_the_version_of_the_lowest_environment(asked):
    name, floor = re.match(r"([A-Za-z0-9._-]+)>=([0-9.]+)", asked).groups()

    tested = _locked(ROOT / "tests/matrix/lowest.lock")[name]

    assert _release(tested) >= _release(floor)
    assert _release(tested)[: len(_release(floor))] == _release(floor), "another was tested than is admitted"


def test_what_crashed_or_could_be_fooled_is_not_admitted():
    """pyarrow before 26 overflows its stack on a nested schema; h11 before 0.16 misreads chunks.

    python-multipart before 0.0.31 takes headers of a part as large and as many as they come.
    """
    floors = dict(re.match(r"([A-Za-z0-9._-]+)>=([0-9.]+)", one).groups() for one in ASKED)

    assert _release(floors["pyarrow"]) >= [26]
    assert _release(floors["h11"]) >= [0, 16]
    assert _release(floors["python-multipart"]) >= [0, 0, 31]


def test_no_lock_says_where_packages_come_from():
    for lock in (ROOT / "requirements.lock", *(ROOT / "tests/matrix").glob("*.lock")):
        assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host", lock.read_text()), lock.name
