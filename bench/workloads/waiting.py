"""Processes that make themselves ready, wait to be told, act once and answer.

What an act takes of memory is then its own, and what its process loads before is not timed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO


class WaitingProcess:
    """A script that gets its request as JSON, says a line when it is ready, and another when it is done."""

    def __init__(self, script: Path, **request: object) -> None:
        self._script = script
        self._process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(request, default=str)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def act(self) -> object:
        """Let it do what it was started for; its answer. It gives its memory back afterwards."""
        _pipe(self._process.stdin).write("go\n")
        _pipe(self._process.stdin).flush()
        return json.loads(self._line())

    def end(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self._script.name} ended with {self._process.wait()}")
        return line


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
