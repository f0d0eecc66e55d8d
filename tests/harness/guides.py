"""Pages of the documentation, run from top to bottom as a reader would.

Blocks that begin with a file's name are written to that file; `holdfast serve`
runs beside the others until the page ends; Python shares its names; commands
run in a shell, or here if they need Spark and a session is given. Python and
commands print what the `text` block after them shows, if there is one. Instants, entries and
ports on a page stand for those of the run.
"""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from harness.servers import free_port, serving_beside
from holdfast.cli.main import cli

ROOT = Path(__file__).resolve().parent.parent.parent

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|//) (\S+\.(?:yaml|json))\n(.*)", re.DOTALL)
_MAKE = re.compile(r"^make (\S+)\n", re.MULTILINE)
_ON_SPARK = re.compile(r"holdfast (write|sql|run|push run) (?!.*--dry-run)")
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
                    self._run_python(ours, shown if following == "text" else None)
                elif language == "sh" and ours.startswith("holdfast serve"):
                    stack.enter_context(serving_beside(self._service(ours), environment=self._environment))
                elif language == "sh":
                    self._commands(ours, shown if following == "text" else None)
        return self.printed

    def _service(self, command: str) -> list[str]:
        """Without a configuration the service would listen at its usual ports, which others may have."""
        if "--config" in command:
            return command.split()
        controller, broker = self._ports["9000"], self._ports["8099"]
        Path(".serve.yaml").write_text(f"controller: {{port: {controller}}}\nbroker: {{port: {broker}}}\n")
        return [*command.split(), "--config", ".serve.yaml"]

    def _run_python(self, text: str, shown: str | None) -> None:
        printed = io.StringIO()
        with redirect_stdout(printed) if shown is not None else nullcontext():
            exec(compile(text, self.page, "exec"), self._names)
        if shown is not None:
            assert _compared(printed.getvalue()) == _compared(shown), (
                f"{self.page}: {text}\n{printed.getvalue()}"
            )

    def _commands(self, text: str, shown: str | None) -> None:
        makefile = (ROOT / "Makefile").read_text()
        for target in _MAKE.findall(text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        printed, is_fine = "", True
        for is_spark, part in self._parts(_MAKE.sub("", text)):
            output, code = self._in_process(part) if is_spark else self._in_shell(part, stops=shown is None)
            printed += output
            is_fine = is_fine and code == 0
        self.printed += printed
        if shown is None:
            assert is_fine, f"{self.page}: {text}\n{printed}"
            return
        self._learn(shown, printed)
        assert _compared(printed) == _compared(self._translated(shown)), f"{self.page}: {text}\n{printed}"

    def _parts(self, text: str) -> Iterator[tuple[bool, str]]:
        """Commands that start Spark, one by one, and what stands between them."""
        for is_spark, lines in groupby(
            text.splitlines(keepends=True), lambda line: bool(_ON_SPARK.match(line))
        ):
            if is_spark and "spark" in self._names:
                yield from ((True, line) for line in lines)
            else:
                yield False, "".join(lines)

    def _in_process(self, command: str) -> tuple[str, int]:
        """Run a command here, where it finds a session: to start one takes longer than all it does."""
        with _environment(self._environment):
            ran = CliRunner().invoke(cli, shlex.split(command)[1:])
        return ran.stdout + ran.stderr, ran.exit_code

    def _in_shell(self, text: str, *, stops: bool) -> tuple[str, int]:
        ran = subprocess.run(
            ["bash", "-c", _COMMANDS + ("set -e\n" if stops else "") + text],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=self._environment,
        )  # fmt: skip
        return ran.stdout, ran.returncode

    def _learn(self, shown: str, printed: str) -> None:
        """What instants and entries of the page are called in this run."""
        self._known |= dict(zip(_STANDS_FOR.findall(shown), _STANDS_FOR.findall(printed), strict=True))

    def _translated(self, text: str) -> str:
        for port, ours in self._ports.items():
            text = re.sub(rf"\b{port}\b", ours, text)
        return _STANDS_FOR.sub(lambda found: self._known.get(found[0], found[0]), text)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _compared(text: str) -> list[str]:
    return _VARIES.sub(" ", text).split()
