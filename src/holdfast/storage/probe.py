"""Finding out what a store really does, before two writers trust it.

A table is probed once per address, before its first shared write. The answer
is a file in `STORAGE_FOLDER`, so a copy of the table elsewhere is probed anew.
"""

import hashlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import msgspec

from holdfast.clock import Clock
from holdfast.errors import Refused, StorageUnavailable
from holdfast.model.names import PROBE_FOLDER, STORAGE_FOLDER
from holdfast.storage.store import Store, read_or_none

log = logging.getLogger(__name__)

_RACES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTraits:
    exclusive_create: bool
    read_after_write: bool
    list_after_write: bool
    conditional_replace: bool
    case_sensitive: bool


def ensure_many_writers(store: Store, clock: Clock) -> None:
    """Refuse a store that is not safe for several writers; costs one look once it was found safe."""
    answer = f"{STORAGE_FOLDER}/{hashlib.sha256(store.uri('').encode()).hexdigest()[:16]}"
    if store.stat(answer) is not None:
        return
    traits = probe(store, clock)
    if store.stat(answer) is not None:
        # Another writer has the answer. It also removed the files of this probe, perhaps too early.
        return
    require_many_writers(traits)
    store.create(answer, msgspec.json.encode({"address": store.uri(""), **asdict(traits)}) + b"\n")
    log.info("storage.probed", extra={"table": store.uri("")})
    store.delete_all(store.paths(PROBE_FOLDER))
    store.prune(PROBE_FOLDER)


def probe(store: Store, clock: Clock) -> StoreTraits:
    """Try the store with a few small files of its own, and remove them.

    A killed probe leaves its files in a folder of their own below
    `PROBE_FOLDER`; the next probe that succeeds removes them.
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
    return read_or_none(store, path) == contents[won.index(True)]


def _reads_what_was_written(store: Store, path: str) -> bool:
    for content in (b"old", b"newer", b"newest"):
        store.put(path, content)
        if read_or_none(store, path) != content:
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
