"""A process of its own for planning a clean: the memory it takes is nobody else's.

python clean_process.py REQUEST    makes ready, says so, acts when told, gives the number of files found
"""

import json
import os
import sys
from collections.abc import Callable

import holdfast
from holdfast.clock import SystemClock
from holdfast.config.cleaning import CleanSettings
from holdfast.host import SystemHost
from holdfast.services.clean.execute import encode_plan
from holdfast.services.clean.plan import CleanDraft, clean_context, draft_clean, window_to_retain
from holdfast.storage.open import location_of, open_store
from holdfast.table.opened import OpenTable, open_existing
from holdfast.table.stable_read import timeline_and_ledger


def main() -> None:
    request = json.loads(sys.argv[1])
    act = _ACTIONS[request["action"]]
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(act(request["table"])), flush=True)


def opened(path: str) -> OpenTable:
    location = location_of(path)
    return open_existing(open_store(location), location, clock=SystemClock(), host=SystemHost())


def drafted(table: OpenTable, settings: CleanSettings) -> CleanDraft:
    """The plan of a clean, as the service makes it."""
    timeline, state = timeline_and_ledger(table)
    context = clean_context(table, timeline, state)
    return draft_clean(table, state, context, window_to_retain(table, context, settings), settings)


def _walk(path: str) -> int:
    files = [f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names]
    return sum(name.endswith(".parquet") for name in files)


def _draft(path: str) -> int:
    return int(drafted(opened(path), CleanSettings()).decisions.doomed.num_rows)


def _store(path: str) -> int:
    table = opened(path)
    plan = drafted(table, CleanSettings())
    assert encode_plan(table, plan.schema_in_file)
    return int(plan.decisions.doomed.num_rows)


def _explain(path: str) -> int:
    return len(holdfast.open_table(path).plan_clean().doomed)


_ACTIONS: dict[str, Callable[[str], int]] = {
    "walk": _walk,
    "draft": _draft,
    "store": _store,
    "explain": _explain,
}

if __name__ == "__main__":
    main()
