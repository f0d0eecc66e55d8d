"""The crash matrix: every operation, killed before and after every change it makes.

Each run starts from a copy of a start state, dies at one step, and is followed
by one more write, as a user would do it. Then the invariants are checked. The
nested form kills that write, too, at every step, and follows with a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from harness.checker import Violation, check_at_any_time, check_at_rest, visible_rows
from harness.cleaning import clean
from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import Row, World, memory_world, table_of
from holdfast.config.choices import CleanPolicy, ConcurrencyMode, FailedWritesPolicy, IndexType
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.compaction import ArrowCompactor
from holdfast.errors import SnapshotExpired, TableExists
from holdfast.exports.manage import set_exports
from holdfast.model.instant import Action, InstantTime
from holdfast.services.archive.archive import archive_instants
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.table.archive import read_archive
from holdfast.table.pending import pending_compactions, pending_restore
from holdfast.table.properties_file import change_settings, has_settings
from holdfast.table.stable_read import timeline_and_ledger
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.compaction import compact, schedule_compaction, unschedule_compaction

Rows = frozenset[Row]
Act = Callable[[World], object]

PARIS = frozenset({("old1", "paris", 1.0), ("old3", "paris", 3.0)})
ROME = frozenset({("old2", "rome", 2.0)})
OLD = PARIS | ROME
NEXT = ("next", "paris", 9.0)
THIRD = ("third", "rome", 9.0)

_GLOBAL = WriteSettings(index_type=IndexType.GLOBAL_SIMPLE)
_STAYING = WriteSettings(index_type=IndexType.GLOBAL_SIMPLE, simple_moves_records=False)


@dataclass(frozen=True)
class Write:
    """A write, and what a reader sees once it is committed."""

    run: Act
    effect: Callable[[Rows], Rows]


@dataclass(frozen=True)
class Start:
    """A table to begin with: what a reader sees, and what he sees once all that was decided is shown."""

    make: Callable[[], World]
    seen: Rows
    decided: Rows
    first: Rows | None = None
    """What a reader saw at the first commit, if that is something else."""


@dataclass(frozen=True)
class Operation:
    name: str
    run: Act
    start: Start
    after: Rows
    between: frozenset[Rows] = frozenset()
    """What a reader may see on the way: other states that were committed."""

    @property
    def before(self) -> Rows:
        return self.start.decided


@dataclass
class Tally:
    """What a run of the matrix did; printed as one line."""

    operations: int = 0
    points: int = 0
    nested: int = 0

    def __str__(self) -> str:
        return (
            f"crash matrix: {self.operations} operations, {self.points} crash points, "
            f"{self.nested} nested, data lost 0, orphans 0"
        )


def _rows_written(operation: str, rows: Rows, settings: WriteSettings | None = None) -> Act:
    return lambda world: world.write(operation, table_of(sorted(rows)), settings or WriteSettings())


def _without(rows: Rows, *keys: str) -> Rows:
    return frozenset(row for row in rows if row[0] not in keys)


def _outside(rows: Rows, *cities: str) -> Rows:
    return frozenset(row for row in rows if row[1] not in cities)


def _upserted(rows: Rows) -> Callable[[Rows], Rows]:
    return lambda table: _without(table, *(key for key, *_ in rows)) | rows


NEW = frozenset({("new1", "paris", 4.0), ("new2", "rome", 5.0), ("new3", "oslo", 6.0)})
INSERT = Write(_rows_written("insert", NEW), lambda table: table | NEW)
BULK_INSERT = Write(_rows_written("bulk_insert", NEW), lambda table: table | NEW)

_FILES = {"a.csv": table_of(sorted(NEW)[:1]), "b.csv": table_of(sorted(NEW)[1:])}
INGEST = Write(lambda world: world.ingest(_FILES), lambda table: table | NEW)

# Changes one row, gives one to a small file group that nothing else changes, and one to a new group.
_UPSERTED = frozenset({("old1", "paris", 10.0), ("up2", "rome", 5.0), ("up3", "oslo", 6.0)})
UPSERT = Write(_rows_written("upsert", _UPSERTED), _upserted(_UPSERTED))
_MOVED = frozenset({("old1", "rome", 10.0), ("old2", "oslo", 20.0)})
MOVE = Write(_rows_written("upsert", _MOVED, _GLOBAL), _upserted(_MOVED))
STAY = Write(_rows_written("upsert", _MOVED, _STAYING), _upserted(_MOVED))
DELETE = Write(
    _rows_written("delete", frozenset({("old1", "paris", 0.0), ("never", "rome", 0.0)})),
    lambda table: _without(table, "old1"),
)
DELETE_ALL_OF_A_GROUP = Write(
    _rows_written("delete", frozenset((key, city, 0.0) for key, city, _ in PARIS)),
    lambda table: _without(table, "old1", "old3"),
)
# The key that the partition had before stands for itself: what is replaced must not be seen beside it.
_OVERWRITTEN = frozenset({("old1", "paris", 10.0), ("over2", "oslo", 5.0)})
OVERWRITE = Write(
    _rows_written("insert_overwrite", _OVERWRITTEN),
    lambda table: _outside(table, "paris", "oslo") | _OVERWRITTEN,
)
OVERWRITE_TABLE = Write(_rows_written("insert_overwrite_table", _OVERWRITTEN), lambda table: _OVERWRITTEN)
DELETE_PARTITION = Write(
    lambda world: world.delete_partitions("city=paris"), lambda table: _outside(table, "paris")
)


def _empty_table() -> World:
    world = memory_world()
    world.create()
    return world


def _empty_table_in_local_time() -> World:
    """The first write has to record the zone."""
    world = memory_world()
    world.clock.zone = "America/New_York"
    world.create({"hoodie.table.timeline.timezone": "LOCAL"})
    return world


def clean_table() -> World:
    world = _empty_table()
    _rows_written("insert", OLD)(world)
    return world


def _with_metadata_table() -> World:
    """Hudi maintained a metadata table here, which a write has to switch off."""
    world = clean_table()
    change_settings(world.store, {"hoodie.table.metadata.partitions": "files"}, now_ms=0)
    world.store.create(".hoodie/metadata/files/x", b"x")
    world.store.create(".hoodie/metadata/.hoodie/hoodie.properties", b"x")
    return world


def _dead(act: Act, *, last: str, start: Callable[[], World] = clean_table) -> Callable[[], World]:
    """A table where an act died right after the last of its changes that contains this text."""

    def make() -> World:
        world = start()
        counted = world.copy()
        recorder = RecordingStore(counted.store)
        act(counted.on(recorder))
        try:
            act(world.on(CrashingStore(world.store, recorder.last(last), after=True)))
        except Crash:
            return world
        raise AssertionError(f"the act was to die after {last}")

    return make


def _roll_back(world: World) -> object:
    return recover(world.open())


def _create(world: World) -> object:
    return world.create()


def _one(key: str, city: str) -> Rows:
    return frozenset({(key, city, -1.0)})


_DEAD_ROWS = _one("dead1", "paris") | _one("dead2", "rome")
_DEAD_INSERT = _dead(_rows_written("insert", _DEAD_ROWS), last="upload")

NOTHING = Start(memory_world, frozenset(), frozenset())
EMPTY = Start(_empty_table, frozenset(), frozenset())
EMPTY_IN_LOCAL_TIME = Start(_empty_table_in_local_time, frozenset(), frozenset())
CLEAN = Start(clean_table, OLD, OLD)
METADATA_TABLE = Start(_with_metadata_table, OLD, OLD)
DEAD_INSERT = Start(_DEAD_INSERT, OLD, OLD)
DEAD_ROLLBACK = Start(_dead(_roll_back, last="delete city=paris", start=_DEAD_INSERT), OLD, OLD)
UNPUBLISHED_INSERT = Start(_dead(_rows_written("insert", _DEAD_ROWS), last="ledger"), OLD, OLD | _DEAD_ROWS)

FIRST_WRITE = Write(lambda world: world.first_write(table_of(sorted(NEW))), lambda table: table | NEW)
_FIRST_ROWS = table_of(sorted(_DEAD_ROWS))
# It had another record key: nothing of it may be in the way of a write with the right one.
DEAD_FIRST_WRITE = Start(
    _dead(lambda world: world.first_write(_FIRST_ROWS, record_key="city"), last="upload", start=memory_world),
    frozenset(),
    frozenset(),
)
UNSHOWN_FIRST_WRITE = Start(
    _dead(lambda world: world.first_write(_FIRST_ROWS), last="ledger", start=memory_world),
    frozenset(),
    _DEAD_ROWS,
)

DEAD_INGEST = Start(_dead(INGEST.run, last="upload"), OLD, OLD)
UNPUBLISHED_INGEST = Start(_dead(INGEST.run, last="ledger"), OLD, OLD | NEW)

_DEAD_UPDATE = _one("old1", "paris") | _one("dead2", "rome")
_dead_upsert = _rows_written("upsert", _DEAD_UPDATE)
_dead_overwrite = _rows_written("insert_overwrite", _one("dead1", "paris"))

DEAD_UPSERTS = {
    "a dead upsert": Start(_dead(_dead_upsert, last="upload"), OLD, OLD),
    "an unpublished upsert": Start(_dead(_dead_upsert, last="ledger"), OLD, _upserted(_DEAD_UPDATE)(OLD)),
}
DEAD_OVERWRITES = {
    "an overwrite that was only requested": Start(_dead(_dead_overwrite, last=".requested"), OLD, OLD),
    "an overwrite that was inflight": Start(_dead(_dead_overwrite, last=".inflight"), OLD, OLD),
    "a dead overwrite": Start(_dead(_dead_overwrite, last="upload"), OLD, OLD),
    "an unpublished overwrite": Start(
        _dead(_dead_overwrite, last="ledger"), OLD, ROME | _one("dead1", "paris")
    ),
}


def _operation(name: str, write: Write, start: Start = CLEAN) -> Operation:
    return Operation(name, write.run, start, write.effect(start.decided))


def _rollback(name: str, start: Start) -> Operation:
    return Operation(name, _roll_back, start, start.decided)


WRITES = (
    Operation("create a table", lambda world: world.create(), NOTHING, frozenset()),
    _operation("create a table by its first write", FIRST_WRITE, NOTHING),
    _operation("create a table after a first write that died", FIRST_WRITE, DEAD_FIRST_WRITE),
    _operation("write after a first write that was not shown", FIRST_WRITE, UNSHOWN_FIRST_WRITE),
    Operation("create a table where a first write died", _create, DEAD_FIRST_WRITE, frozenset()),
    _operation("insert into an empty table", INSERT, EMPTY),
    _operation("insert into an empty table in local time", INSERT, EMPTY_IN_LOCAL_TIME),
    _operation("insert into small file groups", INSERT),
    _operation("bulk insert into a clean table", BULK_INSERT),
    _operation("insert after a dead insert", INSERT, DEAD_INSERT),
    _operation("insert after a dead rollback", INSERT, DEAD_ROLLBACK),
    _operation("insert after an unpublished insert", INSERT, UNPUBLISHED_INSERT),
    _operation("insert beside a metadata table", INSERT, METADATA_TABLE),
    _rollback("roll back a dead insert", DEAD_INSERT),
    _rollback("resume a dead rollback", DEAD_ROLLBACK),
    _operation("upsert", UPSERT),
    _operation("upsert that moves records", MOVE),
    _operation("upsert that lets records stay", STAY),
    _operation("delete", DELETE),
    _operation("delete everything in a file group", DELETE_ALL_OF_A_GROUP),
    _operation("overwrite a partition", OVERWRITE),
    _operation("overwrite the table", OVERWRITE_TABLE),
    _operation("delete a partition", DELETE_PARTITION),
    *(_operation(f"upsert after {name}", UPSERT, start) for name, start in DEAD_UPSERTS.items()),
    *(_operation(f"upsert after {name}", UPSERT, start) for name, start in DEAD_OVERWRITES.items()),
    *(_operation(f"overwrite after {name}", OVERWRITE, start) for name, start in DEAD_UPSERTS.items()),
    *(_operation(f"overwrite after {name}", OVERWRITE, start) for name, start in DEAD_OVERWRITES.items()),
    *(_rollback(f"roll back {name}", start) for name, start in (DEAD_UPSERTS | DEAD_OVERWRITES).items()),
)


def _after(*acts: Act, start: Callable[[], World] = clean_table) -> Callable[[], World]:
    def make() -> World:
        world = start()
        for act in acts:
            act(world)
        return world

    return make


def _first_commit(world: World) -> InstantTime:
    return load_timeline(world.store).completed_commits[0].time


def _undo(world: World) -> object:
    return undo(world.open())


def _restore(world: World) -> object:
    return restore(world.open(), _first_commit(world))


def _savepoint(world: World) -> object:
    return create_savepoint(world.open(), _first_commit(world), user="u", comment="c")


def _delete_savepoint(world: World) -> object:
    return delete_savepoint(world.open(), _first_commit(world))


UPSERTED = Start(_after(UPSERT.run), UPSERT.effect(OLD), UPSERT.effect(OLD), OLD)
OVERWRITTEN = Start(_after(OVERWRITE.run), OVERWRITE.effect(OLD), OVERWRITE.effect(OLD), OLD)
_THREE = OVERWRITE.effect(UPSERT.effect(OLD))
THREE_COMMITS = Start(_after(UPSERT.run, OVERWRITE.run), _THREE, _THREE, OLD)
SAVEPOINTED = Start(_after(_savepoint, UPSERT.run), UPSERT.effect(OLD), UPSERT.effect(OLD), OLD)
_two_and_dead = _dead(_rows_written("insert", _DEAD_ROWS), last="upload", start=_after(UPSERT.run))
TWO_AND_DEAD = Start(_two_and_dead, UPSERT.effect(OLD), UPSERT.effect(OLD), OLD)
DEAD_UNDO = Start(_dead(_undo, last="delete city=paris", start=_after(UPSERT.run)), OLD, OLD)
DEAD_RESTORE = Start(
    _dead(_restore, last="delete city=paris", start=_after(UPSERT.run, OVERWRITE.run)), OLD, OLD
)
_SHARED = WriteSettings(
    concurrency_mode=ConcurrencyMode.OPTIMISTIC, failed_writes_policy=FailedWritesPolicy.LAZY
)
SHARED_UPSERT = Write(_rows_written("upsert", _UPSERTED, _SHARED), _upserted(_UPSERTED))
_dead_shared = _dead(_rows_written("upsert", _DEAD_UPDATE, _SHARED), last="upload")
DEAD_SHARED_UPSERT = Start(_dead_shared, OLD, OLD)

GOING_BACK = (
    Operation("undo an upsert", _undo, UPSERTED, OLD),
    Operation("undo an overwrite", _undo, OVERWRITTEN, OLD),
    Operation("undo an unpublished upsert", _undo, DEAD_UPSERTS["an unpublished upsert"], OLD),
    Operation("undo after a dead insert", _undo, TWO_AND_DEAD, OLD),
    Operation("finish a dead undo", _undo, DEAD_UNDO, OLD),
    Operation("restore", _restore, THREE_COMMITS, OLD, frozenset({UPSERT.effect(OLD)})),
    Operation("restore after a dead insert", _restore, TWO_AND_DEAD, OLD),
    Operation("finish a dead restore", _restore, DEAD_RESTORE, OLD),
    Operation("savepoint", _savepoint, UPSERTED, UPSERT.effect(OLD)),
    Operation("delete a savepoint", _delete_savepoint, SAVEPOINTED, UPSERT.effect(OLD)),
    Operation("restore to a savepoint", _restore, SAVEPOINTED, OLD),
    _operation("insert after a dead undo", INSERT, DEAD_UNDO),
    _operation("sharing upsert", SHARED_UPSERT),
    _operation("sharing upsert after a dead one", SHARED_UPSERT, DEAD_SHARED_UPSERT),
    _operation("upsert after a dead sharing one", UPSERT, DEAD_SHARED_UPSERT),
    _rollback("roll back a dead sharing upsert", DEAD_SHARED_UPSERT),
)

_ONE_COMMIT = CleanSettings(commits_retained=1)
_ONE_VERSION = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)


def _clean(world: World) -> object:
    return clean(world.open(), _ONE_COMMIT)


def _clean_versions(world: World) -> object:
    return clean(world.open(), _ONE_VERSION)


_four = _after(UPSERT.run, OVERWRITE.run, DELETE_PARTITION.run)
_FOUR = DELETE_PARTITION.effect(_THREE)
FOUR_COMMITS = Start(_four, _FOUR, _FOUR, OLD)
FOUR_AND_SAVEPOINT = Start(
    _after(_savepoint, UPSERT.run, OVERWRITE.run, DELETE_PARTITION.run), _FOUR, _FOUR, OLD
)
DEAD_CLEAN = Start(_dead(_clean_versions, last="delete city=paris", start=_four), _FOUR, _FOUR, OLD)
UNSHOWN_CLEAN = Start(_dead(_clean_versions, last="ledger", start=_four), _FOUR, _FOUR, OLD)
PLANNED_CLEAN = Start(
    _dead(_clean_versions, last="create .hoodie/.holdfast/plans", start=_four), _FOUR, _FOUR, OLD
)
_CLEANING_INSERT = Write(
    _rows_written("insert", NEW, WriteSettings(clean=_ONE_COMMIT)), lambda table: table | NEW
)

CLEANING = (
    Operation("clean by commits", _clean, FOUR_COMMITS, _FOUR),
    Operation("clean by versions", _clean_versions, FOUR_COMMITS, _FOUR),
    Operation("clean beside a savepoint", _clean_versions, FOUR_AND_SAVEPOINT, _FOUR),
    Operation("finish a dead clean", _clean, DEAD_CLEAN, _FOUR),
    Operation("finish a clean that was only decided", _clean, UNSHOWN_CLEAN, _FOUR),
    Operation("clean after one that was only planned", _clean, PLANNED_CLEAN, _FOUR),
    _operation("insert that cleans", _CLEANING_INSERT, FOUR_COMMITS),
    _operation("insert after a dead clean", INSERT, DEAD_CLEAN),
    Operation(
        "undo beside a dead clean",
        _undo,
        Start(_dead(_clean, last="ledger", start=_four), _FOUR, _FOUR, OLD),
        _THREE,
    ),
)

_TWO_LEFT = CleanSettings(
    policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1, automatic=False, keep_min=2, keep_max=3
)


def _archive(world: World) -> object:
    return archive_instants(world.open(), WriteSettings(clean=_TWO_LEFT))


_seven = _after(
    UPSERT.run, _clean_versions, INSERT.run, _undo, INSERT.run, DELETE.run, _rows_written("upsert", _UPSERTED)
)
_SEVEN = _upserted(_UPSERTED)(DELETE.effect(INSERT.effect(UPSERT.effect(OLD))))
SEVEN_INSTANTS = Start(_seven, _SEVEN, _SEVEN, OLD)
DECIDED_ARCHIVE = Start(_dead(_archive, last="ledger", start=_seven), _SEVEN, _SEVEN, OLD)
DEAD_ARCHIVE = Start(_dead(_archive, last=".commit", start=_seven), _SEVEN, _SEVEN, OLD)
_renewed = _rows_written("upsert", NEW)
_stayed = _after(STAY.run, _renewed, _renewed, _renewed)
_STAYED = STAY.effect(OLD) | NEW
STAYED = Start(_stayed, _STAYED, _STAYED, OLD)
_ARCHIVING_INSERT = Write(_rows_written("upsert", NEW, WriteSettings(clean=_TWO_LEFT)), _upserted(NEW))

ARCHIVING = (
    Operation("archive", _archive, SEVEN_INSTANTS, _SEVEN),
    Operation("archive what was only decided", _archive, DECIDED_ARCHIVE, _SEVEN),
    Operation("finish a dead archiving", _archive, DEAD_ARCHIVE, _SEVEN),
    Operation("archive an upsert that let records stay", _archive, STAYED, _STAYED),
    _operation("upsert that archives", _ARCHIVING_INSERT, SEVEN_INSTANTS),
    Operation(
        "undo beside a dead archiving",
        _undo,
        DECIDED_ARCHIVE,
        DELETE.effect(INSERT.effect(UPSERT.effect(OLD))),
    ),
)


def _trimming() -> World:
    """A table whose ledger is checkpointed, and trimmed, all the time."""
    return _after(UPSERT.run, start=lambda: replace(clean_table(), checkpoint_after=2))()


_UPSERTED_TWICE = UPSERT.effect(OLD)
_undos = _after(*(INSERT.run, _undo) * 4, start=_trimming)
FOUR_UNDOS = Start(_undos, _UPSERTED_TWICE, _UPSERTED_TWICE, OLD)
DEAD_ARCHIVE_OF_UNDOS = Start(
    _dead(_archive, last=".rollback", start=_undos), _UPSERTED_TWICE, _UPSERTED_TWICE, OLD
)
_unpublished = _dead(_rows_written("insert", _DEAD_ROWS), last="ledger", start=_trimming)
UNPUBLISHED_AND_TRIMMED = Start(_unpublished, _UPSERTED_TWICE, _UPSERTED_TWICE | _DEAD_ROWS, OLD)


def _restore_newest(world: World) -> object:
    """Back to the commit before the newest."""
    return restore(world.open(), load_timeline(world.store).completed_commits[-2].time)


_restores = _after(*(INSERT.run, _restore_newest) * 4, start=_trimming)
FOUR_RESTORES = Start(_restores, _UPSERTED_TWICE, _UPSERTED_TWICE, OLD)
DEAD_ARCHIVE_OF_RESTORES = Start(
    _dead(_archive, last=".restore", start=_restores), _UPSERTED_TWICE, _UPSERTED_TWICE, OLD
)

TRIMMING = (
    Operation("archive rollbacks alone", _archive, FOUR_UNDOS, _UPSERTED_TWICE),
    Operation("finish a dead archiving of rollbacks", _archive, DEAD_ARCHIVE_OF_UNDOS, _UPSERTED_TWICE),
    _operation("upsert that archives rollbacks and checkpoints", _ARCHIVING_INSERT, FOUR_UNDOS),
    Operation("archive restores alone", _archive, FOUR_RESTORES, _UPSERTED_TWICE),
    Operation("finish a dead archiving of restores", _archive, DEAD_ARCHIVE_OF_RESTORES, _UPSERTED_TWICE),
    _operation("upsert that archives restores and checkpoints", _ARCHIVING_INSERT, FOUR_RESTORES),
    Operation("restore beside archived restores", _restore, DEAD_ARCHIVE_OF_RESTORES, OLD),
    _operation("insert that checkpoints after an unpublished one", INSERT, UNPUBLISHED_AND_TRIMMED),
    Operation("undo that checkpoints", _undo, FOUR_UNDOS, OLD),
)


def _restore_saved(world: World) -> object:
    """Back to the savepointed commit, wherever it is."""
    (saved,) = world.open().ledger.read().savepoints
    return restore(world.open(), saved)


_around = _after(
    _savepoint, UPSERT.run, INSERT.run, DELETE.run, _rows_written("upsert", _UPSERTED), _clean_versions
)
_THIRD = INSERT.effect(UPSERT.effect(OLD))
_AROUND = _upserted(_UPSERTED)(DELETE.effect(_THIRD))
AROUND_A_SAVEPOINT = Start(_around, _AROUND, _AROUND, OLD)
ARCHIVED_SAVEPOINT = Start(_after(_archive, start=_around), _AROUND, _AROUND, OLD)
DECIDED_AROUND = Start(_dead(_archive, last="ledger", start=_around), _AROUND, _AROUND, OLD)
DEAD_AROUND = Start(_dead(_archive, last=".commit", start=_around), _AROUND, _AROUND, OLD)
_on_the_way = frozenset({DELETE.effect(_THIRD), _THIRD, UPSERT.effect(OLD)})
_half_back = _dead(_restore_saved, last="delete city=paris", start=_after(_archive, start=_around))

SAVEPOINTS_ARCHIVED = (
    Operation("archive around a savepoint", _archive, AROUND_A_SAVEPOINT, _AROUND),
    Operation("finish a dead archiving around a savepoint", _archive, DEAD_AROUND, _AROUND),
    Operation("restore to an archived savepoint", _restore_saved, ARCHIVED_SAVEPOINT, OLD, _on_the_way),
    Operation("restore to a savepoint being archived", _restore_saved, DECIDED_AROUND, OLD, _on_the_way),
    Operation("restore to a savepoint half archived", _restore_saved, DEAD_AROUND, OLD, _on_the_way),
    Operation(
        "finish a dead restore to an archived savepoint", _restore_saved, Start(_half_back, OLD, OLD), OLD
    ),
    _operation("upsert beside an archived savepoint", UPSERT, ARCHIVED_SAVEPOINT),
    Operation(
        "delete an archived savepoint",
        lambda world: delete_savepoint(world.open(), *world.open().ledger.read().savepoints),
        ARCHIVED_SAVEPOINT,
        _AROUND,
    ),
)

_undone = Start(_after(INGEST.run, _undo), OLD, OLD)

INGESTING = (
    _operation("ingest of source files", INGEST),
    _operation("ingest after a dead one", INGEST, DEAD_INGEST),
    _operation("ingest after an unpublished one", INGEST, UNPUBLISHED_INGEST),
    _operation("ingest after an undo", INGEST, _undone),
    Operation("undo of an ingest", _undo, Start(_after(INGEST.run), OLD | NEW, OLD | NEW, OLD), OLD),
)

_LOGGING = WriteSettings(log_ratio_max=1000.0)
_ONE_LOG = WriteSettings(log_ratio_max=1000.0, logs_max=1)
_LOGGED = frozenset({("old1", "paris", 10.0), ("old2", "rome", 20.0)})
LOG_UPSERT = Write(_rows_written("upsert", _LOGGED, _LOGGING), _upserted(_LOGGED))
LOG_DELETE = Write(
    _rows_written("delete", frozenset({("old1", "paris", 0.0), ("never", "rome", 0.0)}), _LOGGING),
    lambda table: _without(table, "old1"),
)
# What comes back goes where it was, over a log file that took it away.
LOG_RETURN = Write(_rows_written("upsert", _LOGGED, _LOGGING), _upserted(_LOGGED))
REWRITE = Write(_rows_written("upsert", _LOGGED, _ONE_LOG), _upserted(_LOGGED))


def _merge_on_read() -> World:
    world = memory_world()
    world.create(table_type="MERGE_ON_READ")
    _rows_written("insert", OLD)(world)
    return world


_FIRST_LOGGED = _one("old1", "paris") | _one("old2", "rome")
_with_logs = _after(_rows_written("upsert", _FIRST_LOGGED, _LOGGING), start=_merge_on_read)
_WITH_LOGS = _upserted(_FIRST_LOGGED)(OLD)
MERGED_ON_READ = Start(_merge_on_read, OLD, OLD)
LOGS = Start(_with_logs, _WITH_LOGS, _WITH_LOGS, OLD)
_deleted = _after(LOG_DELETE.run, start=_with_logs)
_DELETED = LOG_DELETE.effect(_WITH_LOGS)
DELETED_LOGS = Start(_deleted, _DELETED, _DELETED, OLD)
_dead_log = _dead(LOG_UPSERT.run, last="upload", start=_with_logs)
DEAD_LOG = Start(_dead_log, _WITH_LOGS, _WITH_LOGS, OLD)
UNPUBLISHED_LOG = Start(
    _dead(LOG_UPSERT.run, last="ledger", start=_with_logs), _WITH_LOGS, LOG_UPSERT.effect(_WITH_LOGS), OLD
)
REWRITTEN_LOGS = Start(
    _after(REWRITE.run, start=_with_logs), REWRITE.effect(_WITH_LOGS), REWRITE.effect(_WITH_LOGS), OLD
)

LOGGING = (
    _operation("upsert into log files", LOG_UPSERT, MERGED_ON_READ),
    _operation("upsert into further log files", LOG_UPSERT, LOGS),
    _operation("delete into log files", LOG_DELETE, LOGS),
    _operation("upsert of what log files took away", LOG_RETURN, DELETED_LOGS),
    _operation("upsert that rewrites base files with log files", REWRITE, LOGS),
    _operation("insert beside log files", INSERT, LOGS),
    _operation("overwrite a partition with log files", OVERWRITE, LOGS),
    _operation("delete a partition with log files", DELETE_PARTITION, LOGS),
    _operation("upsert into log files after a dead one", LOG_UPSERT, DEAD_LOG),
    _operation("upsert into log files after an unpublished one", LOG_UPSERT, UNPUBLISHED_LOG),
    _rollback("roll back a dead log file", DEAD_LOG),
    Operation("undo a log file", _undo, LOGS, OLD),
    Operation("undo an unpublished log file", _undo, UNPUBLISHED_LOG, _WITH_LOGS),
    Operation("undo a rewrite of log files", _undo, REWRITTEN_LOGS, _WITH_LOGS),
    Operation("restore into a slice", _restore, DELETED_LOGS, OLD, frozenset({_WITH_LOGS})),
)


def _compact(world: World) -> object:
    return compact(world.open(), _LOGGING, ArrowCompactor())


def _schedule(world: World) -> object:
    return schedule_compaction(world.open(), _LOGGING)


def _unschedule(world: World) -> object:
    ((planned, _),) = pending_compactions(world.store, load_timeline(world.store))
    return unschedule_compaction(world.open(), planned.time)


def _compact_and_clean(world: World) -> object:
    return _compact(world), _clean_versions(world)


_planned = _after(_schedule, start=_with_logs)
_compacted = _after(_compact, start=_with_logs)
PLANNED = Start(_planned, _WITH_LOGS, _WITH_LOGS, OLD)
COMPACTED = Start(_compacted, _WITH_LOGS, _WITH_LOGS, OLD)
PLANNED_AND_REWRITTEN = Start(
    _after(LOG_UPSERT.run, start=_planned), LOG_UPSERT.effect(_WITH_LOGS), LOG_UPSERT.effect(_WITH_LOGS), OLD
)
DEAD_COMPACTION = Start(_dead(_compact, last="upload", start=_with_logs), _WITH_LOGS, _WITH_LOGS, OLD)
DEAD_PLANNED = Start(_dead(_compact, last="upload", start=_planned), _WITH_LOGS, _WITH_LOGS, OLD)
UNPUBLISHED_COMPACTION = Start(_dead(_compact, last="ledger", start=_with_logs), _WITH_LOGS, _WITH_LOGS, OLD)
LOGS_ON_COMPACTED = Start(
    _after(LOG_UPSERT.run, start=_compacted),
    LOG_UPSERT.effect(_WITH_LOGS),
    LOG_UPSERT.effect(_WITH_LOGS),
    OLD,
)

COMPACTING = (
    Operation("compact", _compact, LOGS, _WITH_LOGS),
    Operation("compact what log files took away", _compact, DELETED_LOGS, _DELETED),
    Operation("plan a compaction", _schedule, LOGS, _WITH_LOGS),
    Operation("compact what is planned", _compact, PLANNED, _WITH_LOGS),
    Operation("take a planned compaction away", _unschedule, PLANNED, _WITH_LOGS),
    Operation(
        "compact what was rewritten meanwhile", _compact, PLANNED_AND_REWRITTEN, PLANNED_AND_REWRITTEN.seen
    ),
    Operation("compact after a dead compaction", _compact, DEAD_COMPACTION, _WITH_LOGS),
    Operation("compact after a dead one that was planned", _compact, DEAD_PLANNED, _WITH_LOGS),
    Operation("compact and clean", _compact_and_clean, LOGS, _WITH_LOGS),
    _operation("upsert beside a planned compaction", LOG_UPSERT, PLANNED),
    _operation("upsert after a dead compaction", LOG_UPSERT, DEAD_COMPACTION),
    _operation("upsert after a dead one that was planned", LOG_UPSERT, DEAD_PLANNED),
    _operation("upsert after an unpublished compaction", LOG_UPSERT, UNPUBLISHED_COMPACTION),
    _operation("upsert into log files of a compacted slice", LOG_UPSERT, COMPACTED),
    _rollback("roll back a dead compaction", DEAD_COMPACTION),
    _rollback("end a dead compaction that was planned", DEAD_PLANNED),
    Operation("undo a compaction", _undo, COMPACTED, _WITH_LOGS),
    Operation("undo an unpublished compaction", _undo, UNPUBLISHED_COMPACTION, _WITH_LOGS),
    Operation("undo a log file of a compacted slice", _undo, LOGS_ON_COMPACTED, _WITH_LOGS),
    Operation("restore past a compaction", _restore, LOGS_ON_COMPACTED, OLD, frozenset({_WITH_LOGS})),
    Operation("restore past a planned compaction", _restore, PLANNED, OLD),
)

_NUMBERED = WriteSettings(application="nightly", batch_number=7)
_numbered_insert = _rows_written("insert", NEW, _NUMBERED)
NUMBERED_INSERT = Write(lambda world: (_numbered_insert(world), _numbered_insert(world)), INSERT.effect)
_undone_numbered = Start(_after(_numbered_insert, _undo), OLD, OLD)
_unpublished_numbered = Start(_dead(_numbered_insert, last="ledger"), OLD, OLD | NEW)

REPEATING = (
    _operation("numbered insert, and the same again", NUMBERED_INSERT),
    _operation("numbered insert after it was undone", NUMBERED_INSERT, _undone_numbered),
    _operation("numbered insert after it was not published", NUMBERED_INSERT, _unpublished_numbered),
)

_EXPORTS = {"holdfast.export.formats": "delta"}


def _exported() -> World:
    """A table that is kept in other formats, too."""
    world = memory_world()
    world.create(_EXPORTS)
    _rows_written("insert", OLD)(world)
    return world


def _set_exports(*formats: str) -> Act:
    return lambda world: set_exports(world.open(), formats)


EXPORTED = Start(_exported, OLD, OLD)
EXPORTED_UPSERT = Start(_after(UPSERT.run, start=_exported), UPSERT.effect(OLD), UPSERT.effect(OLD), OLD)
EXPORTED_THREE = Start(_after(UPSERT.run, OVERWRITE.run, start=_exported), _THREE, _THREE, OLD)
EXPORTED_FOUR = Start(
    _after(UPSERT.run, OVERWRITE.run, DELETE_PARTITION.run, start=_exported), _FOUR, _FOUR, OLD
)
_not_exported = _dead(_rows_written("upsert", _DEAD_UPDATE), last=".commit", start=_exported)
UNEXPORTED_UPSERT = Start(_not_exported, _upserted(_DEAD_UPDATE)(OLD), _upserted(_DEAD_UPDATE)(OLD), OLD)
# Each tenth version has a checkpoint.
_nine = _after(*(_rows_written("upsert", _one("old1", "paris")),) * 9, start=_exported)
NINE_EXPORTED = Start(
    _nine, _upserted(_one("old1", "paris"))(OLD), _upserted(_one("old1", "paris"))(OLD), OLD
)

EXPORTING = (
    _operation("exported upsert", UPSERT, EXPORTED),
    _operation("exported upsert after one that was not exported", UPSERT, UNEXPORTED_UPSERT),
    _operation("exported overwrite", OVERWRITE, EXPORTED_UPSERT),
    _operation("exported upsert that makes a checkpoint", UPSERT, NINE_EXPORTED),
    Operation("undo an exported upsert", _undo, EXPORTED_UPSERT, OLD),
    Operation("undo an upsert that was not exported", _undo, UNEXPORTED_UPSERT, OLD),
    Operation("restore what is exported", _restore, EXPORTED_THREE, OLD, frozenset({UPSERT.effect(OLD)})),
    Operation("clean what is exported", _clean_versions, EXPORTED_FOUR, _FOUR),
    Operation("switch exports on", _set_exports("delta"), UPSERTED, UPSERT.effect(OLD)),
    Operation("switch exports off", _set_exports(), EXPORTED_UPSERT, UPSERT.effect(OLD)),
)

OPERATIONS = (
    *WRITES,
    *GOING_BACK,
    *CLEANING,
    *ARCHIVING,
    *TRIMMING,
    *SAVEPOINTS_ARCHIVED,
    *INGESTING,
    *REPEATING,
    *LOGGING,
    *COMPACTING,
    *EXPORTING,
)


def crash_points(
    operation: Operation, *, every: int = 1, offset: int = 0, moments: tuple[bool, ...] = (False, True)
) -> Iterator[tuple[str, World]]:
    """Every world a crash of the operation can leave, with the step that was the last; or a sample.

    `moments` says whether the step at which it dies is done or not.
    """
    start = operation.start.make()
    counted = start.copy()
    recorder = RecordingStore(counted.store)
    operation.run(counted.on(recorder))
    points = [(n, change, after) for n, change in enumerate(recorder.changes, 1) for after in moments]
    for step, change, after in points[offset % every :: every]:
        world = start.copy()
        try:
            operation.run(world.on(CrashingStore(world.store, step, after=after)))
        except Crash:
            pass
        else:
            raise AssertionError(f"{operation.name} did not reach step {step}: {change}")
        yield f"{operation.name}, {'after' if after else 'before'} {step}: {change}", world


def recover_and_check(operation: Operation, world: World) -> None:
    """One more write, as a user would do it; then nothing may be left, lost or in between."""
    check_seen(operation, world)
    is_made = has_settings(world.store) and operation.run is FIRST_WRITE.run
    if is_made and not load_timeline(world.store).completed_commits:
        raise Violation("I22: there is a table without its first commit")
    one_more_write(world, NEXT)
    check_recovered(operation, world, NEXT)
    _check_past(operation, world)


def check_seen(operation: Operation, world: World, *later: Row) -> None:
    """A reader sees one of the states that were committed, apart from the rows that came later."""
    try:
        seen = _seen(world) - frozenset(later)
    except SnapshotExpired:
        # On its way a restore passes commits whose files are cleaned: readers are told so, by name.
        if operation.run is _restore_saved and pending_restore(*timeline_and_ledger(world.open())):
            return
        raise
    if seen not in (operation.before, operation.after, operation.start.seen, *operation.between):
        raise Violation(f"I1: a reader sees {sorted(seen)} after the crash")


def check_recovered(operation: Operation, world: World, *later: Row) -> None:
    """Nothing may be left, lost or in between, apart from the rows that came later."""
    table = world.open()
    check_at_rest(table)
    seen = visible_rows(table) - frozenset(later)
    if seen not in (operation.before, operation.after):
        raise Violation(f"I1: a reader sees {sorted(seen)} after recovery")


def _check_past(operation: Operation, world: World) -> None:
    """A reader of the past sees what was there first, whatever has happened since."""
    if operation.start.seen:
        table = world.open()
        history = read_archive(table.store, table.settings).with_active(load_timeline(table.store))
        first = history.completed_commits[0].time
        try:
            seen = visible_rows(table, as_of=first)
        except SnapshotExpired:
            if any(instant.action is Action.CLEAN for instant in history.instants):
                return
            raise
        if seen != (operation.start.first or operation.start.seen):
            raise Violation(f"I1: a reader of the past sees {sorted(seen)}")


def one_more_write(world: World, row: Row, operation: str = "insert") -> None:
    """What a user does next: create the table, or finish a restore, if need be, and write."""
    with suppress(TableExists):
        world.create()
    pending = pending_restore(load_timeline(world.store), world.open().ledger.read())
    if pending is not None:
        restore(world.open(), pending.to)
    world.write(operation, table_of([row]))


def _seen(world: World) -> Rows:
    if not has_settings(world.store):
        return frozenset()
    table = world.open()
    check_at_any_time(table)
    return visible_rows(table)


def nested_crash_points(world: World, origin: str, *, every: int, offset: int) -> Iterator[tuple[str, World]]:
    """Every world that a crash of the write after the crash can leave."""
    start = Start(lambda: world, frozenset(), frozenset())
    nested = Operation("the next write", lambda w: one_more_write(w, NEXT), start, frozenset())
    for point, left in crash_points(nested, every=every, offset=offset, moments=(True,)):
        yield f"{origin}; then {point}", left
