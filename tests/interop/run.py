"""Both engines in conversation, with every line of Hudi: `make interop`.

The lines talk at the same time, each in a process and a JVM of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from interop.lines import LINES, NEWER, ROOT, Line


def main() -> int:
    form = sys.argv[1:]
    with ThreadPoolExecutor(len(LINES)) as pool:
        outcomes = list(pool.map(lambda line: _converse("interop.line", line, form), LINES.values()))
        outcomes += pool.map(lambda line: _converse("interop.newer_line", line, form), NEWER.values())
    for line, counts, seconds in outcomes:
        if counts is None:
            say(f"Hudi {line.version}: the conversation broke off after {seconds:.0f} s; see {line.log}")
        else:
            found = ", ".join(f"{name} {count}" for name, count in counts.items())
            say(f"Hudi {line.version}: checks {found}; {seconds:.0f} s")
    return 0 if all(counts is not None and not counts["FAILED"] for _, counts, _ in outcomes) else 1


def _converse(module: str, line: Line, form: list[str]) -> tuple[Line, dict[str, int] | None, float]:
    """Let a process of its own talk to one line, and pass on what it says."""
    began = time.monotonic()
    path = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests"))
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": str(line.python)}
    command = [str(line.python), "-m", module, line.name, *form]
    counts = None
    line.log.parent.mkdir(parents=True, exist_ok=True)
    with (
        line.log.open("w") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        for text in process.stdout or ():
            if text.startswith("{"):
                counts = json.loads(text)
            elif not text.startswith("#"):
                say(f"{line.version}  {text.rstrip()}")
    return line, counts, time.monotonic() - began


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
