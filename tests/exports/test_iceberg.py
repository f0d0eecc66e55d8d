"""The export to Iceberg: what its metadata says of the table, and what becomes of its past."""

import json
import shutil

import pyarrow as pa
import pytest

import holdfast
from harness.world import SimulatedHost, memory_world
from holdfast.config.choices import CleanPolicy, ConcurrencyMode, FailedWritesPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import TableDamaged
from holdfast.exports.iceberg import read_iceberg
from holdfast.exports.manage import exports, set_exports
from holdfast.format.iceberg import decode_records
from holdfast.host import Liveness
from holdfast.services.clean.clean import clean
from holdfast.services.rollback.undo import undo
from holdfast.services.savepoints import create_savepoint, delete_savepoint

ICEBERG = {"holdfast.export.formats": "iceberg"}
ONE_VERSION = WriteSettings(
    clean=CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=1)
)
KEEPING = WriteSettings(clean=CleanSettings(automatic=False))


@pytest.fixture
def world():
    made = memory_world()
    made.create(ICEBERG)
    return made


def upsert(world, fare):
    return world.write("upsert", pa.table({"id": ["a"], "city": ["oslo"], "fare": [fare]}), KEEPING)


def snapshots(world):
    return [one["snapshot-id"] for one in read_iceberg(world.store).snapshots]


def test_each_commit_is_a_snapshot_by_its_number(world):
    commits = [upsert(world, float(fare)).instant for fare in range(3)]

    state = read_iceberg(world.store)
    assert snapshots(world) == [int(commit) for commit in commits]
    assert state.metadata["refs"] == {"main": {"snapshot-id": int(commits[-1]), "type": "branch"}}
    assert [one["sequence-number"] for one in state.snapshots] == [1, 2, 3]
    parents = [one.get("parent-snapshot-id") for one in state.snapshots]
    assert parents == [None, *snapshots(world)[:-1]]
    assert world.store.read(".hoodie/iceberg/metadata/version-hint.text") == b"3"
    assert exports(world.open())[0].where == "memory:///.hoodie/iceberg/metadata/v3.metadata.json"


def test_what_is_taken_back_leaves_no_snapshot(world):
    first, _ = upsert(world, 1.0), upsert(world, 2.0)
    undo(world.open())

    assert snapshots(world) == [int(first.instant)]
    third = upsert(world, 3.0)
    assert snapshots(world) == [int(first.instant), int(third.instant)]
    named = {path for path in world.store.paths(".hoodie/iceberg") if path.endswith(".avro")}
    assert len(named) == 4, "lists and manifests of what was taken back are gone"


def test_a_clean_takes_the_snapshots_that_lose_files_and_no_others(world):
    commits = [upsert(world, float(fare)).instant for fare in range(4)]
    create_savepoint(world.open(), commits[1])
    assert read_iceberg(world.store).metadata["refs"][f"savepoint-{commits[1]}"] == {
        "snapshot-id": int(commits[1]),
        "type": "tag",
    }

    clean(world.open(), ONE_VERSION)

    assert snapshots(world) == [int(commits[1]), int(commits[3])]
    for path in read_iceberg(world.store).paths():
        assert world.store.stat(path) is not None
    delete_savepoint(world.open(), commits[1])
    assert list(read_iceberg(world.store).metadata["refs"]) == ["main"]


def test_a_commit_that_was_late_replaces_the_snapshots_that_lack_it(world):
    """It began before another, and was decided after it: it belongs to the past of the other."""
    upsert(world, 0.0)
    shared = WriteSettings(
        concurrency_mode=ConcurrencyMode.OPTIMISTIC,
        failed_writes_policy=FailedWritesPolicy.LAZY,
        clean=CleanSettings(automatic=False),
    )
    world.host = SimulatedHost(1, Liveness.ALIVE)
    beside = []

    def write_beside():
        rows = pa.table({"id": ["quick"], "city": ["rome"], "fare": [2.0]})
        beside.append(world.write("insert", rows, shared))

    rows = pa.table({"id": ["late"], "city": ["oslo"], "fare": [1.0]})
    late = world.on(_Pausing(world.store, write_beside)).write("insert", rows, shared)
    [quick] = beside
    assert late.instant < quick.instant

    state = read_iceberg(world.store)
    labels = [one["summary"]["holdfast.instant"] for one in state.snapshots]
    assert labels[-1] == state.instant == quick.instant
    assert len(set(labels)) == len(labels) == len(set(snapshots(world)))
    assert exports(world.open())[0].lag == 0


def test_columns_have_the_field_ids_of_the_files(world):
    upsert(world, 1.0)
    rows = pa.table({"id": ["b"], "city": ["oslo"], "fare": [1.0], "point": [{"x": 1, "y": [2]}]})
    world.write("upsert", rows, KEEPING)

    metadata = read_iceberg(world.store).metadata
    assert [len(schema["fields"]) for schema in metadata["schemas"]] == [3, 4]
    point = metadata["schemas"][1]["fields"][3]
    inner = [field["id"] for field in point["type"]["fields"]]
    element = point["type"]["fields"][1]["type"]["element-id"]
    assert [*(f["id"] for f in metadata["schemas"][1]["fields"]), *inner, element] == [1, 2, 3, 4, 5, 6, 7]
    assert metadata["last-column-id"] == 7
    mapping = json.loads(metadata["properties"]["schema.name-mapping.default"])
    assert {1, 4, 1_000_001} <= {one["field-id"] for one in mapping}


def test_statistics_and_partitions_are_in_the_manifest(world):
    upsert(world, 1.0)

    state = read_iceberg(world.store)
    [manifest] = decode_records(world.store.read(state.current["manifest-list"].removeprefix("memory:///")))
    [entry] = state.entries(manifest)
    file = entry["data_file"]
    assert (file["partition"], file["record_count"]) == ({"city": "oslo"}, 1)
    assert {one["key"]: one["value"] for one in file["lower_bounds"]}[1] == b"a"
    assert file["file_size_in_bytes"] == world.store.stat(file["file_path"].removeprefix("memory:///")).size


def test_many_manifests_become_few(world):
    for number in range(130):
        rows = pa.table({"id": [f"id{number}"], "city": [f"c{number}"], "fare": [1.0]})
        world.write("bulk_insert", rows, KEEPING)

    state = read_iceberg(world.store)
    path = state.current["manifest-list"].removeprefix("memory:///")
    assert len(decode_records(world.store.read(path))) < 60
    assert len(state.paths_of(state.current)) == 130


def test_a_copy_of_the_table_is_exported_anew(tmp_path):
    table = holdfast.create_table(str(tmp_path / "a"), name="t", record_key="id", properties=ICEBERG)
    table.insert(pa.table({"id": ["a"]}))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = holdfast.open_table(str(tmp_path / "b"))
    assert copy.exports()[0].lag == 1

    copy.insert(pa.table({"id": ["b"]}))

    [export] = copy.exports()
    assert export.lag == 0
    metadata = json.loads((tmp_path / "b" / export.where).read_text())
    assert metadata["location"] == str(tmp_path / "b" / ".hoodie/iceberg")
    assert len(metadata["snapshots"]) == 1


def test_damage_is_told_and_mended_by_exporting_anew(world):
    upsert(world, 1.0)
    world.store.put(".hoodie/iceberg/metadata/v1.metadata.json", b"{broken")

    assert "Iceberg metadata cannot be read" in upsert(world, 2.0).post_commit_errors[0]
    with pytest.raises(TableDamaged, match="Iceberg"):
        exports(world.open())
    for path in world.store.paths(".hoodie/iceberg"):
        world.store.delete(path)
    assert upsert(world, 3.0).post_commit_errors == ()
    assert exports(world.open())[0].lag == 0


def test_switching_off_removes_everything(world):
    upsert(world, 1.0)

    assert set_exports(world.open(), []) == []
    assert world.store.paths(".hoodie/iceberg") == []


class _Pausing:
    """A store that lets another act once, right before the first file of data is written."""

    def __init__(self, inner, act):
        self._inner, self._act = inner, act

    def upload(self, path):
        act, self._act = self._act, None
        if act is not None:
            act()
        return self._inner.upload(path)

    def __getattr__(self, name):
        return getattr(self._inner, name)
