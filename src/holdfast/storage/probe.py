"""Finding out what a store really does, before two writers trust it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.clock import Clock
from holdfast.errors import Refused, StorageUnavailable
from holdfast.storage.store import Store

PROBE_FOLDER = ".hoodie/.holdfast/probe"

_RACES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    exclusive_create: bool
    read_after_write: bool
    list_after_write: bool
    conditional_replace: bool
    case_sensitive: bool


def probe(store: Store, clock: Clock) -> StoreTraits:
    """Try the store with a few small files of its own, and remove them.

    A killed probe leaves its files in a folder of their own below
    `PROBE_FOLDER`; they harm nobody.
    """
    folder = f"{PROBE_FOLDER}/{clock.unique()}"
    try:
        return StoreTraits(
            exclusive_create=all(_creates_once(store, f"{folder}/race-{n}") for n in range(_RACES)),
            read_after_write=_reads_what_was_written(store, f"{folder}/read"),
            list_after_write=_lists_what_was_written(store, folder),
            conditional_replace=_replaces_only_the_known(store, f"{folder}/replace"),
            case_sensitive=_tells_cases_apart(store, folder),
        )
    finally:
        store.delete_all(store.paths(folder))
        store.prune(PROBE_FOLDER)


def require_many_writers(traits: StoreTraits) -> None:
    """Refuse a store on which several writers could destroy each other's work."""
    needed = {
        "exclusive create": traits.exclusive_create,
        "reading what was just written": traits.read_after_write,
        "listing what was just written": traits.list_after_write,
    }
    missing = [name for name, is_there in needed.items() if not is_there]
    if missing:
        raise Refused(
            f"the storage is not safe for several writers: it lacks {' and '.join(missing)}",
            hint="use another storage, or one writer at a time",
        )


def _creates_once(store: Store, path: str) -> bool:
    """Whether of two creates at once, and one later, exactly one succeeds and keeps its content."""
    start = threading.Barrier(2)

    def create(content: bytes) -> bool:
        start.wait()
        return store.create(path, content)

    contents = [b"first", b"second"]
    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(create, contents))
    if won.count(True) != 1 or store.create(path, b"third"):
        return False
    return _content(store, path) == contents[won.index(True)]


def _reads_what_was_written(store: Store, path: str) -> bool:
    for content in (b"old", b"newer", b"newest"):
        store.put(path, content)
        if _content(store, path) != content:
            return False
    return True


def _lists_what_was_written(store: Store, folder: str) -> bool:
    path = f"{folder}/list"
    store.create(path, b"")
    is_listed = path in store.paths(folder) and any(file.path == path for file in store.folder(folder).files)
    store.delete(path)
    return is_listed and path not in store.paths(folder)


def _replaces_only_the_known(store: Store, path: str) -> bool:
    store.put(path, b"first")
    try:
        _, version = store.read_version(path)
        return store.replace(path, b"second", version) and not store.replace(path, b"third", version)
    except (FileNotFoundError, StorageUnavailable):
        return False


def _tells_cases_apart(store: Store, folder: str) -> bool:
    store.create(f"{folder}/case", b"")
    return store.stat(f"{folder}/CASE") is None


def _content(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path)
    except FileNotFoundError:
        return None
