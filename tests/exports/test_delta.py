"""The export to Delta Lake: what others may do with it, and what it says of the table."""

import datetime as dt
import decimal
import json
import shutil

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import holdfast
from harness.faults import Crash, CrashingStore, RecordingStore
from harness.world import memory_world, rows
from holdfast.errors import InvalidOption, Refused, TableDamaged, UnsupportedTable
from holdfast.exports.advance import FORMATS
from holdfast.exports.manage import exports
from holdfast.services.rollback.undo import undo

DELTA = {"holdfast.export.formats": "delta"}


def make(folder, *, properties=DELTA, **more):
    more = {"record_key": "id", "partition_by": "city"} | more
    return holdfast.create_table(str(folder / "trips"), name="trips", properties=properties, **more)


def trips(*ids, city="oslo", fare=1.0):
    return pa.table({"id": ids, "city": [city] * len(ids), "fare": [fare] * len(ids)})


def seen(table):
    return DeltaTable(table.path).to_pyarrow_table().sort_by("id").to_pylist()


def test_no_other_program_writes_to_it(tmp_path):
    table = make(tmp_path)
    table.insert(trips("a"))

    with pytest.raises(DeltaError):
        deltalake.write_deltalake(table.path, trips("b"), mode="append")
    with pytest.raises(DeltaError):
        DeltaTable(table.path).delete("id = 'a'")
    with pytest.raises(DeltaError):
        DeltaTable(table.path).vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
        )
    assert DeltaTable(table.path).vacuum(dry_run=True) == []
    assert seen(table) == [{"id": "a", "city": "oslo", "fare": 1.0}]


def test_a_table_without_rows_is_exported_and_lags_behind_nothing(tmp_path):
    table = make(tmp_path)
    table.insert(trips("a"))
    table.undo()

    [export] = table.exports()

    assert (export.lag, export.instant) == (0, None)
    version = DeltaTable(table.path).version()
    assert table.export() == [export]
    assert DeltaTable(table.path).version() == version
    assert seen(table) == []


def test_a_damaged_export_is_named_with_the_way_which_leads_on(tmp_path):
    table = make(tmp_path, properties={"holdfast.export.formats": "delta,iceberg"})
    table.insert(trips("a"))
    table.insert(trips("b"))
    damaged = sorted((tmp_path / "trips/_delta_log").glob("*.json"))[-1]
    damaged.write_text("not a version\n")

    with pytest.raises(TableDamaged, match="delete the folder _delta_log, then: holdfast exports run PATH"):
        table.undo()
    named = [one for one in table.verify().findings if one.path.endswith(damaged.name)]
    assert [one.remedy for one in named] == ["delete the folder _delta_log, then: holdfast exports run PATH"]

    shutil.rmtree(damaged.parent)
    table.export()
    table.roll_back_failed_writes()
    assert seen(table) == table.to_arrow().to_pylist() == trips("a").to_pylist()
    assert table.verify().is_clean


def test_partitions_are_those_of_the_table(tmp_path):
    table = make(tmp_path)
    table.insert(trips("a"))
    table.insert(trips("b", city="são paulo"))
    table.insert(pa.table({"id": ["c"], "city": pa.nulls(1, pa.string()), "fare": [1.0]}))

    delta = DeltaTable(table.path)
    assert delta.metadata().partition_columns == ["city"]
    assert sorted(map(str, delta.partitions())) == sorted(
        map(str, [{"city": "oslo"}, {"city": "são paulo"}, {"city": None}])
    )
    filtered = delta.to_pyarrow_table(filters=[("city", "=", "são paulo")])
    assert filtered["id"].to_pylist() == ["b"]


def test_a_record_that_stays_in_its_old_partition_ends_partitioning(tmp_path):
    table = make(tmp_path)
    table.insert(trips("a"))
    table.insert(trips("b", city="rome"))
    assert DeltaTable(table.path).metadata().partition_columns == ["city"]
    table.upsert(
        trips("a", city="rome"),
        options={
            "hoodie.index.type": "GLOBAL_SIMPLE",
            "hoodie.simple.index.update.partition.path": "false",
        },
    )

    assert DeltaTable(table.path).metadata().partition_columns == []
    assert [row["city"] for row in seen(table)] == ["rome", "rome"]
    assert pl.read_delta(table.path)["city"].to_list() == ["rome", "rome"]


def test_every_type_is_read_as_it_was_written(tmp_path):
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678901)
    columns = {
        "id": pa.array(["a", "b"]),
        "city": pa.array(["x", "x"]),
        "flag": pa.array([True, None]),
        "whole": pa.array([1, None], pa.int32()),
        "long": pa.array([2**40, None]),
        "half": pa.array([0.5, None], pa.float32()),
        "price": pa.array([decimal.Decimal("12.34"), None], pa.decimal128(20, 2)),
        "day": pa.array([dt.date(1960, 2, 29), None]),
        "at": pa.array([moment, None], pa.timestamp("us", "UTC")),
        "wall": pa.array([moment, None], pa.timestamp("us")),
        "raw": pa.array([b"\x00\xff", None]),
        "point": pa.array([{"x": 1, "name": "é"}, None]),
        "tags": pa.array([["p", None], None]),
        "counts": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
    table = make(tmp_path)
    table.insert(pa.table(columns))
    table.upsert(pa.table({**columns, "new": pa.array([1, 2])}))

    assert str(seen(table)) == str(table.to_arrow().sort_by("id").to_pylist())
    assert str(pl.read_delta(table.path).sort("id").drop("counts").to_dicts()) == str(
        pl.from_arrow(table.to_arrow()).sort("id").drop("counts").to_dicts()
    )
    found = (
        DeltaTable(table.path)
        .to_pyarrow_dataset()
        .to_table(filter=pa.compute.field("at") == columns["at"][0])
    )
    assert found["id"].to_pylist() == ["a"]


def test_numbers_that_were_widened_are_read_from_old_and_new_files(tmp_path):
    table = make(tmp_path)

    def insert(number, kind):
        counts = pa.array([number], kind)
        return table.insert(pa.table({"id": [f"id{number}"], "city": [f"c{number}"], "count": counts}))

    assert insert(0, pa.int32()).post_commit_errors == insert(1, pa.int64()).post_commit_errors == ()
    assert [row["count"] for row in seen(table)] == [0, 1]

    # Only Hudi's readers make fractions of whole numbers.
    commit = insert(2, pa.float64())
    assert "whole numbers became fractions" in commit.post_commit_errors[0]
    assert table.exports()[0].lag == 1
    assert [row["count"] for row in seen(table)] == [0, 1]
    assert table.insert_overwrite_table(table.to_arrow()).post_commit_errors == ()
    assert [row["count"] for row in seen(table)] == [0.0, 1.0, 2.0]


def test_a_type_that_delta_lacks_is_refused_by_name(tmp_path):
    """Tables of Hudi's have it."""
    times = '{"type": "long", "logicalType": "time-micros"}'
    schema = f'{{"type": "record", "name": "r", "fields": [{{"name": "id", "type": {times}}}]}}'
    table = make(tmp_path, properties={"hoodie.table.create.schema": schema}, partition_by=None)

    with pytest.raises(UnsupportedTable, match="Delta Lake has no type") as refused:
        table.set_exports(["delta"])
    assert refused.value.facts["column"] == "id"
    assert table.exports() == []


def test_another_programs_log_is_left_alone(tmp_path):
    table = make(tmp_path, properties={})
    table.insert(trips("a"))
    deltalake.write_deltalake(table.path, trips("z"), mode="append")

    with pytest.raises(Refused, match="another program"):
        table.set_exports(["delta"])
    assert DeltaTable(table.path).version() == 0
    assert table.exports() == []


def test_exports_are_switched_on_and_off(tmp_path):
    table = make(tmp_path, properties={})
    table.insert(trips("a"))
    assert table.exports() == table.export() == []

    [export] = table.set_exports(["delta"])
    assert (export.format, export.lag, export.where) == ("delta", 0, table.path)
    assert export.instant == export.complete_until == table.timeline()[-1].time
    assert len(seen(table)) == 1

    assert table.set_exports([]) == []
    assert not (tmp_path / "trips" / "_delta_log").exists()
    with pytest.raises(InvalidOption, match="no export to this format"):
        table.set_exports(["delta", "orc"])
    with pytest.raises(InvalidOption, match="no export to this format"):
        make(tmp_path / "other", properties={"holdfast.export.formats": "orc"})


def test_an_export_that_could_not_follow_is_shown_and_caught_up_by_the_next_write():
    world = memory_world()
    world.create(DELTA)
    world.insert("a")
    world.die_after(lambda w: w.insert("b"), last=".commit")
    world.die_after(lambda w: w.insert("c"), last=".commit")
    [behind] = exports(world.open())
    assert behind.lag == 2

    commit = world.insert("d")

    [export] = exports(world.open())
    assert (export.instant, export.lag) == (commit.instant, 0)
    versions = [
        json.loads(world.store.read(path).splitlines()[0])["commitInfo"]["holdfast.instant"]
        for path in world.store.paths("_delta_log")
    ]
    assert versions == world.commit_times(), "each commit is a version"


def test_what_fails_of_an_export_leaves_the_commit():
    world = memory_world()
    world.create(DELTA)
    world.insert("a")
    world.store.put("_delta_log/00000000000000000000.json", b"{broken")

    commit = world.insert("b")

    assert len(commit.post_commit_errors) == 1
    assert "Delta log" in commit.post_commit_errors[0]
    with pytest.raises(TableDamaged, match="Delta log"):
        exports(world.open())
    world.store.delete("_delta_log/00000000000000000000.json")
    assert world.insert("c").post_commit_errors == ()
    assert exports(world.open())[0].lag == 0


def test_no_file_goes_before_the_export_has_moved():
    """A table of which even the first commit is taken back is empty for everybody."""
    world = memory_world()
    world.create(DELTA)
    world.insert("a")
    recorder = RecordingStore(world.copy().store)
    undo(world.copy().on(recorder).open())
    for step in range(1, len(recorder.changes) + 1):
        dying = world.copy()
        with pytest.raises(Crash):
            undo(dying.on(CrashingStore(dying.store, step, after=True)).open())
        for path in FORMATS["delta"].read(dying.store).paths():
            assert dying.store.stat(path) is not None, step
        dying.insert("b")
        assert exports(dying.open())[0].lag == 0


def test_old_versions_are_summed_up_by_checkpoints(tmp_path):
    table = make(tmp_path)
    for number in range(23):
        table.upsert(trips("a", f"id{number % 3}", fare=float(number)))

    marks = sorted(path.name for path in (tmp_path / "trips" / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(name.split(".")[0]) for name in marks] == [10, 20]
    assert str(seen(table)) == str(table.to_arrow().sort_by("id").to_pylist())
    assert table.verify().findings == ()


def test_a_merge_on_read_table_says_how_far_its_base_files_go(tmp_path):
    table = make(tmp_path, table_type="MERGE_ON_READ")
    first = table.insert(trips("a", "b"))
    logs = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
    second = table.upsert(trips("a", fare=2.0), options=logs)

    [export] = table.exports()
    assert (export.instant, export.complete_until, export.lag) == (second.instant, first.instant, 0)
    assert [row["fare"] for row in seen(table)] == [1.0, 1.0]

    [export] = table.export(merge=True)
    assert export.instant == export.complete_until > second.instant
    assert [row["fare"] for row in seen(table)] == [2.0, 1.0]


def test_a_drop_takes_the_log_with_it(tmp_path):
    table = make(tmp_path)
    table.insert(trips("a"))

    assert "_delta_log/00000000000000000000.json" in table.plan_drop().files
    table.drop()

    assert not (tmp_path / "trips").exists() or not list((tmp_path / "trips").iterdir())


def test_nothing_is_exported_of_a_table_without_a_commit():
    world = memory_world()
    world.create(DELTA)

    assert exports(world.open())[0].instant is None
    world.write("insert", rows("a"))
    assert exports(world.open())[0].lag == 0
