"""A machine without a usable Java is told so in one sentence, before anything is installed."""

import os
import subprocess
import sys

import pytest


def ask(**environment):
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PATH")}
    return subprocess.run(
        [sys.executable, "-m", "holdfast.engines.spark.java"],
        capture_output=True, text=True, env={**kept, **environment},
    )  # fmt: skip


@pytest.fixture
def java(tmp_path):
    def claiming(version):
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
        program.chmod(0o755)
        return tmp_path

    return claiming


def test_a_missing_java_is_named_with_what_to_install(tmp_path):
    said = ask(PATH=str(tmp_path))

    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "none was found" in said.stderr
    assert "install Java 17 or newer" in said.stderr


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392", "16"])
def test_an_old_java_is_named_with_its_version_and_what_to_install(java, version):
    home = java(version)

    said = ask(PATH=f"{home}/bin:/bin:/usr/bin")

    assert said.returncode == 2
    assert said.stderr.count("\n") == 1
    assert "install Java 17 or newer" in said.stderr


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_new_enough_java_is_fine(java, version):
    assert ask(PATH="/bin:/usr/bin", JAVA_HOME=str(java(version))).returncode == 0


def test_a_java_home_without_java_is_named(tmp_path):
    said = ask(PATH="/bin:/usr/bin", JAVA_HOME=str(tmp_path))

    assert said.returncode == 2
    assert str(tmp_path) in said.stderr
