"""Jars by Maven: kept once they are there, and one sentence when they cannot be had."""

import pytest
from bench.maven import CannotBeHad, fetched

COORDINATE = "org.example:thing_2.12:1.2.3"
JAR = "thing_2.12-1.2.3.jar"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Puts a script in the place of Maven; without it there is none."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(script):
        (folder / "mvn").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "mvn").chmod(0o755)

    return write


@pytest.fixture
def jars(tmp_path):
    return tmp_path / "jars"


@pytest.mark.usefixtures("program")
def test_a_jar_that_is_there_needs_no_maven(jars):
    jars.mkdir()
    (jars / JAR).touch()

    assert fetched([COORDINATE], megabytes=1, jars=jars) == [jars / JAR]


@pytest.mark.usefixtures("program")
def test_without_maven_it_is_said_what_is_needed(jars):
    with pytest.raises(CannotBeHad, match=f"Maven is needed to fetch {COORDINATE}: there is no mvn"):
        fetched([COORDINATE], megabytes=1, jars=jars)


def test_maven_is_asked_for_the_coordinate_and_the_folder(program, jars):
    program(f'for word; do case "$word" in -DoutputDirectory=*) : > "${{word#*=}}/{JAR}";; esac; done')

    assert fetched([COORDINATE], megabytes=1, jars=jars) == [jars / JAR]


def test_the_cause_that_maven_gives_is_told_in_the_same_sentence(program, jars):
    program(
        "echo '[ERROR] Failed to execute goal dependency:copy (default-cli) on project standalone-pom: "
        "Could not find artifact thing in central (https://example.org) -> [Help 1]'; exit 1"
    )

    with pytest.raises(CannotBeHad) as refused:
        fetched([COORDINATE], megabytes=1, jars=jars)

    assert str(refused.value) == f"Maven cannot deliver {COORDINATE}: Could not find artifact thing"


def test_a_disk_without_room_is_told_before_anything_is_fetched(program, jars):
    program("exit 1")

    with pytest.raises(CannotBeHad, match="MB of free disk are needed"):
        fetched([COORDINATE], megabytes=10**12, jars=jars)
