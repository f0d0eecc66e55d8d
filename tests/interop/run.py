"""Both engines in conversation, with every line of Hudi: `make interop`.

Needs Maven for the jars (200 MB, once), 1.5 GB of disk, two cores, 3 GB of
memory and about a quarter of an hour; INTEROP=short takes a part of the checks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from interop.lines import LINES, ROOT, CannotBeHad, Line, fetch


def main() -> int:
    form = sys.argv[1:]
    try:
        for line in LINES.values():
            fetch(line)
    except CannotBeHad as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return 3
    outcomes = [_converse(line, form) for line in LINES.values()]
    for line, counts, seconds in outcomes:
        if counts is None:
            say(f"Hudi {line.version}: the conversation broke off after {seconds:.0f} s; see {line.log}")
        else:
            found = ", ".join(f"{name} {count}" for name, count in counts.items())
            say(f"Hudi {line.version}: checks {found}; {seconds:.0f} s")
    return 0 if all(counts is not None and not counts["FAILED"] for _, counts, _ in outcomes) else 1


def _converse(line: Line, form: list[str]) -> tuple[Line, dict | None, float]:
    say(f"Hudi {line.version}")
    began = time.monotonic()
    path = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests"))
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": str(line.python)}
    command = [str(line.python), "-m", "interop.line", line.name, *form]
    last = ""
    with (
        line.log.open("w") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        for text in process.stdout or ():
            if last:
                say(last)
            last = text.rstrip("\n")
    seconds = time.monotonic() - began
    try:
        return line, json.loads(last), seconds
    except ValueError:
        say(last)
        return line, None, seconds


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
