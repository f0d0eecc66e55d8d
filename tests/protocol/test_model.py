"""The ledger protocol is explored in full; every protocol it replaces, and every defect, is caught."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from protocol.explored import (
    DEFECTS,
    LEDGER_PROTOCOL,
    PROTOCOL_RUNS,
    REJECTED_PROTOCOLS,
    first_violation,
    summary,
)
from protocol.model import (
    ABORT,
    ARCHIVED,
    CHECKPOINT,
    COMPLETED,
    DATA,
    HEARTBEAT,
    LEDGER_ROLLBACK,
    NAMED,
    ROLLBACK_ARCHIVED,
    ROLLBACK_COMPLETED,
    UNDONE,
    Entry,
    File,
    Protocol,
    Recovery,
    World,
    clear,
    committed,
    completed,
    is_aborted,
    is_on_timeline,
    known,
    not_recovered,
    orphan_data,
    plan,
)
from protocol.search import Exploration, Population, explore

ONE_WRITER = Population((("A",),))
WRITER_AND_ROLLBACK = Population((("A",),), rollbacks=1)
TWO_ON_ONE_GROUP = Population((("A",), ("A",)))
TWO_APART = Population((("A",), ("B",)))
TWO_AND_READER = Population((("A",), ("B",)), readers=1)
EACH_READS_THE_OTHERS = Population((("A", "B?"), ("B", "A?")))

WRITER_AND_ARCHIVER = Population((("A",),), archivers=1)
WRITER_READER_ARCHIVER = Population((("A",),), readers=1, archivers=1)
TWO_AND_ARCHIVER = Population((("A",), ("B",)), archivers=1)
WRITER_ROLLBACK_FORGETTER = Population((("A",),), rollbacks=1, forgetters=1)
WRITER_ROLLBACK_KEEPER = Population((("A",),), rollbacks=1, keepers=1)

STATES = (2_866, 43_728, 127_751, 68_320, 363_291, 124_042, 31_930, 25_392, 14_067, 106_047, 24_695)

CAUGHT = {
    "heartbeat only": (WRITER_AND_ROLLBACK, "I3 completed instant 1 references deleted data"),
    "heartbeat, timeline read again before deleting": (
        WRITER_AND_ROLLBACK,
        "I3 completed instant 1 references deleted data",
    ),
    "lock with a lease that expires": (
        WRITER_AND_ROLLBACK,
        "I3 completed instant 1 references deleted data",
    ),
    "lock that never expires": (ONE_WRITER, "a dead holder blocks recovery for ever"),
    "decision record per instant": (TWO_ON_ONE_GROUP, "I6 an update is lost"),
    "rollback deletes without ABORT": (WRITER_AND_ROLLBACK, "I3 COMMIT instant 1 references deleted data"),
    "published before COMMIT": (ONE_WRITER, "I4 instant 1 is completed without COMMIT"),
    "outcome slot overwritten": (WRITER_AND_ROLLBACK, "I4 instant 1 is completed without COMMIT"),
    "instant files deleted before data, no stored plan": (
        WRITER_AND_ROLLBACK,
        "I2 recovery leaves data of the aborted instant 1",
    ),
    "recovery never rolls back": (ONE_WRITER, "I17 recovery leaves instant 1 undecided"),
    "planned before ABORT": (WRITER_AND_ROLLBACK, "I2 recovery leaves marker of the aborted instant 1"),
    "commit does not validate": (TWO_ON_ONE_GROUP, "I6 an update is lost"),
    "begin does not publish first": (TWO_ON_ONE_GROUP, "I6 an update is lost"),
    "writer publishes only its own commit": (TWO_APART, "I7 publication is out of order"),
    "snapshot named while an older write runs": (TWO_AND_READER, "I20 the snapshot of instant 2 has changed"),
    "snapshot named although an older commit is not shown": (
        TWO_AND_READER,
        "I20 the snapshot of instant 2 has changed",
    ),
    "snapshot named by a time that is to come": (TWO_AND_READER, "I20 the snapshot of instant 2 has changed"),
    "commit does not validate what it read and left": (
        EACH_READS_THE_OTHERS,
        "I21 a commit follows from what was not there",
    ),
    "instants deleted before they are archived": (
        WRITER_AND_ARCHIVER,
        "I12 instant 1 is neither on the timeline nor archived",
    ),
    "a commit that was named is deleted and not archived": (
        WRITER_READER_ARCHIVER,
        "I20 the snapshot of instant 1 has changed",
    ),
    "archived past a write that is not decided": (
        TWO_AND_ARCHIVER,
        "I12 an archive goes past instant 1, which is not decided",
    ),
    "commit does not fence whose abort a checkpoint left out": (
        WRITER_ROLLBACK_KEEPER,
        "I4 an instant has two outcomes",
    ),
    "checkpoint leaves out an abort that is not carried out": (
        WRITER_ROLLBACK_KEEPER,
        "I2 recovery leaves the rollback of 1 pending",
    ),
    "rollback leaves the timeline and nothing tells of it": (
        WRITER_ROLLBACK_FORGETTER,
        "I12 readers take a late file of the aborted instant 1 for data",
    ),
    "rollback leaves the timeline before readers know": (
        WRITER_ROLLBACK_FORGETTER,
        "I12 readers take a late file of the aborted instant 1 for data",
    ),
}


class Tally:
    """What the tests of this module explored, for the line they end with."""

    def __init__(self) -> None:
        self.healthy: list[Exploration] = []
        self.broken: list[Exploration] = []


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    tally = Tally()
    yield tally
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        request.config.get_terminal_writer().line(f"\n{summary(tally.healthy, tally.broken)}")


def named(name: str) -> Protocol:
    return next(protocol for protocol in REJECTED_PROTOCOLS + DEFECTS if protocol.name == name)


@pytest.mark.parametrize(
    ("protocol", "population", "states"),
    [(*run, states) for run, states in zip(PROTOCOL_RUNS, STATES, strict=True)],
    ids=[str(population) for _, population in PROTOCOL_RUNS],
)
def test_the_ledger_protocol_is_safe_in_every_state_and_recovers_from_it(protocol, population, states, tally):
    """The number of states changes with any step of the protocol: a change is seen, and thought about."""
    exploration = explore(protocol, population)

    tally.healthy.append(exploration)
    assert exploration.violation == "", "\n".join(exploration.schedule)
    assert exploration.states == states


@pytest.mark.parametrize("protocol", REJECTED_PROTOCOLS + DEFECTS, ids=lambda protocol: protocol.name)
def test_a_wrong_protocol_is_caught_with_the_smallest_population_that_breaks_it(protocol, tally):
    exploration = first_violation(protocol)

    tally.broken.append(exploration)
    assert (exploration.population, exploration.violation) == CAUGHT[protocol.name]


def test_a_rollback_meets_every_situation_that_a_single_writer_can_leave():
    """A search that never got that far would find nothing wrong there."""
    worlds = explore(LEDGER_PROTOCOL, WRITER_AND_ROLLBACK).worlds

    assert any(File(DATA, 1, "A") in world.late for world in worlds), "a fenced writer went on writing"
    assert any(is_rolled_back(world) and world.late for world in worlds), "and even after the rollback"
    assert any(committed(world.ledger) and not completed(world) for world in worlds), "decided, unpublished"
    assert any(completed(world) and world.find(HEARTBEAT, 1) is None for world in worlds), (
        "published and cleared"
    )


def test_a_commit_that_was_named_is_archived_and_a_checkpoint_leaves_out_an_abort():
    """Likewise: the rules about both are asked of worlds in which they matter."""
    archived = explore(LEDGER_PROTOCOL, WRITER_READER_ARCHIVER).worlds
    checkpointed = explore(LEDGER_PROTOCOL, WRITER_ROLLBACK_KEEPER).worlds

    assert any(
        world.find(NAMED, 1) and world.find(ARCHIVED, 1) and not world.find(COMPLETED, 1)
        for world in archived
    )
    assert any(is_aborted(world.ledger, 1) and not known(world, world.ledger) for world in checkpointed)
    assert any(world.find(CHECKPOINT, 0) and world.late for world in checkpointed), "its writer went on"


def test_a_writer_finishes_a_file_after_the_rollback_of_its_write_was_archived():
    worlds = explore(LEDGER_PROTOCOL, WRITER_ROLLBACK_FORGETTER).worlds

    assert any(
        world.find(ROLLBACK_ARCHIVED, 2) and world.find(UNDONE, 1) and File(DATA, 1, "A") in world.late
        for world in worlds
    )


def is_rolled_back(world: World) -> bool:
    return any(file.kind == ROLLBACK_COMPLETED for file in world.files)


def test_two_writers_of_one_group_commit_one_after_the_other_or_one_gives_up():
    worlds = explore(LEDGER_PROTOCOL, TWO_ON_ONE_GROUP).worlds

    ends = {
        tuple((e.kind, e.instant, e.bases) for e in world.ledger if e.kind != "BEGIN") for world in worlds
    }
    first = ("COMMIT", 1, (("A", 0),))
    assert (first, ("COMMIT", 2, (("A", 1),))) in ends
    assert (first, ("ABORT", 2, ())) in ends
    assert (("COMMIT", 2, (("A", 0),)), ("ABORT", 1, ())) in ends


def test_two_writers_of_different_groups_both_commit_in_either_order():
    worlds = explore(LEDGER_PROTOCOL, TWO_APART).worlds

    orders = {tuple(entry.instant for entry in committed(world.ledger)) for world in worlds}
    assert {(1, 2), (2, 1)} <= orders
    assert not any(is_aborted(world.ledger, instant) for world in worlds for instant in (1, 2))


def test_the_schedule_of_a_violation_shows_what_happened_between_check_and_deletion():
    exploration = explore(named("heartbeat, timeline read again before deleting"), WRITER_AND_ROLLBACK)

    assert exploration.schedule[-4:] == (
        "writer of 1: check_heartbeat",
        "rollback of 1: check_still_pending",
        "writer of 1: complete",
        "rollback of 1: clear",
    )


def test_a_lock_that_never_expires_is_safe_as_long_as_nobody_dies():
    protocol = replace(named("lock that never expires"), after_recovery=not_recovered)

    exploration = explore(protocol, WRITER_AND_ROLLBACK)

    assert exploration.violation == ""
    assert any(completed(world) for world in exploration.worlds)


def test_a_recovery_that_looks_at_the_timeline_leaves_no_data_if_data_is_deleted_first():
    """The order of deletion is what the defect breaks, not the way its recovery finds work."""
    defect = named("instant files deleted before data, no stored plan")
    data_first = tuple(
        plan if step.__name__ == "plan_instant_files_first" else step for step in defect.rollback
    )
    protocol = Protocol("data first", rollback=data_first, finds=is_on_timeline, after_recovery=orphan_data)

    exploration = explore(protocol, WRITER_AND_ROLLBACK)

    assert defect.rollback != data_first
    assert exploration.violation == ""


def test_recovery_sweeps_what_a_fenced_writer_wrote_after_its_rollback():
    late = File(DATA, 1, "A")
    ledger = (Entry("BEGIN", 1), Entry(ABORT, 1, rollback=2))
    world = World(ledger, frozenset({late, File(ROLLBACK_COMPLETED, 2)}), frozenset({late}))

    swept = Recovery(LEDGER_PROTOCOL).roll_back(world, 1)

    assert swept.files == {File(ROLLBACK_COMPLETED, 2)}


def test_recovery_reports_a_file_left_by_a_rollback_that_says_it_is_completed():
    ledger = (Entry("BEGIN", 1), Entry(ABORT, 1, rollback=2))
    forgotten = World(ledger, frozenset({File(DATA, 1, "A"), File(ROLLBACK_COMPLETED, 2)}))
    forgetful = Protocol("forgetful", rollback=tuple(s for s in LEDGER_ROLLBACK if s is not clear))

    damage = Recovery(forgetful).damage(forgotten)

    assert damage == "I2 recovery leaves data of the aborted instant 1"
