"""What is explored: the protocol, those it replaces, and defects. Run as a program, one line for each."""

import sys
import time
from collections.abc import Callable, Iterable

from protocol.model import (
    LEDGER_ARCHIVER,
    LEDGER_FORGETTER,
    LEDGER_INVARIANTS,
    LEDGER_ROLLBACK,
    LEDGER_WRITER,
    REQUESTED,
    TIMELINE_INVARIANTS,
    TIMELINE_WRITE,
    Protocol,
    Recovery,
    Step,
    World,
    abort_by,
    append_exclusively,
    append_overwriting,
    archive_by,
    archive_deleted,
    archive_is_wrong,
    archive_rollback,
    beat,
    begin,
    check_heartbeat,
    check_still_pending,
    checkpoint_by,
    choose,
    choose_expired,
    choose_rollback,
    clear,
    commit_by,
    complete,
    complete_rollback,
    dead_holder_blocks,
    decide_abort,
    decide_archive_by,
    decide_commit,
    is_all_decided,
    is_not_named,
    is_nothing_begun,
    is_on_timeline,
    locked_rollback,
    locked_writer,
    look,
    name_if,
    not_recovered,
    orphan_data,
    plan,
    plan_by,
    plan_instant_files_first,
    publish,
    publish_only_mine,
    read_ledger,
    start,
    undecided_without_rollback,
    validate_decisions,
)
from protocol.search import Exploration, Population, explore

LEDGER_PROTOCOL = Protocol("ledger")

# The ledger protocol writes and deletes heartbeats and inflight files, and never
# reads them. The largest population does without, to be explored in seconds.
LEAN_LEDGER_PROTOCOL = Protocol(
    "ledger, without heartbeat and inflight",
    writer=tuple(step for step in LEDGER_WRITER if step not in (beat, start)),
    rollback=tuple(plan_by(REQUESTED) if step is plan else step for step in LEDGER_ROLLBACK),
)

PROTOCOL_RUNS = (
    (LEDGER_PROTOCOL, Population((("A", "A*", "B"),), rollbacks=1)),
    (LEDGER_PROTOCOL, Population((("A", "A*", "B"),), rollbacks=2)),
    (LEDGER_PROTOCOL, Population((("A", "B"), ("A",)), rollbacks=1)),
    (LEDGER_PROTOCOL, Population((("A",), ("B",)), rollbacks=1)),
    (LEAN_LEDGER_PROTOCOL, Population((("A",), ("A",)), rollbacks=2)),
    (LEAN_LEDGER_PROTOCOL, Population((("A",), ("B",)), rollbacks=1, readers=1)),
    (LEAN_LEDGER_PROTOCOL, Population((("A", "B?"), ("B", "A?")), rollbacks=1)),
    (LEAN_LEDGER_PROTOCOL, Population((("A",), ("B",)), readers=1, archivers=1)),
    (LEDGER_PROTOCOL, Population((("A",),), rollbacks=1, archivers=1, keepers=1)),
    (LEAN_LEDGER_PROTOCOL, Population((("A",), ("A",)), rollbacks=1, keepers=1)),
    (LEDGER_PROTOCOL, Population((("A", "A*"),), rollbacks=2, forgetters=1)),
)

SMALLEST_FIRST = (
    Population((("A",),)),
    Population((("A",),), rollbacks=1),
    Population((("A",), ("A",))),
    Population((("A",), ("B",))),
    Population((("A",), ("A",)), rollbacks=1),
    Population((("A",), ("B",)), readers=1),
    Population((("A", "B?"), ("B", "A?"))),
    Population((("A",),), archivers=1),
    Population((("A",),), readers=1, archivers=1),
    Population((("A",), ("B",)), archivers=1),
    Population((("A",),), rollbacks=1, keepers=1),
    Population((("A",),), rollbacks=1, forgetters=1),
)


def without_ledger(
    name: str,
    *,
    writer: tuple[Step, ...],
    rollback: tuple[Step, ...],
    after_recovery: Callable[[Recovery, World], str] = not_recovered,
) -> Protocol:
    """A protocol that knows instant files only; what its recovery leaves is not asked unless given."""
    return Protocol(
        name, writer=writer, rollback=rollback, invariants=TIMELINE_INVARIANTS, after_recovery=after_recovery
    )


REJECTED_PROTOCOLS = (
    without_ledger(
        "heartbeat only",
        writer=(*TIMELINE_WRITE, check_heartbeat, complete, clear),
        rollback=(choose_expired, plan, clear),
    ),
    without_ledger(
        "heartbeat, timeline read again before deleting",
        writer=(*TIMELINE_WRITE, check_heartbeat, complete, clear),
        rollback=(choose_expired, plan, check_still_pending, clear),
    ),
    without_ledger(
        "lock with a lease that expires",
        writer=locked_writer(lease_expires=True),
        rollback=locked_rollback(lease_expires=True),
    ),
    without_ledger(
        "lock that never expires",
        writer=locked_writer(lease_expires=False),
        rollback=locked_rollback(lease_expires=False),
        after_recovery=dead_holder_blocks,
    ),
    without_ledger(
        "decision record per instant",
        writer=(*TIMELINE_WRITE, validate_decisions, decide_commit, complete, clear),
        rollback=(choose_expired, decide_abort, plan, clear),
    ),
)

_BEFORE_COMMIT = LEDGER_WRITER[:-3]

DEFECTS = (
    Protocol("rollback deletes without ABORT", rollback=(choose, plan, clear), after_recovery=not_recovered),
    Protocol(
        "published before COMMIT",
        writer=(*_BEFORE_COMMIT, complete, commit_by(append_exclusively), clear),
    ),
    Protocol(
        "outcome slot overwritten",
        writer=(*_BEFORE_COMMIT, commit_by(append_overwriting), publish, clear),
        rollback=(choose, abort_by(append_overwriting), *LEDGER_ROLLBACK[2:]),
    ),
    Protocol(
        "instant files deleted before data, no stored plan",
        rollback=(choose, LEDGER_ROLLBACK[1], plan_instant_files_first, clear, complete_rollback),
        finds=is_on_timeline,
        after_recovery=orphan_data,
    ),
    Protocol("recovery never rolls back", after_recovery=undecided_without_rollback),
    Protocol(
        "planned before ABORT",
        rollback=(choose, plan, LEDGER_ROLLBACK[1], *LEDGER_ROLLBACK[3:]),
    ),
    Protocol(
        "commit does not validate",
        writer=(*_BEFORE_COMMIT, commit_by(append_exclusively, validates=False), publish, clear),
    ),
    Protocol("begin does not publish first", writer=(read_ledger, begin, *LEDGER_WRITER[2:])),
    Protocol(
        "writer publishes only its own commit",
        writer=(*LEDGER_WRITER[:-2], publish_only_mine, clear),
    ),
    Protocol("snapshot named while an older write runs", reader=(look, name_if(lambda *_: True))),
    Protocol(
        "snapshot named although an older commit is not shown", reader=(look, name_if(is_nothing_begun))
    ),
    Protocol("snapshot named by a time that is to come", reader=(look, name_if(is_all_decided))),
    Protocol(
        "commit does not validate what it read and left",
        writer=(*_BEFORE_COMMIT, commit_by(append_exclusively, counts_reads=False), publish, clear),
    ),
    Protocol(
        "instants deleted before they are archived",
        archiver=(*LEDGER_ARCHIVER[:3], clear, archive_deleted),
    ),
    Protocol(
        "a commit that was named is deleted and not archived",
        archiver=(*LEDGER_ARCHIVER[:3], archive_by(is_not_named), clear),
        invariants=tuple(one for one in LEDGER_INVARIANTS if one is not archive_is_wrong),
    ),
    Protocol(
        "archived past a write that is not decided",
        archiver=(read_ledger, publish, decide_archive_by(waits=False), *LEDGER_ARCHIVER[3:]),
    ),
    Protocol(
        "commit does not fence whose abort a checkpoint left out",
        writer=(*_BEFORE_COMMIT, commit_by(append_exclusively, fences_unknown=False), publish, clear),
    ),
    Protocol(
        "checkpoint leaves out an abort that is not carried out",
        keeper=(read_ledger, publish, checkpoint_by(waits=False)),
    ),
    Protocol(
        "rollback leaves the timeline and nothing tells of it",
        forgetter=(choose_rollback, archive_rollback),
    ),
    Protocol(
        "rollback leaves the timeline before readers know",
        forgetter=(choose_rollback, archive_rollback, LEDGER_FORGETTER[1]),
    ),
)


def first_violation(protocol: Protocol) -> Exploration:
    """Explore populations, smallest first, until one breaks the protocol; the last if none does."""
    for population in SMALLEST_FIRST:
        exploration = explore(protocol, population)
        if exploration.violation:
            break
    return exploration


def main() -> int:
    began = time.perf_counter()
    healthy = [explore(protocol, population) for protocol, population in PROTOCOL_RUNS]
    broken = [first_violation(protocol) for protocol in REJECTED_PROTOCOLS + DEFECTS]
    for exploration in healthy + broken:
        sys.stdout.write(row(exploration) + "\n")
    sys.stdout.write(f"{summary(healthy, broken)}, {time.perf_counter() - began:.1f} s\n")
    survived = [exploration for exploration in broken if not exploration.violation]
    return 1 if survived or any(exploration.violation for exploration in healthy) else 0


def row(exploration: Exploration) -> str:
    return (
        f"{exploration.protocol.name:<55} {exploration.population!s:<48} "
        f"{exploration.states:>8,}  {exploration.violation or 'safe'}"
    )


def summary(healthy: Iterable[Exploration], broken: Iterable[Exploration]) -> str:
    healthy, broken = list(healthy), list(broken)
    states = sum(exploration.states for exploration in healthy + broken)
    violations = sum(bool(exploration.violation) for exploration in healthy)
    caught = sum(bool(exploration.violation) for exploration in broken)
    return (
        f"protocol model: {states:,} states explored, {violations} violations in the protocol, "
        f"{caught} of {len(broken)} variants caught"
    )


if __name__ == "__main__":
    sys.exit(main())
