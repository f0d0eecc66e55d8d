"""Progress is for people who look at a terminal."""

import os
import pty
import subprocess
import sys

_CHILD = """
from holdfast.cli.progress import stage_bars
with stage_bars() as announce:
    print(announce is not None, flush=True)
    if announce:
        announce("plan", 0, 0)
        announce("write", 0, 0)
        announce("write", 3, 7)
"""


def test_on_a_terminal_every_stage_has_a_bar_of_its_own():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}

    with subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
    ) as process:
        printed = process.stdout.read()
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)

    assert printed == "True\n"
    assert "plan" in shown
    assert "7/7" in shown.splitlines()[-2], "the last bar ends at its end"


def test_in_a_pipe_there_are_none():
    ran = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True, check=True)

    assert (ran.stdout, ran.stderr) == ("False\n", "")
