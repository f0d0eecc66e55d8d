"""The documentation is true: every snippet runs, every option and error is described."""

import re

import pytest

from harness import option_pages
from harness.guides import ROOT, Guide
from holdfast import errors
from holdfast.cli.main import cli
from holdfast.config.option import Area
from holdfast.config.option_table import spellings
from holdfast.lake import Table

PAGES = [
    "README.md",
    "docs/start.md",
    "docs/python.md",
    "docs/cli.md",
    "docs/migrate.md",
    "docs/going-back.md",
    "docs/many-writers.md",
    "docs/changes.md",
    "docs/streaming.md",
    "docs/cleaning.md",
    "docs/compaction.md",
    "docs/merge-on-read.md",
    "docs/pipelines.md",
    "docs/gates.md",
    "docs/broker-sql.md",
    "docs/sql.md",
]
WITHOUT_SPARK = [
    "docs/installation.md",
    "docs/dataframes.md",
    "docs/operations.md",
    "docs/other-engines.md",
    "docs/scheduling.md",
]
_LINK = re.compile(r"\]\(([^)#]+?)\)")


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_of_a_page_runs_in_order(page, spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rides.csv").write_text("id,city,fare\n1,paris,2.5\n2,rome,3.5\n")

    Guide(page, {"spark": spark}).run()


@pytest.mark.parametrize("page", WITHOUT_SPARK)
def test_every_snippet_of_a_page_without_spark_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    Guide(page).run()


def test_every_page_is_in_the_contents_of_the_site():
    """`make docs` builds it, and fails at a link or a heading that is not there."""
    contents = (ROOT / "mkdocs.yml").read_text()
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]

    assert [page for page in sorted(pages) if f": {page}\n" not in contents] == []


@pytest.mark.parametrize(
    "page",
    sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]),
)
def test_every_link_of_a_page_leads_somewhere(page):
    for target in _LINK.findall((ROOT / page).read_text()):
        if target.startswith("https://"):
            continue
        assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize(
    "page",
    [
        "docs/guarantees.md",
        "docs/many-writers.md",
        "docs/going-back.md",
        "docs/cleaning.md",
        "docs/internals/invariants.md",
        "docs/internals/testing.md",
        "ARCHITECTURE.md",
    ],
)
def test_every_test_and_module_a_page_names_exists(page):
    named = re.findall(r"`((?:tests|src)/[\w/.]+|\w+(?:/\w+)+\.py)(?:::(\w+))?`", (ROOT / page).read_text())
    for name, test in named:
        found = next((path for path in (ROOT / name, ROOT / "src/holdfast" / name) if path.exists()), None)
        assert found is not None, name
        assert not test or f"def {test}(" in found.read_text(), f"{name}::{test}"


@pytest.mark.parametrize("page", option_pages.PAGES)
def test_the_tables_of_options_are_those_of_the_option_table(page):
    """`make option-pages` writes them."""
    assert (ROOT / page).read_text() == option_pages.page_text(page)


def test_every_supported_option_is_described():
    pages = (ROOT / "docs/options.md").read_text() + (ROOT / "docs/migrate.md").read_text()

    assert [name for name in spellings(Area) if f"`{name}`" not in pages] == []


def test_every_command_is_described():
    page = (ROOT / "docs/cli.md").read_text()
    names = [
        f"{name} {sub}".strip()
        for name, command in cli.commands.items()
        if not command.hidden
        for sub in getattr(command, "commands", [""])
    ]

    about = {
        "push": " TABLE",
        "push run": " JOB.yaml",
        "serve": " [",
        "console": " [",
        "query": " SQL",
        "sql": " [STATEMENT]",
        "run": " PIPELINE.yaml",
    }

    def usage(name):
        return f"`{name}{about.get(name) or about.get(name.split()[0], ' PATH')}"

    assert [name for name in names if usage(name) not in page] == []


def test_every_verb_of_a_table_is_described():
    page = (ROOT / "docs/python.md").read_text()
    verbs = [name for name, value in vars(Table).items() if not name.startswith("_") and callable(value)]

    assert [verb for verb in verbs if f"`{verb}(" not in page] == []


def test_every_error_is_described():
    page = (ROOT / "docs/python.md").read_text()
    kinds = [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
    ]

    assert [name for name in kinds if f"`{name}`" not in page and name != "HoldfastError"] == []


def test_the_public_names_are_the_ones_listed():
    import holdfast

    assert sorted(holdfast.__all__) == [
        "ArchiveReport", "CleanPlan", "CleanReport", "Commit", "Instant", "Push", "RepairReport",
        "RestorePlan", "RestoreReport", "RollbackReport", "Savepoint", "Table", "VerifyReport",
        "create_table", "open_table", "register", "sql", "stream", "table_exists", "write",
    ]  # fmt: skip
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
