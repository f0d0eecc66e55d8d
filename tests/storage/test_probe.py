"""The probe finds out what a store does not keep."""

import threading

import pytest

from harness.faults import Crash, CrashingStore, InterruptedStore, RecordingStore, StoreWrapper
from harness.world import memory_world, rows
from holdfast.clock import SystemClock
from holdfast.config.write import WriteSettings
from holdfast.errors import Refused, StorageUnavailable
from holdfast.model.names import PROBE_FOLDER, STORAGE_FOLDER
from holdfast.storage.memory import MemoryStore
from holdfast.storage.probe import StoreTraits, ensure_many_writers, probe, require_many_writers
from holdfast.storage.store import Folder


class LooksThenWrites(MemoryStore):
    """Two creates at once both find the path free; a later one does not."""

    def __init__(self) -> None:
        super().__init__()
        self._both_looked = threading.Barrier(2)

    def create(self, path: str, content: bytes) -> bool:
        if self.stat(path) is not None:
            return False
        if "/race-" in path:
            self._both_looked.wait()
        self.put(path, content)
        return True


class AlwaysWrites(MemoryStore):
    def create(self, path: str, content: bytes) -> bool:
        self.put(path, content)
        return True


class ServesOldContent(MemoryStore):
    """A read answers with the content before the last."""

    def __init__(self) -> None:
        super().__init__()
        self._old: dict[str, bytes] = {}

    def put(self, path: str, content: bytes) -> None:
        if self.stat(path) is not None:
            self._old[path] = super().read(path)
        super().put(path, content)

    def read(self, path: str) -> bytes:
        return self._old.get(path) or super().read(path)


class ListsLate(MemoryStore):
    """A listing does not know the newest file yet."""

    def create(self, path: str, content: bytes) -> bool:
        self._newest = path
        return super().create(path, content)

    def folder(self, path: str, *, after: str = "") -> Folder:
        listed = super().folder(path, after=after)
        return Folder(tuple(file for file in listed.files if file.path != self._newest), listed.folders)


class ReplacesAnything(MemoryStore):
    def replace(self, path: str, content: bytes, version: str) -> bool:
        self.put(path, content)
        return True


class CannotReplace(MemoryStore):
    def replace(self, path: str, content: bytes, version: str) -> bool:
        raise StorageUnavailable("not supported", path=path)


class IgnoresCase(MemoryStore):
    def stat(self, path: str):
        by_lower_case = {known.lower(): known for known in self.paths("")}
        return super().stat(by_lower_case.get(path.lower(), path))


@pytest.mark.parametrize(
    ("store", "lacking"),
    [
        (MemoryStore(), set()),
        (LooksThenWrites(), {"exclusive_create"}),
        (AlwaysWrites(), {"exclusive_create"}),
        (ServesOldContent(), {"read_after_write"}),
        (ListsLate(), {"list_after_write"}),
        (ReplacesAnything(), {"conditional_replace"}),
        (CannotReplace(), {"conditional_replace"}),
        (IgnoresCase(), {"case_sensitive"}),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_the_probe_finds_what_a_store_lacks(store: MemoryStore, lacking: set[str]):
    traits = probe(store, SystemClock())

    assert {name for name in StoreTraits.__slots__ if not getattr(traits, name)} == lacking
    assert store.paths("") == []


def test_a_store_without_exclusive_create_is_refused_for_many_writers():
    traits = probe(LooksThenWrites(), SystemClock())

    with pytest.raises(Refused, match="it lacks exclusive create"):
        require_many_writers(traits)


def test_the_refusal_names_everything_that_is_missing_and_only_that():
    traits = StoreTraits(
        exclusive_create=True,
        read_after_write=False,
        list_after_write=False,
        conditional_replace=False,
        case_sensitive=False,
    )

    with pytest.raises(Refused) as caught:
        require_many_writers(traits)

    assert caught.value.message == (
        "the storage is not safe for several writers: "
        "it lacks reading what was just written and listing what was just written"
    )


def test_many_writers_need_neither_conditional_replace_nor_case():
    require_many_writers(
        StoreTraits(
            exclusive_create=True,
            read_after_write=True,
            list_after_write=True,
            conditional_replace=False,
            case_sensitive=False,
        )
    )


def test_the_probe_removes_its_files_when_the_storage_fails():
    class FailsInTheMiddle(MemoryStore):
        def read_version(self, path: str):
            raise RuntimeError("broken")

    store = FailsInTheMiddle()

    with pytest.raises(RuntimeError):
        probe(store, SystemClock())

    assert store.paths("") == []


SHARED = WriteSettings.from_options({"hoodie.write.concurrency.mode": "optimistic_concurrency_control"})


def write(world, number, settings=SHARED):
    return world.write("bulk_insert", rows(f"id{number}", city="paris"), settings)


def test_a_storage_that_was_found_safe_is_not_probed_again():
    store = RecordingStore(MemoryStore())
    ensure_many_writers(store, SystemClock())
    probing, store.changes[:] = tuple(store.changes), ()

    ensure_many_writers(store, SystemClock())

    assert any(PROBE_FOLDER in change for change in probing)
    assert store.changes == []
    assert [path.rpartition("/")[0] for path in store.paths("")] == [STORAGE_FOLDER]


def test_a_copy_of_the_table_at_another_address_is_probed_anew():
    class Elsewhere(StoreWrapper):
        def uri(self, path: str) -> str:
            return f"elsewhere/{path}"

    store = MemoryStore()
    ensure_many_writers(store, SystemClock())
    copy = RecordingStore(Elsewhere(store))

    ensure_many_writers(copy, SystemClock())

    assert any(PROBE_FOLDER in change for change in copy.changes)
    assert len(store.paths(STORAGE_FOLDER)) == 2


def test_the_first_shared_write_probes_and_no_other_does():
    world = memory_world()
    world.create()
    write(world, 1, WriteSettings())
    assert world.store.paths(STORAGE_FOLDER) == []
    recorder = RecordingStore(world.store)

    write(world.on(recorder), 2)
    first, recorder.changes[:] = tuple(recorder.changes), ()
    write(world.on(recorder), 3)

    assert any(PROBE_FOLDER in change for change in first)
    assert not any(PROBE_FOLDER in change or STORAGE_FOLDER in change for change in recorder.changes)


def test_on_a_storage_that_breaks_its_promise_a_shared_write_is_refused_and_nothing_stays():
    class CreatesForEverybody(StoreWrapper):
        def create(self, path: str, content: bytes) -> bool:
            self.inner.put(path, content)
            return True

    world = memory_world()
    world.create()
    write(world, 1, WriteSettings())
    before = {path: world.store.read(path) for path in world.store.paths("")}

    with pytest.raises(Refused, match="it lacks exclusive create"):
        write(world.on(CreatesForEverybody(world.store)), 2)

    assert {path: world.store.read(path) for path in world.store.paths("")} == before


def test_what_a_killed_probe_left_goes_with_the_next_that_succeeds():
    store = MemoryStore()
    with pytest.raises(Crash):
        ensure_many_writers(CrashingStore(store, 8, after=True), SystemClock())
    store.put(f"{PROBE_FOLDER}/dead/race-0", b"first")

    ensure_many_writers(store, SystemClock())

    assert store.paths(PROBE_FOLDER) == []


def test_a_probe_whose_files_another_writer_removed_goes_by_that_writers_answer():
    store = MemoryStore()
    interrupted = InterruptedStore(
        store, f"{PROBE_FOLDER}/", lambda: ensure_many_writers(store, SystemClock()), passes=10
    )

    ensure_many_writers(interrupted, SystemClock())

    assert len(store.paths("")) == 1
