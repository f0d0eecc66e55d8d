"""Watchers of records, and the thread that calls them."""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Watch:
    path: str
    changed: Callable[[], None]


class Notifier:
    """Calls watchers from a thread of its own, so that no watcher is called under a lock.

    Changes that come while a watcher is busy are merged into one call.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready = threading.Condition()
        self._watches: list[_Watch] = []
        self._due: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        watch = _Watch(path.rstrip("/"), changed)
        with self._ready:
            self._watches.append(watch)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

        def end() -> None:
            with self._ready:
                if watch in self._watches:
                    self._watches.remove(watch)

        return end

    def tell(self, paths: Iterable[str]) -> None:
        """The records at these paths changed."""
        with self._ready:
            if not self._watches:
                return
            changed = tuple(paths)
            self._make_due(watch for watch in self._watches if any(_touches(watch, path) for path in changed))

    def tell_at_or_below(self, paths: Iterable[str]) -> None:
        """Records at or below these paths changed."""
        with self._ready:
            changed = tuple(paths)
            self._make_due(
                watch
                for watch in self._watches
                if any(_touches(watch, path) or watch.path.startswith(f"{path}/") for path in changed)
            )

    def tell_all(self) -> None:
        """Anything may have changed."""
        with self._ready:
            self._make_due(self._watches)

    def close(self) -> None:
        with self._ready:
            self._is_closed = True
            self._watches.clear()
            self._ready.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _make_due(self, watches: Iterable[_Watch]) -> None:
        new = [watch for watch in watches if watch not in self._due]
        if new:
            self._due += new
            self._ready.notify_all()

    def _run(self) -> None:
        while True:
            with self._ready:
                self._ready.wait_for(lambda: self._due or self._is_closed)
                if self._is_closed:
                    return
                due, self._due = self._due, []
            for watch in due:
                self._call(watch)

    def _call(self, watch: _Watch) -> None:
        with self._ready:
            if watch not in self._watches:
                return
        try:
            watch.changed()
        except Exception as error:  # noqa: BLE001  # the loop that keeps a service alive
            log.warning("watch.failed", extra={"path": watch.path, "cause": str(error)})


def _touches(watch: _Watch, path: str) -> bool:
    return path == watch.path or path.startswith(f"{watch.path}/")
