"""Dropping a table: it goes at once for every reader, wholly, and nothing else goes with it."""

import os

import pyarrow as pa
import pytest

import holdfast
from crashes.matrix import NEXT, OLD, Operation, Start, clean_table, crash_points
from harness.checker import check_at_rest, visible_rows
from harness.faults import RecordingStore
from harness.world import LOCATION, SimulatedHost, World, memory_world, table_of
from holdfast.errors import Fenced, HoldfastError, Refused, TableNotFound, WriterActive
from holdfast.host import Liveness
from holdfast.model.names import DROPPING_FILE, PROPERTIES_FILE
from holdfast.services import drop as dropping
from holdfast.services.drop import drop, open_to_drop
from holdfast.services.savepoints import create_savepoint
from holdfast.table.properties_file import has_settings

ROWS = pa.table({"id": [1, 2, 3], "city": ["paris", "rome", "rome"]})


@pytest.fixture
def lake(tmp_path):
    table = holdfast.create_table(str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city")
    table.insert(ROWS)
    return table


def again(world):
    return open_to_drop(world.store, LOCATION, clock=world.clock, host=world.host)


def test_everything_of_the_table_goes_and_what_is_not_its_own_stays(lake, tmp_path):
    (tmp_path / "trips" / "notes.txt").write_text("mine")
    (tmp_path / "trips" / "city=rome" / "list.csv").write_text("mine, too")
    other = holdfast.create_table(f"{lake.path}/nested", name="nested", record_key="id")
    other.insert(ROWS)

    plan = lake.plan_drop()
    report = lake.drop()

    assert (report.deleted, report.bytes_freed) == (len(plan.files), plan.size_bytes)
    assert set(report.left) == set(plan.left)
    assert "notes.txt" in plan.left
    left = {str(p.relative_to(lake.path)) for p in (tmp_path / "trips").rglob("*") if p.is_file()}
    assert left == set(plan.left)
    assert not holdfast.table_exists(lake.path)
    assert other.to_arrow().num_rows == 3


def test_a_plan_says_what_hangs_on_the_table_and_changes_nothing(lake, tmp_path):
    instant = lake.savepoint().instant
    with lake.lease("a report", 60):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        plan = lake.plan_drop()
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    assert (plan.name, plan.commits, plan.savepoints) == ("trips", 1, (instant,))
    assert plan.leases == (f"a report of {instant}",)
    held = [file for file in plan.files if os.path.exists(f"{lake.path}/{file}")]
    assert len(held) == len(plan.files) - 1  # The lease has ended.
    assert plan.size_bytes > sum(os.path.getsize(f"{lake.path}/{file}") for file in held)


def test_a_table_that_was_dropped_can_be_made_again(lake):
    lake.drop()

    made = holdfast.create_table(lake.path, name="trips", record_key="city")
    made.insert(ROWS)

    assert made.to_arrow().num_rows == 3
    assert made.verify().is_clean


def test_whoever_had_it_open_is_told_that_it_is_gone(lake):
    opened = holdfast.open_table(lake.path)
    lake.drop()

    for act in (opened.to_arrow, lambda: opened.insert(ROWS), opened.undo):
        with pytest.raises(TableNotFound):
            act()


def test_a_leased_table_is_not_dropped_unless_it_is_forced(lake):
    with lake.lease("a report", 60):
        with pytest.raises(Refused, match="a report"):
            lake.drop()
        assert lake.to_arrow().num_rows == 3

        lake.drop(force=True)

    assert not holdfast.table_exists(lake.path)


def test_a_table_that_somebody_writes_is_not_dropped_unless_it_is_forced():
    world = clean_table()
    world.die_after(lambda w: w.insert("a"), last="upload")
    world.host = SimulatedHost(9, Liveness.ALIVE)

    with pytest.raises(WriterActive, match="may be running"):
        drop(world.open())
    assert visible_rows(world.open()) == OLD

    drop(world.open(), force=True)

    assert world.store.paths("") == []


def test_a_write_that_ran_when_the_table_was_dropped_is_fenced():
    world = clean_table()

    def dropping_rows(verb, path, act):
        done = act()
        if verb == "upload" and has_settings(world.store):
            table = world.open()
            dropping._decide(table, force=True)
        return done

    store = RecordingStore(world.store)
    store._change = dropping_rows
    with pytest.raises((Fenced, Refused), match="dropped"):
        world.on(store).insert("a")
    with pytest.raises(Refused, match="being dropped"):
        world.insert("b")
    assert visible_rows(world.open()) == OLD

    drop(again(world))

    assert world.store.paths("") == []


def savepointed():
    world = clean_table()
    create_savepoint(world.open(), user="u", comment="c")
    return world


def made_by_a_write():
    """Its ledger tells how to show it, should it seem to be not shown yet."""
    world = memory_world()
    world.first_write(table_of(sorted(OLD)))
    return world


@pytest.mark.parametrize("start", [savepointed, made_by_a_write])
def test_a_drop_that_dies_anywhere_leaves_the_whole_table_or_none_and_the_same_call_finishes_it(start):
    def run(world: World):
        return drop(again(world))

    seen_as_a_table, points = 0, 0
    operation = Operation("drop", run, Start(start, OLD, OLD), frozenset())
    for point, world in crash_points(operation):
        points += 1
        if has_settings(world.store):
            seen_as_a_table += 1
            assert visible_rows(world.open()) == OLD, point
        else:
            with pytest.raises(TableNotFound):
                world.open()
        if has_settings(world.store) or world.store.stat(DROPPING_FILE):
            if not has_settings(world.store):
                for make in (world.create, lambda w=world: w.first_write(table_of([NEXT]))):
                    with pytest.raises(Refused, match="dropped"):
                        make()
            run(world)
        assert world.store.paths("") == [], point
        world.create()
        world.write("insert", table_of([NEXT]))
        check_at_rest(world.open())
        assert visible_rows(world.open()) == {NEXT}
    assert 0 < seen_as_a_table < points


def test_properties_that_do_not_go_first_are_found(monkeypatch):
    """The proof that the test before bites."""
    monkeypatch.setattr(dropping, "_rank", lambda path: 3 if path == PROPERTIES_FILE else 1)

    with pytest.raises((AssertionError, HoldfastError, FileNotFoundError)):
        test_a_drop_that_dies_anywhere_leaves_the_whole_table_or_none_and_the_same_call_finishes_it(
            savepointed
        )


def test_symbolic_links_are_not_followed(lake, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept.txt").write_text("mine")
    (tmp_path / "trips" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "alias").symlink_to(tmp_path / "trips")

    with pytest.raises(Refused, match="symbolic link"):
        holdfast.open_table(str(tmp_path / "alias")).drop()
    lake.drop()

    assert (tmp_path / "elsewhere" / "kept.txt").read_text() == "mine"
    assert (tmp_path / "trips" / "link").is_symlink()


def test_a_hoodie_folder_that_is_a_symbolic_link_is_refused(lake, tmp_path):
    os.rename(f"{lake.path}/.hoodie", tmp_path / "meta")
    os.symlink(tmp_path / "meta", f"{lake.path}/.hoodie")

    with pytest.raises(Refused, match="symbolic link"):
        lake.drop()

    with pytest.raises(Refused, match="symbolic link"):
        holdfast.open_table(lake.path)
    assert (tmp_path / "meta" / "hoodie.properties").exists()


def test_a_half_dropped_table_is_left_to_the_process_that_lives():
    world = clean_table()
    world.die_after(lambda w: drop(again(w)), last=f"create {DROPPING_FILE}")
    world.host = SimulatedHost(9, Liveness.ALIVE)

    with pytest.raises(WriterActive, match="another process"):
        drop(again(world))

    world.host = SimulatedHost(9, Liveness.GONE)
    drop(again(world))
    assert world.store.paths("") == []
