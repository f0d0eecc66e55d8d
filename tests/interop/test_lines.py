"""What a conversation needs from outside, and the one sentence that says it when it is not there."""

import re
from dataclasses import replace

import pytest

from interop import lines
from interop.lines import LINES, CannotBeHad, fetch


@pytest.fixture
def absent(tmp_path, monkeypatch):
    """A bundle that is not in the cache."""
    monkeypatch.setattr(lines, "JARS", tmp_path / "jars")
    return replace(LINES["0.15"], version="0.0.0")


def program(folder, name, text):
    folder.mkdir()
    script = folder / name
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return str(folder)


def test_without_maven_one_sentence_says_so(absent, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBeHad, match=r"^Maven is needed to fetch Apache Hudi: .*$"):
        fetch(absent)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "[ERROR] goal failed on project stub: Unable to find artifact in central",
            "Unable to find artifact",
        ),
        ("[ERROR] Unknown host", "Unknown host"),
        ("", "it said nothing"),
    ],
)
def test_what_maven_cannot_deliver_is_named_with_its_reason(absent, tmp_path, monkeypatch, said, cause):
    monkeypatch.setenv("PATH", program(tmp_path / "bin", "mvn", f"echo '{said}'; exit 1"))
    expected = f"Maven cannot deliver org.apache.hudi:{absent.artifact}:0.0.0: {cause}"
    with pytest.raises(CannotBeHad, match=f"^{re.escape(expected)}$"):
        fetch(absent)


def test_a_disk_that_is_full_is_noticed_before_anything_is_fetched(absent, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", program(tmp_path / "bin", "mvn", "exit 1"))
    monkeypatch.setattr(lines, "MEGABYTES_NEEDED", 1 << 40)
    with pytest.raises(CannotBeHad, match="MB of free disk are needed"):
        fetch(absent)


def test_what_is_in_the_cache_is_not_fetched_again(absent, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    absent.jar.parent.mkdir()
    absent.jar.touch()
    fetch(absent)
