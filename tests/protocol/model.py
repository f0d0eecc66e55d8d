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

Local work is merged into the storage step before or after it. Three merges
need a reason: reading the ledger is one step although it reads many slots,
because slots never change; a lost slot and the read that follows are one step,
because the slot stays lost until that read; and "already published, nothing to
do" costs no step, because it stays true.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

BEGIN, COMMIT, ABORT = "BEGIN", "COMMIT", "ABORT"

DATA, MARKER, HEARTBEAT = "data", "marker", "heartbeat"
REQUESTED, INFLIGHT, COMPLETED = "requested", "inflight", "completed"
ROLLBACK_REQUESTED, ROLLBACK_INFLIGHT, ROLLBACK_COMPLETED = (
    "rollback.requested",
    "rollback.inflight",
    "rollback.completed",
)
LOCK, DECISION = "lock", "decision"

FILES_OF_A_WRITE = (DATA, MARKER, HEARTBEAT, INFLIGHT, REQUESTED)

Bases = tuple[tuple[str, int], ...]
"""For each file group written, the instant of the slice that was read; 0 if there was none."""


class Entry(NamedTuple):
    """One slot of the ledger."""

    kind: str
    instant: int
    rollback: int = 0
    bases: Bases = ()


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
    the file group, a star marks the attempt that loses. `seen` is how much of
    the ledger was read; `todo` the files still to create or delete.
    """

    at: int = 0
    attempts: tuple[str, ...] = ()
    instant: int = 0
    seen: int = 0
    bases: Bases = ()
    todo: tuple[File, ...] = ()

    def next(self, **known: object) -> "Actor":
        return self._replace(at=self.at + 1, **known)

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(name for name in self.attempts if not name.endswith("*"))


STOPPED = Actor(at=-1)

Successors = list[tuple[World, Actor]]
Step = Callable[[World, Actor], Successors | None]
"""What may happen next: several if there is a choice, none if it must wait.

`None` says that there is nothing to do, and the program goes on with its next step.
"""


# What the ledger and the timeline say


def outcome(ledger: tuple[Entry, ...], instant: int) -> Entry | None:
    """The first COMMIT or ABORT that names the instant."""
    return next((entry for entry in ledger if entry[1] == instant and entry[0] != BEGIN), None)


def is_aborted(ledger: tuple[Entry, ...], instant: int) -> bool:
    decided = outcome(ledger, instant)
    return decided is not None and decided.kind == ABORT


def begun(ledger: tuple[Entry, ...]) -> tuple[int, ...]:
    return tuple(entry.instant for entry in ledger if entry.kind == BEGIN)


def committed(ledger: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(entry for entry in ledger if entry.kind == COMMIT)


def completed(world: World) -> list[File]:
    """Completed instants as a reader lists them: by instant time."""
    return sorted(file for file in world.files if file.kind == COMPLETED)


def next_time(ledger: tuple[Entry, ...]) -> int:
    return max((max(entry.instant, entry.rollback) for entry in ledger), default=0) + 1


def latest_slices(world: World, groups: Iterable[str]) -> Bases:
    """The instant of the slice that a reader sees in each group."""
    visible = {group: commit.instant for commit in completed(world) for group, _ in commit.content}
    return tuple((group, visible.get(group, 0)) for group in groups)


def has_conflict(ledger: tuple[Entry, ...], me: Actor) -> bool:
    """Whether a COMMIT after the actor's BEGIN touches one of its groups."""
    since = next(slot for slot, entry in enumerate(ledger) if entry.kind == BEGIN and entry[1] == me.instant)
    theirs = {group for entry in ledger[since:] for group, _ in entry.bases}
    return not theirs.isdisjoint(me.groups)


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
        file = File(COMPLETED, entry.instant, entry.bases)
        if entry.kind == COMMIT and file not in world.files:
            return [(world.create(file), me)]
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
    return tuple(File(kind, instant, name) for name in me.attempts for kind in (MARKER, DATA))


def publish_then_begin(world: World, me: Actor) -> Successors:
    return publish(world, me) or begin(world, me)


def view(world: World, me: Actor) -> Successors:
    return [(world, me.next(bases=latest_slices(world, me.groups)))]


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
    if me.groups == me.attempts:
        return None  # without a second attempt nothing depends on the answer
    strays = (file for file in world.of(me.instant, (MARKER,)) if file.content not in me.groups)
    return [(world, me.next(todo=tuple(File(DATA, me.instant, file.content) for file in strays)))]


def clear(world: World, me: Actor) -> Successors | None:
    if not me.todo:
        return None
    return [(world.delete(me.todo[0]), me._replace(seen=0, todo=me.todo[1:]))]


def _signs_of_life(me: Actor) -> tuple[File, ...]:
    markers = tuple(File(MARKER, me.instant, name) for name in me.attempts)
    return (*markers, File(HEARTBEAT, me.instant))


def commit_by(append: Append, *, validates: bool = True) -> Step:
    def commit(world: World, me: Actor) -> Successors:
        """Decide on what was read; the slot is won only if nothing happened since."""
        read = world.ledger[: me.seen]
        if is_aborted(read, me.instant):
            return [(world, STOPPED)]
        if validates and has_conflict(read, me):
            aborted = append(world, me.seen, Entry(ABORT, me.instant, next_time(read)))
            return [(aborted, STOPPED)] if aborted else _read_again(world, me)
        decided = append(world, me.seen, Entry(COMMIT, me.instant, bases=me.bases))
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
        published = File(COMPLETED, instant, decided.bases) in world.files
        return published and not world.of(instant, (MARKER, HEARTBEAT))
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
    outcomes = [entry.instant for entry in world.ledger if entry.kind != BEGIN]
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
    is_published = [
        File(COMPLETED, entry.instant, entry.bases) in world.files for entry in committed(world.ledger)
    ]
    return "" if is_published == sorted(is_published, reverse=True) else "I7 publication is out of order"


def time_is_repeated(world: World) -> str:
    """I8, with the times of rollbacks among the others."""
    begins = begun(world.ledger)
    times = [*begins, *(entry.rollback for entry in world.ledger if entry.rollback)]
    if list(begins) != sorted(begins) or len(times) != len(set(times)):
        return "I8 instant times are not unique and increasing"
    return ""


Invariant = Callable[[World], str]

TIMELINE_INVARIANTS: tuple[Invariant, ...] = (committed_file_is_missing, update_is_lost)
LEDGER_INVARIANTS: tuple[Invariant, ...] = (
    committed_file_is_missing,
    outcome_is_ambiguous,
    update_is_lost,
    publication_is_out_of_order,
    time_is_repeated,
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
        for instant in begun(world.ledger):
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
        of_instant = [file for file in files if file.instant == decided.instant]
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
