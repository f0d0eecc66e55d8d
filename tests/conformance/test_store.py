"""Every store keeps the numbered promises of the port."""

import io
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import InvalidRequest
from holdfast.storage.probe import StoreTraits, probe, require_many_writers
from holdfast.storage.store import Folder, Store

RACERS = 8
T = TypeVar("T")

AWKWARD_NAMES = (
    "a",
    "a-b",
    "a.b",
    "a0",
    "#1",
    "x#1",
    "x%2Fy",
    "100%",
    "with space",
    " ends with space ",
    "q?x=1&y=2",
    "plus+plus",
    "colon:colon",
    "equals=2024-01-01",
    "<tag>&amp;",
    "'quoted' \"twice\"",
    "back\\slash",
    "star*[x]{y}",
    "tilde~",
    "caf\u00e9",
    "cafe\u0301",
    "日本語",
    "\ufffd",
    "\U0001f600",
    "\U00010000",
    "...",
    "..x",
)


def all_at_once(act: Callable[[int], T], *, count: int = RACERS) -> list[T]:
    start = threading.Barrier(count)

    def run(number: int) -> T:
        start.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def upload_and_fail(store: Store, error: Exception) -> None:
    with store.upload("data/file") as sink:
        sink.write(b"x" * 3_000_000)
        raise error


def names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


def in_byte_order(paths: Iterable[str]) -> list[str]:
    return sorted(paths, key=lambda path: path.encode())


# Promise 1


def test_promise_1_a_second_create_is_told_no_and_changes_nothing(store: Store):
    assert store.create("folder/file", b"first") is True

    assert store.create("folder/file", b"second") is False

    assert store.read("folder/file") == b"first"


def test_promise_1_create_has_one_winner_among_eight_threads(reopen: Callable[[], Store]):
    stores = [reopen() for _ in range(RACERS)]

    for race in range(10):
        path = f"race/{race}"
        won = all_at_once(lambda n, path=path: stores[n].create(path, b"%d" % n))

        assert won.count(True) == 1
        assert stores[0].read(path) == b"%d" % won.index(True)


def test_promise_1_upload_does_not_take_a_path_that_exists(store: Store):
    store.create("data/file", b"first")

    with pytest.raises(FileExistsError), store.upload("data/file") as sink:
        sink.write(b"second")

    assert store.read("data/file") == b"first"


def test_promise_1_upload_has_one_winner_among_eight_threads(store: Store):
    def upload(number: int) -> bool:
        try:
            with store.upload("data/file") as sink:
                sink.write(b"%d" % number * 1000)
        except FileExistsError:
            return False
        return True

    won = all_at_once(upload)

    assert won.count(True) == 1
    assert store.read("data/file") == b"%d" % won.index(True) * 1000


# Promise 2


def test_promise_2_a_reader_sees_only_whole_contents_while_they_are_overwritten(store: Store):
    contents = [bytes([65 + n]) * 300_000 for n in range(3)]
    store.put("file", contents[0])
    done = threading.Event()

    def keep_reading() -> list[bytes]:
        seen = []
        while not done.is_set():
            seen.append(store.read("file"))
        return seen

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(keep_reading)
        for n in range(12):
            store.put("file", contents[n % 3])
        _, version = store.read_version("file")
        store.replace("file", contents[0], version)
        done.set()
        seen = reading.result()

    assert seen
    assert set(seen) <= set(contents)


def test_promise_2_a_file_does_not_appear_before_its_upload_ends(store: Store):
    with store.upload("data/file") as sink:
        sink.write(b"x" * 3_000_000)
        sink.flush()
        before = (store.stat("data/file"), store.paths(""), store.folder("data").files)

    assert before == (None, [], ())
    assert store.stat("data/file").size == 3_000_000


def test_promise_2_nothing_appears_when_an_upload_raises(store: Store):
    with pytest.raises(RuntimeError, match="task failed"):
        upload_and_fail(store, RuntimeError("task failed"))

    assert store.paths("") == []
    assert store.leftovers() == ()


def test_an_error_of_the_operating_system_in_the_callers_own_code_passes_through_upload(store: Store):
    with pytest.raises(PermissionError, match="callers own"):
        upload_and_fail(store, PermissionError("callers own"))


# Promise 3. The syncs themselves are watched in `tests/storage/test_local_store.py`.


def test_promise_3_what_was_written_is_there_for_another_program(reopen: Callable[[], Store]):
    writer = reopen()
    writer.create("created", b"1")
    writer.put("put", b"2")
    with writer.upload("deep/down/uploaded") as sink:
        sink.write(b"3")

    reader = reopen()

    assert [(path, reader.read(path)) for path in reader.paths("")] == [
        ("created", b"1"),
        ("deep/down/uploaded", b"3"),
        ("put", b"2"),
    ]


# Promise 4


def test_promise_4_each_change_is_seen_by_the_next_read_and_listing(store: Store):
    for n in range(5):
        path = f"folder/{n}"

        store.create(path, b"old")
        assert store.read(path) == b"old"
        assert store.paths("folder")[-1] == path
        assert store.folder("folder").files[-1].path == path

        store.put(path, b"newer")
        assert store.read(path) == b"newer"
        assert store.stat(path).size == 5

    for n in range(5):
        store.delete(f"folder/{n}")
        assert f"folder/{n}" not in store.paths("folder")
        assert store.stat(f"folder/{n}") is None


# Promise 5


def test_promise_5_replace_needs_the_version_that_the_file_has(store: Store):
    store.put("file", b"one")
    content, version = store.read_version("file")

    assert content == b"one"
    assert store.replace("file", b"two", version) is True
    assert store.replace("file", b"three", version) is False
    assert store.read("file") == b"two"


def test_promise_5_replace_fails_after_somebody_put_another_content(store: Store):
    store.put("file", b"one")
    _, version = store.read_version("file")
    store.put("file", b"two")

    assert store.replace("file", b"three", version) is False
    assert store.read("file") == b"two"


def test_promise_5_replace_does_not_bring_back_a_deleted_file(store: Store):
    store.put("folder/file", b"one")
    _, version = store.read_version("folder/file")
    store.delete("folder/file")
    store.prune("")

    assert store.replace("folder/file", b"two", version) is False
    assert store.paths("") == []


def test_promise_5_replace_does_not_take_a_later_file_of_the_same_size_for_the_one_it_knew(store: Store):
    for n in range(12):
        store.create("lease", b"holder a%4d" % n)
        _, version = store.read_version("lease")
        store.delete("lease")
        store.create("lease", b"holder b%4d" % n)

        assert store.replace("lease", b"stolen", version) is False
        store.delete("lease")


def test_promise_5_replace_has_one_winner_among_eight_threads(reopen: Callable[[], Store]):
    stores = [reopen() for _ in range(RACERS)]
    stores[0].create("file", b"start")

    for race in range(10):
        _, version = stores[0].read_version("file")
        won = all_at_once(
            lambda n, version=version, race=race: stores[n].replace("file", b"%d by %d" % (race, n), version)
        )

        assert won.count(True) == 1
        assert stores[0].read("file") == b"%d by %d" % (race, won.index(True))


def test_promise_5_no_increment_is_lost_among_four_threads(store: Store):
    store.create("counter", b"0")

    def add_five(_: int) -> None:
        added = 0
        while added < 5:
            content, version = store.read_version("counter")
            added += store.replace("counter", b"%d" % (int(content) + 1), version)

    all_at_once(add_five, count=4)

    assert store.read("counter") == b"20"


# Promise 6


def test_promise_6_walk_and_paths_are_in_byte_order_of_the_whole_path(store: Store):
    paths = ["a-b", "a.b", "a/b.c/d", "a0", "a/b/c-", "é", "\U0001f600", "\uffff", "Z", "a!/x", "a/!", "a/b-"]
    paths = [f"top/{path}" for path in paths]
    random.Random(7).shuffle(paths)
    for path in paths:
        store.create(path, path.encode())

    assert store.paths("") == in_byte_order(paths)
    assert [file.path for file in store.walk("top")] == in_byte_order(paths)
    assert [file.size for file in store.walk("top")] == [len(path.encode()) for path in in_byte_order(paths)]


def test_promise_6_a_folder_lists_files_and_folders_in_byte_order_of_name(store: Store):
    for path in [
        "t/a/x",
        "t/a-b/x",
        "t/a.b/x",
        "t/é/x",
        "t/\U0001f600/x",
        "t/\uffff/x",
        "t/b",
        "t/B",
        "t/a0",
        "t/ü",
    ]:
        store.create(path, b"")

    listed = store.folder("t")

    assert names(file.path for file in listed.files) == ["B", "a0", "b", "ü"]
    assert listed.folders == ("t/a", "t/a-b", "t/a.b", "t/é", "t/\uffff", "t/\U0001f600")


def test_a_folder_is_not_confused_with_one_whose_name_it_begins(store: Store):
    for path in ["day=1/x", "day=10/x", "day=1x"]:
        store.create(path, b"")

    assert store.paths("day=1") == ["day=1/x"]
    assert store.folder("day=1").folders == ()


def test_a_folder_can_be_listed_from_a_name_on(store: Store):
    for name in ["1", "10", "2", "3", "30"]:
        store.create(f"ledger/{name}", b"entry")

    assert names(file.path for file in store.folder("ledger", after="2").files) == ["3", "30"]
    assert names(file.path for file in store.folder("ledger", after="10").files) == ["2", "3", "30"]
    assert store.folder("ledger", after="30") == Folder((), ())
    assert store.folder("ledger", after="0").files == store.folder("ledger").files


def test_a_folder_listed_from_a_name_on_still_shows_folders(store: Store):
    for path in ["a-b/x", "a/x", "b/x", "c/x", "d", "empty"]:
        store.create(f"top/{path}", b"" if path == "empty" else b"x")

    listed = store.folder("top", after="a-b")

    assert names(file.path for file in listed.files) == ["d", "empty"]
    assert listed.folders == ("top/b", "top/c")


def test_an_absent_folder_is_empty(store: Store):
    store.create("there", b"")

    assert store.paths("absent") == []
    assert list(store.walk("absent/deeper")) == []
    assert store.folder("absent") == Folder((), ())


def test_awkward_names_survive_every_verb(store: Store):
    folders = [f"top/in {name}" for name in AWKWARD_NAMES]
    paths = [f"top/in {name}/{name}" for name in AWKWARD_NAMES]

    for path in paths:
        assert store.create(path, b"one") is True
        content, version = store.read_version(path)
        assert store.replace(path, content + b" of " + path.encode(), version) is True

    assert store.paths("top") == in_byte_order(paths)
    assert store.folder("top").folders == tuple(in_byte_order(folders))
    for folder, path in zip(folders, paths, strict=True):
        assert [file.path for file in store.walk(folder)] == [path]
        assert store.read(path) == b"one of " + path.encode()
    assert store.delete_all(paths) == ()
    assert store.paths("top") == []


def test_names_that_only_look_alike_are_different_files(store: Store):
    for name in ["caf\u00e9", "cafe\u0301", "x%2Fy", "x%252Fy", "x y", "x+y", "x%20y"]:
        assert store.create(f"folder/{name}", name.encode()) is True

    assert {name: store.read(f"folder/{name}") for name in names(store.paths("folder"))} == {
        name: name.encode() for name in ["caf\u00e9", "cafe\u0301", "x%2Fy", "x%252Fy", "x y", "x+y", "x%20y"]
    }


# Promise 7


def test_promise_7_deleting_an_absent_file_succeeds(store: Store):
    store.create("folder/file", b"")

    store.delete("folder/absent")
    store.delete("absent/absent")
    store.delete("folder/file")
    store.delete("folder/file")

    assert store.delete_all(["folder/file", "absent/absent"]) == ()
    assert store.paths("") == []


def test_deleting_many_files_removes_exactly_these(store: Store):
    paths = [f"p{n % 7}/{n}" for n in range(40)]
    for path in paths:
        store.create(path, b"")

    stuck = store.delete_all(iter([*paths[:30], "absent"]))

    assert stuck == ()
    assert store.paths("") == in_byte_order(paths[30:])


def test_deleting_nothing_is_allowed(store: Store):
    assert store.delete_all([]) == ()


# Promise 8 is tested with each store's own failures, in `tests/storage`.
# Promise 9


@pytest.mark.parametrize(
    "path", ["", ".", "..", "/", "/a", "a/", "a//b", "a/./b", "a/../b", "../a", "a/..", "a\0b", "a\ud800"]
)
def test_promise_9_a_path_that_leaves_its_place_is_refused(store: Store, path: str):
    store.create("a/b", b"kept")
    verbs: dict[str, Callable[[], object]] = {
        "create": lambda: store.create(path, b""),
        "put": lambda: store.put(path, b""),
        "read": lambda: store.read(path),
        "read_version": lambda: store.read_version(path),
        "replace": lambda: store.replace(path, b"", "version"),
        "stat": lambda: store.stat(path),
        "delete": lambda: store.delete(path),
        "delete_all": lambda: store.delete_all([path]),
        "upload": lambda: store.upload(path).__enter__(),
        "open": lambda: store.open(path),
    }
    if path:
        verbs |= {
            "walk": lambda: store.walk(path),
            "paths": lambda: store.paths(path),
            "folder": lambda: store.folder(path),
            "prune": lambda: store.prune(path),
            "uri": lambda: store.uri(path),
        }

    for act in verbs.values():
        with pytest.raises(InvalidRequest, match="not a path"):
            act()

    assert store.read("a/b") == b"kept"


# Reading and writing


def test_absent_files_are_reported_as_such(store: Store):
    store.create("folder/file", b"")

    for absent in ["absent", "folder", "folder/absent", "folder/file/below"]:
        assert store.stat(absent) is None
        with pytest.raises(FileNotFoundError):
            store.read(absent)
        with pytest.raises(FileNotFoundError):
            store.read_version(absent)
        with pytest.raises(FileNotFoundError):
            store.open(absent)
        store.delete(absent)

    assert store.paths("") == ["folder/file"]


def test_an_empty_file_is_a_file(store: Store):
    store.create("marker", b"")
    with store.upload("uploaded"):
        pass

    assert store.read("marker") == b""
    assert store.stat("marker").size == 0
    assert store.read("uploaded") == b""
    assert store.paths("") == ["marker", "uploaded"]


def test_a_file_says_when_it_was_written(store: Store):
    before = SystemClock().now_ms()
    store.create("folder/file", b"12345")
    after = SystemClock().now_ms()

    found = store.stat("folder/file")

    assert (found.path, found.size) == ("folder/file", 5)
    assert before - 1000 <= found.modified_ms <= after  # Object stores tell whole seconds.
    assert list(store.walk("")) == [found]
    assert store.folder("folder").files == (found,)


def test_a_source_can_be_read_from_anywhere(store: Store):
    content = random.Random(1).randbytes(2_500_000)
    store.put("file", content)

    with store.open("file") as source:
        assert source.seekable()
        assert source.read(10) == content[:10]
        assert source.tell() == 10
        assert source.seek(-5, io.SEEK_END) == len(content) - 5
        assert source.read() == content[-5:]
        assert source.read(1) == b""
        source.seek(1_234_567)
        assert source.read(1_200_000) == content[1_234_567:2_434_567]

    assert source.closed


def test_a_sink_may_be_closed_by_whoever_writes_to_it(store: Store):
    with store.upload("file") as sink:
        sink.write(b"content")
        sink.close()

    assert store.read("file") == b"content"


def test_parquet_is_written_and_read_through_the_store(store: Store):
    table = pa.table({"id": range(50_000), "text": [f"row {n % 997}" for n in range(50_000)]})

    with store.upload("day=1/file.parquet") as sink:
        pq.write_table(table, sink, row_group_size=10_000)

    with store.open("day=1/file.parquet") as source:
        file = pq.ParquetFile(source)
        assert file.metadata.num_row_groups == 5
        assert file.read_row_group(3, columns=["id"])["id"].to_pylist() == list(range(30_000, 40_000))
        assert file.read().equals(table)
    with store.open("day=1/file.parquet") as source:
        assert pq.read_table(source, columns=["text"]).equals(table.select(["text"]))


def test_pruning_removes_no_file(store: Store):
    store.create("a/b/c/file", b"")
    store.create("a/gone/file", b"")
    store.delete("a/gone/file")

    store.prune("")
    store.prune("a/b")
    store.prune("absent")

    assert store.paths("") == ["a/b/c/file"]
    assert store.folder("a").folders == ("a/b",)


def test_a_uri_names_the_file_below_the_root(store: Store):
    assert store.uri("day=1/file") == store.uri("day=1") + "/file"
    assert store.uri("day=1").startswith(store.uri(""))


def test_every_store_is_found_safe_for_many_writers(store: Store):
    store.create("data", b"")

    traits = probe(store, SystemClock())

    assert traits == StoreTraits(
        exclusive_create=True,
        read_after_write=True,
        list_after_write=True,
        conditional_replace=True,
        case_sensitive=True,
    )
    require_many_writers(traits)
    assert store.paths("") == ["data"]


def test_many_files_are_read_in_the_order_asked_for_and_absent_ones_are_none(store):
    for name in ("a", "b", "c"):
        store.create(name, name.encode())

    assert store.read_all(["c", "missing", "a", "b"]) == [b"c", None, b"a", b"b"]
    assert store.read_all([]) == []


def test_a_folder_can_be_left_out_of_the_paths(store):
    for path in (".hoodie/a", ".hoodie/b/c", ".hoodie-like/d", "e"):
        store.create(path, b"")

    assert store.paths("", without=".hoodie") == [".hoodie-like/d", "e"]
    assert len(store.paths("")) == 4
