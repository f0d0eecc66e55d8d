"""The timeline: the instants of a table, as the files in `.hoodie` show them.

A reader, ours or anybody else's, sees exactly what the timeline shows. It
decides nothing; that is the ledger's part.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import sleep

from holdfast.errors import TableDamaged
from holdfast.format.commits import check_digest
from holdfast.format.malformed import report_damage
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.names import SHOWN_AS, instant_file
from holdfast.storage.store import Store
from holdfast.timeline.layout import layout_of

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}
_LOOKS = 20
_PAUSE_S = 0.05
"""A second is enough for the program that writes it; a file that stays unfinished is damaged."""
_AVRO_MARKER = 16
_READ_AT_ONCE = 32
"""Files of instants that are in memory together: one may have many megabytes."""


@dataclass(frozen=True)
class Timeline:
    """Instants in ascending order of time, each in the furthest state it reached."""

    instants: tuple[Instant, ...]

    @cached_property
    def completed_commits(self) -> tuple[Instant, ...]:
        """What queries see."""
        return tuple(i for i in self.instants if i.is_completed and i.action in COMMIT_ACTIONS)

    @cached_property
    def pending_writes(self) -> tuple[Instant, ...]:
        """Commits that did not finish: failed, or still running."""
        return tuple(i for i in self.instants if not i.is_completed and i.action in COMMIT_ACTIONS)

    @cached_property
    def pending_rollbacks(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if not i.is_completed and i.action is Action.ROLLBACK)

    @cached_property
    def pending_savepoints(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if not i.is_completed and i.action is Action.SAVEPOINT)

    @cached_property
    def completed_cleans(self) -> tuple[Instant, ...]:
        return tuple(i for i in self.instants if i.is_completed and i.action is Action.CLEAN)

    @property
    def newest(self) -> InstantTime | None:
        return self.instants[-1].time if self.instants else None

    @property
    def last_commit(self) -> Instant | None:
        return self.completed_commits[-1] if self.completed_commits else None

    @cached_property
    def first_commit_time(self) -> InstantTime | None:
        """Files of older instants were committed and archived.

        Archiving may leave a savepointed commit behind and take those after it.
        """
        kept = {instant.time for instant in self.instants if instant.action is Action.SAVEPOINT}
        times = [commit.time for commit in self.completed_commits]
        return next((time for time in times if time not in kept), times[-1] if times else None)

    def find(self, time: str, action: Action | None = None) -> Instant | None:
        """The instant with that time; the action matters where a savepoint shares its commit's time."""
        for instant in self.instants:
            if instant.time == time and (
                instant.action is action or (action is None and instant.action is not Action.SAVEPOINT)
            ):
                return instant
        return None


def load_timeline(store: Store) -> Timeline:
    """Read the active timeline: one listing, no file content."""
    furthest: dict[tuple[InstantTime, Action], Instant] = {}
    for instant in layout_of(store).instants(store):
        key = (instant.time, SHOWN_AS.get(instant.action, instant.action))
        known = furthest.get(key)
        if known is None or _RANK[known.state] < _RANK[instant.state]:
            furthest[key] = instant
    return Timeline(tuple(sorted(furthest.values(), key=lambda i: (i.time, i.action))))


def read_all_completed(store: Store, instants: Sequence[Instant]) -> Iterator[tuple[Instant, bytes]]:
    """The contents of many completed instants, in order; empty or absent content is damage."""
    for first in range(0, len(instants), _READ_AT_ONCE):
        some = instants[first : first + _READ_AT_ONCE]
        paths = [instant_file(i.time, i.action, State.COMPLETED) for i in some]
        for instant, path, content in zip(some, paths, store.read_all(paths), strict=True):
            yield instant, _whole(store, instant, path, content)


def read_completed(store: Store, instant: Instant) -> bytes:
    """The content of a completed instant's file; empty or absent content is damage."""
    path = instant_file(instant.time, instant.action, State.COMPLETED)
    (content,) = store.read_all([path])
    return _whole(store, instant, path, content)


def _whole(store: Store, instant: Instant, path: str, content: bytes | None) -> bytes:
    """The content, looked at again while it seems unfinished: Hudi creates such a file before it fills it."""
    for _ in range(_LOOKS):
        if content is None or not _is_torn(content):
            break
        sleep(_PAUSE_S)
        (content,) = store.read_all([path])
    if content is None:
        raise TableDamaged("a completed instant's file is missing", file=path)
    if not content:
        raise TableDamaged("a completed instant's file is empty", file=path)
    with report_damage("a completed instant's file was changed", file=path):
        check_digest(content, instant.time)
    return content


def _is_torn(content: bytes) -> bool:
    """Whether JSON or Avro, which ends as its head says, breaks off."""
    if content.startswith(b"Obj\x01"):
        return content.find(content[-_AVRO_MARKER:]) == len(content) - _AVRO_MARKER
    return not content or (content.startswith(b"{") and not content.rstrip().endswith(b"}"))
