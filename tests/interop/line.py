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
from enum import StrEnum
from importlib import import_module

from interop.lines import LINES, CannotBeHad
from interop.talk import CHECKS, Registered, Talk, move_us_to


class Fared(StrEnum):
    HELD = "held"
    FAILED = "FAILED"
    LEFT_OUT = "left out"
    """It was not asked, or something that it needs is not here; the reason is said."""


MODULES = ("reading", "continuing", "merging", "services", "failures", "together", "versions", "zones")


def main() -> int:
    line = LINES[sys.argv[1]]
    move_us_to(line.zone)
    is_short = "short" in sys.argv[2:]
    only = os.environ.get("HOLDFAST_INTEROP_ONLY", "")
    for module in MODULES:
        import_module(f"interop.{module}")
    chosen = [each for each in CHECKS if re.search(only, each.name)]
    if not chosen:
        sys.exit(f"holdfast: no check has a name like {only}")
    shutil.rmtree(line.tables, ignore_errors=True)
    line.tables.mkdir(parents=True)
    talk = Talk(line, line.tables, is_short=is_short)
    fared = {each.name: _fared(talk, each) for each in chosen}
    talk.hudi.spark.stop()
    counts = {outcome: sum(each is outcome for each in fared.values()) for outcome in Fared}
    say(json.dumps(counts | {"comparisons": talk.comparisons}))
    return 1 if counts[Fared.FAILED] else 0


def _fared(talk: Talk, each: Registered) -> Fared:
    began = time.monotonic()
    fared, detail = Fared.HELD, ""
    try:
        if reason := each.left_out(talk.line, is_short=talk.is_short):
            raise CannotBeHad(reason)
        each.check(talk)
    except CannotBeHad as error:
        fared, detail = Fared.LEFT_OUT, f": {error}"
    except Exception:  # noqa: BLE001  # the rest of the conversation goes on
        fared, detail = Fared.FAILED, f"\n{_short(traceback.format_exc())}"
    say(f"  {fared:8} {each.name} ({time.monotonic() - began:.1f} s){detail}")
    return fared


def _short(text: str) -> str:
    """Without the JVM's frames, which say little."""
    return "\n".join(line[:400] for line in text.splitlines() if not line.startswith("\tat "))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
