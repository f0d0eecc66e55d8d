"""The documentation is true: every snippet runs, every option and error is described."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.config.datasource import OPERATION, PARTITIONS_TO_DELETE, TABLE_OPTIONS
from holdfast.config.options import HONOURED

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ["README.md", "docs/start.md", "docs/python.md", "docs/cli.md", "docs/migrate.md"]
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+?)\)")


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES)
def test_every_snippet_of_a_page_runs_in_order(page, spark, tmp_path, monkeypatch):
    """Python blocks share their names; commands run in the same empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rides.csv").write_text("id,city,fare\n1,paris,2.5\n2,rome,3.5\n")
    names = {"spark": spark}
    blocks = _BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for language, text in blocks:
        if language == "python":
            exec(compile(text, page, "exec"), names)
        else:
            _run_commands(text)


def _run_commands(text):
    makefile = (ROOT / "Makefile").read_text()
    for line in filter(None, text.splitlines()):
        program, *arguments = line.split()
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), line
            continue
        assert program == "holdfast", line
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            capture_output=True, text=True, timeout=300, env={**os.environ, "PATH": path},
        )  # fmt: skip
        assert ran.returncode == 0, f"{line}\n{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize(
    "page",
    sorted(
        str(p.relative_to(ROOT))
        for p in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
    ),
)
def test_every_link_of_a_page_leads_somewhere(page):
    for target in _LINK.findall((ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


@pytest.mark.parametrize(
    "page", ["docs/guarantees.md", "docs/internals/invariants.md", "docs/internals/testing.md"]
)
def test_every_test_and_module_a_page_names_exists(page):
    for name in re.findall(r"`((?:tests|src)/[\w/.]+|\w+/\w+\.py)`", (ROOT / page).read_text()):
        assert (ROOT / name).exists() or (ROOT / "src/holdfast" / name).exists(), name


def test_every_honoured_option_is_described():
    page = (ROOT / "docs/options.md").read_text()

    assert [name for names in HONOURED.values() for name in names if f"`{name}`" not in page] == []


def test_every_option_of_the_datasource_is_in_the_page_on_migrating():
    page = (ROOT / "docs/migrate.md").read_text()
    first = [names[0] for names in TABLE_OPTIONS.values() if not names[0].startswith("hoodie.deltastreamer")]

    assert [name for name in (*first, OPERATION, PARTITIONS_TO_DELETE) if f"`{name}`" not in page] == []


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
        "Commit", "Instant", "RollbackReport", "Table", "create_table", "open_table", "table_exists", "write",
    ]  # fmt: skip
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
