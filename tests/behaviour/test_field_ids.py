"""Field ids: every Parquet file names its columns by numbers that never change, and no reader minds."""

import io

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.faults import InterruptedStore
from harness.hudi_reader import check_alike, hudi_snapshot
from harness.world import memory_world, row_list, rows, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.format.commits import DIGEST, decode_extra_metadata
from holdfast.format.field_ids import FIELD_IDS, META_FIELD_IDS, decode_field_ids, read_field_ids
from holdfast.format.log_blocks import BlockType, decode_blocks
from holdfast.model.names import FIELD_IDS_RECORD, instant_path
from holdfast.model.reports import FindingKind, Severity
from holdfast.services.archive.archive import archive_without_recovery
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.table.field_ids import assign_field_ids, field_ids
from holdfast.timeline.timeline import load_timeline

ARCHIVES_SOON = ArchiveSettings(
    clean=CleanSettings(
        automatic=False,
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
        versions_retained=1,
        keep_min=2,
        keep_max=3,
    )
)
BY_HAND = WriteSettings(clean=CleanSettings(automatic=False), archives=False)
TRIPS = {"id": 1, "city": 2, "fare": 3}
VERBS = ["insert", "bulk_insert", "upsert", "insert_overwrite", "insert_overwrite_table"]
APPENDS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}


@pytest.fixture
def world():
    world = memory_world()
    world.create()
    return world


def with_column(name, *keys, value="x"):
    """Rows with one more column."""
    return rows(*keys, city="paris").append_column(name, pa.array([value] * len(keys)))


def parquet_ids(content):
    stored = read_field_ids(pq.ParquetFile(io.BytesIO(content)).schema_arrow)
    assert META_FIELD_IDS.items() <= stored.items()
    return {path: number for path, number in stored.items() if path not in META_FIELD_IDS}


def ids_in_files(world, commit):
    (ids,) = {tuple(parquet_ids(world.store.read(path)).items()) for path in world.files_of(commit.instant)}
    return dict(ids)


def ids_in_commit(world, time):
    (commit,) = (one for one in load_timeline(world.store).completed_commits if one.time == time)
    return decode_field_ids(decode_extra_metadata(world.store.read(instant_path(commit)))[FIELD_IDS])


def known(world):
    return field_ids(world.store, load_timeline(world.store))


def make_foreign(world, time):
    """As a commit of another program, which says nothing of field ids."""
    (commit,) = (one for one in load_timeline(world.store).completed_commits if one.time == time)
    content = world.store.read(instant_path(commit))
    for ours in (FIELD_IDS, DIGEST):
        content = content.replace(ours.encode(), b"something.else." + ours[-1:].encode())
    world.store.put(instant_path(commit), content)


def test_files_commits_and_the_record_say_the_same(world):
    commit = world.write("bulk_insert", rows("a", "b"))

    assert ids_in_files(world, commit) == ids_in_commit(world, commit.instant) == known(world) == TRIPS
    world.store.delete(instant_path(load_timeline(world.store).completed_commits[0]))
    assert known(world) == TRIPS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_keeps_the_numbers_and_gives_new_columns_the_next(world, verb):
    world.write("bulk_insert", rows("a", "b"))

    commit = world.write(verb, with_column("note", "a", "c"))

    assert ids_in_files(world, commit) == ids_in_commit(world, commit.instant) == {**TRIPS, "note": 4}


def test_deletes_say_them_too(world):
    world.write("bulk_insert", rows("a", "b", "c"))

    deleted = world.write("delete", rows("a", city="paris").select(["id", "city"]))
    emptied = world.delete_partitions("city=rome")

    assert ids_in_files(world, deleted) == TRIPS
    assert ids_in_commit(world, emptied.instant) == TRIPS


def test_a_widened_column_keeps_its_number(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")
    table.upsert(pa.table({"id": ["a"], "n": pa.array([1], pa.int32())}))
    table.upsert(pa.table({"id": ["b"], "n": pa.array([2], pa.int64()), "m": pa.array([3], pa.int32())}))

    (path,) = table.files()

    assert parquet_ids((tmp_path / "t" / path).read_bytes()) == {"id": 1, "n": 2, "m": 3}
    check_alike(table.to_arrow(), hudi_snapshot(tmp_path / "t"))


def test_nested_fields_have_numbers_and_keep_them_as_the_struct_grows(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id")
    table.upsert(pa.table({"id": ["a"], "stop": [{"city": "paris"}], "tags": [["x"]]}))
    table.upsert(pa.table({"id": ["a"], "stop": [{"city": "rome", "street": "y"}], "tags": [["z"]]}))

    (path,) = table.files()

    ids = {"id": 1, "stop": 2, "stop.city": 3, "tags": 4, "tags.element": 5, "stop.street": 6}
    assert parquet_ids((tmp_path / "t" / path).read_bytes()) == ids
    assert table.to_arrow()["stop"].to_pylist() == [{"city": "rome", "street": "y"}]
    assert duckdb.read_parquet(str(tmp_path / "t" / path)).fetchall()[0][-1] == ["z"]


def test_log_files_carry_them_too(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", table_type="MERGE_ON_READ")
    table.insert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    table.upsert(pa.table({"id": ["b"], "n": [3], "m": [4]}), options=APPENDS)

    (path,) = (path for path in table.files() if ".log." in path)
    (block,) = decode_blocks((tmp_path / "t" / path).read_bytes())

    assert block.kind == BlockType.PARQUET_DATA
    assert parquet_ids(block.content) == {"id": 1, "n": 2, "m": 3}
    check_alike(table.to_arrow(), hudi_snapshot(tmp_path / "t"))
    table.compact()
    (path,) = table.files()
    assert parquet_ids((tmp_path / "t" / path).read_bytes()) == {"id": 1, "n": 2, "m": 3}
    check_alike(table.to_arrow(), hudi_snapshot(tmp_path / "t"))


def forget_numbers(world, path):
    """As an older version wrote the file."""
    file = pq.ParquetFile(io.BytesIO(world.store.read(path)))
    held = file.read()
    plain = held.cast(pa.schema([(field.name, field.type) for field in held.schema]))
    sink = io.BytesIO()
    entries = dict(file.schema_arrow.metadata)
    with pq.ParquetWriter(sink, plain.schema, store_schema=False, write_page_checksum=True) as writer:
        writer.write_table(plain)
        writer.add_key_value_metadata(entries)
    world.store.put(path, sink.getvalue())
    assert not read_field_ids(pq.ParquetFile(io.BytesIO(sink.getvalue())).schema_arrow)


def test_a_file_without_numbers_is_read_and_gets_them_when_it_is_written_anew(world):
    old = world.write("bulk_insert", rows("a", "b", city="paris"))
    for path in world.files_of(old.instant):
        forget_numbers(world, path)

    new = world.write("upsert", table_of([("b", "paris", 9.0)]))

    assert ids_in_files(world, new) == TRIPS
    (path,) = world.files_of(new.instant)
    held = pq.ParquetFile(io.BytesIO(world.store.read(path))).read()
    assert sorted(row_list(held)) == [("a", "paris", 1.0), ("b", "paris", 9.0)]


def test_the_number_of_a_column_that_was_taken_back_is_not_given_to_another(world):
    world.write("bulk_insert", rows("a"))
    world.write("upsert", with_column("note", "a"))
    undo(world.open())

    commit = world.write("upsert", with_column("remark", "a"))

    assert ids_in_files(world, commit) == {**TRIPS, "remark": 5}


def test_a_column_that_was_taken_back_and_comes_again_has_its_number(world):
    world.write("bulk_insert", rows("a"))
    world.write("upsert", with_column("note", "a"))
    undo(world.open())

    commit = world.write("upsert", with_column("note", "a"))

    assert ids_in_files(world, commit) == {**TRIPS, "note": 4}


def test_numbers_outlive_the_commits_that_knew_them(world):
    for number in range(4):
        world.write("upsert", rows(f"id{number}"), BY_HAND)
    assert archive_without_recovery(world.open(), ARCHIVES_SOON).archived
    for time in world.commit_times():
        make_foreign(world, time)

    commit = world.write("upsert", with_column("note", "a"))

    assert ids_in_files(world, commit) == {**TRIPS, "note": 4}


def test_a_column_that_another_program_added_gets_the_next_number_wherever_it_stands(world):
    world.write("bulk_insert", rows("a", city="paris"))
    content = world.write("upsert", with_column("note", "a"))
    make_foreign(world, content.instant)
    world.store.delete(FIELD_IDS_RECORD)

    commit = world.write("upsert", with_column("note", "b"))

    assert ids_in_files(world, commit) == {**TRIPS, "note": 4}


def test_two_writers_never_give_one_number_to_two_columns(world):
    world.write("bulk_insert", rows("a"))
    timeline = load_timeline(world.store)
    told = []

    def meanwhile():
        told.append(assign_field_ids(world.store, timeline, pa.schema([("note", pa.string())])))

    slow = InterruptedStore(world.store, FIELD_IDS_RECORD, meanwhile)
    told.append(assign_field_ids(slow, timeline, pa.schema([("remark", pa.string())])))

    assert [ids.get("note") for ids in told] == [4, 4]
    assert told[1]["remark"] == 5


def test_columns_that_are_known_cost_no_look_at_the_record(world):
    world.write("bulk_insert", rows("a"))

    def fail():
        raise AssertionError("the record is touched")

    guarded = InterruptedStore(world.store, FIELD_IDS_RECORD, fail)
    assert assign_field_ids(guarded, load_timeline(world.store), pa.schema([("id", pa.string())])) == TRIPS


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"1 id\n", None])
def test_a_record_that_is_damaged_is_not_believed_and_is_reported(world, content):
    world.write("bulk_insert", rows("a"))
    whole = world.store.read(FIELD_IDS_RECORD)
    world.store.put(FIELD_IDS_RECORD, whole.replace(b"1", b"2") if content is None else content)

    (finding,) = verify(world.open()).findings
    commit = world.write("upsert", with_column("note", "a"))

    assert (finding.kind, finding.path) == (FindingKind.TORN, FIELD_IDS_RECORD)
    assert finding.severity is Severity.WARNING
    assert ids_in_files(world, commit) == {**TRIPS, "note": 4}
    assert verify(world.open()).is_clean
