"""The ledger: one append-only list of decisions per table.

The timeline shows what happened; the ledger decides it. Entries are created
exclusively in numbered slots, so all processes agree on one order. The
outcome of an instant is the first COMMIT or ABORT that names it:

    (no entry) ──BEGIN──► undecided ──COMMIT──► committed ──REVOKE──► aborted
                              └──────ABORT, REVOKE──────────────────────►┘

A commit stands until a REVOKE takes it back: a rollback of the newest commit,
or a restore, which takes undecided writes with it.

A CLEAN says that the files of a stored plan may go: whoever wants to rely on
one of them afterwards is refused.

An ARCHIVE says that the commits up to its instant leave the timeline. None of
them is undecided, so none can be aborted afterwards.

A checkpoint holds what all entries before it say. Entries that lie far enough
behind one are deleted. First the floor is raised above them, and it never
sinks. Whoever slept through that would take the hole for the ledger's end; so
what was found at the end, or put there, counts only if the floor lies below.

A decision is a function from the state so far to the next entry. It runs
again whenever another process took the slot, so whatever it checked still
holds in the slot it wins.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast.clock import Clock
from holdfast.errors import Conflict, OutcomeUnknown, StorageRefused, StorageUnavailable, TableDamaged
from holdfast.format.ledger_entries import (
    Entry,
    EntryKind,
    Revoked,
    decode_checkpoint,
    decode_entry,
    digest_of,
    encode_checkpoint,
    encode_entry,
)
from holdfast.format.malformed import Malformed
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime
from holdfast.model.names import CHECKPOINT_FOLDER, LEDGER_FLOOR, LEDGER_FOLDER
from holdfast.storage.store import Store

_CHECKPOINT_AFTER = 50
_ATTEMPTS_ON_ERROR = 3


@dataclass(frozen=True, slots=True)
class Begun:
    action: Action
    owner: Owner
    slot: int
    shared: bool = False
    """Whether the writer admits others at the same time."""


@dataclass(frozen=True, slots=True)
class Committed:
    action: Action
    slot: int


@dataclass(frozen=True, slots=True)
class Aborted:
    action: Action
    rollback: InstantTime
    reason: str
    revoked_by: InstantTime | None = None
    """The rollback or restore that took it back; None if it was never committed."""
    restore: InstantTime | None = None
    """The restore that its rollback is part of."""


@dataclass(frozen=True, slots=True)
class Restoring:
    instant: InstantTime
    to: InstantTime


@dataclass(frozen=True, slots=True)
class Archiving:
    until: InstantTime
    """The newest commit that leaves the timeline. It and all older instants are decided."""
    slot: int


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the entries up to `slot` say. Slot 0 is before the first entry."""

    slot: int = 0
    digest: str = ""
    newest: InstantTime | None = None
    """The greatest time ever given out, for writes and for rollbacks."""
    begun: Mapping[InstantTime, Begun] = field(default_factory=dict)
    committed: Mapping[InstantTime, Committed] = field(default_factory=dict)
    """Since the last checkpoint; what lies before it is published."""
    aborted: Mapping[InstantTime, Aborted] = field(default_factory=dict)
    """For the table's life: files that appear late must still be recognised."""
    restore: Restoring | None = None
    """The newest restore; the timeline tells whether it is completed."""
    savepoints: Mapping[InstantTime, int] = field(default_factory=dict)
    """Savepointed commit → slot."""
    cleans: Mapping[InstantTime, InstantTime | None] = field(default_factory=dict)
    """Clean → the earliest commit that it leaves whole. The timeline tells which of them are completed."""
    archive: Archiving | None = None
    """The newest decision to archive; the timeline tells whether it is carried out."""

    def is_archived(self, time: InstantTime) -> bool:
        """Whether an instant that the timeline does not show was decided, and archived since."""
        return self.archive is not None and time <= self.archive.until

    def after(self, entry: Entry, digest: str) -> "LedgerState":
        """The state with one more entry."""
        begun, committed, aborted = dict(self.begun), dict(self.committed), dict(self.aborted)
        savepoints, cleans, restore = dict(self.savepoints), dict(self.cleans), self.restore
        archive = self.archive
        time = entry.instant
        is_decided = time in committed or time in aborted
        match entry.kind:
            case EntryKind.BEGIN:
                assert entry.owner is not None, "BEGIN names its owner"
                begun[time] = Begun(entry.action, entry.owner, entry.slot, entry.shared)
            case EntryKind.COMMIT if not is_decided:
                begun.pop(time, None)
                committed[time] = Committed(entry.action, entry.slot)
            case EntryKind.ABORT if not is_decided:
                assert entry.rollback is not None, "ABORT names its rollback"
                begun.pop(time, None)
                aborted[time] = Aborted(entry.action, entry.rollback, entry.reason)
            case EntryKind.REVOKE:
                if entry.restored_to is not None:
                    restore = Restoring(time, entry.restored_to)
                by_restore = time if entry.restored_to is not None else None
                for one in entry.revoked:
                    was_begun = begun.pop(one.instant, None) is not None
                    committed.pop(one.instant, None)
                    aborted[one.instant] = Aborted(
                        one.action, one.rollback, entry.reason, None if was_begun else time, by_restore
                    )
            case EntryKind.SAVEPOINT:
                savepoints[time] = entry.slot
            case EntryKind.RELEASE:
                savepoints.pop(time, None)
            case EntryKind.CLEAN:
                cleans[time] = entry.earliest
            case EntryKind.ARCHIVE:
                archive = Archiving(time, entry.slot)
        times = [self.newest, time, entry.rollback, *(one.rollback for one in entry.revoked)]
        return replace(
            self,
            slot=entry.slot,
            digest=digest,
            newest=max(t for t in times if t is not None),
            begun=begun,
            committed=committed,
            aborted=aborted,
            restore=restore,
            savepoints=savepoints,
            cleans=cleans,
            archive=archive,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to write into the next slot."""

    kind: EntryKind
    instant: InstantTime
    action: Action
    owner: Owner | None = None
    operation: str = ""
    shared: bool = False
    rollback: InstantTime | None = None
    revoked: tuple[Revoked, ...] = ()
    restored_to: InstantTime | None = None
    earliest: InstantTime | None = None
    reason: str = ""
    payload: bytes = b""


class Ledger:
    """The ledger of one table, as far as this process has read it."""

    def __init__(self, store: Store, clock: Clock, *, checkpoint_after: int = _CHECKPOINT_AFTER) -> None:
        """`checkpoint_after`: commits since the last checkpoint that make the next one due."""
        self._store = store
        self._clock = clock
        self._checkpoint_after = checkpoint_after
        self._state: LedgerState | None = None

    def read(self) -> LedgerState:
        """Read to the end: everything appended before this call is in the result."""
        state = self._read_on()
        while (floor := self._floor()) > state.slot:
            self._state = None
            state = self._read_on()
            if floor > state.slot:
                # It was raised no higher than a checkpoint that is there, or has a later one.
                raise TableDamaged("the ledger ends below its floor", file=LEDGER_FLOOR, ends=state.slot)
        return state

    def _read_on(self) -> LedgerState:
        """Read on until there is no next entry, which is the end unless that one was trimmed."""
        state = self._state or self._newest_checkpoint()
        while True:
            try:
                content = self._store.read(_slot_path(state.slot + 1))
            except FileNotFoundError:
                break
            state = _folded(state, content)
        self._state = state
        return state

    def append(self, decide: Callable[[LedgerState], Decision | None]) -> LedgerState:
        """Write the decision into the next free slot, deciding anew each time the slot is lost.

        Returns the state that ends with the new entry, or the state that made
        `decide` return None. Raises `OutcomeUnknown` if storage fails so that
        nobody can tell whether the entry was written: nothing may be deleted then.
        """
        while True:
            state = self.read()
            decision = decide(state)
            if decision is None:
                return state
            entry = Entry(
                slot=state.slot + 1,
                previous=state.digest,
                kind=decision.kind,
                token=self._clock.unique(),
                instant=decision.instant,
                action=decision.action,
                written_at_ms=self._clock.now_ms(),
                owner=decision.owner,
                operation=decision.operation,
                shared=decision.shared,
                rollback=decision.rollback,
                revoked=decision.revoked,
                restored_to=decision.restored_to,
                earliest=decision.earliest,
                reason=decision.reason,
            )
            content = encode_entry(entry, decision.payload)
            if self._create(_slot_path(entry.slot), content):
                written = state.after(entry, digest_of(content))
                if self._floor() < entry.slot:
                    self._state = written
                    return written
                standing = self._standing(entry)
                if standing is not None:
                    return standing

    def _standing(self, entry: Entry) -> LedgerState | None:
        """The state now, if an entry that was trimmed at once is a COMMIT that stands.

        This process slept, either before it wrote, and filled a hole, or after
        it, and the entry was trimmed in its turn. The floor passes no BEGIN that
        is undecided. So a write that was not aborted was committed, and any
        other decision can be made anew.
        """
        self._state = None
        state = self.read()
        if entry.slot not in _referred_to(state):
            self._store.delete(_slot_path(entry.slot))
        if entry.kind is not EntryKind.COMMIT or entry.instant in state.aborted:
            return None
        assert entry.instant not in state.begun, "the floor passes no BEGIN that is undecided"
        committed = {**state.committed, entry.instant: Committed(entry.action, entry.slot)}
        return replace(state, committed=committed)

    def payload(self, slot: int) -> bytes:
        """The payload of an entry, e.g. the commit metadata of a COMMIT."""
        return self._entry(slot)[1]

    def between(self, after: int, last: int) -> Iterator[tuple[Entry, bytes]]:
        """The entries of the slots in (after, last], each with its payload.

        `Conflict` if some of them were trimmed: whoever asks has slept for long.
        """
        try:
            found = [self._entry(slot) for slot in range(after + 1, last + 1)]
        except TableDamaged:
            self._refuse_if_trimmed(after)
            raise
        if found:
            self._refuse_if_trimmed(after)
        yield from found

    def _refuse_if_trimmed(self, after: int) -> None:
        if self._floor() > after:
            raise Conflict(
                "the ledger was trimmed in the meantime", after=after, hint="look at the table again"
            )

    def _entry(self, slot: int) -> tuple[Entry, bytes]:
        path = _slot_path(slot)
        try:
            return decode_entry(self._store.read(path))[:2]
        except (FileNotFoundError, Malformed) as error:
            raise TableDamaged("ledger entry cannot be read", file=path, cause=error) from error

    def checkpoint_if_due(self, state: LedgerState, *, cleaned: Collection[InstantTime] = ()) -> None:
        """Store `state`, whose commits are all published, so that readers start there; trim what is behind.

        Cleans that are completed, as `cleaned` names them, are left out. It does
        not matter who writes a checkpoint first: what they may differ in is on
        the timeline.
        """
        if len(state.committed) < self._checkpoint_after:
            return
        pending = {time: earliest for time, earliest in state.cleans.items() if time not in cleaned}
        trimmed = replace(state, committed={}, cleans=pending)
        self._store.create(_checkpoint_path(state.slot), encode_checkpoint(trimmed))
        if self._state is state:
            self._state = trimmed
        self._trim(trimmed)

    def _trim(self, state: LedgerState) -> None:
        """Delete the entries up to the checkpoint before the one of `state`, and older checkpoints.

        Entries that something still refers to stay: those since the BEGIN of
        an undecided write, savepoints, and the newest decision to archive.
        """
        older = [file.path for file in self._store.folder(CHECKPOINT_FOLDER).files]
        older = [path for path in older if path < _checkpoint_path(state.slot)]
        if not older:
            return
        begun = (one.slot - 1 for one in state.begun.values())
        floor = min((int(older[-1].rpartition("/")[2]), *begun))
        self._raise_floor(floor)
        kept = set(map(_slot_path, _referred_to(state)))
        entries = (file.path for file in self._store.folder(LEDGER_FOLDER).files)
        behind = [path for path in entries if path <= _slot_path(floor) and path not in kept]
        self._store.delete_all([*behind, *older[:-1]])

    def _floor(self) -> int:
        """Entries up to here may be deleted, or false."""
        try:
            return int(self._store.read(LEDGER_FLOOR))
        except FileNotFoundError:
            return 0
        except ValueError as error:
            raise TableDamaged("the ledger's floor cannot be read", file=LEDGER_FLOOR, cause=error) from error

    def _raise_floor(self, slot: int) -> None:
        """Raise the floor to the slot. It never sinks, whoever comes late."""
        content = b"%d" % slot
        while self._floor() < slot:
            if self._store.create(LEDGER_FLOOR, content):
                return
            known, version = self._store.read_version(LEDGER_FLOOR)
            if int(known) < slot:
                self._store.replace(LEDGER_FLOOR, content, version)

    def _create(self, path: str, content: bytes) -> bool:
        """Whether the slot is ours. An error is answered by asking again, never by a guess.

        The same bytes are offered again: a slot holds either our entry, in
        which case it is ours whoever reported what, or somebody else's.
        """
        failures: list[StorageUnavailable] = []
        for _ in range(_ATTEMPTS_ON_ERROR):
            try:
                return self._store.create(path, content) or self._store.read(path) == content
            except FileNotFoundError as error:
                raise TableDamaged("a ledger entry vanished", file=path) from error
            except StorageUnavailable as error:
                failures.append(error)
        if all(isinstance(failure, StorageRefused) for failure in failures):
            raise failures[-1]
        raise OutcomeUnknown(
            "storage failed while a decision was written",
            file=path,
            cause=failures[-1],
            hint="nothing was deleted; the next operation on the table finds out and goes on",
        ) from failures[-1]

    def _newest_checkpoint(self) -> LedgerState:
        while True:
            files = self._store.folder(CHECKPOINT_FOLDER).files
            if not files:
                return LedgerState()
            path = files[-1].path
            try:
                return decode_checkpoint(self._store.read(path), LedgerState)
            except FileNotFoundError:
                continue  # There are newer ones by now.
            except Malformed as error:
                raise TableDamaged("ledger checkpoint cannot be read", file=path, cause=error) from error


def _referred_to(state: LedgerState) -> set[int]:
    """The slots whose payload is needed as long as the state says so."""
    archives = () if state.archive is None else (state.archive.slot,)
    return {*state.savepoints.values(), *archives}


def _folded(state: LedgerState, content: bytes) -> LedgerState:
    path = _slot_path(state.slot + 1)
    try:
        entry, _, digest = decode_entry(content)
    except Malformed as error:
        raise TableDamaged("ledger entry cannot be read", file=path, cause=error) from error
    if entry.slot != state.slot + 1 or entry.previous != state.digest:
        raise TableDamaged("ledger entry does not follow its predecessor", file=path)
    return state.after(entry, digest)


def _slot_path(slot: int) -> str:
    return f"{LEDGER_FOLDER}/{slot:020d}"


def _checkpoint_path(slot: int) -> str:
    return f"{CHECKPOINT_FOLDER}/{slot:020d}"
