"""The memory store: copies, and time that a test controls."""

from dataclasses import dataclass

from holdfast.clock import SystemClock
from holdfast.storage.memory import MemoryStore


@dataclass
class SetClock(SystemClock):
    now: int = 0

    def now_ms(self) -> int:
        return self.now


def test_a_copy_goes_its_own_way():
    store = MemoryStore()
    store.create("both", b"one")

    copy = store.copy()
    copy.create("only in the copy", b"")
    copy.put("both", b"two")
    store.create("only in the original", b"")

    assert store.paths("") == ["both", "only in the original"]
    assert copy.paths("") == ["both", "only in the copy"]
    assert (store.read("both"), copy.read("both")) == (b"one", b"two")


def test_a_version_read_before_the_copy_holds_in_both():
    store = MemoryStore()
    store.create("file", b"one")
    _, version = store.read_version("file")

    copy = store.copy()

    assert store.replace("file", b"two", version) is True
    assert copy.replace("file", b"three", version) is True
    assert (store.read("file"), copy.read("file")) == (b"two", b"three")


def test_the_clock_says_when_a_file_was_written():
    clock = SetClock()
    store = MemoryStore(clock)

    clock.now = 1_000
    store.create("file", b"")
    clock.now = 2_000

    assert store.stat("file").modified_ms == 1_000
    store.put("file", b"")
    assert store.stat("file").modified_ms == 2_000


def test_content_cannot_be_changed_behind_the_stores_back():
    store = MemoryStore()
    content = bytearray(b"one")

    store.create("file", content)
    content[:] = b"two"

    assert store.read("file") == b"one"


def test_the_uri_says_that_the_file_is_in_memory():
    assert MemoryStore().uri("day=1/file") == "memory:///day=1/file"
