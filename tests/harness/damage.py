"""A table with a rich history, each file of its metadata damaged in turn, and what its users see then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any
from zoneinfo import ZoneInfo

from harness.checker import visible_rows
from harness.world import World, memory_world, rows, table_of
from holdfast.config.choices import CleanPolicy, TimelineZone
from holdfast.config.cleaning import CleanSettings
from holdfast.config.locks import LockSettings
from holdfast.config.table import TIMELINE_ZONE
from holdfast.config.write import WriteSettings
from holdfast.errors import HoldfastError
from holdfast.jobs.ingested import Register, batch_origin
from holdfast.lake import Table
from holdfast.model.instant import InstantTime, moment_of
from holdfast.model.names import (
    LEASE_FOLDER,
    LEDGER_FOLDER,
    META_FOLDER,
    PROPERTIES_BACKUP,
    PROPERTIES_FILE,
    STREAMS_FOLDER,
)
from holdfast.model.pushes import Push
from holdfast.read.changes import changes
from holdfast.read.snapshot import Moment, Snapshot, snapshot
from holdfast.services.archive.archive import archive_instants
from holdfast.services.clean.clean import clean as clean_table
from holdfast.services.leases import Lease, lease
from holdfast.services.pushes import write_push
from holdfast.services.repair.repair import repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint
from holdfast.services.verify.verify import verify
from holdfast.table.archive import read_archive

_CHECKPOINT_AFTER = 7
"""Entries; so few that there are several checkpoints, and most of the ledger is trimmed."""
_ONE_VERSION = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)
_TWO_LEFT = CleanSettings(
    policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1, automatic=False, keep_min=2, keep_max=3
)
_LEASE_S = 3600
_QUERY = "8a2f"
NUMBERED: dict[str, Any] = {
    "operation": "insert",
    "rows": rows("n", city="oslo"),
    "settings": WriteSettings(application="nightly", batch_number=7),
}
"""A write that an application numbers."""
INGESTED = {"two.csv": rows("k", "l")}
"""What a pipeline takes in."""
_ERROR = "a named error"

Answers = Mapping[str, object]
"""What was asked → what a user sees: rows, or that an error was named."""


def rich_table(zone: str | None = None, lock: LockSettings | None = None) -> World:
    """Written to in every way, archived, cleaned, undone, restored and repaired; in UTC, or in local time.

    A write is pending, so is a clean, and somebody holds a lease.
    """
    world = memory_world()
    world.checkpoint_after = _CHECKPOINT_AFTER
    world.lock = lock
    if zone is None:
        world.create()
    else:
        world.clock.zone = zone
        world.create({TIMELINE_ZONE: TimelineZone.LOCAL})
    first = world.write("insert", rows("a", "b", "c", "d"))
    world.insert("never0")
    restore(world.open(), first.instant)
    world.write("upsert", rows("a", city="paris", fare=7.0))
    world.write("insert_overwrite", rows("e", city="rome"))
    world.write("upsert", rows("c", city="paris", fare=8.0))
    _clean(world)
    archive_instants(world.open(), world.under_lock(WriteSettings(clean=_TWO_LEFT)))
    world.ingest({"one.csv": rows("f", "g")})
    create_savepoint(world.open(), None, user="ada", comment="before the audit")
    world.write("upsert", rows("a", "f", city="paris", fare=9.0))
    world.delete_partitions("city=rome")
    world.insert("never1", "never2")
    undo(world.open())
    kept = world.write("insert", rows("h", city="oslo"))
    world.write("upsert", rows("h", city="oslo", fare=3.0))
    world.write("insert_overwrite", rows("h", city="oslo", fare=4.0))
    restore(world.open(), kept.instant)
    _take_batch(world, 0)
    world.write(**NUMBERED)
    _repair_an_orphan(world)
    leased = world.write("insert", rows("i", "j"))
    _lease(world, leased.instant)
    write_push(
        world.open(),
        Push(
            instant=leased.instant,
            table="trips_OFFLINE",
            controller="http://here",
            entry_id="1",
            lake="memory",
        ),
    )
    world.write("insert_overwrite", rows("i", city="paris", fare=5.0))
    world.ingest(INGESTED)
    world.write("delete", table_of([("k", "paris", 0.0)]))
    world.write("upsert", rows("l", city="rome", fare=6.0))
    world.die_after(_clean, last=LEDGER_FOLDER)
    world.die_after(lambda world: world.insert("x", "y"), last="upload ")
    # Hudi changed the properties, and was killed before it took its copy away.
    world.store.put(PROPERTIES_BACKUP, world.store.read(PROPERTIES_FILE))
    if zone is not None:
        # Whoever comes next runs elsewhere.
        world.clock.zone = "UTC"
    return world


def _clean(world: World) -> None:
    clean_table(world.open(), world.under_lock(WriteSettings(clean=_ONE_VERSION)))


def _take_batch(world: World, number: int) -> None:
    """A micro-batch of a stream, beside which Spark keeps its own notes."""
    origin = batch_origin(Register(world.open()), _QUERY, number, pipeline="trips")
    world.write("insert", rows("m", city="oslo", fare=2.0), origin=origin)
    world.store.put(f"{STREAMS_FOLDER}/trips/offsets/{number}", b"v1\n{}\n0")


def _repair_an_orphan(world: World) -> None:
    """A file of nobody's is found, and moved to quarantine."""
    [path] = [path for path in world.store.paths("city=paris") if path.endswith(".parquet")][:1]
    orphan = f"{path.partition('_')[0]}_9-9-9_20991231235959999.parquet"
    world.store.create(orphan, world.store.read(path))
    repair(world.open(), verify(world.open()))
    assert orphan not in world.store.paths("city=paris")


_HELD: list[AbstractContextManager[Lease]] = []
"""A lease that nobody refers to ends at once."""


def _lease(world: World, commit: InstantTime) -> None:
    held = lease(world.open(), "a reader", _LEASE_S, as_of=commit)
    held.__enter__()
    _HELD.append(held)


@dataclass(frozen=True)
class Damage:
    path: str
    kind: str
    content: bytes | None
    """What the file holds then; None if it is gone."""

    def __str__(self) -> str:
        return f"{self.path} {self.kind}"

    def apply(self, world: World) -> World:
        """The same table with this one file damaged."""
        damaged = world.copy()
        if self.content is None:
            damaged.store.delete(self.path)
        else:
            damaged.store.put(self.path, self.content)
        return damaged


def each_damage(world: World, *, flips: int) -> Iterator[Damage]:
    """Everything that can happen to one file under `.hoodie`; in so many places of each a bit flips."""
    paths = world.store.paths(META_FOLDER)
    for path in paths:
        whole = world.store.read(path)
        if not path.startswith(LEASE_FOLDER):
            # A lease ends when its file is deleted: that is no damage.
            yield Damage(path, "deleted", None)
        for keep in sorted({0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1} & set(range(len(whole)))):
            yield Damage(path, f"cut to {keep} of {len(whole)} bytes", whole[:keep])
        yield Damage(path, "garbage", b"\x00\xffgarbage\n" * 7)
        for at in sorted(
            {round(n * (len(whole) - 1) / max(flips - 1, 1)) for n in range(flips)} if whole else ()
        ):
            for bit in (0, 3):
                flipped = bytearray(whole)
                flipped[at] ^= 1 << bit
                yield Damage(path, f"bit {bit} of byte {at} flipped", bytes(flipped))
        other = _sibling(path, paths)
        if other is not None and world.store.read(other) != whole:
            yield Damage(path, f"holds what {other} does", world.store.read(other))


def _sibling(path: str, paths: list[str]) -> str | None:
    """The next file of the same kind."""
    folder, _, name = path.rpartition("/")
    kind = name.partition(".")[2]
    alike = [
        p for p in paths if p.rpartition("/")[0] == folder and p.rpartition("/")[2].partition(".")[2] == kind
    ]
    after = alike[(alike.index(path) + 1) % len(alike)]
    return after if after != path else None


def answers(world: World, commits: Sequence[Moment]) -> Answers:
    """What every kind of user of the table sees, before and after the next write and its undo."""
    before = {**_present(world), **_past(world, commits), **_changes(world, commits)}
    asked = {f"now: {ask}": _said(act) for ask, act in before.items()}
    if world.lock is not None:
        unlocked = replace(world, lock=None)
        asked["a write without the lock"] = _said(lambda: _write_next(unlocked))
    asked["next write"] = _said(lambda: _write_next(world))
    asked |= {f"after the next write: {ask}": _said(act) for ask, act in _present(world).items()}
    if asked["next write"] != _ERROR:
        asked["undo"] = _said(lambda: undo(world.open()).action)
    after = {**_present(world), **_past(world, commits), **_repeats(world)}
    asked |= {f"after the undo: {ask}": _said(act) for ask, act in after.items()}
    # What a lease or a savepoint holds must be there after a clean that leaves nothing else.
    asked["clean"] = _said(lambda: _clean_all(world))
    return asked | {f"after the clean: {ask}": _said(act) for ask, act in _past(world, commits).items()}


def known_commits(world: World, zone: str | None = None) -> list[Moment]:
    """The commits of the timeline, the newest one that was archived, and when two of them were.

    `zone`: that of the table, as `rich_table` took it.
    """
    archived = read_archive(world.store).timeline.completed_commits
    times = world.commit_times()
    moments = [moment_of(time, ZoneInfo(zone or "UTC")) for time in (times[-3], times[-1])]
    return [*(commit.time for commit in archived[-1:]), *times, *moments]


def is_clean(world: World) -> bool:
    """Whether `verify` has nothing to say that a user would have to care about."""
    with suppress(HoldfastError):
        return bool(Table(world.open()).verify().is_clean)
    return False


def _write_next(world: World) -> str:
    world.write("upsert", rows("z", city="oslo", fare=1.0))
    return "done"


def _present(world: World) -> dict[str, Callable[[], object]]:
    return {
        "rows": lambda: sorted(visible_rows(world.open())),
        "savepoints": lambda: [one.instant for one in Table(world.open()).savepoints()],
    }


def _past(world: World, commits: Sequence[Moment]) -> dict[str, Callable[[], object]]:
    """The files and columns that the rows of every commit are read from: data files are not damaged here."""
    return {
        f"rows as of {time}": lambda time=time: _contents(snapshot(world.open(), as_of=time))
        for time in commits
    }


def _repeats(world: World) -> dict[str, Callable[[], object]]:
    """What was taken in once is not taken in again."""
    return {
        "the file again": lambda: world.ingest(INGESTED) is None,
        "the batch again": lambda: _take_batch(world, 0),
        "the number again": lambda: world.write(**NUMBERED).repeated,
    }


def _clean_all(world: World) -> str:
    _clean(world)
    return "done"


def _changes(world: World, commits: Sequence[Moment]) -> dict[str, Callable[[], object]]:
    return {
        f"changes since {time}": lambda time=time: _contents(changes(world.open(), since=time).snapshot)
        for time in commits
    }


def _contents(found: Snapshot) -> tuple[object, ...]:
    return found.schema, sorted(found.paths)


def _said(act: Callable[[], object]) -> object:
    try:
        return act()
    except HoldfastError:
        return _ERROR


def silent_changes(right: Answers, told: Answers) -> list[str]:
    """What a user sees that is neither right nor a named error."""
    return [ask for ask, answer in told.items() if answer not in (*_right(right, told, ask), _ERROR)]


def _right(right: Answers, told: Answers, ask: str) -> tuple[object, ...]:
    """A write, an undo or a clean that was refused leaves everything as it was."""
    when, _, what = ask.partition(": ")
    if when == "after the next write" and told["next write"] == _ERROR:
        return (right[f"now: {what}"],)
    if ask == "after the undo: rows" and told.get("undo") == _ERROR:
        return (right["after the next write: rows"],)
    if what.startswith("rows as of"):
        return right[ask], right[f"now: {what}"]
    return (right[ask],)


def has_error(told: Answers) -> bool:
    return any(answer == _ERROR for answer in told.values())
