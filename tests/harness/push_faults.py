"""Metastores and stores that die at a counted step, or hand control away before each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.faults import Crash, StoreWrapper
from holdfast.push.metastore.port import Change, Metastore, Versioned
from holdfast.storage.store import Store


class MetastoreWrapper:
    """Passes every call on; changes go through `_change`, reads through `_look`."""

    def __init__(self, inner: Metastore) -> None:
        self.inner = inner

    def _change(self, act: Callable[[], object]) -> object:
        return act()

    def _look(self, act: Callable[[], object]) -> object:
        return act()

    def read(self, path: str) -> Versioned | None:
        return self._look(lambda: self.inner.read(path))

    def read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        # Not one moment for all of them, and the port says so.
        return [self.read(path) for path in paths]

    def children(self, path: str) -> tuple[str, ...]:
        return self._look(lambda: self.inner.children(path))

    def read_children(self, path: str) -> Mapping[str, Versioned]:
        found = {name: self.read(f"{path}/{name}") for name in self.children(path)}
        return {name: record for name, record in found.items() if record is not None}

    def write(self, changes: Sequence[Change]) -> None:
        self._change(lambda: self.inner.write(changes))

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        return self.inner.watch(path, changed)

    def announce(self, path: str, data: bytes) -> None:
        self._change(lambda: self.inner.announce(path, data))

    def withdraw(self, path: str) -> None:
        self._change(lambda: self.inner.withdraw(path))

    def claim(self, name: str, owner: str) -> bool:
        return self._look(lambda: self.inner.claim(name, owner))

    def is_connected(self) -> bool:
        return self.inner.is_connected()

    def close(self) -> None:
        self.inner.close()


class Steps:
    """Counts the changes of a metastore and a store together, and dies before the one that is told."""

    def __init__(self, dies_before: int | None = None) -> None:
        self.taken = 0
        self._dies_before = dies_before

    def change(self, act: Callable[[], object]) -> object:
        if self.taken == self._dies_before:
            raise Crash
        self.taken += 1
        return act()


class CountedMetastore(MetastoreWrapper):
    def __init__(self, inner: Metastore, steps: Steps) -> None:
        super().__init__(inner)
        self._steps = steps

    def _change(self, act: Callable[[], object]) -> object:
        return self._steps.change(act)


class CountedStore(StoreWrapper):
    def __init__(self, inner: Store, steps: Steps) -> None:
        super().__init__(inner)
        self._steps = steps

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        return self._steps.change(act)


class SteppingMetastore(MetastoreWrapper):
    """Hands control back to the explorer before every step."""

    def __init__(self, inner: Metastore, pause: Callable[[], None]) -> None:
        super().__init__(inner)
        self._pause = pause

    def _change(self, act: Callable[[], object]) -> object:
        self._pause()
        return act()

    def _look(self, act: Callable[[], object]) -> object:
        self._pause()
        return act()

    def read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        """One step: what lies between two reads is explored by `FineMetastore`."""
        return self._look(lambda: self.inner.read_all(paths))

    def read_children(self, path: str) -> Mapping[str, Versioned]:
        return self._look(lambda: self.inner.read_children(path))


class FineMetastore(SteppingMetastore):
    """Hands control back before every single record, too."""

    read_all = MetastoreWrapper.read_all
    read_children = MetastoreWrapper.read_children
