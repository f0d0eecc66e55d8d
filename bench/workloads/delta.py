"""Delta tables through `deltalake`, in a new process for each act: see `delta_process`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

_SCRIPT = Path(__file__).with_name("delta_process.py")


class DeltaProcess:
    """A process that has read its rows and waits to be told."""

    def __init__(self, action: str, table: Path, **needs: object) -> None:
        request = json.dumps({"action": action, "table": str(table), **needs}, default=str)
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), request],
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
            raise RuntimeError(f"the deltalake process ended with {self._process.wait()}")
        return line


def delta(action: str, table: Path, **needs: object) -> object:
    """Do one thing with a Delta table that nobody measures."""
    process = DeltaProcess(action, table, **needs)
    answer = process.act()
    process.end()
    return answer


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
