"""Spark sessions: starting one on this machine, and what a session we are given must offer."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from holdfast.errors import InvalidRequest

_JAVA_WANTED = 17
_WORKER_PYTHON = "PYSPARK_PYTHON"


def local_session(app_name: str, *, master: str = "local[*]") -> SparkSession:
    """Start Spark in this process, quietly. `InvalidRequest` if Java is missing or too old."""
    require_java()
    session: SparkSession = (
        SparkSession.builder.appName(app_name)
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    if _WORKER_PYTHON not in os.environ:
        session.sparkContext.pythonExec = sys.executable
    return session


def require_java() -> None:
    """Say in one sentence what to install if Spark could not start."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    hint = f"install Java {_JAVA_WANTED} or newer, for example: apt-get install openjdk-17-jre-headless"
    if java is None or not os.access(java, os.X_OK):
        raise InvalidRequest("Spark needs Java and none was found", looked_at=java or "PATH", hint=hint)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None or int(match[1]) < _JAVA_WANTED:
        found = match[1] if match else "unknown"
        raise InvalidRequest("Spark needs a newer Java", found=found, java=java, hint=hint)


@contextmanager
def own_interpreter(session: SparkSession) -> Iterator[None]:
    """On this machine, let workers run the Python that runs the driver, unless told otherwise.

    Spark starts whichever `python3` comes first in PATH, which in a virtual
    environment that was not activated is one without the packages a task needs.
    """
    # A session of Spark Connect has no context; its workers are the server's affair.
    context: Any = getattr(session, "_sc", None)
    is_told = _WORKER_PYTHON in os.environ or context is None
    if is_told or not str(context.master).startswith("local"):
        yield
        return
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before
