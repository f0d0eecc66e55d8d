"""Writes as Hudi makes them: timed by the clock of the writer's zone alone, and unknown to the ledger."""

from __future__ import annotations

from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow as pa

from harness.world import World
from holdfast.model.instant import InstantTime, time_at
from holdfast.storage.memory import MemoryStore
from holdfast.writes import plan, transaction, validation

_OURS = ".hoodie/.holdfast/"
_DIGEST = b'"holdfast.digest"'


def write_as_hudi(world: World, operation: str, rows: pa.Table, *, zone: str) -> InstantTime:
    """A commit of another program, in that zone, which does not care what instants there are."""
    apart = world.on(MemoryStore(world.clock))
    known = set(world.store.paths(""))
    for path in known:
        if not path.startswith(_OURS):
            apart.store.create(path, world.store.read(path))
    time = time_at(world.clock.now_ms(), ZoneInfo(zone))
    with (
        patch.object(transaction, "next_instant", lambda table, newest: time),
        patch.object(transaction, "refuse_if_ahead", lambda table, newest: None),
        patch.object(plan, "_before", lambda timeline, instant: timeline),
        patch.object(validation, "conflict", lambda claim, other, is_younger: None),
    ):
        apart.write(operation, rows)
    for path in apart.store.paths(""):
        if path not in known and not path.startswith(_OURS):
            # What only a commit of ours has must not be there: its own digest.
            world.store.create(path, apart.store.read(path).replace(_DIGEST, b'"nobodys.digest"'))
    return time
