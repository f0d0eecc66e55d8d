"""A function's name says what it does or returns, and a function fits on a page."""

import ast
import re
from collections.abc import Iterator

import pytest

from harness.guides import ROOT

SOURCE = ROOT / "src/holdfast"
LINES_MAX = 60

_IRREGULAR = re.compile(
    "begun|bought|broken|brought|built|caught|chosen|done|drawn|driven|fallen|fed|felt|forgotten|found"
    "|frozen|given|gone|held|hidden|kept|known|laid|led|left|lent|lost|made|meant|met|paid|proven|risen|said"
    "|seen|sent|shown|shut|sought|spent|spoken|stood|sunk|taken|taught|thought|told|torn|understood|won|worn"
    "|written"
)
_NO_PARTICIPLE = re.compile("bed|embed|exceed|feed|need|proceed|seed|shed|speed")
"""Verbs and nouns that end like one."""

EXCEPTIONS = {
    "lost_completed_instants": "instants are the noun, and being completed is their state",
}
"""Names that stay, with the reason."""


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}", node


def _is_participle(name: str) -> bool:
    """Whether the first word is one: `_fitted`, `told`, `asked_footers`."""
    word = name.strip("_").partition("_")[0]
    if _NO_PARTICIPLE.fullmatch(word):
        return False
    return bool(_IRREGULAR.fullmatch(word)) or (word.endswith("ed") and len(word) > 3)


def _is_fact(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is read as a fact: a property, or the answer yes or no."""
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    answers = node.returns is not None and ast.unparse(node.returns) == "bool"
    return answers or bool(decorators & {"property", "cached_property"})


def test_no_function_is_named_by_a_participle():
    """A verb (`check_footers`), the noun of what it returns (`file_groups`) or a question (`is_alive`)."""
    named = [
        place
        for place, node in _functions()
        if _is_participle(node.name) and not _is_fact(node) and node.name not in EXCEPTIONS
    ]

    assert named == []


def test_every_exception_is_needed():
    names = {node.name for _, node in _functions()}

    assert EXCEPTIONS.keys() - names == set()


def test_no_function_is_longer_than_a_page():
    long = {
        place: node.end_lineno - node.lineno + 1
        for place, node in _functions()
        if node.end_lineno - node.lineno >= LINES_MAX
    }

    assert long == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("told", True), ("_fitted", True), ("asked_footers", True), ("read_rows", False), ("seed", False)],
)
def test_a_participle_is_known_by_its_first_word(name, expected):
    assert _is_participle(name) is expected
