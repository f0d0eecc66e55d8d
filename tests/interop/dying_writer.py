"""A process of ours that is killed in the middle of a write: `PATH OPERATION ROWS AT OPTION...`.

In place of an operation and its rows, `restore` and the commit to go to.

AT is a part of the path of a file: SIGKILL comes when the first such file has been made,
with a minus in front of it right before that, with `2:` when the second one has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import pyarrow.parquet as pq

import holdfast
from harness.faults import StoreWrapper, die_by_signal
from holdfast.config.datasource import SourceWrite
from holdfast.storage.store import Store
from holdfast.timeline.ledger import Ledger


class DeadlyStore(StoreWrapper):
    def __init__(self, inner: Store, at: str) -> None:
        super().__init__(inner)
        count, _, where = at.rpartition(":")
        self._left = int(count or 1)
        self._at = where.removeprefix("-")
        self._is_before = where.startswith("-")

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        if self._at in path and verb != "delete":
            self._left -= 1
        if self._left:
            return act()
        if not self._is_before:
            act()
        die_by_signal()
        raise AssertionError("dead")


def main() -> None:
    path, operation, rows, at, *options = sys.argv[1:]
    request = SourceWrite.from_options(dict(option.split("=", 1) for option in options))
    opened = holdfast.open_table(path)._opened
    store = DeadlyStore(opened.store, at)
    table = holdfast.Table(replace(opened, store=store, ledger=Ledger(store, opened.clock)))
    if operation == "restore":
        table.restore(rows)
    else:
        getattr(table, operation)(pq.read_table(rows), options=request.options)


if __name__ == "__main__":
    main()
