"""An explicit-state model of the ledger protocol, and of the protocols it replaces.

Storage is a set of files and an append-only ledger. Writers and rollbacks are
programs of small steps; each step does exactly one storage operation, then the
scheduler picks any actor. There is no time: a rollback may take any writer for
dead at any moment.
There is no crash step either: a crash is an actor that is never picked again,
so every reachable state is checked as it stands, and once more after recovery
has run from it with nobody else alive.

    writer      ─ begin ─ view ─ beat ─ request ─ start ─ write ─ reconcile ─ commit ─ publish ─ clear
    rollback    ─ choose ─ abort ─ plan ─ store plan ─ start ─ clear ─ complete
                              └─ COMMIT found: publish, clear
    reader      ─ look ─ name
    archiver    ─ publish ─ ARCHIVE ─ archive ─ clear
    keeper      ─ publish ─ checkpoint
    forgetter   ─ choose ─ record ─ archive the rollback

Local work is merged into the storage step before or after it. Three merges
need a reason: reading the ledger is one step although it reads many slots,
because slots never change; a lost slot and the read that follows are one step,
because the slot stays lost until that read; and "already published, nothing to
do" costs no step, because it stays true.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

BEGIN, COMMIT, ABORT, ARCHIVE = "BEGIN", "COMMIT", "ABORT", "ARCHIVE"
OUTCOMES = (COMMIT, ABORT)

DATA, MARKER, HEARTBEAT = "data", "marker", "heartbeat"
REQUESTED, INFLIGHT, COMPLETED = "requested", "inflight", "completed"
ROLLBACK_REQUESTED, ROLLBACK_INFLIGHT, ROLLBACK_COMPLETED = (
    "rollback.requested",
    "rollback.inflight",
    "rollback.completed",
)
LOCK, DECISION = "lock", "decision"
NAMED = "named"
"""A snapshot that somebody named, as a savepoint does: the commits that were shown up to an instant."""
ARCHIVED, CHECKPOINT = "archived", "checkpoint"
ROLLBACK_ARCHIVED = "rollback.archived"
"""The rollback has left the timeline. So have all commits that are older, as far as readers know."""
UNDONE = "undone"
"""Readers know without the timeline that the instant was taken back."""

READER, ARCHIVER, KEEPER, FORGETTER = "reader", "archiver", "keeper", "forgetter"
"""Actors that are neither writers nor rollbacks. A keeper checkpoints the ledger; a forgetter archives
rollbacks."""

FILES_OF_A_WRITE = (DATA, MARKER, HEARTBEAT, INFLIGHT, REQUESTED)

Bases = tuple[tuple[str, int], ...]
"""For each file group written, the instant of the slice that was read; 0 if there was none."""


class Entry(NamedTuple):
    """One slot of the ledger."""

    kind: str
    instant: int
    rollback: int = 0
    bases: Bases = ()
    reads: Bases = ()


class File(NamedTuple):
    """One stored file; `content` is its name for data and markers, what it says for the others."""

    kind: str
    instant: int
    content: str | tuple = ""


class World(NamedTuple):
    """Everything in storage, and which files a fenced writer created after its ABORT.

    `late` is known to the checks alone: no actor reads it.
    """

    ledger: tuple[Entry, ...] = ()
    files: frozenset[File] = frozenset()
    late: frozenset[File] = frozenset()

    def create(self, file: File) -> "World":
        return World(self.ledger, self.files | {file}, self.late)

    def delete(self, file: File) -> "World":
        return World(self.ledger, self.files - {file}, self.late - {file})

    def find(self, kind: str, instant: int) -> File | None:
        return next((file for file in self.files if file[0] == kind and file[1] == instant), None)

    def of(self, instant: int, kinds: Iterable[str]) -> list[File]:
        return sorted(file for file in self.files if file[1] == instant and file[0] in kinds)


class Actor(NamedTuple):
    """What one process knows: where it is in its program and what it has read.

    `attempts` are the data files a writer's tasks produce: the first letter is
    the file group, a star marks the attempt that loses, a question mark a group
    that the writer looks into and leaves as it is, as a delete does that does not
    find its key. `seen` is how much of the ledger was read; `todo` the files still
    to create or delete, or what a reader has seen.
    """

    at: int = 0
    attempts: tuple[str, ...] = ()
    instant: int = 0
    seen: int = 0
    bases: Bases = ()
    todo: tuple[File, ...] = ()
    reads: Bases = ()
    role: str = ""

    def next(self, **known: object) -> "Actor":
        return self._replace(at=self.at + 1, **known)

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(name for name in self.attempts if len(name) == 1)

    @property
    def read_groups(self) -> tuple[str, ...]:
        return tuple(name[0] for name in self.attempts if name.endswith("?"))

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(name for name in self.attempts if not name.endswith("?"))


STOPPED = Actor(at=-1)

Successors = list[tuple[World, Actor]]
Step = Callable[[World, Actor], Successors | None]
"""What may happen next: several if there is a choice, none if it must wait.

`None` says that there is nothing to do, and the program goes on with its next step.
"""


# What the ledger and the timeline say


def outcome(ledger: tuple[Entry, ...], instant: int) -> Entry | None:
    """The first COMMIT or ABORT that names the instant."""
    return next((entry for entry in ledger if entry[1] == instant and entry[0] in OUTCOMES), None)


def is_aborted(ledger: tuple[Entry, ...], instant: int) -> bool:
    decided = outcome(ledger, instant)
    return decided is not None and decided.kind == ABORT


def begun(ledger: tuple[Entry, ...]) -> tuple[int, ...]:
    return tuple(entry.instant for entry in ledger if entry.kind == BEGIN)


def committed(ledger: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(entry for entry in ledger if entry.kind == COMMIT)


def completed(world: World) -> list[File]:
    """Completed instants as a reader lists them, on the timeline and in archives: by instant time."""
    found = {file._replace(kind=COMPLETED) for file in world.files if file[0] in (COMPLETED, ARCHIVED)}
    return sorted(found)


def is_shown(world: World, commit: Entry) -> bool:
    """Whether a commit is on the timeline, or has left it for an archive."""
    files = world.files
    archived = File(ARCHIVED, commit.instant, commit.bases)
    return File(COMPLETED, commit.instant, commit.bases) in files or archived in files


def known(world: World, read: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """What the ledger tells who starts at the newest checkpoint: nothing of the aborts that it left out."""
    checkpoints = [file.content for file in world.files if file[0] == CHECKPOINT]
    _, forgotten = max((one for one in checkpoints if one[0] <= len(read)), default=(0, ()))
    if not forgotten:
        return read
    return tuple(entry for entry in read if entry[1] not in forgotten)


def next_time(ledger: tuple[Entry, ...]) -> int:
    return max((max(entry.instant, entry.rollback) for entry in ledger), default=0) + 1


def latest_slices(world: World, groups: Iterable[str]) -> Bases:
    """The instant of the slice that a reader sees in each group."""
    visible = {group: commit.instant for commit in completed(world) for group, _ in commit.content}
    return tuple((group, visible.get(group, 0)) for group in groups)


def has_conflict(ledger: tuple[Entry, ...], me: Actor, *, counts_reads: bool = True) -> bool:
    """Whether a COMMIT after the actor's BEGIN touches one of the groups that it wrote or read."""
    since = next(slot for slot, entry in enumerate(ledger) if entry.kind == BEGIN and entry[1] == me.instant)
    theirs = {group for entry in ledger[since:] for group, _ in entry.bases}
    return not theirs.isdisjoint((*me.groups, *(me.read_groups if counts_reads else ())))


# Appending to the ledger

Append = Callable[[World, int, Entry], World | None]


def append_exclusively(world: World, slot: int, entry: Entry) -> World | None:
    if len(world.ledger) != slot:
        return None
    return world._replace(ledger=(*world.ledger, entry))


def append_overwriting(world: World, slot: int, entry: Entry) -> World | None:
    return world._replace(ledger=(*world.ledger[:slot], entry, *world.ledger[slot + 1 :]))


def read_ledger(world: World, me: Actor) -> Successors:
    return [(world, me.next(seen=len(world.ledger)))]


def _read_again(world: World, me: Actor) -> Successors:
    return [(world, me._replace(seen=len(world.ledger)))]


# Steps of a writer


def publish(world: World, me: Actor) -> Successors | None:
    """Create the completed file of the first COMMIT read that has none yet."""
    for entry in world.ledger[: me.seen]:
        if entry.kind == COMMIT and not is_shown(world, entry):
            return [(world.create(File(COMPLETED, entry.instant, entry.bases)), me)]
    return None


def publish_only_mine(world: World, me: Actor) -> Successors | None:
    file = File(COMPLETED, me.instant, me.bases)
    return None if file in world.files else [(world.create(file), me)]


def begin(world: World, me: Actor) -> Successors:
    instant = next_time(world.ledger[: me.seen])
    begun_world = append_exclusively(world, me.seen, Entry(BEGIN, instant))
    if begun_world is None:
        return _read_again(world, me)
    return [(begun_world, me.next(instant=instant, seen=0, todo=_to_write(me, instant)))]


def _to_write(me: Actor, instant: int) -> tuple[File, ...]:
    return tuple(File(kind, instant, name) for name in me.written for kind in (MARKER, DATA))


def publish_then_begin(world: World, me: Actor) -> Successors:
    return publish(world, me) or begin(world, me)


def view(world: World, me: Actor) -> Successors:
    seen = latest_slices(world, me.read_groups)
    return [(world, me.next(bases=latest_slices(world, me.groups), reads=seen))]


def _create_own(world: World, file: File) -> World:
    late = is_aborted(world.ledger, file.instant)
    return World(world.ledger, world.files | {file}, world.late | {file} if late else world.late)


def beat(world: World, me: Actor) -> Successors:
    return [(_create_own(world, File(HEARTBEAT, me.instant)), me.next())]


def request(world: World, me: Actor) -> Successors:
    return [(_create_own(world, File(REQUESTED, me.instant)), me.next())]


def start(world: World, me: Actor) -> Successors:
    return [(_create_own(world, File(INFLIGHT, me.instant)), me.next())]


def write(world: World, me: Actor) -> Successors | None:
    if not me.todo:
        return None
    return [(_create_own(world, me.todo[0]), me._replace(todo=me.todo[1:]))]


def reconcile(world: World, me: Actor) -> Successors | None:
    """List the markers: an attempt they name and the results do not is to be deleted."""
    if me.groups == me.written:
        return None  # without a second attempt nothing depends on the answer
    strays = (file for file in world.of(me.instant, (MARKER,)) if file.content not in me.groups)
    return [(world, me.next(todo=tuple(File(DATA, me.instant, file.content) for file in strays)))]


def clear(world: World, me: Actor) -> Successors | None:
    if not me.todo:
        return None
    return [(world.delete(me.todo[0]), me._replace(seen=0, todo=me.todo[1:]))]


def _signs_of_life(me: Actor) -> tuple[File, ...]:
    markers = tuple(File(MARKER, me.instant, name) for name in me.written)
    return (*markers, File(HEARTBEAT, me.instant))


def commit_by(
    append: Append, *, validates: bool = True, counts_reads: bool = True, fences_unknown: bool = True
) -> Step:
    def commit(world: World, me: Actor) -> Successors:
        """Decide on what was read; the slot is won only if nothing happened since.

        Who is not begun any more was aborted, and a checkpoint has left that out since.
        """
        read = world.ledger[: me.seen]
        state = known(world, read)
        if is_aborted(state, me.instant) or (fences_unknown and me.instant not in begun(state)):
            return [(world, STOPPED)]
        if validates and has_conflict(read, me, counts_reads=counts_reads):
            aborted = append(world, me.seen, Entry(ABORT, me.instant, next_time(read)))
            return [(aborted, STOPPED)] if aborted else _read_again(world, me)
        decided = append(world, me.seen, Entry(COMMIT, me.instant, bases=me.bases, reads=me.reads))
        if decided is None:
            return _read_again(world, me)
        return [(decided, me.next(seen=me.seen + 1, todo=_signs_of_life(me)))]

    return commit


WRITE = (view, beat, request, start, write, reconcile, clear)

LEDGER_WRITER: tuple[Step, ...] = (
    read_ledger,
    publish_then_begin,
    *WRITE,
    read_ledger,
    commit_by(append_exclusively),
    publish,
    clear,
)


# Steps of a rollback


def choose(world: World, me: Actor) -> Successors:
    """Read the ledger and take any instant that is not settled, its writer alive or not."""
    seen = len(world.ledger)
    open_instants = (instant for instant in begun(world.ledger) if not is_settled(world, instant))
    return [(world, me.next(instant=instant, seen=seen)) for instant in open_instants]


def is_settled(world: World, instant: int) -> bool:
    decided = outcome(world.ledger, instant)
    if decided is None:
        return False
    if decided.kind == COMMIT:
        return is_shown(world, decided) and not world.of(instant, (MARKER, HEARTBEAT))
    rolled_back = File(ROLLBACK_COMPLETED, decided.rollback) in world.files
    return rolled_back and not world.of(instant, FILES_OF_A_WRITE)


def abort_by(append: Append) -> Step:
    def abort(world: World, me: Actor) -> Successors | None:
        """Fence the writer, or, if it has won, finish its work."""
        read = world.ledger[: me.seen]
        decided = outcome(read, me.instant)
        if decided is None:
            aborted = append(world, me.seen, Entry(ABORT, me.instant, next_time(read)))
            return [(aborted, me.next(seen=0))] if aborted else _read_again(world, me)
        if decided.kind == ABORT:
            return None
        left = tuple(world.of(me.instant, (MARKER, HEARTBEAT)))
        return publish(world, me) or [(world, me.next(seen=0, todo=left))]

    return abort


def _pending_rollback(world: World, me: Actor) -> int:
    """The instant of the rollback that is still to be completed; 0 if there is none."""
    decided = outcome(world.ledger, me.instant)
    if decided is None or decided.kind == COMMIT:
        return 0
    return 0 if File(ROLLBACK_COMPLETED, decided.rollback) in world.files else decided.rollback


def plan_by(*names: str) -> Step:
    def plan(world: World, me: Actor) -> Successors | None:
        """List data and markers, to be deleted first; the instant's own names follow, there or not."""
        decided = outcome(world.ledger, me.instant)
        if decided is not None and decided.kind == COMMIT:
            return None
        own = (File(name, me.instant) for name in names)
        return [(world, me.next(seen=0, todo=(*world.of(me.instant, (DATA, MARKER)), *own)))]

    return plan


plan = plan_by(HEARTBEAT, INFLIGHT, REQUESTED)


def plan_instant_files_first(world: World, me: Actor) -> Successors | None:
    planned = plan(world, me)
    return planned and [(world, actor._replace(todo=actor.todo[::-1])) for world, actor in planned]


def store_plan(world: World, me: Actor) -> Successors | None:
    """Store the plan unless one is there: then that one holds."""
    rollback = _pending_rollback(world, me)
    if not rollback:
        return None
    stored = world.find(ROLLBACK_REQUESTED, rollback)
    if stored is not None:
        return [(world, me.next(todo=stored.content))]
    return [(world.create(File(ROLLBACK_REQUESTED, rollback, me.todo)), me.next())]


def start_rollback(world: World, me: Actor) -> Successors | None:
    rollback = _pending_rollback(world, me)
    return [(world.create(File(ROLLBACK_INFLIGHT, rollback)), me.next())] if rollback else None


def complete_rollback(world: World, me: Actor) -> Successors | None:
    rollback = _pending_rollback(world, me)
    return [(world.create(File(ROLLBACK_COMPLETED, rollback)), STOPPED)] if rollback else None


LEDGER_ROLLBACK: tuple[Step, ...] = (
    choose,
    abort_by(append_exclusively),
    plan,
    store_plan,
    start_rollback,
    clear,
    complete_rollback,
)


# Steps of a reader


def look(world: World, me: Actor) -> Successors:
    """List the timeline."""
    return [(world, me.next(todo=tuple(completed(world))))]


def name_if(is_settled_up_to: Callable[[World, tuple[File, ...], int], bool]) -> Step:
    def name(world: World, me: Actor) -> Successors:
        """Read the ledger, and give the newest snapshot of the listing a name, if it stays as it is.

        Its name is its own instant, the newest one given out, or a time that nothing has reached yet.
        """
        newest, ahead = max((commit.instant for commit in me.todo), default=0), next_time(world.ledger)
        times = sorted({newest, ahead - 1, ahead}) if newest else []
        named = [time for time in times if is_settled_up_to(world, me.todo, time)]
        return [(world.create(File(NAMED, time, me.todo)), STOPPED) for time in named] or [(world, STOPPED)]

    return name


def is_given_out(world: World, shown: tuple[File, ...], time: int) -> bool:
    """Whether every instant up to that time is aborted, or committed and shown, and no other can come."""
    return time < next_time(world.ledger) and is_all_decided(world, shown, time)


def is_all_decided(world: World, shown: tuple[File, ...], newest: int) -> bool:
    """Whether every instant up to that one is aborted, or committed and shown. Forgets those to come."""
    seen = {commit.instant for commit in shown}
    older = (instant for instant in begun(world.ledger) if instant <= newest)
    return all(instant in seen or is_aborted(world.ledger, instant) for instant in older)


def is_nothing_begun(world: World, shown: tuple[File, ...], newest: int) -> bool:
    """Forgets what is decided and not shown."""
    older = (instant for instant in begun(world.ledger) if instant < newest)
    return all(outcome(world.ledger, instant) is not None for instant in older)


LEDGER_READER: tuple[Step, ...] = (look, name_if(is_given_out))


# Steps of an archiver. Commits that were named leave the timeline with the others, and stay readable.


def decide_archive_by(*, waits: bool = True) -> Step:
    def decide_archive(world: World, me: Actor) -> Successors:
        """Decide up to which commit instants leave the timeline: all older ones are decided, it is shown."""
        read = world.ledger[: me.seen]
        undecided = [i for i in begun(read) if outcome(read, i) is None] if waits else []
        first = min(undecided, default=next_time(read))
        going = [entry for entry in committed(read) if entry.instant < first]
        if not going or not all(is_shown(world, entry) for entry in going):
            return [(world, STOPPED)]
        until = max(entry.instant for entry in going)
        decided = append_exclusively(world, me.seen, Entry(ARCHIVE, until))
        if decided is None:
            return _read_again(world, me)
        return [(decided, me.next(seen=0, todo=tuple(_completed_file(entry) for entry in going)))]

    return decide_archive


def _completed_file(commit: Entry) -> File:
    return File(COMPLETED, commit.instant, commit.bases)


def archive_by(takes: Callable[[World, File], bool]) -> Step:
    def archive(world: World, me: Actor) -> Successors | None:
        """Put the next commit into the archive that is not there yet; only then are any deleted."""
        for file in me.todo:
            copy = file._replace(kind=ARCHIVED)
            if copy not in world.files and takes(world, file):
                return [(world.create(copy), me)]
        return None

    return archive


def archive_deleted(world: World, me: Actor) -> Successors | None:
    """Too late: they were deleted before."""
    decided = next(entry for entry in reversed(world.ledger) if entry.kind == ARCHIVE)
    for entry in committed(world.ledger):
        copy = _completed_file(entry)._replace(kind=ARCHIVED)
        if entry.instant <= decided.instant and copy not in world.files:
            return [(world.create(copy), me)]
    return None


def is_any(_world: World, _file: File) -> bool:
    return True


def is_not_named(world: World, file: File) -> bool:
    """Goes around what was named, as if that stayed on the timeline."""
    return world.find(NAMED, file.instant) is None


LEDGER_ARCHIVER: tuple[Step, ...] = (read_ledger, publish, decide_archive_by(), archive_by(is_any), clear)


# Steps of a keeper


def checkpoint_by(*, waits: bool = True) -> Step:
    def checkpoint(world: World, me: Actor) -> Successors:
        """Store what was read without the aborted instants whose rollbacks are over: that stays true."""
        read = world.ledger[: me.seen]
        over = tuple(
            entry.instant
            for entry in read
            if entry.kind == ABORT and (not waits or File(ROLLBACK_COMPLETED, entry.rollback) in world.files)
        )
        return [(world.create(File(CHECKPOINT, 0, (me.seen, over))) if over else world, STOPPED)]

    return checkpoint


LEDGER_KEEPER: tuple[Step, ...] = (read_ledger, publish, checkpoint_by())


# Steps of a forgetter


def choose_rollback(world: World, me: Actor) -> Successors:
    """Take any rollback that is over and has left no file of its write."""
    over = (
        entry
        for entry in world.ledger
        if entry.kind == ABORT and File(ROLLBACK_COMPLETED, entry.rollback) in world.files
    )
    clean = [entry.instant for entry in over if not world.of(entry.instant, FILES_OF_A_WRITE)]
    return [(world, me.next(instant=instant)) for instant in clean]


def record_undone(world: World, me: Actor) -> Successors:
    return [(world.create(File(UNDONE, me.instant)), me.next())]


def archive_rollback(world: World, me: Actor) -> Successors:
    decided = outcome(world.ledger, me.instant)
    assert decided is not None, "it was chosen because it is aborted"
    return [(world.create(File(ROLLBACK_ARCHIVED, decided.rollback)), me.next())]


LEDGER_FORGETTER: tuple[Step, ...] = (choose_rollback, record_undone, archive_rollback)


# Steps of the protocols without a ledger


def claim_instant(world: World, me: Actor) -> Successors:
    """List the timeline for a fresh time, then try to be the one who requests it."""
    if not me.instant:
        instant = max((file.instant for file in world.files), default=0) + 1
        return [(world, me._replace(instant=instant, bases=latest_slices(world, me.groups)))]
    requested = File(REQUESTED, me.instant)
    if requested in world.files:
        return [(world, me._replace(instant=0, bases=()))]
    return [(world.create(requested), me.next(todo=_to_write(me, me.instant)))]


def check_heartbeat(world: World, me: Actor) -> Successors:
    return [(world, me.next() if File(HEARTBEAT, me.instant) in world.files else STOPPED)]


def complete(world: World, me: Actor) -> Successors:
    file = File(COMPLETED, me.instant, me.bases)
    return [(world.create(file), me.next(todo=_signs_of_life(me)))]


def choose_expired(world: World, me: Actor) -> Successors:
    """Take any instant without completed file whose heartbeat is there, and judge it expired."""
    beating = sorted(file.instant for file in world.files if file.kind == HEARTBEAT)
    pending = (instant for instant in beating if world.find(COMPLETED, instant) is None)
    return [(world, me.next(instant=instant)) for instant in pending]


def check_still_pending(world: World, me: Actor) -> Successors:
    return [(world, me.next() if world.find(COMPLETED, me.instant) is None else STOPPED)]


def take_lock_as(holder: str, *, lease_expires: bool) -> Step:
    def take_lock(world: World, me: Actor) -> Successors:
        held = world.find(LOCK, 0)
        if held is None:
            return [(world.create(File(LOCK, 0, holder)), me.next())]
        if not lease_expires:
            return []
        return [(world.delete(held).create(File(LOCK, 0, holder)), me.next())]

    return take_lock


def check_lock_as(holder: str) -> Step:
    def check_lock(world: World, me: Actor) -> Successors:
        return [(world, me.next() if File(LOCK, 0, holder) in world.files else STOPPED)]

    return check_lock


def release_lock_as(holder: str) -> Step:
    def release_lock(world: World, me: Actor) -> Successors:
        return [(world.delete(File(LOCK, 0, holder)), me.next())]

    return release_lock


def validate_decisions(world: World, me: Actor) -> Successors:
    """Stop if another commit on one of the groups was decided since the view was read."""
    theirs = (file for file in world.files if file.kind == DECISION and file.content != ABORT)
    latest: dict[str, int] = {}
    for decision in sorted(theirs):
        latest |= {group: decision.instant for group, _ in decision.content}
    conflict = any(latest.get(group, 0) != base for group, base in me.bases)
    return [(world, STOPPED if conflict else me.next())]


def decide_commit(world: World, me: Actor) -> Successors:
    if world.find(DECISION, me.instant) is not None:
        return [(world, STOPPED)]
    return [(world.create(File(DECISION, me.instant, me.bases)), me.next())]


def decide_abort(world: World, me: Actor) -> Successors:
    decision = world.find(DECISION, me.instant)
    if decision is None:
        return [(world.create(File(DECISION, me.instant, ABORT)), me.next())]
    if decision.content == ABORT:
        return [(world, me.next())]
    return [(world.create(File(COMPLETED, me.instant, decision.content)), STOPPED)]


TIMELINE_WRITE: tuple[Step, ...] = (claim_instant, beat, start, write, reconcile, clear)


def locked_writer(*, lease_expires: bool) -> tuple[Step, ...]:
    return (
        *TIMELINE_WRITE,
        take_lock_as("writer", lease_expires=lease_expires),
        check_heartbeat,
        check_lock_as("writer"),
        complete,
        release_lock_as("writer"),
        clear,
    )


def locked_rollback(*, lease_expires: bool) -> tuple[Step, ...]:
    return (
        choose_expired,
        take_lock_as("rollback", lease_expires=lease_expires),
        plan,
        check_still_pending,
        check_lock_as("rollback"),
        clear,
        release_lock_as("rollback"),
    )


# Invariants of every state. Each returns what is wrong, or nothing.


def committed_file_is_missing(world: World) -> str:
    """I3, through the timeline as readers see it and through the ledger as writers do."""
    promised = [*completed(world), *(File(COMMIT, e.instant, e.bases) for e in committed(world.ledger))]
    for commit in promised:
        for group, _ in commit.content:
            if File(DATA, commit.instant, group) not in world.files:
                return f"I3 {commit.kind} instant {commit.instant} references deleted data"
    return ""


def outcome_is_ambiguous(world: World) -> str:
    """I4."""
    outcomes = [entry.instant for entry in world.ledger if entry.kind in OUTCOMES]
    if len(outcomes) != len(set(outcomes)):
        return "I4 an instant has two outcomes"
    for commit in completed(world):
        decided = outcome(world.ledger, commit.instant)
        if decided is None or decided.kind == ABORT:
            return f"I4 instant {commit.instant} is completed without COMMIT"
    return ""


def update_is_lost(world: World) -> str:
    """I6: no two commits build on the same slice, and each builds on the one before it."""
    by_time = [(commit.instant, commit.content) for commit in completed(world)]
    by_slot = [(entry.instant, entry.bases) for entry in committed(world.ledger)]
    read = [(group, base) for _, bases in by_time for group, base in bases]
    if len(read) != len(set(read)):
        return "I6 an update is lost"
    latest: dict[str, int] = {}
    for instant, bases in by_slot:
        for group, base in bases:
            if latest.get(group, 0) != base:
                return "I6 an update is lost"
            latest[group] = instant
    return ""


def publication_is_out_of_order(world: World) -> str:
    """I7: the completed instants are a prefix of the COMMITs, in every state."""
    is_published = [is_shown(world, entry) for entry in committed(world.ledger)]
    return "" if is_published == sorted(is_published, reverse=True) else "I7 publication is out of order"


def time_is_repeated(world: World) -> str:
    """I8, with the times of rollbacks among the others."""
    begins = begun(world.ledger)
    times = [*begins, *(entry.rollback for entry in world.ledger if entry.rollback)]
    if list(begins) != sorted(begins) or len(times) != len(set(times)):
        return "I8 instant times are not unique and increasing"
    return ""


def archive_is_wrong(world: World) -> str:
    """I12: what is archived was decided before; each commit of it is on the timeline or in the archive."""
    for slot, entry in enumerate(world.ledger):
        if entry[0] != ARCHIVE:
            continue
        before = world.ledger[:slot]
        for instant in begun(before):
            if instant <= entry.instant and outcome(before, instant) is None:
                return f"I12 an archive goes past instant {instant}, which is not decided"
        for commit in committed(before):
            if commit.instant <= entry.instant and not is_shown(world, commit):
                return f"I12 instant {commit.instant} is neither on the timeline nor archived"
    return ""


def late_file_is_data(world: World) -> str:
    """I12: no file of an instant that was taken back is older than the timeline, unless readers know it."""
    for entry in world.ledger:
        is_forgotten = entry[0] == ABORT and File(ROLLBACK_ARCHIVED, entry.rollback) in world.files
        if is_forgotten and world.of(entry.instant, (DATA,)) and not world.find(UNDONE, entry.instant):
            return f"I12 readers take a late file of the aborted instant {entry.instant} for data"
    return ""


def name_has_changed(world: World) -> str:
    """I20: what is as of a named instant is what was there when it was named."""
    for named in (file for file in world.files if file.kind == NAMED):
        if tuple(commit for commit in completed(world) if commit.instant <= named.instant) != named.content:
            return f"I20 the snapshot of instant {named.instant} has changed"
    return ""


def reads_are_stale(world: World) -> str:
    """I21: in the ledger's order each commit finds what it has read, written or not."""
    latest: dict[str, int] = {}
    for entry in committed(world.ledger):
        if any(latest.get(group, 0) != seen for group, seen in (*entry.reads, *entry.bases)):
            return "I21 a commit follows from what was not there"
        latest |= dict.fromkeys((group for group, _ in entry.bases), entry.instant)
    return ""


Invariant = Callable[[World], str]

TIMELINE_INVARIANTS: tuple[Invariant, ...] = (committed_file_is_missing, update_is_lost)
LEDGER_INVARIANTS: tuple[Invariant, ...] = (
    committed_file_is_missing,
    outcome_is_ambiguous,
    update_is_lost,
    publication_is_out_of_order,
    time_is_repeated,
    name_has_changed,
    archive_is_wrong,
    late_file_is_data,
    reads_are_stale,
)


# Recovery and what it must leave behind


@dataclass(frozen=True)
class Protocol:
    """What writers and rollbacks do, and what is asked of the states they reach.

    `finds` tells which instants a recovery works on.
    """

    name: str
    writer: tuple[Step, ...] = LEDGER_WRITER
    rollback: tuple[Step, ...] = LEDGER_ROLLBACK
    reader: tuple[Step, ...] = LEDGER_READER
    archiver: tuple[Step, ...] = LEDGER_ARCHIVER
    keeper: tuple[Step, ...] = LEDGER_KEEPER
    forgetter: tuple[Step, ...] = LEDGER_FORGETTER
    invariants: tuple[Invariant, ...] = LEDGER_INVARIANTS
    finds: Callable[[World, int], bool] = lambda world, instant: not is_settled(world, instant)
    after_recovery: "Callable[[Recovery, World], str]" = lambda recovery, world: recovery.damage(world)


def advance(program: tuple[Step, ...], world: World, me: Actor) -> tuple[str, Successors]:
    """The name of the next step that has something to do, and where it may lead."""
    for step in program[me.at :]:
        successors = step(world, me)
        if successors is not None:
            return step.__name__, successors
        me = me.next()
    return "stop", [(world, STOPPED)]


class Recovery:
    """Rollbacks run to their end with nobody else alive, remembered from one world to the next."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._ends: dict[tuple[World, Actor], World] = {}

    def damage(self, world: World) -> str:
        """Recover, then sweep; what is wrong after either, or nothing.

        Files that a fenced writer created after its ABORT may outlive the
        rollback of a recovery, which replays a stored plan. They may not
        outlive the sweep.
        """
        world = self.recover(world)
        damage = undecided(world) or leftovers(world, excused=world.late) or wrong_snapshot(world)
        if damage or not world.late:
            return damage
        for instant in begun(world.ledger):
            world = self.roll_back(world, instant)
        return leftovers(world, excused=frozenset())

    def recover(self, world: World) -> World:
        """Roll back or publish every instant that the protocol finds unsettled."""
        for instant in begun(known(world, world.ledger)):
            if self._protocol.finds(world._replace(files=world.files - world.late), instant):
                world = self.roll_back(world, instant)
        return world

    def roll_back(self, world: World, instant: int) -> World:
        """Run a rollback of the instant from its second step: the first is the choice."""
        here = (world, Actor(at=1, instant=instant, seen=len(world.ledger)))
        passed = []
        while here[1] != STOPPED and here not in self._ends:
            passed.append(here)
            _, (here,) = advance(self._protocol.rollback, *here)
        end = self._ends.get(here, here[0])
        self._ends |= dict.fromkeys(passed, end)
        return end


def undecided(world: World) -> str:
    """I17."""
    for instant in begun(world.ledger):
        if outcome(world.ledger, instant) is None:
            return f"I17 recovery leaves instant {instant} undecided"
    return ""


def leftovers(world: World, *, excused: frozenset[File]) -> str:
    """I2: a file that no commit refers to, or a rollback that is not completed."""
    files = world.files - excused
    for decided in world.ledger:
        of_instant = [
            file for file in files if file.instant == decided.instant and file.kind not in (NAMED, UNDONE)
        ]
        kinds = {file.kind for file in of_instant}
        if decided.kind == ABORT:
            if kinds:
                return f"I2 recovery leaves {min(kinds)} of the aborted instant {decided.instant}"
            if File(ROLLBACK_COMPLETED, decided.rollback) not in files:
                return f"I2 recovery leaves the rollback of {decided.instant} pending"
        if decided.kind == COMMIT:
            if kinds & {MARKER, HEARTBEAT}:
                return f"I2 recovery leaves signs of life of the committed instant {decided.instant}"
            names = {file.content for file in of_instant if file.kind == DATA}
            if names != {group for group, _ in decided.bases}:
                return f"I2 recovery leaves other data than instant {decided.instant} committed"
    return ""


def wrong_snapshot(world: World) -> str:
    """I1: what a reader sees of each group is every COMMIT on it, in ledger order."""
    bases = {(commit.instant, group): base for commit in completed(world) for group, base in commit.content}
    commits = committed(world.ledger)
    groups = {group for entry in commits for group, _ in entry.bases}
    for group, visible in latest_slices(world, sorted(groups)):
        history = []
        while visible:
            history.append(visible)
            visible = bases[visible, group]
        if history[::-1] != [entry.instant for entry in commits if group in dict(entry.bases)]:
            return f"I1 the snapshot of group {group} is not the effect of its COMMITs"
    return ""


def not_recovered(_recovery: Recovery, _world: World) -> str:
    return ""


def undecided_without_rollback(_recovery: Recovery, world: World) -> str:
    """What a recovery leaves that publishes what is decided and nothing more."""
    me = Actor(seen=len(world.ledger))
    while successors := publish(world, me):
        world, me = successors[0]
    return undecided(world)


def orphan_data(recovery: Recovery, world: World) -> str:
    """Data alone: an ABORT without any file needs no rollback from those who know no ledger."""
    recovered = recovery.recover(world)
    for file in sorted(recovered.files - recovered.late):
        if file.kind == DATA and is_aborted(recovered.ledger, file.instant):
            return f"I2 recovery leaves data of the aborted instant {file.instant}"
    return ""


def dead_holder_blocks(_recovery: Recovery, world: World) -> str:
    """With nobody else alive, a lock that is held now is held for ever."""
    return "a dead holder blocks recovery for ever" if world.find(LOCK, 0) else ""


def is_on_timeline(world: World, instant: int) -> bool:
    """Whether the instant is pending to those who list instant files, or never decided."""
    decided = outcome(world.ledger, instant)
    if decided is None:
        return True
    if decided.kind == COMMIT:
        return not is_settled(world, instant)
    return bool(world.of(instant, (REQUESTED, INFLIGHT)))
