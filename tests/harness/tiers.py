"""How much of the tests runs: all of them, the sample of `make test`, or what `make quick` has time for.

`tests/tiers.toml` says which. `HOLDFAST_TESTS` chooses; without it everything runs that pytest is asked for.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]


class Tier(StrEnum):
    QUICK = "quick"
    SAMPLE = "sample"
    ALL = "all"


TIER = Tier(os.environ.get("HOLDFAST_TESTS", Tier.ALL))


@dataclass(frozen=True)
class Table:
    sampled: Mapping[str, int]
    """Pattern of test functions → one of how many cases `make test` runs, the first among them; 0 is none."""
    quick: Sequence[str]
    """Patterns of the test functions of `make quick`, of which it takes what `make test` does."""

    def every(self, function: str) -> int:
        return next((n for pattern, n in self.sampled.items() if fnmatchcase(function, pattern)), 1)

    def is_quick(self, function: str) -> bool:
        return any(fnmatchcase(function, pattern) for pattern in self.quick)


def read_table() -> Table:
    content = tomllib.loads((_TESTS / "tiers.toml").read_text())
    return Table(content["sample"], content["quick"]["tests"])


def function_of(item: pytest.Item) -> str:
    """`folder/file.py::test`, without the case."""
    return f"{item.path.relative_to(_TESTS)}::{getattr(item, 'originalname', None) or item.name}"


def choose(
    items: Sequence[pytest.Item], tier: Tier, table: Table
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those that run, and those that do not."""
    seen: Counter[str] = Counter()
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        function = function_of(item)
        every = table.every(function)
        runs = tier is Tier.ALL or (every > 0 and seen[function] % every == 0)
        seen[function] += 1
        runs = runs and (tier is not Tier.QUICK or table.is_quick(function))
        (chosen if runs else left).append(item)
    return chosen, left


def by_tier(variable: str, *, sample: int, full: int) -> int:
    """A stride or a count: the environment's variable says, or else the tier."""
    return int(os.environ.get(variable, full if TIER is Tier.ALL else sample))
