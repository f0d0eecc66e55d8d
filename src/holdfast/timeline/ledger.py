"""The ledger: one append-only list of decisions per table.

The timeline shows what happened; the ledger decides it. Entries are created
exclusively in numbered slots, so all processes agree on one order. The
outcome of an instant is the first COMMIT or ABORT that names it:

    (no entry) ──BEGIN──► undecided ──COMMIT──► committed ──REVOKE──► aborted
                              └──────ABORT, REVOKE──────────────────────►┘

A compaction may be tried again at its own instant, whose plan others rely on. So ABORT
of one only ends an attempt, and whoever tries it next begins it anew; the owner
that BEGIN names last is the one that may commit it.

A commit stands until a REVOKE takes it back: a rollback of the newest commit,
or a restore, which takes undecided writes with it.

A CLEAN says that the files of a stored plan may go: an operation that relies
on one of them afterwards is refused.

An ARCHIVE says that the commits up to its instant leave the timeline. None of
them is undecided, so none can be aborted afterwards.

A DROP says that the table goes. Nothing is decided after it.

A checkpoint holds what all entries before it say, except of instants that were
aborted long ago: of those that it leaves out, a file in another folder tells,
which only the few read who ask for one of them. Entries that lie far enough
behind a checkpoint are deleted. First the floor is raised above them, and it never
sinks. A process that slept through that would take the hole for the end; so
what was found at the end, or put there, counts only if the floor lies below.

A decision is a function from the state so far to the next entry. It runs
again whenever another process took the slot, so whatever it checked still
holds in the slot it wins.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from holdfast.clock import Clock
from holdfast.errors import Conflict, TableDamaged
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
from holdfast.format.malformed import Malformed, report_damage
from holdfast.host import Owner
from holdfast.model.instant import Action, InstantTime, just_before
from holdfast.model.names import ABORTED_FOLDER, CHECKPOINT_FOLDER, LEDGER_FLOOR, LEDGER_FOLDER
from holdfast.storage.store import Store, read_or_none
from holdfast.timeline.after_decision import after_decision, create_for_certain

NO_SLOT = 0
_CHECKPOINT_AFTER = 100

NO_COMMIT = InstantTime("0")
"""What an ARCHIVE names that takes no commits, and before which no commit was archived."""


_ONLY_AFTER_RESTORES = frozenset(
    {EntryKind.BEGIN, EntryKind.REVOKE, EntryKind.SAVEPOINT, EntryKind.CLEAN, EntryKind.ARCHIVE}
)
"""When one of these is decided, no restore is pending: that is checked in the same slot."""


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
    """Where its metadata is; `NO_SLOT` if another program committed it."""


class DecidedCommit(NamedTuple):
    """One commit of the ledger, sorted as it was decided."""

    slot: int
    time: InstantTime
    action: Action


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
    is_over: bool = False
    """Whether something was decided since that is never decided before the restore is completed."""


@dataclass(frozen=True, slots=True)
class Archiving:
    until: InstantTime
    """The newest commit that leaves the timeline. It and all older instants are decided."""
    slot: int
    through: InstantTime = NO_COMMIT
    """The newest rollback, restore or clean that ever left. It and all older ones are completed."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A commit that an application gave a number."""

    number: int
    instant: InstantTime
    action: Action


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the entries up to `slot` say. Slot 0 is before the first entry."""

    slot: int = 0
    digest: str = ""
    newest: InstantTime | None = None
    """The greatest time ever given out, for writes and for rollbacks."""
    begun: Mapping[InstantTime, Begun] = field(default_factory=dict)
    committed: Mapping[InstantTime, Committed] = field(default_factory=dict)
    """Since the last checkpoint; of those before it, what the timeline showed then and has to show still."""
    aborted: Mapping[InstantTime, Aborted] = field(default_factory=dict)
    """Until its rollback has left the timeline; afterwards `Ledger.read_with_older_aborts` tells."""
    restore: Restoring | None = None
    """The newest restore; the timeline tells whether it is completed, and what was decided since."""
    savepoints: Mapping[InstantTime, int] = field(default_factory=dict)
    """Savepointed commit → slot."""
    cleans: Mapping[InstantTime, InstantTime | None] = field(default_factory=dict)
    """Clean → the earliest commit that it leaves whole. The timeline tells which of them are completed."""
    archive: Archiving | None = None
    """The newest decision to archive; the timeline tells whether it is carried out."""
    restored: tuple[tuple[InstantTime, InstantTime], ...] = ()
    """Archived commits that restores went to, with the restores: all that was between them is taken back."""
    numbered: Mapping[str, tuple[Numbered, ...]] = field(default_factory=dict)
    """Application → the commits it numbered, ascending: of those that were archived only the newest."""
    dropped: bool = False
    """Whether it is decided that the table goes, with all that belongs to it."""
    birth: int | None = None
    """The slot of the COMMIT that the table came to be with; None if it was created before."""
    zone: str = ""
    """The time zone of the table's instants, where that is not UTC; empty if it is not known yet."""
    lock: str = ""
    """The lock that the table is written under; empty if there is none."""

    @property
    def newborn(self) -> InstantTime | None:
        """The commit that the table comes to be with, if it is the only one there is."""
        times = [time for time, one in self.committed.items() if one.slot == self.birth]
        return times[0] if len(self.committed) == 1 and times and not self.dropped else None

    def find_numbered(self, application: str, number: int) -> Numbered | None:
        """The commit that a write of this number repeats: its own, or else the next that was committed."""
        return next((one for one in self.numbered.get(application, ()) if one.number >= number), None)

    def is_archived(self, time: InstantTime) -> bool:
        """Whether an instant that the timeline does not show was decided, and archived since."""
        return self.archive is not None and time <= self.archive.until

    def is_taken_back(self, time: InstantTime) -> bool:
        """Whether an instant was aborted, or archived and taken back by a restore since."""
        return time in self.aborted or any(to < time < restore for to, restore in self.restored)

    def has_left(self, service: InstantTime) -> bool:
        """Whether a rollback, restore or clean that the timeline does not show is completed and archived."""
        return self.archive is not None and service <= max(self.archive.until, self.archive.through)

    def after(self, entry: Entry, digest: str) -> "LedgerState":
        """The state with one more entry."""
        state = self
        if self.restore is not None and _is_after_restore(entry, self.restore):
            state = replace(self, restore=replace(self.restore, is_over=True))
        times = [self.newest, entry.instant, entry.rollback, *(one.rollback for one in entry.revoked)]
        return replace(
            state._decide(entry),
            slot=entry.slot,
            digest=digest,
            newest=max(t for t in times if t is not None),
            dropped=self.dropped or entry.kind is EntryKind.DROP,
            zone=entry.zone or self.zone,
            lock=self.lock if entry.lock is None else entry.lock,
        )

    def _decide(self, entry: Entry) -> "LedgerState":
        """The state with what the entry decides about instants."""
        time = entry.instant
        is_decided = time in self.committed or time in self.aborted
        match entry.kind:
            case EntryKind.BEGIN:
                assert entry.owner is not None, "BEGIN names its owner"
                begun = Begun(entry.action, entry.owner, entry.slot, entry.shared)
                return replace(self, begun={**self.begun, time: begun})
            case EntryKind.COMMIT if not is_decided:
                return replace(
                    self,
                    begun=_without(self.begun, time),
                    committed={**self.committed, time: Committed(entry.action, entry.slot)},
                    birth=self.birth if entry.properties is None else entry.slot,
                    numbered=_with_number(self.numbered, entry),
                )
            case EntryKind.ABORT if not is_decided and entry.action is Action.COMPACTION:
                return replace(self, begun=_without(self.begun, time))
            case EntryKind.ABORT if not is_decided:
                assert entry.rollback is not None, "ABORT names its rollback"
                aborted = Aborted(entry.action, entry.rollback, entry.reason)
                return replace(
                    self, begun=_without(self.begun, time), aborted={**self.aborted, time: aborted}
                )
            case EntryKind.REVOKE:
                return self._revoke(entry)
            case EntryKind.SAVEPOINT:
                return replace(self, savepoints={**self.savepoints, time: entry.slot})
            case EntryKind.RELEASE:
                return replace(self, savepoints=_without(self.savepoints, time))
            case EntryKind.CLEAN:
                return replace(self, cleans={**self.cleans, time: entry.earliest})
            case EntryKind.ARCHIVE:
                return self._archive_until(entry)
        return self

    def _archive_until(self, entry: Entry) -> "LedgerState":
        """The state once everything until the entry's instant is to be archived."""
        time = entry.instant
        before = time if self.archive is None else self.archive.through
        return replace(
            self,
            archive=Archiving(time, entry.slot, max(before, entry.through or before)),
            numbered={
                application: _commits_to_keep(commits, time, self.savepoints)
                for application, commits in self.numbered.items()
            },
        )

    def _revoke(self, entry: Entry) -> "LedgerState":
        """The state without what the entry takes back: commits, and writes that never ended."""
        time, restored_to = entry.instant, entry.restored_to
        state = self if restored_to is None else self._restore_to(restored_to, by=time)
        begun, committed, aborted = dict(state.begun), dict(state.committed), dict(state.aborted)
        by_restore = None if restored_to is None else time
        for one in entry.revoked:
            was_begun = begun.pop(one.instant, None) is not None
            committed.pop(one.instant, None)
            aborted[one.instant] = Aborted(
                one.action, one.rollback, entry.reason, None if was_begun else time, by_restore
            )
        numbered = _without_numbers(state.numbered, {one.instant for one in entry.revoked})
        state = replace(state, begun=begun, committed=committed, aborted=aborted, numbered=numbered)
        if not entry.copied:
            return state
        return replace(
            state,
            archive=Archiving(entry.archived or NO_COMMIT, entry.slot, entry.through or NO_COMMIT),
            savepoints={t: slot for t, slot in state.savepoints.items() if t not in entry.released},
            cleans={},
        )

    def _restore_to(self, target: InstantTime, *, by: InstantTime) -> "LedgerState":
        """The state with a restore to a commit, which comes back to the timeline if it was archived."""
        state = replace(self, restore=Restoring(by, target))
        if self.archive is None or target > self.archive.until:
            return state
        # The commits after it do not stand any more.
        earlier = [one for one in self.restored if one[0] < target]
        between = _commits_with_number_between(self.numbered, target, by)
        return replace(
            state,
            archive=replace(self.archive, until=just_before(target)),
            restored=(*earlier, (target, by)),
            committed={t: commit for t, commit in self.committed.items() if not target < t < by},
            numbered=_without_numbers(self.numbered, between),
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
    copied: bool = False
    archived: InstantTime | None = None
    released: tuple[InstantTime, ...] = ()
    earliest: InstantTime | None = None
    through: InstantTime | None = None
    reason: str = ""
    properties: Mapping[str, str] | None = None
    application: str = ""
    number: int = 0
    payload: bytes = b""


class Ledger:
    """The ledger of one table, as far as this process has read it."""

    def __init__(self, store: Store, clock: Clock, *, checkpoint_after: int = _CHECKPOINT_AFTER) -> None:
        """`checkpoint_after`: entries since the last checkpoint, of any kind, that make the next one due."""
        self._store = store
        self._clock = clock
        self._checkpoint_after = checkpoint_after
        self._state: LedgerState | None = None
        self._checkpointed = 0
        """The slot of the newest checkpoint that is known here."""
        self._listed = 0
        """The last slot that was there when the reading began."""
        self._zone = ("", "")
        """What the next entry says of the table's time zone, and over what."""
        self._lock = ("", "")
        """The same of the table's lock."""

    def read(self) -> LedgerState:
        """Read to the end: everything appended before this call is in the result.

        `TableDamaged` if an entry is missing that others follow.
        """
        state = self._read_on()
        while (floor := self._floor()) > state.slot:
            self._state = None
            state = self._read_on()
            if floor > state.slot:
                # It was raised no higher than a checkpoint that is there, or has a later one.
                raise TableDamaged("the ledger ends below its floor", file=LEDGER_FLOOR, ends=state.slot)
        if state.slot < self._listed:
            raise TableDamaged(
                "a ledger entry is missing, and others follow it",
                file=_slot_path(state.slot + 1),
                hint="put the file back from a backup: it says what was decided",
            )
        return state

    @property
    def known(self) -> LedgerState:
        """What was read or written last. Costs no call."""
        return self._state or LedgerState()

    def note_zone(self, name: str, *, over: str) -> None:
        """Let the next entry say the table's time zone, unless another entry changes it before."""
        self._zone = (name, over)

    def note_lock(self, name: str, *, over: str) -> None:
        """The same for the lock that the table is written under."""
        self._lock = (name, over)

    def _read_on(self) -> LedgerState:
        """Read on until there is no next entry, which is the end unless that one was trimmed."""
        state = self._state or self._start()
        while True:
            try:
                content = self._store.read(_slot_path(state.slot + 1))
            except FileNotFoundError:
                break
            state = _fold(state, content)
        self._state = state
        return state

    def append(self, decide: Callable[[LedgerState], Decision | None]) -> LedgerState:
        """Write the decision into the next free slot, deciding anew each time the slot is lost.

        Returns the state that ends with the new entry, or the state that made
        `decide` return None. Raises `OutcomeUnknown` if storage fails so that
        it is not known whether the entry was written: nothing may be deleted then.
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
                copied=decision.copied,
                archived=decision.archived,
                released=decision.released,
                earliest=decision.earliest,
                through=decision.through,
                reason=decision.reason,
                properties=None if decision.properties is None else dict(decision.properties),
                application=decision.application,
                number=decision.number,
                zone=self._zone[0] if state.zone == self._zone[1] else "",
                lock=self._lock[0] if state.lock == self._lock[1] != self._lock[0] else None,
            )
            content = encode_entry(entry, decision.payload)
            if self._create(_slot_path(entry.slot), content):
                hint = "the next operation on the table finds out and goes on"
                self._lock = ("", "")  # It is said; others may change it from here on.
                with after_decision("a decision was written", file=_slot_path(entry.slot), hint=hint):
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
        if entry.slot not in _slots_in_use(state):
            self._store.delete(_slot_path(entry.slot))
        if entry.kind is not EntryKind.COMMIT or entry.instant in self.read_with_older_aborts().aborted:
            return None
        assert entry.instant not in state.begun, "the floor passes no BEGIN that is undecided"
        committed = {**state.committed, entry.instant: Committed(entry.action, entry.slot)}
        return replace(state, committed=committed)

    def payload(self, slot: int) -> bytes:
        """The payload of an entry, e.g. the commit metadata of a COMMIT."""
        return self._entry(slot)[1]

    def payload_unless_trimmed(self, slot: int) -> bytes | None:
        """The payload of an entry; None if the entry was trimmed: what it decided is long shown."""
        try:
            return self.payload(slot)
        except TableDamaged:
            if slot <= self._floor():
                return None
            raise

    def properties(self, slot: int) -> Mapping[str, str]:
        """The properties of the table that comes to be with the COMMIT in a slot."""
        return self._entry(slot)[0].properties or {}

    def between(self, after: int, last: int) -> Iterator[tuple[Entry, bytes]]:
        """The entries of the slots in (after, last], each with its payload.

        `Conflict` if some of them were trimmed: the caller has slept for long.
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

    def is_checkpoint_due(self, state: LedgerState) -> bool:
        return state.slot - self._checkpointed >= self._checkpoint_after

    def checkpoint_if_due(
        self,
        state: LedgerState,
        *,
        shown: Mapping[InstantTime, Action],
        cleaned: Collection[InstantTime] = (),
        settled: Collection[InstantTime] = (),
    ) -> None:
        """Store `state`, whose commits are all published, so that readers start there; trim what is behind.

        `shown` are the completed commits of the timeline, of any program: those that were decided
        before stay known, so that one that is missing later is noticed. Cleans that are completed, as
        `cleaned` names them, are left out; so are aborted instants that only their archived rollbacks
        still tell of, as `settled` names them. It does not matter who writes a checkpoint first: what
        they may differ in is on the timeline, or in the file of older aborts.
        """
        if not self.is_checkpoint_due(state):
            return
        older = self._keep_aborts(state, settled)
        pending = {time: earliest for time, earliest in state.cleans.items() if time not in cleaned}
        aborted = {time: one for time, one in state.aborted.items() if time not in older}
        foreign = {
            time: Committed(action, NO_SLOT) for time, action in shown.items() if _is_past(state, time)
        }
        ours = {time: committed for time, committed in state.committed.items() if time in shown}
        trimmed = replace(state, committed=foreign | ours, cleans=pending, aborted=aborted)
        self._store.create(_checkpoint_path(state.slot), encode_checkpoint(trimmed))
        self._checkpointed = state.slot
        if self._state is state:
            self._state = trimmed
        self._trim(trimmed)

    def _keep_aborts(self, state: LedgerState, settled: Collection[InstantTime]) -> Collection[InstantTime]:
        """Put aborted instants where only those look for them who need one; which of them are there."""
        older = {time: one for time, one in state.aborted.items() if time in settled}
        path = _path_of_aborts(state.slot)
        if not older or self._store.create(path, encode_checkpoint(older)):
            return older
        return _decode_aborts(self._store.read(path), path)  # Another process was faster.

    def read_with_older_aborts(self) -> LedgerState:
        """As `read`, with every instant that was ever aborted. Costs more the more there are."""
        older: dict[InstantTime, Aborted] = {}
        state = self.read()
        paths = [file.path for file in self._store.folder(ABORTED_FOLDER).files]
        for path, content in zip(paths, self._store.read_all(paths), strict=True):
            if content is not None:
                older |= _decode_aborts(content, path)
        return replace(state, aborted={**older, **state.aborted})

    def _trim(self, state: LedgerState) -> None:
        """Delete the entries up to the checkpoint before the one of `state`, and older checkpoints.

        Entries that something still refers to stay: those since the BEGIN of
        an undecided write, savepoints, the newest decision to archive, and the
        commits of the timeline, which can be shown again from there.
        """
        older = [file.path for file in self._store.folder(CHECKPOINT_FOLDER).files]
        older = [path for path in older if path < _checkpoint_path(state.slot)]
        if not older:
            return
        begun = (one.slot - 1 for one in state.begun.values())
        floor = min((int(older[-1].rpartition("/")[2]), *begun))
        self._raise_floor(floor)
        kept = set(map(_slot_path, _slots_in_use(state)))
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
        """Raise the floor to the slot. It never sinks, even if another process raised it before."""
        content = b"%d" % slot
        while self._floor() < slot:
            if self._store.create(LEDGER_FLOOR, content):
                return
            known, version = self._store.read_version(LEDGER_FLOOR)
            if int(known) < slot:
                self._store.replace(LEDGER_FLOOR, content, version)

    def _create(self, path: str, content: bytes) -> bool:
        """Whether the slot is ours. An error is answered by asking again, never by a guess."""
        try:
            return create_for_certain(
                self._store,
                path,
                content,
                what="a decision was written",
                hint="nothing was deleted; the next operation on the table finds out and goes on",
            )
        except FileNotFoundError as error:
            raise TableDamaged("a ledger entry vanished", file=path) from error

    def _start(self) -> LedgerState:
        """Where to begin to read. Entries are counted first: a hole among them is not their end."""
        state = self._newest_checkpoint()
        slots = [file.path.rpartition("/")[2] for file in self._store.folder(LEDGER_FOLDER).files]
        self._listed = max((int(slot) for slot in slots if slot.isdigit()), default=0)
        return state

    def _newest_checkpoint(self) -> LedgerState:
        while True:
            files = self._store.folder(CHECKPOINT_FOLDER).files
            if not files:
                return LedgerState()
            path = files[-1].path
            content = read_or_none(self._store, path)
            if content is None:
                continue  # There are newer ones by now.
            with report_damage("ledger checkpoint cannot be read", file=path):
                state = decode_checkpoint(content, LedgerState)
            if _checkpoint_path(state.slot) != path:
                raise TableDamaged("a ledger checkpoint is that of another slot", file=path, slot=state.slot)
            self._checkpointed = state.slot
            return state


_Fact = TypeVar("_Fact")


def _without(facts: Mapping[InstantTime, _Fact], time: InstantTime) -> Mapping[InstantTime, _Fact]:
    return {t: fact for t, fact in facts.items() if t != time}


_Numbers = Mapping[str, tuple[Numbered, ...]]


def _with_number(numbered: _Numbers, entry: Entry) -> _Numbers:
    if not entry.application:
        return numbered
    before = numbered.get(entry.application, ())
    return {**numbered, entry.application: (*before, Numbered(entry.number, entry.instant, entry.action))}


def _without_numbers(numbered: _Numbers, revoked: Collection[InstantTime]) -> _Numbers:
    """Without commits that were taken back: their numbers may come again."""
    left = {name: tuple(c for c in commits if c.instant not in revoked) for name, commits in numbered.items()}
    return {name: commits for name, commits in left.items() if commits}


def _commits_with_number_between(
    numbered: _Numbers, after: InstantTime, before: InstantTime
) -> set[InstantTime]:
    return {one.instant for commits in numbered.values() for one in commits if after < one.instant < before}


def _commits_to_keep(
    commits: tuple[Numbered, ...], until: InstantTime, savepoints: Collection[InstantTime]
) -> tuple[Numbered, ...]:
    """The commits that may yet be taken back, and the newest before them and before each savepoint."""
    left = {one for one in commits if one.instant > until}
    for end in (until, *savepoints):
        left |= set([one for one in commits if one.instant <= end][-1:])
    return tuple(sorted(left, key=lambda one: one.number))


def _slots_in_use(state: LedgerState) -> set[int]:
    """The slots whose payload is needed as long as the state says so."""
    archives = () if state.archive is None else (state.archive.slot,)
    commits = (committed.slot for committed in state.committed.values())
    return {*state.savepoints.values(), *archives, *commits}


def _is_after_restore(entry: Entry, restore: Restoring) -> bool:
    """Whether a restore was completed before an entry was decided."""
    if entry.kind in _ONLY_AFTER_RESTORES:
        return True
    # Of a write that began after it: a copy's ledger has no BEGIN of a commit that only the timeline showed.
    return entry.kind is EntryKind.COMMIT and entry.instant > restore.instant


def _is_past(state: LedgerState, time: InstantTime) -> bool:
    """Whether an instant that the timeline shows was completed before everything that follows `state`."""
    is_known = state.newest is not None and time <= state.newest
    return is_known and time not in state.begun and time not in state.aborted


def _fold(state: LedgerState, content: bytes) -> LedgerState:
    path = _slot_path(state.slot + 1)
    with report_damage("ledger entry cannot be read", file=path):
        entry, _, digest = decode_entry(content)
    if entry.slot != state.slot + 1 or entry.previous != state.digest:
        raise TableDamaged("ledger entry does not follow its predecessor", file=path)
    return state.after(entry, digest)


def _decode_aborts(content: bytes, path: str) -> dict[InstantTime, Aborted]:
    with report_damage("the ledger's older aborts cannot be read", file=path):
        return decode_checkpoint(content, dict[InstantTime, Aborted])


def _slot_path(slot: int) -> str:
    return f"{LEDGER_FOLDER}/{slot:020d}"


def _checkpoint_path(slot: int) -> str:
    return f"{CHECKPOINT_FOLDER}/{slot:020d}"


def _path_of_aborts(slot: int) -> str:
    return f"{ABORTED_FOLDER}/{slot:020d}"
