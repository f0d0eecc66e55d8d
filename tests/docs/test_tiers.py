"""The sample of `make test` leaves no test function out that `tests/tiers.toml` does not name."""

import ast
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from harness.tiers import Table, Tier, choose, function_of, read_table

_TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Item:
    """As much of pytest's as is looked at."""

    path: Path
    originalname: str
    name: str = ""


def items(*counts):
    """Cases of test functions in one file, so many of each."""
    return [Item(_TESTS / "area" / "test_it.py", name) for name, count in counts for _ in range(count)]


def names(chosen):
    return [item.originalname for item in chosen]


TABLE = Table({"area/*::test_slow": 0, "*": 4}, ["area/*::test_fast"])
CASES = items(("test_fast", 9), ("test_alone", 1), ("test_slow", 2))


def test_everything_runs_whole_unless_a_tier_is_chosen():
    assert choose(CASES, Tier.ALL, TABLE) == (CASES, [])


def test_a_sample_has_the_first_case_of_each_function_and_every_fourth():
    chosen, left = choose(CASES, Tier.SAMPLE, TABLE)

    assert names(chosen) == ["test_fast"] * 3 + ["test_alone"]
    assert names(left) == ["test_fast"] * 6 + ["test_slow"] * 2


def test_the_quick_ones_are_a_part_of_the_sample():
    assert names(choose(CASES, Tier.QUICK, TABLE)[0]) == ["test_fast"] * 3


def functions():
    """`folder/file.py::test` of every test function there is."""
    return [
        f"{file.relative_to(_TESTS)}::{node.name}"
        for file in sorted(_TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_pattern_of_the_table_fits_a_test():
    table, known = read_table(), functions()

    for pattern in (*table.sampled, *table.quick):
        assert any(fnmatchcase(function, pattern) for function in known), pattern


@pytest.mark.parametrize("case", ["a", "b"])
def test_a_function_is_named_without_its_case(case, request):
    assert function_of(request.node) == "docs/test_tiers.py::test_a_function_is_named_without_its_case"
