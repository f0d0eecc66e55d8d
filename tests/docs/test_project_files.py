"""What surrounds the code is true: targets that are named exist, files can be read, releases have a date."""

import re
import tomllib

import pytest
import yaml

from harness.guides import ROOT

PAGES = [
    "README.md", "CONTRIBUTING.md", "docs/internals/releasing.md", ".github/workflows/ci.yml",
    ".github/pull_request_template.md", "docs/internals/testing.md", ".ci/run",
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_every_target_that_a_page_names_exists(page):
    makefile = (ROOT / "Makefile").read_text()
    text = (ROOT / page).read_text()
    if page.endswith(".md"):
        named = set(re.findall(r"`make ([a-z][\w-]*)", text))
    else:
        commands = "\n".join(line.partition("#")[0] for line in text.splitlines())
        named = set(re.findall(r"\bmake ([a-z][\w-]*)", commands))

    assert [name for name in sorted(named) if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize(
    "path",
    sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob(".*.yaml"), *(ROOT / ".github").rglob("*.yml")]),
)
def test_every_yaml_file_of_the_project_can_be_read(path):
    assert isinstance(yaml.safe_load((ROOT / path).read_text()), dict)


def test_every_release_has_a_date_and_the_newest_is_the_one_of_the_package():
    titles = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert titles[0] == "Unreleased"
    assert titles[1].startswith(version)
    dated = re.compile(r"\d+\.\d+\.\d+ \((\d{4}-\d\d-\d\d|unreleased)\)")
    assert [title for title in titles[1:] if not dated.fullmatch(title)] == []


def test_the_version_is_one():
    import holdfast

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert holdfast.__version__ == version
