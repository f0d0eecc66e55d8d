"""Records in ZooKeeper, at Pinot's places, for several machines.

Every write is one transaction with exact versions. A read goes to the
server that this process is connected to, which may lag behind others but never
goes back for one session; after a watch fired, a `sync` makes it catch up first.

A server takes one megabyte in one packet. What is larger is compressed, and
what is then still too large is cut into pieces, which only Holdfast reads.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from holdfast.errors import (
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    StorageUnavailable,
    TableDamaged,
)
from holdfast.format.malformed import report_damage
from holdfast.format.znode import PLAIN_BYTES_MAX, gunzip_bytes
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
from holdfast.push.metastore.zookeeper_packets import Packet, pack, piece_names, pieces_path

log = logging.getLogger(__name__)

SESSION_TIMEOUT_S = 15.0
_CONNECT_TIMEOUT_S = 15.0
_ANSWER_TIMEOUT_S = 20.0
_CLAIMS = "/HOLDFAST/CLAIMS"
_IN_FLIGHT = 200
_READ_ATTEMPTS = 100
_PIECES_LEFT_S = 3_600.0
"""How old pieces without a record must be to be removed: their writer died before the record."""
_UNDECIDED = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, KazooTimeoutError)


class _PiecesGone(Exception):
    """The record has changed since it was read, and its pieces went; or they are lost."""


class ZookeeperMetastore:
    """A `Metastore` below `<path>/<cluster>` of an ensemble.

    With `credentials`, as `user:password`, only who has the same may read or
    change what is created here; without, everybody who reaches the ensemble may.
    """

    def __init__(
        self,
        hosts: str,
        path: str,
        cluster: str,
        *,
        credentials: str | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
        answer_timeout_s: float = _ANSWER_TIMEOUT_S,
        pieces_left_s: float = _PIECES_LEFT_S,
    ) -> None:
        self._hosts = hosts
        self._root = f"{path}/{cluster}"
        check_path(self._root)
        # A command is not repeated blindly: a change that happened would look like a lost race.
        self._client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_s,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0),
            command_retry=KazooRetry(max_tries=0),
            auth_data=None if credentials is None else [("digest", credentials)],
            default_acl=None if credentials is None else CREATOR_ALL_ACL,
        )
        self._answer_timeout_s = answer_timeout_s
        self._pieces_left_s = pieces_left_s
        self._notifier = Notifier("holdfast-metastore-zookeeper")
        self._watches = _Watches(self)
        self._lock = threading.Lock()
        self._announced: dict[str, bytes] = {}
        self._losses = 0
        """How many sessions were lost."""
        self._losses_made_up = 0
        """How many were lost when everything was last announced again."""
        self._pieces: dict[str, tuple[int, tuple[str, ...]]] = {}
        """Of records that were cut, the version last seen and the names of its pieces."""
        self._start(connect_timeout_s)

    def read(self, path: str) -> Versioned | None:
        return self.read_all([path])[0]

    def read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        missing: tuple[object, ...] = ()
        for _ in range(_READ_ATTEMPTS):
            try:
                return self._read_all(paths)
            except _PiecesGone as gone:
                if gone.args == missing:
                    raise TableDamaged("pieces of a record are missing", path=missing[0]) from gone
                # All of them again: the order in which they are read is a promise.
                missing = gone.args
        raise StorageUnavailable("a record changes faster than it can be read", path=missing[0])

    def _read_all(self, paths: Sequence[str]) -> list[Versioned | None]:
        # One session's requests are answered in their order, so they need not wait for each other.
        found: list[Versioned | None] = []
        for at in range(0, len(paths), _IN_FLIGHT):
            chunk = paths[at : at + _IN_FLIGHT]
            with self._errors():
                answers = [self._client.get_async(self._node(path)) for path in chunk]
                found += [
                    self._read_answer(path, answer) for path, answer in zip(chunk, answers, strict=True)
                ]
        return found

    def children(self, path: str) -> tuple[str, ...]:
        with self._errors():
            try:
                return tuple(sorted(self._wait(self._client.get_children_async(self._node(path)))))
            except NoNodeError:
                return ()

    def read_children(self, path: str) -> Mapping[str, Versioned]:
        names = self.children(path)
        found = self.read_all([f"{path.rstrip('/')}/{name}" for name in names])
        return {name: record for name, record in zip(names, found, strict=True) if record is not None}

    def write(self, changes: Sequence[Change]) -> None:
        check_changes(changes, RECORD_BYTES_MAX)
        if not changes:
            return
        for change in changes:
            # To the server a negative version means any; here it means none.
            if not isinstance(change, Create) and change.version is not None and change.version < 0:
                raise version_conflict(
                    change.path, expected=change.version, found=self._current_version(change.path)
                )
        packet = pack(changes, self._root)
        with self._errors():
            self._make_parents(changes)
            self._put_pieces(packet)
        if not self._client.connected:
            raise self._unavailable(ConnectionLoss())
        transaction = self._client.transaction()
        operations = [operation for change in changes for operation in self._add(transaction, change, packet)]
        try:
            results = self._wait(transaction.commit_async())
        except _UNDECIDED as error:
            raise OutcomeUnknown(
                "ZooKeeper went away before it confirmed a change",
                hosts=self._hosts,
                cause=type(error).__name__,
                hint="read the table again: it tells whether the change happened",
            ) from error
        except KazooException as error:
            raise self._unavailable(error) from error
        try:
            self._check_results(operations, results)
        except HoldfastError:
            self._remove_pieces([path for pieces in packet.pieces.values() for path in pieces])
            raise
        self._follow_pieces(changes, packet)

    def watch(self, path: str, changed: Callable[[], None]) -> Callable[[], None]:
        check_path(path)
        end_telling = self._notifier.watch(path, changed)
        try:
            with self._errors():
                end_watching = self._watches.add(path)
        except HoldfastError:
            end_telling()
            raise

        def end() -> None:
            end_telling()
            end_watching()

        return end

    def announce(self, path: str, data: bytes) -> None:
        check_record(path, data, PLAIN_BYTES_MAX)
        with self._lock:
            with self._errors():
                self._put_ephemeral(path, data)
            self._announced[path] = data

    def withdraw(self, path: str) -> None:
        check_path(path)
        with self._lock:
            if self._announced.pop(path, None) is None:
                return
            with self._errors():
                self._delete_ours(self._node(path))

    def claim(self, name: str, owner: str) -> bool:
        path = f"{_CLAIMS}/{name}"
        check_path(path)
        node = self._node(path)
        with self._errors():
            try:
                self._wait(self._client.create_async(node, owner.encode(), ephemeral=True, makepath=True))
            except NodeExistsError:
                return self._holds(node, owner)
            return True

    def is_connected(self) -> bool:
        return self._losses == self._losses_made_up and self._client.state == KazooState.CONNECTED

    def close(self) -> None:
        self._client.remove_listener(self._on_state)
        self._watches.close()
        self._client.stop()
        self._client.close()
        self._notifier.close()

    def _start(self, timeout_s: float) -> None:
        try:
            self._client.start(timeout=timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            self._client.stop()
            self._client.close()
            raise self._unavailable(error) from error
        self._client.add_listener(self._on_state)

    def _on_state(self, state: str) -> None:
        """Called by the client's own thread, which must not wait for an answer."""
        if state == KazooState.LOST:
            self._losses += 1
            log.warning("metastore.session_lost", extra={"hosts": self._hosts})
        elif state == KazooState.CONNECTED:
            self._client.handler.spawn(self._return)

    def _return(self) -> None:
        """A new session knows nothing of what the lost one announced."""
        try:
            with self._lock:
                # The new session may be lost while this goes on, and its announcements are then missing.
                losses = self._losses
                if losses != self._losses_made_up:
                    for path, data in self._announced.items():
                        self._put_ephemeral(path, data)
                    self._losses_made_up = losses
            self._watches.renew()
            # Changes may have gone unheard meanwhile.
            self._notifier.tell_all()
        except (KazooException, KazooTimeoutError, HoldfastError) as error:
            # The next connection tries again.
            log.warning("metastore.session_not_renewed", extra={"cause": type(error).__name__})

    def _node(self, path: str) -> str:
        return self._root + path.rstrip("/")

    def _put_pieces(self, packet: Packet) -> None:
        for path, pieces in packet.pieces.items():
            self._wait(self._client.ensure_path_async(self._node(pieces_path(path))))
            for place, content in pieces.items():
                self._wait(self._client.create_async(self._node(place), content))

    def _follow_pieces(self, changes: Sequence[Change], packet: Packet) -> None:
        """After a write: the pieces of the versions that it replaced go, and what dead writers left."""
        for change in changes:
            if isinstance(change, Check):
                continue
            before = self._pieces.pop(change.path, None)
            if before is not None and not isinstance(change, Create) and before[0] == change.version:
                self._remove_pieces([f"{pieces_path(change.path)}/{name}" for name in before[1]])
            pieces = packet.pieces.get(change.path)
            if pieces is not None:
                version = 0 if isinstance(change, Create) else change.version + 1
                self._pieces[change.path] = (version, piece_names(packet.data[change.path]))
                self._remove_left_pieces(change.path, version, pieces)

    def _remove_left_pieces(self, path: str, version: int, named_now: Mapping[str, bytes]) -> None:
        """Remove what no version of the record names and none will."""
        folder = pieces_path(path)
        try:
            stat = self._wait(self._client.exists_async(self._node(path)))
            if stat is None or stat.version != version:
                return  # The next writer does it.
            strange = [f"{folder}/{name}" for name in self.children(folder)]
            strange = [place for place in strange if place not in named_now]
            found = [self._client.exists_async(self._node(place)) for place in strange]
            old = [
                place
                for place, answer in zip(strange, found, strict=True)
                if (piece := self._wait(answer)) is not None
                and piece.ctime < stat.mtime - self._pieces_left_s * 1000
            ]
            if not old:
                return
            # Their writer may still wake up: if the record has changed by now, nothing is removed.
            transaction = self._client.transaction()
            transaction.check(self._node(path), version=version)
            for place in old:
                transaction.delete(self._node(place), version=0)
            self._wait(transaction.commit_async())
        except (KazooException, KazooTimeoutError, HoldfastError) as error:
            log.debug("metastore.pieces_left", extra={"path": path, "cause": type(error).__name__})

    def _remove_pieces(self, places: Sequence[str]) -> None:
        """Remove pieces that nothing names; those that stay go later."""
        try:
            for answer in [self._client.delete_async(self._node(place)) for place in places]:
                self._wait(answer)
        except (KazooException, KazooTimeoutError) as error:
            log.debug("metastore.pieces_left", extra={"cause": type(error).__name__})

    def _make_parents(self, changes: Sequence[Change]) -> None:
        parents = {
            self._node(change.path).rpartition("/")[0]
            for change in changes
            if isinstance(change, Create) or (isinstance(change, Check) and change.version is None)
        }
        for parent in sorted(parents):
            self._wait(self._client.ensure_path_async(parent))

    def _add(self, transaction: Any, change: Change, packet: Packet) -> Iterator[Change]:
        """The operations of one change; as many times the change as there are operations."""
        node = self._node(change.path)
        for piece in packet.pieces.get(change.path, ()):
            # A writer whose pieces are old enough to be removed has lost.
            transaction.check(self._node(piece), version=0)
            yield change
        match change:
            case Create():
                transaction.create(node, packet.data[change.path])
            case Replace():
                transaction.set_data(node, packet.data[change.path], version=change.version)
            case Remove():
                transaction.delete(node, version=change.version)
            case Check(version=None):
                # There is no check for absence; what can be created was absent.
                transaction.create(node, b"")
                yield change
                transaction.delete(node, version=0)
            case Check():
                transaction.check(node, version=change.version)
        yield change

    def _check_results(self, operations: Sequence[Change], results: Sequence[object]) -> None:
        failures = [
            (change, result)
            for change, result in zip(operations, results, strict=True)
            if isinstance(result, Exception)
            and not isinstance(result, RolledBackError | RuntimeInconsistency)
        ]
        for change, failure in failures:
            expected = None if isinstance(change, Create) else change.version
            if isinstance(failure, BadVersionError | NoNodeError | NodeExistsError):
                raise version_conflict(
                    change.path, expected=expected, found=self._current_version(change.path)
                )
            if isinstance(failure, NotEmptyError):
                raise InvalidRequest("the record has others below it", path=change.path)
            raise self._unavailable(failure)
        assert not any(isinstance(result, Exception) for result in results), "one failure explains the others"

    def _current_version(self, path: str) -> int | None:
        """For the message only."""
        found = self.read(path)
        return None if found is None else found.version

    def _put_ephemeral(self, path: str, data: bytes) -> None:
        node = self._node(path)
        while True:
            try:
                self._wait(self._client.create_async(node, data, ephemeral=True, makepath=True))
            except NodeExistsError:
                pass
            else:
                return
            try:
                stat = self._wait(self._client.exists_async(node))
                if stat is None:
                    continue
                if stat.ephemeralOwner == self._session_id():
                    self._wait(self._client.set_async(node, data, version=stat.version))
                    return
                # Left by a session that has not ended yet, of this process or of another.
                self._wait(self._client.delete_async(node, version=stat.version))
            except (NoNodeError, BadVersionError):
                continue

    def _delete_ours(self, node: str) -> None:
        try:
            stat = self._wait(self._client.exists_async(node))
            if stat is not None and stat.ephemeralOwner == self._session_id():
                self._wait(self._client.delete_async(node, version=stat.version))
        except (NoNodeError, BadVersionError):
            pass

    def _holds(self, node: str, owner: str) -> bool:
        try:
            data, stat = self._wait(self._client.get_async(node))
        except NoNodeError:
            return False
        return bool(stat.ephemeralOwner == self._session_id() and data == owner.encode())

    def _read_answer(self, path: str, answer: Any) -> Versioned | None:
        try:
            data, stat = self._wait(answer)
        except NoNodeError:
            return None
        if not data:
            # A folder: no record is empty.
            return None
        names = piece_names(data)
        if names:
            self._pieces[path] = (stat.version, names)
            data = self._join_pieces(path, names, changed_in=stat.mzxid)
        with report_damage("a record cannot be read", path=path):
            return Versioned(gunzip_bytes(data), stat.version)

    def _join_pieces(self, path: str, names: Sequence[str], *, changed_in: int) -> bytes:
        answers = [self._client.get_async(self._node(f"{pieces_path(path)}/{name}")) for name in names]
        try:
            return b"".join(self._wait(answer)[0] for answer in answers)
        except NoNodeError:
            raise _PiecesGone(path, changed_in) from None

    def _wait(self, answer: Any) -> Any:
        return answer.get(timeout=self._answer_timeout_s)

    def _session_id(self) -> int:
        known = self._client.client_id
        return 0 if known is None else int(known[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (KazooException, KazooTimeoutError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> StorageUnavailable:
        return StorageUnavailable(
            "ZooKeeper did not answer", hosts=self._hosts, cause=str(error) or type(error).__name__
        )


class _Watches:
    """One watch of the server for each path, and one for what is directly below it.

    They fire once; then this process catches up with the leader, calls the
    watchers, and sets the watch again.
    """

    def __init__(self, store: ZookeeperMetastore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {}
        self._count = 0
        self._is_closed = False

    def add(self, path: str) -> Callable[[], None]:
        with self._lock:
            self._count += 1
            number = self._count
            self._paths[number] = path
        try:
            self._arm(path)
        except BaseException:
            self._paths.pop(number, None)
            raise
        return lambda: self._end(number)

    def _end(self, number: int) -> None:
        # The server's watch stays until it fires, and is then not renewed.
        with self._lock:
            self._paths.pop(number, None)

    def renew(self) -> None:
        with self._lock:
            paths = set(self._paths.values())
        for path in paths:
            self._arm(path)

    def close(self) -> None:
        self._is_closed = True

    def _arm(self, path: str) -> None:
        client = self._store._client
        node = self._store._node(path)
        wait = self._store._wait
        wait(client.exists_async(node, watch=self._on_event))
        try:
            below = wait(client.get_children_async(node, watch=self._on_event))
        except NoNodeError:
            return
        for answer in [client.exists_async(f"{node}/{name}", watch=self._on_event) for name in below]:
            wait(answer)

    def _on_event(self, event: Any) -> None:
        if self._is_closed or event.path is None:
            return
        # Called by the client's own thread, which must not wait for an answer.
        self._store._client.handler.spawn(self._follow, event.path)

    def _follow(self, node: str) -> None:
        path = node.removeprefix(self._store._root)
        try:
            # The writer of the change may have told this process in another way already.
            self._store._wait(self._store._client.sync_async(node))
            with self._lock:
                paths = set(self._paths.values())
                touched = [each for each in paths if path == each or path.startswith(f"{each}/")]
            for each in touched:
                self._arm(each)
        except (KazooException, KazooTimeoutError) as error:
            # When the connection is back everything is looked at again.
            log.debug("metastore.watch_not_renewed", extra={"path": path, "cause": type(error).__name__})
        self._store._notifier.tell([path])
