"""Any history: archiving changes no query, whoever asks and as of when."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from harness.checker import check_at_rest, visible_rows
from harness.cleaning import clean
from harness.hudi_reader import copy_to_disk, hudi_rows, hudi_snapshot
from harness.world import memory_world, row_list, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, SnapshotExpired
from holdfast.services.archive.archive import archive_without_recovery
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint
from holdfast.timeline.timeline import load_timeline
from holdfast.writes import operations

CITIES = ("oslo", "paris", "rome")
BY_HAND = WriteSettings(clean=CleanSettings(automatic=False), archives=False)
_BOUNDS = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, automatic=False, keep_min=2, keep_max=3)

_steps = st.one_of(
    st.tuples(
        st.sampled_from(("upsert", "insert_overwrite")), st.sampled_from(CITIES), st.sampled_from("xy")
    ),
    st.tuples(st.just("drop"), st.sampled_from(CITIES)),
    st.tuples(st.just("clean"), st.integers(1, 3)),
    st.just(("undo",)),
    st.just(("savepoint",)),
    st.just(("delete savepoint",)),
    st.tuples(st.just("archive"), st.booleans()),
)


def _commits(world):
    return [commit.time for commit in load_timeline(world.store).completed_commits]


def _write(world, number, operation, city, key):
    world.write(operation, table_of([(f"{city}-{key}", city, float(number))]), BY_HAND)


def _take(world, number, step):
    match step:
        case ("upsert" | "insert_overwrite" as operation, city, key):
            _write(world, number, operation, city, key)
        case ("drop", city):
            if any(row[1] == city for row in visible_rows(world.open())):
                operations.delete_partitions(world.open(), [f"city={city}"], BY_HAND)
        case ("clean", commits):
            clean(world.open(), CleanSettings(commits_retained=commits))
        case ("undo",):
            _undone(world)
        case ("savepoint",):
            create_savepoint(world.open())
        case ("delete savepoint",):
            for time in sorted(world.open().ledger.read().savepoints)[:1]:
                delete_savepoint(world.open(), time)


def _undone(world):
    if len(_commits(world)) == 1:
        return  # A table without commits has nothing to save or to archive.
    try:
        undo(world.open())
    except (Refused, SnapshotExpired):
        return


def _seen(world, times):
    """What readers see now and as of each time: the rows, or that they are gone."""
    found = {None: visible_rows(world.open())}
    for time in times:
        try:
            found[time] = visible_rows(world.open(), as_of=time)
        except SnapshotExpired:
            found[time] = "gone"
    return found


def _hudi_sees(world, times):
    with tempfile.TemporaryDirectory() as folder:
        table = copy_to_disk(world.store, Path(folder))
        past = {time: _rows(hudi_snapshot(table, as_of=time)) for time in times}
        return {None: hudi_rows(table)} | past


def _rows(table):
    return frozenset(row_list(table)) if table.num_rows else frozenset()


@checks(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(_steps, min_size=6, max_size=16))
@example(steps=[("undo",)] * 3 + [("savepoint",)])
def test_no_reader_notices_that_instants_were_archived(steps):
    world = memory_world()
    world.create()
    for number, city in enumerate(CITIES):
        _write(world, number, "upsert", city, "x")
    known = _commits(world)

    for number, step in enumerate((*steps, ("archive", False)), 10):
        if step[0] != "archive":
            _take(world, number, step)
            known = [time for time in known if time < _commits(world)[0]] + _commits(world)
            continue
        before = _seen(world, known)
        archive_without_recovery(world.open(), ArchiveSettings(clean=_BOUNDS, beyond_savepoints=step[1]))
        assert _seen(world, known) == before
        whole = [time for time in _commits(world) if before[time] != "gone"]
        assert _hudi_sees(world, whole) == {time: before[time] for time in (None, *whole)}

    check_at_rest(world.open())
