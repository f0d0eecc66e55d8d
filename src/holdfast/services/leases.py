"""Leases: a reader's claim that the files of a snapshot stay while it reads.

    file ─► notices, ledger, files looked at ─► held, renewed ─► file deleted          or it expires

A lease is a small file that says who holds which commit. Its age is measured
on storage's clock, so a reader that dies protects nothing for long. It carries
a digest: one that was changed may hold anything, so a process that would delete files
or take commits back is refused until it is whole again or gone. A reader that
lives writes it anew when it renews it.

A clean looks for leases after its CLEAN is in the ledger, and a lease looks
into the ledger after its file is there. So one of the two sees the other: the
clean leaves the files, or the lease is refused.

A stream has a lease by its name, which holds the snapshots that it goes on
from. It is no process that ends soon, so it keeps cleans away and nothing else:
commits that it has read can be taken back, which it then notices.

Taking commits back cannot be changed once it is decided, so it looks for
leases before. It puts up a notice first. A lease that finds one takes the next
slot of the ledger: the process that asked has to decide anew, and sees the lease.
"""

import datetime as dt
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from holdfast.clock import Timer
from holdfast.concurrency.storage_clock import storage_now_ms
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    Refused,
    SnapshotExpired,
    StorageUnavailable,
    TableDamaged,
    UnknownInstant,
)
from holdfast.format.ledger_entries import EntryKind
from holdfast.host import Owner
from holdfast.model.instant import Action, Instant, InstantTime, end_of, instant_time, just_before
from holdfast.model.names import LEASE_FOLDER
from holdfast.read.snapshot import Moment
from holdfast.services.clean.policy import serving_files
from holdfast.services.targets import commit_at
from holdfast.storage.store import Store, StoredFile
from holdfast.table.clean_plans import find_doomed_file
from holdfast.table.opened import OpenTable
from holdfast.table.pending import pending_services
from holdfast.table.settled import await_settled, await_settled_commit
from holdfast.table.stable_read import read_stable, timeline_and_ledger
from holdfast.table.view import has_logs, load_view, with_logs
from holdfast.timeline.ledger import Decision, LedgerState
from holdfast.timeline.timeline import Timeline, load_timeline

log = logging.getLogger(__name__)

_LEASE = ".lease"
_NOTICE = ".notice"

_TTL_MS_MIN = 1_000
_RENEWALS = 3
"""How often a lease is renewed in the time it lives."""
_GRACE_MS = 1_000
"""Object stores tell the time of a file to the second."""
_ATTEMPTS = 5


class _LeaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a lease file; the file's age is what counts."""

    owner: str
    instant: InstantTime
    pins: tuple[InstantTime, ...]
    ttl_ms: int
    process: Owner
    began_ms: int
    """For people. Never compared."""
    stream: str = ""
    """The name of the stream that goes on from here; empty if a process reads."""
    newest: InstantTime | None = None
    """Of a stream: the newest commit whose snapshot is held. The instant is the oldest."""
    digest: str = ""
    """Of all the rest and of the lease's own name; empty in files of earlier releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """A lease as others see it."""

    id: str
    owner: str
    instant: InstantTime
    """The commit whose snapshot is held."""
    process: str
    began_at: dt.datetime
    expires_at: dt.datetime
    """Unless it is renewed."""
    is_expired: bool
    stream: str = ""
    """The name of the stream that goes on from the commit; empty if a process reads it."""
    newest: InstantTime | None = None
    """Of a stream: the newest commit that it has planned to read."""


class Lease:
    """A snapshot that is held. Made by `lease`."""

    def __init__(self, table: OpenTable, stored: _LeaseFile) -> None:
        self.id = table.clock.unique()
        self.owner = stored.owner
        self.instant = stored.instant
        """The commit whose snapshot is held: read the table as of it."""
        self.ttl = dt.timedelta(milliseconds=stored.ttl_ms)
        self._store = table.store
        self._clock = table.clock
        self._content = _encode(self.id, stored)
        self._ttl_ms = stored.ttl_ms
        self._renewed_ms = 0
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"Lease(owner={self.owner!r}, instant={self.instant!r}, ttl={self.ttl!r})"

    @property
    def is_expired(self) -> bool:
        """Whether it could not be renewed in time, so that the files may be gone. It never comes back."""
        return self._clock.monotonic_ms() - self._renewed_ms > self._ttl_ms

    @property
    def _path(self) -> str:
        return f"{LEASE_FOLDER}/{self.id}{_LEASE}"

    def _begin(self) -> None:
        self._put()
        self._timer = self._clock.every_ms(
            self._ttl_ms // _RENEWALS, self._renew, name=f"holdfast-lease-{self.id}"
        )

    def _renew(self) -> None:
        if self.is_expired:
            log.warning(
                "lease.expired",
                extra={"table": self._store.uri(""), "instant": self.instant, "owner": self.owner},
            )
        else:
            self._put()

    def _put(self) -> None:
        # Counted from before the file is there, so that no process takes it for expired sooner than we do.
        began_ms = self._clock.monotonic_ms()
        self._store.put(self._path, self._content)
        self._renewed_ms = began_ms

    def _end(self) -> None:
        """Let the files go. A file that storage does not delete expires."""
        if self._timer is not None:
            self._timer.stop()
        try:
            self._store.delete(self._path)
        except StorageUnavailable as error:
            log.warning(
                "lease.not_deleted",
                extra={"table": self._store.uri(""), "instant": self.instant, "cause": str(error)},
            )


@contextmanager
def lease(
    table: OpenTable, owner: str, ttl: dt.timedelta | float, *, as_of: Moment | None = None
) -> Iterator[Lease]:
    """Hold the snapshot of a commit while the block runs, by default the newest that stays as it is.

    It is renewed in the background. `ttl`, in seconds if it is a number, is how
    long it outlives a reader that dies. `SnapshotExpired` if files of the
    snapshot are gone or are about to go, `WriterActive` if an older write is
    not decided yet, after waiting for it.
    """
    if not owner:
        raise InvalidRequest("a lease needs an owner", hint="say who reads, for those who wait for it")
    held = _grant(table, owner, _milliseconds(ttl), as_of)
    try:
        yield held
    finally:
        held._end()


def take_lease(
    table: OpenTable, owner: str, ttl: dt.timedelta | float, *, as_of: Moment | None = None
) -> LeaseStatus:
    """As `lease`, for as long as it lives: it is not renewed, and outlives this process."""
    if not owner:
        raise InvalidRequest("a lease needs an owner", hint="say who reads, for those who wait for it")
    held = _grant(table, owner, _milliseconds(ttl), as_of)
    if held._timer is not None:
        held._timer.stop()
    return next(status for status in leases(table) if status.id == held.id)


def release_lease(table: OpenTable, lease_id: str) -> None:
    """End a lease before its time. `InvalidRequest` if there is none with this id."""
    if lease_id not in {status.id for status in leases(table)}:
        raise InvalidRequest("there is no such lease", id=lease_id)
    table.store.delete(f"{LEASE_FOLDER}/{lease_id}{_LEASE}")


def hold_for_stream(table: OpenTable, stream: str, instants: Sequence[InstantTime], ttl_ms: int) -> None:
    """Hold the snapshots of some commits for a stream, and of no others, until its lease expires.

    The newest is held anew, so it is looked at: `SnapshotExpired` if a clean is removing it.
    """
    timeline = load_timeline(table.store)
    commits = {commit.time: commit for commit in timeline.completed_commits}
    known = [commits[time] for time in sorted(instants) if time in commits]
    pins = {pin for commit in known for pin in _pins(commit, timeline)}
    stored = _LeaseFile(
        owner=f"stream {stream}",
        instant=min(instants),
        pins=tuple(sorted(pins | {end_of(time) for time in instants})),
        ttl_ms=ttl_ms,
        process=table.host.owner(table.clock.unique()),
        began_ms=table.clock.now_ms(),
        stream=stream,
        newest=max(instants),
    )
    lease_id = _stream_lease_id(stream)
    table.store.put(f"{LEASE_FOLDER}/{lease_id}{_LEASE}", _encode(lease_id, stored))
    _check_held(table, max(instants))


def release_stream(table: OpenTable, stream: str) -> bool:
    """Let go of what is held for a stream; whether there was anything."""
    path = f"{LEASE_FOLDER}/{_stream_lease_id(stream)}{_LEASE}"
    was_there = table.store.stat(path) is not None
    table.store.delete(path)
    return was_there


def _stream_lease_id(stream: str) -> str:
    return f"stream-{hashlib.sha256(stream.encode()).hexdigest()[:32]}"


def leases(table: OpenTable) -> list[LeaseStatus]:
    """Every lease, oldest commit first. Changes nothing. `TableDamaged` if one cannot be read.

    For people: ages are measured on this machine's clock.
    """
    found = _read(table.store, _files(table.store, _LEASE))
    return _statuses(found, now_ms=table.clock.now_ms())


def readable_leases(table: OpenTable) -> tuple[list[LeaseStatus], list[TableDamaged]]:
    """As `leases`, and in place of those that cannot be read what is wrong with each."""
    found, damaged = _read_each(table.store, _files(table.store, _LEASE))
    return _statuses(found, now_ms=table.clock.now_ms()), damaged


def instants_under_lease(table: OpenTable) -> tuple[InstantTime, ...]:
    """What leases hold: of each file group, the newest version as of each of these times."""
    return tuple(sorted({pin for _, stored in _live(table) for pin in stored.pins}))


def refuse_if_leased(table: OpenTable, *, after: InstantTime) -> None:
    """`Refused` if somebody holds a commit after this time: they are to be taken back."""
    for file, stored in _live(table):
        if not stored.stream and end_of(stored.instant) > end_of(after):
            raise Refused(
                "a reader holds a lease on a commit that would be taken back",
                owner=stored.owner,
                process=stored.process,
                instant=stored.instant,
                expires_at=_moment(file.modified_ms + stored.ttl_ms).isoformat(timespec="seconds"),
                hint="let it finish; a reader that is gone holds it until it expires",
            )


def append_taking_back(table: OpenTable, decide: Callable[[LedgerState], Decision | None]) -> LedgerState:
    """Append a decision that takes commits back, and that calls `refuse_if_leased`.

    No lease on what it takes back is granted between that call and the decision.
    """
    notices: list[str] = []

    def announce_and_decide(state: LedgerState) -> Decision | None:
        notices.append(f"{LEASE_FOLDER}/{table.clock.unique()}{_NOTICE}")
        table.store.put(notices[-1], b"")
        return decide(state)

    try:
        state = table.ledger.append(announce_and_decide)
    except (OutcomeUnknown, StorageUnavailable):
        # The decision may take effect yet. The notices stay until a lease has won a slot.
        raise
    except HoldfastError:
        _remove_notices(table, notices)
        raise
    _remove_notices(table, notices)
    return state


def _remove_notices(table: OpenTable, notices: list[str]) -> None:
    """One that stays costs the next lease a slot, and goes then."""
    try:
        table.store.delete_all(notices)
    except StorageUnavailable as error:
        log.warning("lease.notice_not_deleted", extra={"table": table.store.uri(""), "cause": str(error)})


def _milliseconds(ttl: dt.timedelta | float) -> int:
    try:
        span = ttl if isinstance(ttl, dt.timedelta) else dt.timedelta(seconds=ttl)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest(
            "not a length of time", ttl=repr(ttl), hint="give seconds or a timedelta"
        ) from None
    ttl_ms = span // dt.timedelta(milliseconds=1)
    if ttl_ms < _TTL_MS_MIN:
        raise InvalidRequest("a lease must live for a second at least", ttl=span)
    return ttl_ms


def _grant(table: OpenTable, owner: str, ttl_ms: int, as_of: Moment | None) -> Lease:
    for _ in range(_ATTEMPTS - 1):
        try:
            return _try_grant(table, owner, ttl_ms, as_of)
        except (SnapshotExpired, UnknownInstant):
            # What was the newest commit is cleaned or taken back by now.
            if as_of is not None:
                raise
    return _try_grant(table, owner, ttl_ms, as_of)


def _try_grant(table: OpenTable, owner: str, ttl_ms: int, as_of: Moment | None) -> Lease:
    commit, timeline = _commit_to_hold(table, as_of)
    stored = _LeaseFile(
        owner=owner,
        instant=commit.time,
        pins=_pins(commit, timeline),
        ttl_ms=ttl_ms,
        process=table.host.owner(table.clock.unique()),
        began_ms=table.clock.now_ms(),
    )
    held = Lease(table, stored)
    try:
        held._begin()
        _stop_others(table, held)
        _check(table, held)
    except HoldfastError:
        held._end()
        raise
    return held


def _commit_to_hold(table: OpenTable, as_of: Moment | None) -> tuple[Instant, Timeline]:
    """The commit whose snapshot is held, which does not change any more, and a timeline that shows it."""
    if as_of is not None:
        timeline = await_settled(table, lambda now: commit_at(table, now, as_of).time)
        return commit_at(table, timeline, as_of), timeline
    settled = await_settled_commit(table)
    if settled.commit is None:
        raise Refused("there is no commit to hold", table=table.settings.name)
    return settled.commit, settled.timeline


def _pins(commit: Instant, timeline: Timeline) -> tuple[InstantTime, ...]:
    """The commit, and the moment before each older compaction or clustering that is not finished.

    It replaces versions that the snapshot consists of now, though no rows, and
    is older than the commit, so as of the commit they would not be the newest.
    Every other older write is decided.
    """
    compactions = {i.time for i in timeline.instants if i.action is Action.COMPACTION and not i.is_completed}
    unseen = {i.time for i in timeline.pending_writes} | compactions
    return (end_of(commit.time), *sorted(just_before(time) for time in unseen if time < commit.time))


def _stop_others(table: OpenTable, held: Lease) -> None:
    """Make those decide anew who looked for leases before this one was there; forget the expired ones."""
    files = table.store.folder(LEASE_FOLDER).files
    now_ms = max((file.modified_ms for file in files if file.path == held._path), default=0)
    # One that cannot be read does not matter to a caller that deletes nothing.
    readable, _ = _read_each(table.store, [file for file in files if file.path.endswith(_LEASE)])
    expired = [file.path for file, stored in readable if _is_expired(file, stored, now_ms)]
    notices = [file.path for file in files if file.path.endswith(_NOTICE)]
    if notices:
        table.ledger.append(
            lambda _: Decision(kind=EntryKind.LEASE, instant=held.instant, action=Action.COMMIT)
        )
    if expired or notices:
        table.store.delete_all([*expired, *notices])


def _check(table: OpenTable, held: Lease) -> None:
    """Whether the snapshot is whole and stays so."""
    _check_held(table, held.instant)
    if held.is_expired:
        raise Conflict("the lease expired before it was granted", ttl=held.ttl, hint="ask for a longer one")


def _check_held(table: OpenTable, instant: InstantTime) -> None:
    timeline, state = timeline_and_ledger(table)
    commits = {commit.time for commit in timeline.completed_commits}
    if instant not in commits or instant in state.aborted:
        raise UnknownInstant("the commit was taken back in the meantime", instant=instant)
    if state.is_archived(instant):
        raise UnknownInstant("the commit is being archived", instant=instant)
    files = read_stable(table.store, lambda now: _files_of(table, now, end_of(instant)))
    # Completed cleans count, too. A file that they left, because it was protected then, may still be
    # deleted by a process that fell asleep over the same plan.
    doomed = find_doomed_file(table.store, timeline, state, files)
    if doomed is not None:
        clean, file = doomed
        raise SnapshotExpired("a clean is removing this snapshot", as_of=instant, clean=clean, file=file)


def _files_of(table: OpenTable, timeline: Timeline, moment: InstantTime) -> pa.Array:
    """The files of the snapshot, log files included; every base file is there."""
    view = load_view(table.store, timeline)
    base = view.latest(moment)["base"].drop_null().combine_chunks()
    services = pending_services(table.store, timeline)
    slices = with_logs(view, services.compactions)
    if not has_logs(slices):
        return base
    serving = serving_files(slices, [moment], replaced=view.replaced, services=services)
    return pa.concat_arrays([base, serving])


def _live(table: OpenTable) -> list[tuple[StoredFile, _LeaseFile]]:
    """The leases that have not expired."""
    if not _files(table.store, _LEASE):
        return []
    # In this order: a lease that is renewed in between is not taken for older than it is.
    now_ms = storage_now_ms(table.store)
    found = _read(table.store, _files(table.store, _LEASE))
    return [(file, stored) for file, stored in found if not _is_expired(file, stored, now_ms)]


def _is_expired(file: StoredFile, stored: _LeaseFile, now_ms: int) -> bool:
    return now_ms - file.modified_ms > stored.ttl_ms + _GRACE_MS


def _statuses(found: Iterable[tuple[StoredFile, _LeaseFile]], *, now_ms: int) -> list[LeaseStatus]:
    statuses = [
        LeaseStatus(
            id=_id(file),
            owner=stored.owner,
            instant=stored.instant,
            process=str(stored.process),
            began_at=_moment(stored.began_ms),
            expires_at=_moment(file.modified_ms + stored.ttl_ms),
            is_expired=_is_expired(file, stored, now_ms),
            stream=stored.stream,
            newest=stored.newest,
        )
        for file, stored in found
    ]
    return sorted(statuses, key=lambda status: (status.instant, status.began_at, status.id))


def _files(store: Store, suffix: str) -> list[StoredFile]:
    return [file for file in store.folder(LEASE_FOLDER).files if file.path.endswith(suffix)]


def _id(file: StoredFile) -> str:
    return file.path.rpartition("/")[2].removesuffix(_LEASE)


def _read(store: Store, files: Iterable[StoredFile]) -> list[tuple[StoredFile, _LeaseFile]]:
    """What the lease files say; those that were deleted meanwhile are left out. `TableDamaged`."""
    found, damaged = _read_each(store, files)
    for error in damaged:
        raise error
    return found


def _read_each(
    store: Store, files: Iterable[StoredFile]
) -> tuple[list[tuple[StoredFile, _LeaseFile]], list[TableDamaged]]:
    """What the lease files say that can be read, and what is wrong with the others."""
    listed = list(files)
    found: list[tuple[StoredFile, _LeaseFile]] = []
    damaged: list[TableDamaged] = []
    for file, content in zip(listed, store.read_all([file.path for file in listed]), strict=True):
        try:
            if content is not None:
                found.append((file, _decode(file, content)))
        except TableDamaged as error:
            damaged.append(error)
    return found, damaged


def _encode(lease_id: str, stored: _LeaseFile) -> bytes:
    facts = msgspec.to_builtins(stored)
    return msgspec.json.encode({**facts, "digest": _digest(lease_id, facts)})


def _digest(lease_id: str, facts: Mapping[str, object]) -> str:
    """Of what a lease says, with fields of later releases, and of its name: no file passes for another."""
    said = {key: value for key, value in facts.items() if key != "digest"}
    body = msgspec.json.encode([lease_id, said], order="sorted")
    return hashlib.sha256(body).hexdigest()


def _decode(file: StoredFile, content: bytes) -> _LeaseFile:
    try:
        stored = msgspec.json.decode(content, type=_LeaseFile)
        if stored.digest and stored.digest != _digest(_id(file), msgspec.json.decode(content)):
            raise ValueError("it does not match its digest")
        for time in (stored.instant, *stored.pins):
            instant_time(time)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        # It may protect anything, so there is no guessing.
        raise TableDamaged(
            "a lease cannot be read",
            file=file.path,
            cause=error,
            hint="a reader that lives writes it anew; delete it if its reader is gone",
        ) from error
    return stored


def _moment(epoch_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC)
