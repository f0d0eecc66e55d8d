"""Entries of the ledger outlive their deletion, so that a run can be told from all of them.

A ledger is cut behind its checkpoints, some entries within a moment. Whoever
is about to delete one therefore links it into a folder first.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

from holdfast.format.ledger_entries import Entry, decode_entry
from holdfast.model.names import LEDGER_FOLDER
from holdfast.storage.local import LocalStore


@contextmanager
def keeping_entries(table: Path) -> Iterator[None]:
    """Let no deletion of this process lose an entry of the table."""
    delete_all = LocalStore.delete_all

    def linked_first(store: LocalStore, paths: Iterable[str]) -> tuple[str, ...]:
        listed = list(paths)
        _link(table, [table / path for path in listed if path.startswith(f"{LEDGER_FOLDER}/")])
        return delete_all(store, listed)

    with mock.patch.object(LocalStore, "delete_all", linked_first):
        yield


def all_entries(table: Path) -> list[Entry]:
    """Those that were deleted and those that are there; none is missing."""
    _link(table, (table / LEDGER_FOLDER).glob("*"))
    entries = [decode_entry(path.read_bytes())[0] for path in sorted(_kept(table).iterdir())]
    slots = [entry.slot for entry in entries]
    assert slots == list(range(1, len(slots) + 1)), f"entries are missing among {slots}"
    return entries


def _link(table: Path, entries: Iterable[Path]) -> None:
    _kept(table).mkdir(exist_ok=True)
    for entry in entries:
        with suppress(FileExistsError, FileNotFoundError):
            (_kept(table) / entry.name).hardlink_to(entry)


def _kept(table: Path) -> Path:
    return table.parent / "entries"
