"""Stores that fail on purpose: at a counted step, in a chosen way.

A step is one change of storage. Reads change nothing, so a crash around a
read is the same as a crash after the step before it.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from holdfast.errors import StorageRefused, StorageUnavailable
from holdfast.storage.store import Folder, Store, StoredFile, read_or_none


class Crash(BaseException):
    """The process died here. Not an Exception, so no handler can swallow it."""


def die_by_raising() -> None:
    raise Crash


def die_by_exit() -> None:
    os._exit(77)


def die_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class StoreWrapper:
    """Passes every call on; changes go through `_change`, reads through `_look`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        return act()

    def _look(self, verb: str, path: str, act: Callable[[], object]) -> object:
        return act()

    def create(self, path: str, content: bytes) -> bool:
        return self._change("create", path, lambda: self.inner.create(path, content))

    def put(self, path: str, content: bytes) -> None:
        self._change("put", path, lambda: self.inner.put(path, content))

    def replace(self, path: str, content: bytes, version: str) -> bool:
        return self._change("replace", path, lambda: self.inner.replace(path, content, version))

    def delete(self, path: str) -> None:
        self._change("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        for path in paths:
            self.delete(path)
        return ()

    @contextmanager
    def upload(self, path: str) -> Iterator[BinaryIO]:
        upload = self.inner.upload(path)
        sink = upload.__enter__()
        try:
            yield sink
        except BaseException as error:
            upload.__exit__(type(error), error, error.__traceback__)
            raise
        try:
            self._change("upload", path, lambda: upload.__exit__(None, None, None))
        except Crash as crash:
            upload.__exit__(Crash, crash, None)
            raise

    def read(self, path: str) -> bytes:
        return self._look("read", path, lambda: self.inner.read(path))

    def read_all(self, paths: Sequence[str]) -> list[bytes | None]:
        return [read_or_none(self, path) for path in paths]

    def read_version(self, path: str) -> tuple[bytes, str]:
        return self._look("read", path, lambda: self.inner.read_version(path))

    def stat(self, path: str) -> StoredFile | None:
        return self._look("stat", path, lambda: self.inner.stat(path))

    def walk(self, folder: str) -> Iterator[StoredFile]:
        return iter(self._look("list", folder, lambda: list(self.inner.walk(folder))))

    def paths(self, folder: str, *, without: str = "") -> list[str]:
        return self._look("list", folder, lambda: self.inner.paths(folder, without=without))

    def folder(self, path: str, *, after: str = "") -> Folder:
        return self._look("list", path, lambda: self.inner.folder(path, after=after))

    def open(self, path: str) -> BinaryIO:
        return self._look("read", path, lambda: self.inner.open(path))

    def prune(self, folder: str) -> None:
        self.inner.prune(folder)

    def leftovers(self) -> tuple[StoredFile, ...]:
        return self.inner.leftovers()

    def sweep_leftovers(self) -> tuple[str, ...]:
        return self.inner.sweep_leftovers()

    def uri(self, path: str) -> str:
        return self.inner.uri(path)


class RecordingStore(StoreWrapper):
    """Remembers every change, in order."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.changes: list[str] = []

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        self.changes.append(f"{verb} {path}")
        return act()

    def last(self, text: str) -> int:
        """The number of the last change that contains this text, counted from 1."""
        return max(number for number, change in enumerate(self.changes, 1) if text in change)


class RememberingStore(StoreWrapper):
    """Remembers what was first created below a folder, whatever becomes of it."""

    def __init__(self, inner: Store, folder: str) -> None:
        super().__init__(inner)
        self._folder = folder
        self.remembered = {path: inner.read(path) for path in inner.paths(folder)}

    def create(self, path: str, content: bytes) -> bool:
        is_created = self.inner.create(path, content)
        if is_created and path.startswith(self._folder):
            self.remembered.setdefault(path, content)
        return is_created


class CrashingStore(StoreWrapper):
    """Dies before or after its n-th change, counted from 1."""

    def __init__(
        self, inner: Store, at: int, *, after: bool, die: Callable[[], None] = die_by_raising
    ) -> None:
        super().__init__(inner)
        self._at = at
        self._after = after
        self._die = die
        self._numbers = itertools.count(1)

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        number = next(self._numbers)
        if number == self._at and not self._after:
            self._die()
        done = act()
        if number == self._at and self._after:
            self._die()
        return done


class InterruptedStore(StoreWrapper):
    """Lets something else happen right before a change of a file below `folder`: the first after `passes`."""

    def __init__(
        self, inner: Store, folder: str, meanwhile: Callable[[], object], *, passes: int = 0
    ) -> None:
        super().__init__(inner)
        self._folder = folder
        self._passes = passes
        self._meanwhile: Callable[[], object] | None = meanwhile

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        if path.startswith(self._folder) and self._meanwhile is not None:
            if self._passes == 0:
                meanwhile, self._meanwhile = self._meanwhile, None
                meanwhile()
            self._passes -= 1
        return act()


class FailingStore(StoreWrapper):
    """Answers its n-th change with an error, having applied it or not; from there on always, or once.

    `refused`: the error says that nothing was changed, as a full disk does.
    """

    def __init__(
        self, inner: Store, at: int, *, applied: bool, persistent: bool, refused: bool = False
    ) -> None:
        assert not (applied and refused), "what was refused is not applied"
        super().__init__(inner)
        self._at = at
        self._applied = applied
        self._persistent = persistent
        self._kind = StorageRefused if refused else StorageUnavailable
        self._numbers = itertools.count(1)

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        number = next(self._numbers)
        is_due = number == self._at or (self._persistent and number > self._at)
        if not is_due:
            return act()
        if self._applied:
            act()
        raise self._kind("the store failed on purpose", path=path, verb=verb)
