"""The controller over SQLite and a local folder: real files, real archives, real threads."""

import io
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.push_checker import check_push_at_any_time
from harness.push_world import ANN, TABLE, PushWorld, parquet, uploaded_file
from holdfast.clock import SystemClock
from holdfast.errors import Conflict, HoldfastError, InvalidRequest, Refused
from holdfast.format.segments import Creation, SegmentDescription, encode_creation, encode_description
from holdfast.model.lineage import EntryState
from holdfast.push.calls import UploadOptions
from holdfast.push.controller import Controller
from holdfast.push.metastore.open import open_metastore
from holdfast.push.uploads.archives import pack_segment
from holdfast.storage.local import LocalStore


@pytest.fixture
def opened(tmp_path):
    """Makes controllers of their own connection each, as processes would have."""
    metastores = []

    def open_world():
        metastores.append(open_metastore(f"sqlite:///{tmp_path}/metadata.db"))
        return PushWorld(metastores[-1], LocalStore(str(tmp_path / "deep")), SystemClock())

    yield open_world
    for metastore in metastores:
        metastore.close()


@pytest.fixture
def world(opened):
    return opened().create()


def archive(folder, name, number, *, rows=2, docs=None, has_columns=True, others=()):
    description = SegmentDescription(name=name, table="orders", docs=rows if docs is None else docs)
    content = parquet(number, rows)
    creation = Creation(crc=number, created_ms=1_700_000_000_000)
    path = folder / f"{name}.tar.gz"
    if has_columns:
        with open(path, "wb") as sink:
            pack_segment(sink, description, creation, io.BytesIO(content), size_bytes=len(content))
        return path
    files = {
        "v3/metadata.properties": encode_description(description),
        "v3/creation.meta": encode_creation(creation),
        **dict(others),
    }
    return _tar(path, {f"{name}/{file}": content for file, content in files.items()})


def _tar(path, files):
    import tarfile

    with tarfile.open(path, "w:gz") as packed:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return path


def test_pushes_reverts_and_retention_work_on_disk(world):
    world.push(1, "a0", "a1")
    second = world.push(2, "b0")
    world.revert(second)
    assert world.rows() == [1] * 4
    world.controller.redo(TABLE, second, by=ANN)

    world.controller.delete_segments(TABLE, ["b0"], by=ANN)
    world.controller.upkeep.run_retention(TABLE)
    world.controller.upkeep.run_retention(TABLE)

    assert world.rows() == []
    assert len(list(world.deep_store.files_in_deleted_area(TABLE))) == 1
    check_push_at_any_time(world)


def test_an_archive_is_a_segment(world, tmp_path):
    entry = world.start([], ["a"])

    world.controller.uploads.upload_file(TABLE, archive(tmp_path, "a", 7), options=UploadOptions(), by=ANN)
    world.end(entry)

    assert world.rows() == [7, 7]
    segment = world.controller.views.segments(TABLE)["a"]
    assert (segment.crc, segment.docs, segment.created_ms) == (7, 2, 1_700_000_000_000)
    assert sorted(path.name for path in tmp_path.glob("*.columns")) == []


def test_an_archive_that_lies_about_its_rows_is_refused(world, tmp_path):
    with pytest.raises(InvalidRequest) as caught:
        world.controller.uploads.upload_file(
            TABLE, archive(tmp_path, "a", 7, docs=3), options=UploadOptions(), by=ANN
        )

    assert caught.value.facts["code"] == "INVALID_SEGMENT"
    assert world.files() == set()


def test_a_segment_of_pinots_own_format_is_kept_only_if_that_is_wanted(world, tmp_path):
    file = archive(tmp_path, "a", 7, has_columns=False, others=[("v3/columns.psf", b"index")])
    world.start([], ["a"])

    with pytest.raises(InvalidRequest) as caught:
        world.controller.uploads.upload_file(TABLE, file, options=UploadOptions(), by=ANN)
    assert caught.value.facts["code"] == "OPAQUE_SEGMENT"
    world.controller.uploads.upload_file(TABLE, file, options=UploadOptions(accept_opaque=True), by=ANN)

    segment = world.controller.views.segments(TABLE)["a"]
    assert segment.is_opaque
    assert segment.uri.endswith(".tar.gz")


def anywhere(world):
    """The intake of a controller that accepts every address."""
    return Controller(world.catalog, world.deep_store, world.clock, canonical_uri=lambda uri: uri).uploads


def test_metadata_is_registered_and_the_bytes_stay_where_they_are(world, tmp_path):
    entry = world.start([], ["a"])
    described = archive(tmp_path, "a", 7, has_columns=False)

    anywhere(world).upload_metadata(
        TABLE, described, "s3://bucket/a.parquet", copy=False, options=UploadOptions(), by=ANN
    )

    assert world.controller.views.segments(TABLE)["a"].uri == "s3://bucket/a.parquet"
    world.revert(entry, force=True)
    world.controller.upkeep.run_retention(TABLE)
    assert world.catalog.segment(TABLE, "a") is None


def test_metadata_is_registered_with_a_copy_of_the_bytes(opened, tmp_path):
    world = opened().create()
    fetched = []

    def fetch(uri, file, take):
        fetched.append(uri)
        take(len(parquet(7)))
        file.write_bytes(parquet(7))

    controller = Controller(world.catalog, world.deep_store, world.clock, fetch=fetch)
    entry = world.start([], ["a"])
    described = archive(tmp_path, "a", 7, has_columns=False)

    controller.uploads.upload_metadata(
        TABLE, described, "s3://bucket/a.parquet", copy=True, options=UploadOptions(), by=ANN
    )
    world.end(entry)

    assert fetched == ["s3://bucket/a.parquet"]
    assert world.rows() == [7, 7]
    assert world.controller.views.segments(TABLE)["a"].crc == 7


def test_an_address_that_nobody_allowed_is_refused(world, tmp_path):
    described = archive(tmp_path, "a", 7, has_columns=False)

    for copy in (True, False):
        with pytest.raises(Refused) as caught:
            world.controller.uploads.upload_metadata(
                TABLE, described, "s3://bucket/a", copy=copy, options=UploadOptions(), by=ANN
            )
        assert caught.value.facts["code"] == "URI_REFUSED"


def test_a_batch_is_registered_in_one_write(world, tmp_path):
    names = ["a", "b", "c"]
    world.start([], names)
    files = {"all_segments_metadata": "".join(f"{n}\ns3://bucket/{n}\n" for n in names).encode()}
    for name in names:
        description = SegmentDescription(name=name, table="orders", docs=2)
        files[f"{name}.metadata.properties"] = encode_description(description)
        files[f"{name}.creation.meta"] = encode_creation(Creation(crc=1, created_ms=1))
    file = _tar(tmp_path / "batch.tar.gz", files)

    uploaded = anywhere(world).upload_batch(TABLE, file, copy=False, options=UploadOptions(), by=ANN)

    assert uploaded.segments == ("a", "b", "c")
    assert world.controller.views.select(TABLE) == ("a", "b", "c")


def test_the_time_range_of_a_segment_is_checked(opened, tmp_path):
    from dataclasses import replace

    world = opened()
    world.create(segments={"timeColumnName": "at"})
    early = io.BytesIO()
    pq.write_table(pa.table({"at": pa.array([0, 5], pa.int64())}), early)
    late = io.BytesIO()
    pq.write_table(pa.table({"at": pa.array([1_700_000_000_000, 1_700_000_000_005], pa.int64())}), late)
    entry = world.start([], ["a"])

    def upload(content):
        file = uploaded_file(tmp_path, content)
        world.controller.uploads.upload_file(TABLE, file, name="a", options=UploadOptions(), by=ANN)

    for content in (early.getvalue(), parquet(1)):
        with pytest.raises(Refused) as caught:
            upload(content)
        assert caught.value.facts["code"] == "INVALID_TIME_RANGE"
    upload(late.getvalue())

    segment = world.controller.views.segments(TABLE)["a"]
    assert (segment.start_ms, segment.end_ms) == (1_700_000_000_000, 1_700_000_000_005)
    assert world.state_of(entry) is EntryState.IN_PROGRESS
    assert replace(segment) == segment


def test_many_threads_of_two_controllers_lose_no_entry(opened):
    world = opened()
    world.create(consistent=False)
    worlds = [world, opened()]
    started, failed = [], []

    def push(number):
        own = worlds[number % 2]
        try:
            entry = own.start([], [f"s{number}"])
            own.upload(f"s{number}", 1)
            own.end(entry)
            started.append(entry)
        except HoldfastError as error:
            failed.append(error)

    threads = [threading.Thread(target=push, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not [error for error in failed if not isinstance(error, Conflict)], failed
    entries = {entry.id for entry in world.controller.views.lineage(TABLE).entries if entry.is_live}
    assert set(started) <= entries, "L9"
    assert len(started) >= 6
    check_push_at_any_time(world)
