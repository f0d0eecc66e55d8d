"""The package, as those get it who install it: what the wheel says and holds, and that it works alone."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from harness.guides import ROOT

_PARTS = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE")
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing of it is left in the checkout."""
    copy, into = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in _PARTS:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run([sys.executable, "-c", _BUILD, into], cwd=copy, check=True, capture_output=True)
    [built] = into.iterdir()
    return built


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as content:
        [name] = [name for name in content.namelist() if name.endswith("/METADATA")]
        return message_from_string(content.read(name).decode())


def test_the_distribution_has_its_own_name_and_says_who_made_it(metadata):
    assert metadata["Name"] == "holdfast-lake"
    assert metadata["Author"] == "Holdfast engineers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "Operating System :: POSIX :: Linux" in metadata.get_all("Classifier")
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL")} >= {
        "Homepage", "Documentation", "Changelog", "Issues",
    }  # fmt: skip


def test_links_of_the_long_description_work_anywhere(metadata):
    targets = re.findall(r"\]\(([^)#]+)", metadata.get_payload())

    assert len(targets) > 10
    assert [each for each in targets if not each.startswith("https://")] == []


def test_what_only_development_needs_is_no_extra(metadata):
    assert sorted(metadata.get_all("Provides-Extra")) == ["server", "spark", "zookeeper"]


def test_the_wheel_holds_the_package_and_its_data_alone(wheel):
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()

    assert {name.partition("/")[0] for name in names} == {
        "holdfast", next(name for name in names if ".dist-info/" in name).partition("/")[0],
    }  # fmt: skip
    packed = {name for name in names if name.startswith("holdfast/")}
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/holdfast").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == ours


def test_hints_name_the_distribution_and_no_other():
    """`pip install holdfast` would install somebody else's."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    wrong = re.compile(r"pip install [^\n]*\bholdfast(?!-lake)\b")

    assert [str(page) for page in pages if wrong.search(page.read_text())] == []


def test_in_a_clean_environment_the_wheel_runs_the_example_of_the_readme(wheel, tmp_path):
    """Without network: what it depends on is lent by this environment, which has it by the lock."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, wheel],
        check=True, env=environment,
    )  # fmt: skip
    [packages] = (tmp_path / "venv/lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")

    ran = subprocess.run(
        [python, ROOT / "tests/docs/readme_example.py", ROOT / "README.md"],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert str(packages / "holdfast") in ran.stdout
    shown = subprocess.run(
        [tmp_path / "venv/bin/holdfast", "timeline", "lake/trips"],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert (shown.returncode, shown.stdout.count("commit")) == (0, 1), shown.stderr
