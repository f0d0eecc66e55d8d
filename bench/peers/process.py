"""The process of one peer: it answers requests until its input ends.

    python -m bench.peers.process ENGINE SETTING

A request is a line of JSON: a verb, what it needs, and whether it is to be
measured. The answer is one, too: a value and what it took, or an error. The
process measures itself, so that idle peers are nobody's memory.
"""

import json
import os
import sys
import traceback
from typing import IO, Any

import msgspec

from bench.peers.engine import Engine, Load, Setting
from bench.peers.engines import engine
from bench.processes import ProcessMeter

_ERROR_LENGTH = 300


def main() -> None:
    # The JVM may say what it likes to the standard output that it inherits.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    served = engine(sys.argv[1], msgspec.json.decode(sys.argv[2], type=Setting))
    meter = ProcessMeter()
    for line in sys.stdin:
        _say(answers, _answer(served, meter, json.loads(line)))


def _answer(served: Engine, meter: ProcessMeter, request: dict[str, Any]) -> dict[str, Any]:
    needs = request["needs"]
    if "rows" in needs:
        needs["rows"] = msgspec.convert(needs["rows"], Load)
    values: list[object] = []
    try:
        usage = meter.measure(lambda: values.append(getattr(served, request["verb"])(**needs)))
    except Exception as error:  # noqa: BLE001  # told to whoever asked
        traceback.print_exc()
        first = next(iter(str(error).splitlines()), "")
        return {"error": f"{type(error).__name__}: {first[:_ERROR_LENGTH]}"}
    return {"value": values[0], "usage": msgspec.to_builtins(usage)}


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
