"""Records in one SQLite file, shared by all processes of one machine.

Every write is one immediate transaction, on disk before it returns. A process
that announces or claims something keeps a session: a row with the time of its
last beat on the machine's monotonic clock. Who stops beating is gone.
"""

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from holdfast.clock import Clock, SystemClock, Timer
from holdfast.errors import (
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    StorageRefused,
    StorageUnavailable,
    TableDamaged,
)
from holdfast.push.metastore.notifier import Notifier
from holdfast.push.metastore.port import (
    RECORD_BYTES_MAX,
    Change,
    Check,
    Create,
    Remove,
    Replace,
    Versioned,
    check_changes,
    check_path,
    check_record,
    version_conflict,
)
from holdfast.storage.private import close_opened

log = logging.getLogger(__name__)

SESSION_MS = 15_000
BEAT_MS = 2_000
_TRUSTED_MS = 10_000
"""How long after its last beat a process may rely on its session."""
_POLL_MS = 50
_BUSY_MS = 20_000
_CLOCK_SLACK_MS = 60_000
"""A beat lies this far ahead only if the machine was started anew since."""
LOG_LENGTH = 10_000
_LOGGED_MAX = 100
_SYSTEM_CLOCK = SystemClock()

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS record (path TEXT PRIMARY KEY, version INTEGER NOT NULL, session TEXT,
        data BLOB NOT NULL);
    CREATE INDEX IF NOT EXISTS record_by_session ON record (session) WHERE session IS NOT NULL;
    CREATE TABLE IF NOT EXISTS sequence (last INTEGER NOT NULL);
    INSERT INTO sequence (last) SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM sequence);
    CREATE TABLE IF NOT EXISTS change (number INTEGER PRIMARY KEY, path TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, beat_ms INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS claim (name TEXT PRIMARY KEY, owner TEXT NOT NULL, session TEXT NOT NULL);
"""
_LIVES = "EXISTS (SELECT 1 FROM session WHERE session.id = {0}.session AND :now - session.beat_ms < :lasts"
_LIVES += " AND session.beat_ms - :now < :slack)"
_SEEN = f"(record.session IS NULL OR {_LIVES.format('record')})"
_READ = "SELECT data, version, session FROM record WHERE path = ?"
# The data come last in a row: asking for what is before them reads one page, however long they are.
_READ_VERSION = "SELECT version, session FROM record WHERE path = ?"
_LIVE_SESSION = "SELECT 1 FROM session WHERE id = :id AND :now - beat_ms < :lasts AND beat_ms - :now < :slack"
_BELOW = "FROM record WHERE path > :first AND path < :last AND " + _SEEN
_NOT_DONE = frozenset({"SQLITE_BUSY", "SQLITE_FULL", "SQLITE_LOCKED", "SQLITE_INTERRUPT"})
_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})


class SqliteMetastore:
    """A `Metastore` in the file at `path`; its folder must exist."""

    def __init__(
        self,
        path: "str | os.PathLike[str]",
        cluster: str,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> None:
        self._path = os.path.abspath(path)
        self._prefix = f"/{cluster}"
        check_path(self._prefix)
        self._clock = clock
        self._record_bytes_max = record_bytes_max
        self._idle: dict[bool, list[sqlite3.Connection]] = {True: [], False: []}
        """By whether what they write must survive a power cut."""
        self._connections: list[sqlite3.Connection] = []
        self._pool_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._notifier = Notifier("holdfast-metastore-sqlite")
        self._watcher: _Watcher | None = None
        self._session = _Session(self, clock)
        self._is_closed = False
        self._create()

    def read(self, path: str) -> Versioned | None:
        return self.read_all([path])[0]

    def read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        with self._reading() as connection:
            now = self._now()
            return [self._read(connection, path, now) for path in paths]

    def children(self, path: str) -> tuple[str, ...]:
        prefix = self._below(path)
        with self._reading() as connection:
            rows = connection.execute(f"SELECT path {_BELOW}", self._range(prefix))
            return tuple(sorted({below[len(prefix) :].partition("/")[0] for (below,) in rows}))

    def read_children(self, path: str) -> Mapping[str, Versioned]:
        prefix = self._below(path)
        query = f"SELECT path, data, version {_BELOW} AND instr(substr(path, :length), '/') = 0"
        with self._reading() as connection:
            rows = connection.execute(query, {**self._range(prefix), "length": len(prefix) + 1})
            return {below[len(prefix) :]: Versioned(data, version) for below, data, version in rows}

    def write(self, changes: Sequence[Change]) -> None:
        check_changes(changes, self._record_bytes_max)
        with self._writing() as connection:
            for change in changes:
                self._expect(connection, change)
            paths = [change.path for change in changes if not isinstance(change, Check)]
            version = self._next(connection, [self._prefix + path for path in paths])
            for change in changes:
                self._apply(connection, change, version)
        self._notifier.tell(paths)

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        check_path(path)
        with self._pool_lock:
            if self._watcher is None:
                self._watcher = _Watcher(self, self._notifier, self._clock)
        return self._notifier.watch(path, changed)

    def announce(self, path: str, data: bytes) -> None:
        check_record(path, data, self._record_bytes_max)
        self._session.announce(path, data)
        self._notifier.tell([path])

    def withdraw(self, path: str) -> None:
        check_path(path)
        self._session.withdraw(path)
        self._notifier.tell([path])

    def claim(self, name: str, owner: str) -> bool:
        return self._session.claim(name, owner)

    def is_connected(self) -> bool:
        return not self._is_closed and self._session.is_trusted()

    def close(self) -> None:
        with self._pool_lock:
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop()
        self._notifier.close()
        with suppress(HoldfastError):
            # If this fails the session lapses by itself.
            self._session.end()
        self._is_closed = True
        with self._pool_lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._idle = {True: [], False: []}

    def _create(self) -> None:
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            raise InvalidRequest(
                "the folder of the store does not exist", folder=folder, hint="create it first"
            )
        try:
            # The file holds who may do what, so it is for its owner only; its companions follow it.
            descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                close_opened(descriptor, self._path)
            finally:
                os.close(descriptor)
            for companion in (f"{self._path}-wal", f"{self._path}-shm"):
                _close_companion(companion)
        except OSError as error:
            raise StorageUnavailable(
                "the store cannot be opened", path=self._path, cause=error.strerror
            ) from error
        with self._errors(), self._borrow() as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application not in (0, _APPLICATION):
                raise InvalidRequest("the file is another program's", path=self._path)
            if application != _APPLICATION:
                connection.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id={_APPLICATION}; COMMIT"
                )
        _sync_folder(folder)

    def _connect(self, *, is_durable: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False
        )
        _enter_wal(connection)
        connection.execute(f"PRAGMA synchronous={'FULL' if is_durable else 'NORMAL'}")
        return connection

    @contextmanager
    def _borrow(self, *, is_durable: bool = True) -> Iterator[sqlite3.Connection]:
        with self._pool_lock:
            idle = self._idle[is_durable]
            connection = idle.pop() if idle else None
        if connection is None:
            connection = self._connect(is_durable=is_durable)
            with self._pool_lock:
                self._connections.append(connection)
        try:
            yield connection
        finally:
            if connection.in_transaction:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            with self._pool_lock:
                self._idle[is_durable].append(connection)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One moment for everything that is read inside."""
        with self._errors(), self._borrow() as connection:
            connection.execute("BEGIN")
            yield connection

    @contextmanager
    def _writing(self, *, is_durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction; its changes are on disk when the block ends, or never were.

        What need not be durable may be lost in a power cut, as a whole.
        """
        # SQLite lets waiting writers poll; threads of one process can wait better.
        with self._write_lock, self._errors(), self._borrow(is_durable=is_durable) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                name = _name_of(error)
                if name in _NOT_DONE:
                    raise
                # What reached the log may be found there after a crash.
                raise OutcomeUnknown(
                    "the store failed while it confirmed a change",
                    path=self._path,
                    cause=name,
                    hint="read the table again: it tells whether the change happened",
                ) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if self._is_closed:
            raise StorageUnavailable("the store was closed", path=self._path)
        try:
            yield
        except sqlite3.Error as error:
            if _name_of(error) in _DAMAGED:
                raise TableDamaged(
                    "the store's file is damaged",
                    path=self._path,
                    cause=str(error),
                    hint="put it back from a backup; without one, move it away and push the tables anew",
                ) from error
            if _name_of(error) == "SQLITE_FULL":
                raise StorageRefused(
                    "the disk of the store is full", path=self._path, hint="make room, then try again"
                ) from error
            raise StorageUnavailable("the store did not answer", path=self._path, cause=str(error)) from error

    def _now(self) -> dict[str, int]:
        return {"now": self._clock.monotonic_ms(), "lasts": SESSION_MS, "slack": _CLOCK_SLACK_MS}

    def _read(
        self, connection: sqlite3.Connection, path: str, now: Mapping[str, int] | None = None
    ) -> Versioned | None:
        row = connection.execute(_READ, (self._prefix + path,)).fetchone()
        if row is None:
            return None
        data, version, session = row
        return Versioned(data, version) if self._lives(connection, session, now) else None

    def _lives(
        self, connection: sqlite3.Connection, session: str | None, now: Mapping[str, int] | None = None
    ) -> bool:
        """Whether the session that a record belongs to, if to any, has not ended."""
        if session is None:
            return True
        found = connection.execute(_LIVE_SESSION, {**(now or self._now()), "id": session}).fetchone()
        return found is not None

    def _below(self, path: str) -> str:
        return f"{self._prefix}{path.rstrip('/')}/"

    def _range(self, prefix: str) -> dict[str, object]:
        # `0` comes right after `/`.
        return {**self._now(), "first": prefix, "last": f"{prefix[:-1]}0"}

    def _expect(self, connection: sqlite3.Connection, change: Change) -> None:
        found = connection.execute(_READ_VERSION, (self._prefix + change.path,)).fetchone()
        version = found[0] if found is not None and self._lives(connection, found[1]) else None
        expected = None if isinstance(change, Create) else change.version
        if version != expected:
            raise version_conflict(change.path, expected=expected, found=version)

    def _next(self, connection: sqlite3.Connection, paths: Sequence[str]) -> int:
        """The version of a write, noted down with what it changed for those who watch."""
        connection.execute("UPDATE sequence SET last = last + 1")
        (version,) = connection.execute("SELECT last FROM sequence").fetchone()
        noted = paths if len(paths) <= _LOGGED_MAX else sorted({path.rpartition("/")[0] for path in paths})
        connection.executemany("INSERT INTO change (path) VALUES (?)", [(path,) for path in noted])
        connection.execute(
            "DELETE FROM change WHERE number <= (SELECT max(number) FROM change) - ?", (LOG_LENGTH,)
        )
        return int(version)

    def _apply(self, connection: sqlite3.Connection, change: Change, version: int) -> None:
        path = self._prefix + change.path
        match change:
            case Create():
                # A lapsed announcement may still be in the place of the new record.
                self._put(connection, path, change.data, version, None)
            case Replace():
                connection.execute(
                    "UPDATE record SET data = ?, version = ? WHERE path = ?", (change.data, version, path)
                )
            case Remove():
                connection.execute("DELETE FROM record WHERE path = ?", (path,))
            case Check():
                pass

    @staticmethod
    def _put(
        connection: sqlite3.Connection, path: str, data: bytes, version: int, session: str | None
    ) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO record (path, version, session, data) VALUES (?, ?, ?, ?)",
            (path, version, session, data),
        )


class _Session:
    """What a process announced and claimed, and the beats that keep it."""

    def __init__(self, store: SqliteMetastore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._id = clock.unique()
        self._announced: dict[str, bytes] = {}
        self._timer: Timer | None = None
        self._last_beat_ms: int | None = None

    def announce(self, path: str, data: bytes) -> None:
        place = self._store._prefix + path
        with self._beating() as connection:
            self._store._put(connection, place, data, self._store._next(connection, [place]), self._id)
            self._announced[place] = data
        self._keep_beating()

    def withdraw(self, path: str) -> None:
        place = self._store._prefix + path
        with self._beating() as connection:
            self._announced.pop(place, None)
            self._store._next(connection, [place])
            connection.execute("DELETE FROM record WHERE path = ? AND session = ?", (place, self._id))

    def claim(self, name: str, owner: str) -> bool:
        with self._beating() as connection:
            key = f"{self._store._prefix}/{name}"
            lives = _LIVES.format("claim")
            holder = connection.execute(
                f"SELECT owner, session FROM claim WHERE name = :name AND {lives}",  # noqa: S608
                {**self._store._now(), "name": key},
            ).fetchone()
            if holder is None:
                connection.execute("INSERT OR REPLACE INTO claim VALUES (?, ?, ?)", (key, owner, self._id))
                holder = (owner, self._id)
        self._keep_beating()
        return bool(holder == (owner, self._id))

    def is_trusted(self) -> bool:
        last = self._last_beat_ms
        return last is None or self._clock.monotonic_ms() - last < _TRUSTED_MS

    def end(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        if self._last_beat_ms is None:
            return
        with self._lock, self._store._writing() as connection:
            self._remove_sessions(connection, [self._id])

    def _keep_beating(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = self._clock.every_ms(BEAT_MS, self._beat, name="holdfast-metastore-beat")

    def _beat(self) -> None:
        with self._beating() as connection:
            gone = connection.execute(
                "SELECT id FROM session WHERE NOT (:now - beat_ms < :lasts AND beat_ms - :now < :slack)",
                self._store._now(),
            ).fetchall()
            if gone:
                self._remove_sessions(connection, [row[0] for row in gone])

    @contextmanager
    def _beating(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is a beat too."""
        with self._lock:
            # Taken before the write that makes it count: in doubt the session ends early.
            now = self._clock.monotonic_ms()
            # No session outlives the machine, so a beat costs no sync.
            with self._store._writing(is_durable=False) as connection:
                renewed = connection.execute(
                    "UPDATE session SET beat_ms = ? WHERE id = ?", (now, self._id)
                ).rowcount
                if not renewed:
                    connection.execute("INSERT INTO session VALUES (?, ?)", (self._id, now))
                    self._announce_again(connection)
                yield connection
            self._last_beat_ms = now

    def _announce_again(self, connection: sqlite3.Connection) -> None:
        """Another process found this one silent for too long and removed what it had announced."""
        if self._announced:
            log.warning("metastore.session_lapsed", extra={"announcements": len(self._announced)})
            version = self._store._next(connection, list(self._announced))
            for place, data in self._announced.items():
                self._store._put(connection, place, data, version, self._id)

    def _remove_sessions(self, connection: sqlite3.Connection, ids: Sequence[str]) -> None:
        for id_ in ids:
            rows = connection.execute("SELECT path FROM record WHERE session = ?", (id_,)).fetchall()
            self._store._next(connection, [row[0] for row in rows])
            connection.execute("DELETE FROM record WHERE session = ?", (id_,))
            connection.execute("DELETE FROM claim WHERE session = ?", (id_,))
            connection.execute("DELETE FROM session WHERE id = ?", (id_,))


class _Watcher:
    """Looks for what other processes changed."""

    def __init__(self, store: SqliteMetastore, notifier: Notifier, clock: Clock) -> None:
        self._store = store
        self._notifier = notifier
        with store._errors():
            # A connection of its own that never writes: to it every change is another connection's.
            self._connection = store._connect(is_durable=False)
            self._data_version = self._read_data_version()
            self._number = self._last_number()
        self._timer = clock.every_ms(_POLL_MS, self._poll, name="holdfast-metastore-poll")

    def stop(self) -> None:
        self._timer.stop()
        self._connection.close()

    def _poll(self) -> None:
        data_version = self._read_data_version()
        if data_version == self._data_version:
            return
        rows = self._connection.execute(
            "SELECT number, path FROM change WHERE number > ? ORDER BY number", (self._number,)
        ).fetchall()
        if rows and rows[0][0] > self._number + 1:
            self._notifier.tell_all()
        elif rows:
            prefix = self._store._prefix
            self._notifier.tell_at_or_below(
                [path.removeprefix(prefix) for _, path in rows if path.startswith(f"{prefix}/")]
            )
        self._number = rows[-1][0] if rows else self._number
        # Last: a poll that fails is made up for by the next one.
        self._data_version = data_version

    def _read_data_version(self) -> int:
        (data_version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(data_version)

    def _last_number(self) -> int:
        (number,) = self._connection.execute("SELECT max(number) FROM change").fetchone()
        return int(number or 0)


_APPLICATION = 0x484F4C44
"""Tells a store that was set up from a file that is new."""


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Changing the mode does not wait for other processes that are doing the same."""
    deadline = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":
                raise sqlite3.OperationalError("the file system does not support write-ahead logging")
            return


def _name_of(error: sqlite3.Error) -> str:
    # What Python itself refuses has no code.
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def _close_companion(path: str) -> None:
    """As the file itself, without opening it: closing it again would end the locks of this process on it."""
    with suppress(FileNotFoundError):
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            os.chmod(path, stat.S_IMODE(found.st_mode) & 0o700)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
