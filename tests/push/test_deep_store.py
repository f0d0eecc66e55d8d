"""The deep store: files that never change, and go when they may."""

import hashlib
import io
import os
import signal

import pytest

from harness.faults import StoreWrapper
from holdfast.errors import InvalidRequest
from holdfast.push.segments.deep_store import DeepStore, segment_of_file
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore

TABLE = "orders_OFFLINE"
NOON_MS = 1_767_268_800_000  # 2026-01-01 12:00 UTC


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / "deep"))


@pytest.fixture
def deep_store(store):
    return DeepStore(store)


def content(deep_store, path):
    with deep_store.open(path) as source:
        return source.read()


@pytest.mark.parametrize("form", ["bytes", "path", "stream"])
def test_bytes_are_kept_with_their_digest(deep_store, tmp_path, form):
    data = os.urandom(3 << 20)
    (tmp_path / "staged").write_bytes(data)
    source = {"bytes": data, "path": tmp_path / "staged", "stream": io.BytesIO(data)}[form]

    file = deep_store.put(TABLE, "a b", source, token="t1")

    assert file.path == "orders/a+b__t1.parquet"
    assert (file.size_bytes, file.digest) == (len(data), hashlib.sha256(data).hexdigest())
    assert content(deep_store, file.path) == data
    assert deep_store.stat(file.path).size == len(data)


def test_every_upload_has_a_path_of_its_own(deep_store):
    first = deep_store.put(TABLE, "s", b"first", token="t1")
    second = deep_store.put(TABLE, "s", b"second", token="t2")

    deep_store.retire(first.path, until_ms=None)

    assert content(deep_store, second.path) == b"second"
    assert deep_store.stat(first.path) is None


def test_a_path_is_never_written_twice(deep_store):
    file = deep_store.put(TABLE, "s", b"first", token="t1")

    with pytest.raises(FileExistsError):
        deep_store.put(TABLE, "s", b"second", token="t1")

    assert content(deep_store, file.path) == b"first"


def test_an_archive_of_pinots_is_kept_under_its_own_ending(deep_store):
    file = deep_store.put(TABLE, "s", b"tar", token="t1", is_opaque=True)

    assert file.path == "orders/s__t1.tar.gz"
    assert segment_of_file(file.path) == "s"


def test_an_upload_that_fails_leaves_nothing(deep_store):
    class Torn(io.BytesIO):
        def read(self, size=-1):
            raise OSError("the connection broke")

    with pytest.raises(OSError, match="broke"):
        deep_store.put(TABLE, "s", Torn(), token="t1")

    assert list(deep_store.files(TABLE)) == []


def test_j75_a_retired_file_stays_in_the_deleted_area_until_its_time(deep_store):
    file = deep_store.put(TABLE, "s", b"data", token="t1")

    deep_store.retire(file.path, until_ms=NOON_MS + 1)

    kept = "Deleted_Segments/orders/s__t1.parquet__RETENTION_UNTIL__202601011201"
    assert [each.path for each in deep_store.files_in_deleted_area(TABLE)] == [kept]
    assert list(deep_store.files(TABLE)) == []
    assert deep_store.tables_with_deleted_files() == ("orders",)
    assert content(deep_store, kept) == b"data"
    assert deep_store.list_expired(TABLE, now_ms=NOON_MS + 59_999) == ()
    assert deep_store.list_expired(TABLE, now_ms=NOON_MS + 60_000) == (kept,)

    assert deep_store.remove_deleted((kept,)) == ()

    assert list(deep_store.files_in_deleted_area(TABLE)) == []


def test_j75_without_retention_a_file_goes_at_once(deep_store):
    file = deep_store.put(TABLE, "s", b"data", token="t1")

    deep_store.retire(file.path, until_ms=None)

    assert list(deep_store.files(TABLE)) == list(deep_store.files_in_deleted_area(TABLE)) == []


def test_retiring_can_be_repeated(deep_store):
    file = deep_store.put(TABLE, "s", b"data", token="t1")
    for _ in range(2):
        deep_store.retire(file.path, until_ms=NOON_MS)
    deep_store.retire(file.path, until_ms=None)

    assert len(list(deep_store.files_in_deleted_area(TABLE))) == 1


def test_a_crash_while_retiring_loses_no_bytes(store):
    class DiesBeforeDelete(StoreWrapper):
        def delete(self, path):
            raise KeyboardInterrupt

    deep_store = DeepStore(store)
    file = deep_store.put(TABLE, "s", b"data", token="t1")
    with pytest.raises(KeyboardInterrupt):
        DeepStore(DiesBeforeDelete(store)).retire(file.path, until_ms=NOON_MS)
    assert content(deep_store, file.path) == b"data"

    deep_store.retire(file.path, until_ms=NOON_MS)

    (kept,) = deep_store.files_in_deleted_area(TABLE)
    assert content(deep_store, kept.path) == b"data"
    assert list(deep_store.files(TABLE)) == []


def test_what_a_killed_upload_left_is_swept(tmp_path):
    store = LocalStore(str(tmp_path / "deep"))
    deep_store = DeepStore(store)
    file = deep_store.put(TABLE, "s", b"data", token="t1")
    killed = os.fork()
    if killed == 0:
        with store.upload("orders/half__t2.parquet") as sink:
            sink.write(b"half")
            sink.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(killed, 0)

    assert [each.path for each in deep_store.files(TABLE)] == [file.path]
    deep_store.sweep_leftovers()
    assert store.leftovers() == ()
    deep_store.retire(file.path, until_ms=None)


def test_a_limited_number_of_files_expires_at_a_time(deep_store):
    for number in range(5):
        deep_store.retire(deep_store.put(TABLE, f"s{number}", b"x", token="t").path, until_ms=NOON_MS)

    assert len(deep_store.list_expired(TABLE, now_ms=NOON_MS, limit=3)) == 3


def test_a_file_whose_time_nobody_can_read_stays(deep_store, store):
    store.put("Deleted_Segments/orders/s__RETENTION_UNTIL__209913990000", b"x")
    store.put("Deleted_Segments/orders/s", b"x")

    assert deep_store.list_expired(TABLE, now_ms=2**60) == ()


def test_retention_without_end_is_the_end_of_the_calendar(deep_store):
    file = deep_store.put(TABLE, "s", b"x", token="t")

    deep_store.retire(file.path, until_ms=2**62)

    (kept,) = deep_store.files_in_deleted_area(TABLE)
    assert kept.path.endswith("__RETENTION_UNTIL__999912312359")


@pytest.mark.parametrize("path", ["orders", "Deleted_Segments/orders", "a/b/c", "Deleted_Segments/x"])
def test_only_files_of_segments_are_retired(deep_store, path):
    with pytest.raises(InvalidRequest):
        deep_store.retire(path, until_ms=None)


def test_only_the_deleted_area_is_emptied(deep_store):
    file = deep_store.put(TABLE, "s", b"x", token="t")

    with pytest.raises(InvalidRequest):
        deep_store.remove_deleted((file.path,))

    assert deep_store.stat(file.path) is not None


@pytest.mark.parametrize("name", ["../x", "a/b", "a,b", ""])
def test_a_name_that_is_no_segments_reaches_no_path(deep_store, name):
    with pytest.raises(InvalidRequest):
        deep_store.put(TABLE, name, b"x", token="t")


@pytest.mark.parametrize(
    "path", ["orders/s.parquet", "orders/readme.txt", "orders/s__t.parquet.crc", "orders/a%2__t.parquet"]
)
def test_files_that_are_none_of_a_segment_are_told_apart(path):
    assert segment_of_file(path) is None
