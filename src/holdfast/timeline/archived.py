"""The archived timeline: instants that left the active one, and what they said.

Nothing here is needed to read a table as it is now. An instant may be in
several archives, and on the active timeline as well, if its archiver
died; it counts once.
"""

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from holdfast.format.archive import ArchivedFile, decode_archive
from holdfast.model.instant import COMMIT_ACTIONS, Action, Instant, InstantTime, State
from holdfast.model.names import META_FOLDER, SHOWN_AS, is_restore_archive, parse_archive
from holdfast.storage.store import Store, StoredFile
from holdfast.timeline.layout import layout_of
from holdfast.timeline.timeline import Timeline, read_all_completed

log = logging.getLogger(__name__)

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}

Key = tuple[InstantTime, Action]
"""The action is what the timeline calls it when it is completed."""


@dataclass(frozen=True)
class ArchivedTimeline:
    files: Mapping[tuple[InstantTime, Action, State], ArchivedFile] = field(default_factory=dict)
    is_whole: bool = True
    """Whether all archives could be read."""

    @cached_property
    def timeline(self) -> Timeline:
        """The instants, each in the furthest state it reached."""
        furthest: dict[Key, Instant] = {}
        for (time, action, state), file in self.files.items():
            key = (time, SHOWN_AS.get(action, action))
            known = furthest.get(key)
            if known is None or _RANK[known.state] < _RANK[state]:
                moment = file.changed_at if state is State.COMPLETED else None
                furthest[key] = Instant(time, action, state, moment, file.completion)
        return Timeline(tuple(sorted(furthest.values(), key=lambda i: (i.time, i.action))))

    def content(self, time: InstantTime, action: Action, state: State = State.COMPLETED) -> bytes | None:
        """What the file of an instant says; None if it is not archived, or nothing of it is kept."""
        file = self.files.get((time, action, state))
        return file.content if file is not None and file.content else None

    def read_completed(self, store: Store, instants: Sequence[Instant]) -> Iterator[tuple[Instant, bytes]]:
        """As `read_all_completed`, of archived instants, too."""
        contents = {instant: self.content(instant.time, instant.action) for instant in instants}
        active = [instant for instant in instants if contents[instant] is None]
        contents |= dict(read_all_completed(store, active))
        for instant in instants:
            content = contents[instant]
            assert content is not None, "what is not archived was read, or that failed"
            yield instant, content

    def with_active(self, active: Timeline) -> Timeline:
        """All instants, archived or not. What is on the active timeline counts."""
        shown = {_key(instant) for instant in active.instants}
        older = [instant for instant in self.timeline.instants if _key(instant) not in shown]
        return Timeline(tuple(sorted((*older, *active.instants), key=lambda i: (i.time, i.action))))

    def without_between(self, gaps: Sequence[tuple[InstantTime, InstantTime]]) -> "ArchivedTimeline":
        """Without the commits that lie between two instants, for each of the pairs."""
        if not gaps:
            return self
        kept = {
            key: file
            for key, file in self.files.items()
            if key[1] not in COMMIT_ACTIONS or not any(after < key[0] < before for after, before in gaps)
        }
        return ArchivedTimeline(kept, self.is_whole)


NO_ARCHIVE = ArchivedTimeline()


def archives(store: Store, folder: str) -> dict[int, str]:
    """The archives of a table by their numbers, ascending; those of restores are not among them."""
    return {number: file.path for number, file in archive_files(store, folder).items()}


def archive_files(store: Store, folder: str) -> dict[int, StoredFile]:
    """As `archives`, with what storage says of each. Hudi may append to one, so its size is part of it."""
    return _by_number(store.folder(f"{META_FOLDER}/{folder}").files)


def _by_number(listed: Iterable[StoredFile]) -> dict[int, StoredFile]:
    numbered = [(parse_archive(file.path.rpartition("/")[2]), file) for file in listed]
    found = [(number, file) for number, file in numbered if number is not None]
    return dict(sorted(found, key=lambda one: (one[0], one[1].path)))


def load_archived(store: Store, folder: str, zone: dt.tzinfo) -> ArchivedTimeline:
    """Read all archives, whatever the layout of the timeline."""
    return layout_of(store).archived(store, folder, zone)


def load_archived_files(store: Store, folder: str, zone: dt.tzinfo) -> ArchivedTimeline:
    """Read all archives of layout 1. One that was merged into another meanwhile is read there."""
    listed = store.folder(f"{META_FOLDER}/{folder}").files
    restores = [file.path for file in listed if is_restore_archive(file.path.rpartition("/")[2])]
    return read_archives(store, [*(file.path for file in _by_number(listed).values()), *restores], zone)


def read_archives(store: Store, paths: Sequence[str], zone: dt.tzinfo = dt.UTC) -> ArchivedTimeline:
    """Read some archives. One that is gone says nothing."""
    files: dict[tuple[InstantTime, Action, State], ArchivedFile] = {}
    is_whole = True
    for path, content in zip(paths, store.read_all(paths), strict=True):
        if content is None:
            continue
        archive = decode_archive(content, zone)
        if not archive.is_whole:
            is_whole = False
            log.warning("archive.damaged", extra={"table": store.uri(""), "file": store.uri(path)})
        for file in archive.files:
            files.setdefault((file.time, SHOWN_AS.get(file.action, file.action), file.state), file)
    return ArchivedTimeline(files, is_whole)


def _key(instant: Instant) -> Key:
    return instant.time, SHOWN_AS.get(instant.action, instant.action)
