"""The local store: syncs, crashes, races between processes, and what a disk can refuse."""

import errno
import fcntl
import gc
import json
import os
import random
import resource
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import StorageUnavailable
from holdfast.storage.disk import Disk
from holdfast.storage.local import STAGING_FOLDER, LocalStore
from holdfast.storage.refusals import refusals
from holdfast.storage.store import Folder

STAGED = Disk(has_nameless_files=False)
UNSYNCED = Disk(sync=lambda descriptor: None)


@pytest.fixture(params=[Disk(), STAGED], ids=["nameless", "staged"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return request.param


@dataclass
class SyncLog:
    """Syncs for real, and notes what each sync found on the disk."""

    root: str
    watched: str = "day=1/file"
    entries: list[tuple[str, int, bool]] = field(default_factory=list)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        is_folder = os.path.isdir(place)
        what = os.path.relpath(place, self.root) if is_folder else "content"
        size = 0 if is_folder else os.fstat(descriptor).st_size
        self.entries.append((what, size, os.path.exists(f"{self.root}/{self.watched}")))

    def store(self, *, has_nameless_files: bool = True) -> LocalStore:
        return LocalStore(self.root, disk=Disk(sync=self.sync, has_nameless_files=has_nameless_files))


@pytest.fixture
def log(tmp_path: Path) -> SyncLog:
    return SyncLog(str(tmp_path))


# Promise 3: what was acknowledged survives a power cut


def test_promise_3_without_a_test_watching_the_disk_is_really_synced():
    assert Disk().sync is os.fsync


@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_promise_3_create_syncs_the_content_before_and_the_folder_after_it_has_a_name(
    log: SyncLog, has_nameless_files: bool
):
    store = log.store(has_nameless_files=has_nameless_files)
    store.create("day=1/other", b"")
    log.entries.clear()

    store.create("day=1/file", b"12345")

    assert log.entries == [("content", 5, False), ("day=1", 0, True)]


def test_promise_3_upload_syncs_the_content_before_and_the_folder_after_it_has_a_name(log: SyncLog):
    store = log.store()
    store.create("day=1/other", b"")
    log.entries.clear()

    with store.upload("day=1/file") as sink:
        sink.write(b"12345")

    assert log.entries == [("content", 5, False), ("day=1", 0, True)]


def test_promise_3_new_folders_are_synced_into_their_parents(log: SyncLog):
    log.watched = "a/b/c/file"

    log.store().create("a/b/c/file", b"")

    assert [what for what, _, _ in log.entries] == [".", "a", "a/b", "content", "a/b/c"]


@dataclass
class RivalFolders:
    """Another process makes each folder right before this one does, and has not synced it yet."""

    made: list[str] = field(default_factory=list)
    make: Callable[..., None] = os.mkdir

    def mkdir(self, path: str, *args: object, **known: object) -> None:
        self.make(path, *args, **known)
        self.made.append(os.path.basename(path))
        raise FileExistsError(errno.EEXIST, "another process was faster", path)


def test_promise_3_a_folder_that_another_process_made_is_synced_into_its_parent_too(
    log: SyncLog, monkeypatch: pytest.MonkeyPatch
):
    """They may not have come to it yet, and a power cut would take the folder with what is acknowledged."""
    rival = RivalFolders()
    monkeypatch.setattr(os, "mkdir", rival.mkdir)

    log.store().create("a/b/file", b"")

    assert rival.made == ["a", "b"]
    assert {".", "a", "a/b"} <= {what for what, _, _ in log.entries}


def test_a_disk_that_does_not_sync_folders_of_others_is_found(log: SyncLog, monkeypatch: pytest.MonkeyPatch):
    """The proof that the test before bites: the sync right after a folder was found there is left out."""
    really = log.sync

    def forgetful(self: RivalFolders, path: str, *args: object, **known: object) -> None:
        log.sync = lambda descriptor: setattr(log, "sync", really)
        mkdir(self, path, *args, **known)

    mkdir = RivalFolders.mkdir
    monkeypatch.setattr(RivalFolders, "mkdir", forgetful)
    monkeypatch.setattr(
        SyncLog, "store", lambda self: LocalStore(self.root, disk=Disk(sync=lambda fd: self.sync(fd)))
    )

    with pytest.raises(AssertionError):
        test_promise_3_a_folder_that_another_process_made_is_synced_into_its_parent_too(log, monkeypatch)


def test_promise_3_put_and_replace_sync_content_and_folder(log: SyncLog):
    store = log.store()
    store.put("day=1/file", b"one")
    log.entries.clear()

    store.put("day=1/file", b"three")
    store.replace("day=1/file", b"fifteen", store.read_version("day=1/file")[1])

    assert log.entries == [("content", 5, True), ("day=1", 0, True), ("content", 7, True), ("day=1", 0, True)]


def test_promise_3_delete_syncs_the_folder_when_the_name_is_gone(log: SyncLog):
    store = log.store()
    store.create("day=1/file", b"")
    log.entries.clear()

    store.delete("day=1/file")

    assert log.entries == [("day=1", 0, False)]


def test_many_files_are_deleted_with_one_sync_for_each_folder(log: SyncLog):
    store = log.store()
    paths = [f"day={n % 2}/{n}" for n in range(20)]
    for path in paths:
        store.create(path, b"")
    log.entries.clear()

    store.delete_all(paths)

    assert [what for what, _, _ in log.entries] == ["day=0", "day=1"]
    assert store.paths("") == []


def test_promise_3_the_loser_of_a_create_syncs_the_folder_because_the_winner_may_not_have(log: SyncLog):
    store = log.store()
    store.create("day=1/file", b"")
    log.entries.clear()

    assert store.create("day=1/file", b"") is False

    assert log.entries[-1] == ("day=1", 0, True)


def test_a_file_whose_content_cannot_be_synced_never_gets_its_name(tmp_path: Path):
    store = LocalStore(str(tmp_path), disk=Disk(sync=_refuse_sync))
    (tmp_path / "day=1").mkdir()

    for act in (lambda: store.create("day=1/file", b"x"), lambda: _upload(store, "day=1/file", b"x")):
        with pytest.raises(StorageUnavailable, match="did not confirm") as caught:
            act()
        assert caught.value.facts["path"] == "day=1/file"

    assert LocalStore(str(tmp_path)).paths("") == []


def test_a_folder_that_cannot_be_synced_is_an_error_even_when_many_files_are_deleted(tmp_path: Path):
    LocalStore(str(tmp_path)).create("day=1/file", b"")
    store = LocalStore(str(tmp_path), disk=Disk(sync=_refuse_sync))

    with pytest.raises(StorageUnavailable, match="did not confirm"):
        store.delete_all(["day=1/file"])


def _refuse_sync(descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _upload(store: LocalStore, path: str, content: bytes) -> None:
    with store.upload(path) as sink:
        sink.write(content)


def test_a_failed_upload_writes_nothing_into_files_opened_later(tmp_path: Path):
    """The sink outlives its descriptor, whose number the system gives to the next file."""
    kept: list[object] = []

    def fail(store: LocalStore) -> None:
        with store.upload("file") as sink:
            kept.append(sink)
            sink.write(b"not flushed yet")
            raise RuntimeError("task failed")

    with pytest.raises(RuntimeError):
        fail(LocalStore(str(tmp_path)))
    with open(tmp_path / "other", "wb") as other:
        kept.clear()
        gc.collect()
        other.write(b"other")

    assert (tmp_path / "other").read_bytes() == b"other"


# Killed processes


def kill_in_the_middle_of_an_upload(
    root: Path, *, has_nameless_files: bool, before: Callable[[], None]
) -> None:
    program = textwrap.dedent(
        f"""
        import time
        from holdfast.storage.disk import Disk
        from holdfast.storage.local import LocalStore

        store = LocalStore({str(root)!r}, disk=Disk(has_nameless_files={has_nameless_files}))
        with store.upload("day=1/file") as sink:
            sink.write(b"x" * 4_000_000)
            sink.flush()
            print("written", flush=True)
            time.sleep(600)
        """
    )
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "written\n"
        before()
    finally:
        writer.kill()
        assert writer.wait() == -signal.SIGKILL
        writer.stdout.close()


def test_promise_2_a_writer_killed_in_an_upload_leaves_nothing(tmp_path: Path):
    store = LocalStore(str(tmp_path))

    kill_in_the_middle_of_an_upload(tmp_path, has_nameless_files=True, before=lambda: None)

    assert store.paths("") == []
    assert store.leftovers() == ()
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == []


def test_promise_2_without_nameless_files_a_killed_writer_leaves_a_draft_that_is_swept(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    swept_alive: list[tuple[str, ...]] = []

    kill_in_the_middle_of_an_upload(
        tmp_path, has_nameless_files=False, before=lambda: swept_alive.append(store.sweep_leftovers())
    )

    assert swept_alive == [()]
    assert store.paths("") == []
    (draft,) = store.leftovers()
    assert draft.path.startswith(f"{STAGING_FOLDER}/{socket.gethostname()}~")
    assert draft.size == 4_000_000
    assert store.sweep_leftovers() == (draft.path,)
    assert store.leftovers() == ()
    assert store.create("day=1/file", b"") is True


def test_a_draft_of_ones_own_process_is_not_swept(tmp_path: Path):
    store = LocalStore(str(tmp_path), disk=STAGED)

    with store.upload("file") as sink:
        sink.write(b"content")
        swept = store.sweep_leftovers()

    assert swept == ()
    assert store.read("file") == b"content"


def test_sweeping_spares_the_drafts_of_other_machines_and_of_nobody(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    here = socket.gethostname()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    drafts = {
        "ours, before a restart": f"{here}~another-boot~1~a",
        "ours, under an earlier name": f"renamed~{boot}~1~b",
        "another machine's": "elsewhere~another-boot~1~c",
        "nobody's": "notes.txt",
    }
    (tmp_path / STAGING_FOLDER).mkdir(parents=True)
    for name in drafts.values():
        (tmp_path / STAGING_FOLDER / name).write_bytes(b"draft")

    store.sweep_leftovers()

    assert {file.path.rpartition("/")[2] for file in store.leftovers()} == {
        drafts["another machine's"],
        drafts["nobody's"],
    }


def test_the_staging_folder_is_outside_every_listing(tmp_path: Path):
    store = LocalStore(str(tmp_path), disk=STAGED)
    store.create(".hoodie/.holdfast/ledger/1", b"")
    with store.upload("file") as sink:
        sink.write(b"content")

        assert len(store.leftovers()) == 1
        assert store.paths("") == [".hoodie/.holdfast/ledger/1"]
        assert [file.path for file in store.walk(".hoodie")] == [".hoodie/.holdfast/ledger/1"]
        assert store.folder(".hoodie/.holdfast") == Folder((), (".hoodie/.holdfast/ledger",))
        assert store.folder(STAGING_FOLDER) == Folder((), ())
        assert store.paths(STAGING_FOLDER) == []


# Races


ROUNDS = 60

RACER = f"""
ROUNDS = {ROUNDS}
import json, sys, time
from holdfast.storage.disk import Disk
from holdfast.storage.local import LocalStore

root, number, has_nameless_files, starts_at = json.loads(sys.argv[1])
store = LocalStore(root, disk=Disk(sync=lambda descriptor: None, has_nameless_files=has_nameless_files))
"""

CREATE_IN_EVERY_ROUND = """
won = []
for race in range(ROUNDS):
    while time.time() < starts_at + race * 0.005:
        pass
    won.append(store.create(f"race/{race}", b"%d" % number))
print(json.dumps(won))
"""

ADD_TEN = """
while time.time() < starts_at:
    time.sleep(0.001)
added = 0
while added < 10:
    content, version = store.read_version("counter")
    added += store.replace("counter", b"%d" % (int(content) + 1), version)
print(json.dumps(added))
"""


def in_eight_processes(program: str, root: Path, *, has_nameless_files: bool) -> list[object]:
    starts_at = time.time() + 1
    racers = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RACER + program,
                json.dumps([str(root), n, has_nameless_files, starts_at]),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    return [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]


@pytest.mark.parametrize("has_nameless_files", [True, False])
def test_promise_1_create_has_one_winner_among_eight_processes(tmp_path: Path, has_nameless_files: bool):
    won = in_eight_processes(CREATE_IN_EVERY_ROUND, tmp_path, has_nameless_files=has_nameless_files)

    store = LocalStore(str(tmp_path))
    for race in range(ROUNDS):
        winners = [number for number in range(8) if won[number][race]]
        assert len(winners) == 1
        assert store.read(f"race/{race}") == b"%d" % winners[0]


def test_promise_5_no_increment_is_lost_among_eight_processes(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    store.create("counter", b"0")

    added = in_eight_processes(ADD_TEN, tmp_path, has_nameless_files=True)

    assert added == [10] * 8
    assert store.read("counter") == b"80"


def test_create_makes_its_folder_again_when_it_is_pruned_in_between(tmp_path: Path, disk: Disk):
    store = LocalStore(
        str(tmp_path), disk=Disk(sync=UNSYNCED.sync, has_nameless_files=disk.has_nameless_files)
    )
    done = threading.Event()

    def keep_pruning() -> None:
        while not done.is_set():
            store.prune("")

    def create_and_delete(number: int) -> int:
        created = 0
        for n in range(40):
            path = f"a/b{n % 3}/c/{number}-{n}"
            created += store.create(path, b"")
            store.put(path, b"content")
            assert store.read(path) == b"content"
            store.delete(path)
        return created

    with ThreadPoolExecutor(3) as pool:
        pruning = pool.submit(keep_pruning)
        try:
            created = list(pool.map(create_and_delete, range(2)))
        finally:
            done.set()
        pruning.result()

    assert created == [40, 40]


def test_an_upload_outlives_its_folder(tmp_path: Path, disk: Disk):
    store = LocalStore(str(tmp_path), disk=disk)

    with store.upload("day=1/hour=2/file") as sink:
        sink.write(b"content")
        store.prune("")

    assert store.read("day=1/hour=2/file") == b"content"


def test_pruning_removes_empty_folders_and_keeps_the_root(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    for folder in ["a/b/c", "a/d", "kept/e"]:
        (tmp_path / folder).mkdir(parents=True)
    store.create("kept/file", b"")

    store.prune("a/b")
    after_one = sorted(folder.name for folder in (tmp_path / "a").iterdir())
    store.prune("")

    assert after_one == ["d"]
    assert [str(found.relative_to(tmp_path)) for found in sorted(tmp_path.rglob("*"))] == [
        "kept",
        "kept/file",
    ]
    LocalStore(str(tmp_path / "kept" / "empty")).prune("")


# What a disk can refuse


def test_promise_8_a_refusal_names_the_path(tmp_path: Path, disk: Disk):
    store = LocalStore(str(tmp_path), disk=disk)
    store.create("file", b"")
    too_long = "n" * 300

    for path, act in {
        "file/below": lambda path: store.create(path, b""),
        "file/below/that": lambda path: store.put(path, b""),
        too_long: lambda path: store.delete(path),
        f"{too_long}/x": lambda path: store.stat(path),
        f"x/{too_long}": lambda path: _upload(store, path, b""),
    }.items():
        with pytest.raises(StorageUnavailable, match="storage refused") as caught:
            act(path)
        assert caught.value.facts["path"] == path


def test_promise_8_a_failing_disk_is_unavailable_storage_to_a_reader(tmp_path: Path):
    """Reading a process's memory at address 0 is a true input/output error."""
    (tmp_path / "bad-sector").symlink_to("/proc/self/mem")
    store = LocalStore(str(tmp_path))

    with pytest.raises(StorageUnavailable) as caught:
        store.read("bad-sector")
    with store.open("bad-sector") as source, pytest.raises(StorageUnavailable):
        source.read(10)

    assert caught.value.facts == {"path": "bad-sector", "cause": os.strerror(errno.EIO)}


def test_the_files_that_would_not_go_are_named(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    store.create("folder/file", b"")
    impossible = "folder/" + "n" * 300

    assert store.delete_all([impossible, "folder/file"]) == (impossible,)

    assert store.paths("") == []


CHANGES = {
    "put": lambda store: store.put("day=1/file", b"new"),
    "replace": lambda store: store.replace("day=1/file", b"new", store.read_version("day=1/file")[1]),
    "delete": lambda store: store.delete("day=1/file"),
    "delete_all": lambda store: store.delete_all(["day=1/file"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_loses_the_checksum_hadoop_keeps_beside_it(tmp_path: Path, change: str):
    """Hadoop would refuse the new content for the checksum of the old one."""
    store = LocalStore(str(tmp_path))
    for name in ("file", ".file.crc", "other", ".other.crc"):
        store.create(f"day=1/{name}", b"old")

    CHANGES[change](store)

    assert "day=1/.file.crc" not in store.paths("")
    assert store.read("day=1/.other.crc") == b"old"


def test_a_name_too_long_to_have_a_checksum_beside_it_can_change(tmp_path: Path):
    store, path = LocalStore(str(tmp_path)), "day=1/" + "n" * 253
    store.create(path, b"old")

    store.put(path, b"new")
    assert store.read(path) == b"new"
    assert store.delete_all([path]) == ()
    assert store.paths("") == []


def run_with_little_space(root: Path, act: str) -> str:
    """Run a line in a process whose files may have 100,000 bytes; what it raised."""
    program = textwrap.dedent(
        f"""
        import pyarrow, pyarrow.parquet
        from holdfast.errors import StorageUnavailable
        from holdfast.storage.disk import Disk
        from holdfast.storage.local import LocalStore

        store = LocalStore({str(root)!r}, disk=Disk(has_nameless_files={{has_nameless_files}}))
        def upload(write):
            with store.upload("file") as sink:
                write(sink)
        try:
            {act}
        except StorageUnavailable as error:
            print(f"{{type(error).__name__}}: {{error}}")
        """
    )
    outcomes = set()
    for has_nameless_files in (True, False):
        finished = subprocess.run(
            [sys.executable, "-c", program.replace("{has_nameless_files}", str(has_nameless_files))],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
            capture_output=True,
            text=True,
            check=True,
        )
        assert finished.stderr == ""
        outcomes.add(finished.stdout.strip())
    (outcome,) = outcomes
    return outcome


@pytest.mark.parametrize(
    "act",
    [
        "store.create('file', bytes(200_000))",
        "store.put('file', bytes(200_000))",
        "upload(lambda sink: [sink.write(bytes(50_000)) for _ in range(90)])",
        "upload(lambda sink: pyarrow.parquet.write_table(pyarrow.table({'n': range(900_000)}), sink))",
    ],
    ids=["create", "put", "upload", "parquet"],
)
def test_promise_8_a_file_that_finds_no_room_is_refused_and_leaves_nothing(tmp_path: Path, act: str):
    kind, _, message = run_with_little_space(tmp_path, act).partition(": ")

    assert message == f"storage refused (path: file, cause: {os.strerror(errno.EFBIG)})"
    assert kind == "StorageRefused" or "create" not in act, "whoever creates knows that nothing is there"
    assert LocalStore(str(tmp_path)).paths("") == []
    assert LocalStore(str(tmp_path)).leftovers() == ()


def test_create_knows_its_own_link_when_the_reply_was_lost(tmp_path: Path, disk: Disk):
    """NFS repeats a call whose reply was lost, and the repetition finds the name taken."""

    def link_twice(*args: object, **options: object) -> None:
        os.link(*args, **options)
        os.link(*args, **options)

    store = LocalStore(str(tmp_path), disk=Disk(link=link_twice, has_nameless_files=disk.has_nameless_files))

    assert store.create("file", b"mine") is True
    assert store.create("file", b"other") is False
    assert store.read("file") == b"mine"


def test_where_folders_cannot_be_locked_only_replace_is_refused(tmp_path: Path):
    def no_locks_on_folders(descriptor: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        fcntl.flock(descriptor, operation)

    store = LocalStore(str(tmp_path), disk=Disk(lock=no_locks_on_folders))
    store.put("file", b"one")

    with pytest.raises(StorageUnavailable, match="cannot lock a directory"):
        store.replace("file", b"two", store.read_version("file")[1])

    assert store.read("file") == b"one"
    store.delete("file")
    assert store.paths("") == []


# Listing


def test_names_that_are_not_text_are_left_out_of_listings(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    store.create("folder/é", b"")
    for name in [b"folder/\xff\xfe", b"folder/\xe9"]:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"x")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/dir\xff")).mkdir()

    assert store.paths("") == ["folder/é"]
    assert [file.path for file in store.walk("")] == ["folder/é"]
    assert [file.path for file in store.folder("folder").files] == ["folder/é"]
    assert store.folder("").folders == ("folder",)


def test_links_to_files_are_listed_and_links_to_folders_are_not_followed(tmp_path: Path):
    store = LocalStore(str(tmp_path / "table"))
    store.create("folder/file", b"12345")
    (tmp_path / "table" / "to-file").symlink_to(tmp_path / "table" / "folder" / "file")
    (tmp_path / "table" / "to-folder").symlink_to(tmp_path / "table" / "folder")
    (tmp_path / "table" / "to-nothing").symlink_to(tmp_path / "nothing")
    (tmp_path / "table" / "to-itself").symlink_to(tmp_path / "table" / "to-itself")

    assert store.paths("") == ["folder/file", "to-file"]
    assert [(file.path, file.size) for file in store.walk("")] == [("folder/file", 5), ("to-file", 5)]
    assert store.folder("").folders == ("folder",)


def test_listing_goes_on_while_files_come_and_go(tmp_path: Path):
    store = LocalStore(str(tmp_path), disk=UNSYNCED)
    for n in range(50):
        store.create(f"stays/{n:02d}", b"")
    done = threading.Event()

    def churn() -> None:
        chance = random.Random(3)
        while not done.is_set():
            path = f"stays/x{chance.randrange(20)}"
            store.create(path, b"")
            store.delete(path)

    with ThreadPoolExecutor(1) as pool:
        churning = pool.submit(churn)
        try:
            for _ in range(50):
                listed = [file.path for file in store.walk("")]
                assert [path for path in listed if "x" not in path] == [f"stays/{n:02d}" for n in range(50)]
        finally:
            done.set()
        churning.result()


def test_a_uri_is_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    assert LocalStore("table").uri("day=1/file") == f"{tmp_path}/table/day=1/file"
    assert LocalStore("/").uri("file") == "/file"


def test_parquet_can_be_written_over_many_small_writes(tmp_path: Path):
    store = LocalStore(str(tmp_path))
    table = pa.table({"n": range(5000)})

    with store.upload("file") as sink, pq.ParquetWriter(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=50):
            writer.write_batch(batch)

    assert pq.read_table(store.uri("file")).equals(table)


def test_one_that_is_stopped_while_the_disk_works_keeps_nobody_waiting(tmp_path):
    stopped, may_go_on = threading.Event(), threading.Event()

    def stop(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            stopped.set()
            assert may_go_on.wait(30)

    LocalStore(str(tmp_path)).put("folder/first", b"")
    sleeper = threading.Thread(
        target=LocalStore(str(tmp_path), disk=Disk(sync=stop)).put, args=("folder/second", b"")
    )
    sleeper.start()
    assert stopped.wait(30)

    other = threading.Thread(target=LocalStore(str(tmp_path)).delete, args=("folder/first",), daemon=True)
    other.start()
    other.join(30)
    is_done = not other.is_alive()
    may_go_on.set()
    sleeper.join()

    assert is_done


def test_a_full_disk_and_a_missing_permission_say_what_to_do():
    for number, words in ((errno.ENOSPC, "make room"), (errno.EROFS, "permissions"), (errno.EIO, "")):
        with pytest.raises(StorageUnavailable) as raised, refusals("x"):
            raise OSError(number, os.strerror(number))
        assert words in raised.value.hint


def test_nothing_behind_a_link_to_a_folder_is_listed_written_or_deleted(tmp_path: Path):
    outside = tmp_path / "outside"
    (outside / "deeper").mkdir(parents=True)
    (outside / "precious").write_bytes(b"x")
    (outside / "deeper" / "precious").write_bytes(b"x")
    store = LocalStore(str(tmp_path / "table"))
    store.create("folder/file", b"")
    (tmp_path / "table" / "link").symlink_to(outside)

    assert [store.paths(folder) for folder in ("link", "link/deeper")] == [[], []]
    assert list(store.walk("link")) == []
    assert store.folder("link") == Folder((), ())
    store.delete("link/precious")
    assert store.delete_all(["link/precious", "link/deeper/precious"]) == ()
    store.prune("link")
    (outside / "deeper" / "precious").unlink()
    store.prune("link/deeper")
    store.prune("")
    for write in (store.create, store.put):
        with pytest.raises(StorageUnavailable):
            write("link/new", b"")

    assert sorted(path.name for path in outside.rglob("*")) == ["deeper", "precious"]


def test_a_table_may_itself_lie_behind_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(str(tmp_path / "link"))

    store.create("folder/file", b"")
    store.delete("folder/file")

    assert store.paths("") == []
