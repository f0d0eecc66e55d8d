"""The whole conversation with one line of Hudi: `LINE [short]`. One JVM, one process.

HOLDFAST_INTEROP_ONLY, a regular expression, chooses checks by their names. The
tables stay in `build/interop/tables` until the next run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import traceback
from importlib import import_module

from interop.lines import LINES
from interop.talk import CHECKS, Talk

MODULES = ("reading", "continuing", "services", "failures", "together", "versions")


def main() -> int:
    os.environ["TZ"] = "UTC"
    time.tzset()
    line = LINES[sys.argv[1]]
    is_short = "short" in sys.argv[2:]
    only = os.environ.get("HOLDFAST_INTEROP_ONLY", "")
    for module in MODULES:
        import_module(f"interop.{module}")
    shutil.rmtree(line.tables, ignore_errors=True)
    line.tables.mkdir(parents=True)
    talk = Talk(line, line.tables)
    chosen = [c for c in CHECKS if line.name in c.lines and (c.is_short or not is_short)]
    chosen = [c for c in chosen if re.search(only, c.name)]
    failed = [each.name for each in chosen if not _passed(talk, each)]
    talk.hudi.spark.stop()
    summary = {"line": line.name, "checks": len(chosen), "failed": failed, "comparisons": talk.comparisons}
    say(json.dumps(summary))
    return 1 if failed else 0


def _passed(talk: Talk, each) -> bool:
    began = time.monotonic()
    try:
        each.check(talk)
    except Exception:  # noqa: BLE001  # the rest of the conversation goes on
        say(f"  FAILED {each.name}\n{_short(traceback.format_exc())}")
        return False
    say(f"  ok     {each.name} ({time.monotonic() - began:.1f} s)")
    return True


def _short(text: str) -> str:
    """Without the JVM's frames, which say little."""
    return "\n".join(line[:400] for line in text.splitlines() if not line.startswith("\tat "))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
