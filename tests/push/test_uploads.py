"""Uploads, in files and in place: what is taken in, kept and refused."""

import pytest

from harness.push_world import ANN, TABLE, PushWorld, parquet, refused, uploaded_file
from holdfast.push.calls import UploadOptions
from holdfast.push.uploads.locks import lock_uploads, upload_locks_path


@pytest.fixture
def world():
    return PushWorld().create()


def test_an_upload_of_the_same_rows_again_keeps_the_file(world):
    world.start([], ["a"])
    world.upload("a", 1)
    files = world.files()

    world.upload("a", 1)

    assert world.files() == files


def test_other_rows_for_a_hidden_segment_take_its_place(world):
    first = world.start([], ["a"])
    world.upload("a", 1)
    world.upload("a", 2)

    world.end(first)
    world.retention()

    assert world.rows() == [2, 2]
    assert len(world.files()) == 1


def test_other_rows_for_a_published_segment_are_refused(world):
    first = world.push(1)
    second = world.push(2)

    refused("IN_PLACE_REFRESH", world.upload, "v2", 3)
    refused("IN_PLACE_REFRESH", world.upload, "v1", 3)
    world.upload("v2", 3, allow_in_place=True)

    assert world.rows() == [3, 3]
    assert first != second


def test_a_refresh_in_place_does_not_disturb_who_reads_the_old_file(world):
    world.push(1)
    old = world.files()
    world.announce("b1", world.catalog.load(TABLE).push.epoch)

    world.upload("v1", 2, allow_in_place=True)
    world.retention()
    assert old < world.files()
    world.announce("b1", world.catalog.load(TABLE).push.epoch)
    world.retention()

    assert not old & world.files()


def test_nobody_uploads_into_a_reverted_push(world):
    first = world.start([], ["a"])
    world.revert(first, force=True)

    refused("LINEAGE_ENTRY_REVERTED", world.upload, "a")

    assert world.files() == set()


def test_nobody_uploads_beside_an_exclusive_push(world):
    world.start([], ["a"])

    refused("EXCLUSIVE_PUSH", world.upload, "stranger")


@pytest.mark.parametrize(
    ("code", "options"),
    [
        ("REFRESH_OF_MISSING", {"refresh_only": True}),
        ("CRC_MISMATCH", {"if_match": 7}),
    ],
)
def test_conditions_of_an_upload_are_kept(world, code, options):
    world.start([], ["a"])

    refused(code, world.upload, "a", **options)

    assert world.files() == set()


def test_a_segment_that_exists_is_not_refreshed_if_that_is_not_allowed(world):
    world.start([], ["a"])
    world.upload("a", 1)

    refused("SEGMENT_EXISTS", world.upload, "a", 2, allow_refresh=False)
    world.upload("a", 2, if_match=1)

    assert world.rows_of("a") == [2, 2]


def test_of_two_protected_uploads_of_a_segment_the_second_waits(world):
    world.start([], ["a"])
    lock_uploads(world.metastore, world.clock, TABLE, ["a"])

    refused("UPLOAD_IN_PROGRESS", world.upload, "a", protected=True)
    world.clock.now += 600_001
    world.upload("a", protected=True)
    world.upload("a", 2, protected=True)

    assert world.rows_of("a") == [2, 2]


def test_the_lock_of_an_upload_that_died_goes_with_retention_once_it_has_run_out(world):
    world.start([], ["a"])
    lock_uploads(world.metastore, world.clock, TABLE, ["a"])

    world.retention(after_ms=500_000)
    assert world.metastore.children(upload_locks_path(TABLE)) == ("a",)
    world.retention(after_ms=100_000)

    assert world.metastore.children(upload_locks_path(TABLE)) == ()


def test_a_parquet_file_is_a_segment(world, tmp_path):
    world.start([], ["a"])

    uploaded = world.controller.uploads.upload_file(
        TABLE, uploaded_file(tmp_path, parquet(7)), name="a.parquet", options=UploadOptions(), by=ANN
    )

    assert uploaded.segments == ("a",)
    assert world.rows_of("a") == [7, 7]
    segment = world.controller.views.segments(TABLE)["a"]
    assert segment.docs == 2
    assert segment.columns["snapshot"].greatest == "7"


def test_a_file_that_is_neither_parquet_nor_an_archive_is_refused(world, tmp_path):
    file = uploaded_file(tmp_path, b"hello")

    refused(
        "INVALID_SEGMENT",
        world.controller.uploads.upload_file,
        TABLE,
        file,
        name="a",
        options=UploadOptions(),
        by=ANN,
    )


@pytest.mark.parametrize("cut", [4, 40, 200])
def test_a_damaged_parquet_file_is_refused(world, tmp_path, cut):
    file = uploaded_file(tmp_path, parquet(1)[:-cut])

    refused(
        "INVALID_SEGMENT",
        world.controller.uploads.upload_file,
        TABLE,
        file,
        name="a",
        options=UploadOptions(),
        by=ANN,
    )
    assert world.files() == set()
