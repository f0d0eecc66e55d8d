"""Pages of the documentation, run from top to bottom as a reader would.

Blocks that begin with a file's name are written to that file; `holdfast serve`
runs beside the others until the page ends; Python shares its names; commands
run in a shell and print what the `text` block after them shows, if there is
one. Instants, entries and ports on a page stand for those of the run.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness.servers import free_port, serving_beside

ROOT = Path(__file__).resolve().parent.parent.parent

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|//) (\S+\.(?:yaml|json))\n(.*)", re.DOTALL)
_MAKE = re.compile(r"^make (\S+)\n", re.MULTILINE)
_STANDS_FOR = re.compile(r"\b(?:\d{17}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b(?!-)")
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?|[\d.]+ (B|KB|MB)\b|process \d+ on [\w.-]+"
    r"|[0-9a-f]{8}-[0-9a-f-]{27}-\S+\.parquet|_\d{13}_|\d+(\.\d+)? s\b|\d+\s*$|-{3,}|\s+",
)
"""What is another each time: moments, sizes, processes, files, durations, and how wide the columns are."""

_COMMANDS = """
set -a; [ -f .variables ] && . ./.variables
trap 'export -p > .variables' EXIT
holdfast() {
    local code=0
    command holdfast "$@" 2> .stderr || code=$?
    cat .stderr; rm .stderr
    return $code
}
"""
"""Variables stay; a command's errors come after what it prints, wherever the two go."""


def blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall((ROOT / page).read_text())


class Guide:
    """One run of a page in the current folder."""

    def __init__(
        self,
        page: str,
        names: dict[str, Any] | None = None,
        *,
        ports: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`names` are what its Python knows from the start, `ports` where what it does not start listens."""
        self.page = page
        self.printed = ""
        self._names = {} if names is None else names
        self._known: dict[str, str] = {}
        self._ports = {"9000": str(free_port()), "8099": str(free_port()), **(ports or {})}
        self._environment = {
            **os.environ,
            **(environment or {}),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "HOLDFAST_CONTROLLER": f"http://127.0.0.1:{self._ports['9000']}",
            "HOLDFAST_BROKER": f"http://127.0.0.1:{self._ports['8099']}",
        }

    def run(self) -> str:
        """Run every block; everything that commands printed."""
        found = blocks(self.page)
        assert found, self.page
        with ExitStack() as stack:
            for (language, text), (following, shown) in pairwise([*found, ("", "")]):
                ours = self._translated(text)
                named = _NAMED.match(ours)
                if named:
                    Path(named[1]).write_text(named[2])
                elif language == "python":
                    exec(compile(ours, self.page, "exec"), self._names)
                elif language == "sh" and ours.startswith("holdfast serve"):
                    stack.enter_context(serving_beside(ours.split(), environment=self._environment))
                elif language == "sh":
                    self._commands(ours, shown if following == "text" else None)
        return self.printed

    def _commands(self, text: str, shown: str | None) -> None:
        makefile = (ROOT / "Makefile").read_text()
        for target in _MAKE.findall(text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        script = _COMMANDS + ("" if shown is not None else "set -e\n") + _MAKE.sub("", text)
        ran = subprocess.run(
            ["bash", "-c", script],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=self._environment,
        )  # fmt: skip
        self.printed += ran.stdout
        if shown is None:
            assert ran.returncode == 0, f"{self.page}: {text}\n{ran.stdout}"
            return
        self._learn(shown, ran.stdout)
        assert _compared(ran.stdout) == _compared(self._translated(shown)), (
            f"{self.page}: {text}\n{ran.stdout}"
        )

    def _learn(self, shown: str, printed: str) -> None:
        """What instants and entries of the page are called in this run."""
        self._known |= dict(zip(_STANDS_FOR.findall(shown), _STANDS_FOR.findall(printed), strict=True))

    def _translated(self, text: str) -> str:
        for port, ours in self._ports.items():
            text = re.sub(rf"\b{port}\b", ours, text)
        return _STANDS_FOR.sub(lambda found: self._known.get(found[0], found[0]), text)


def _compared(text: str) -> list[str]:
    return _VARIES.sub(" ", text).split()
