"""What was taken back so long ago that the timeline tells of it no more.

Readers take a file that is older than the timeline for one of an archived
commit. As long as a rollback or a restore is on the timeline, it says which
are not. One leaves the timeline only when no file of what it took back is left;
but a task that slept may finish one afterwards. So whoever archives it first
enters into a record what was taken back. The record only grows, by a line for
each stretch of time in which nothing stands: one instant of a rollback, or all
that lies between the commit that a restore went to and the restore itself.
Stretches that meet are one, so a table that is restored to the same commit
again and again has one line. What rollbacks and restores say themselves is in
the archive, from which the record is made anew if it is lost.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.format.malformed import Malformed, report_damage
from holdfast.format.restores import decode_restore_metadata, decode_restore_plan
from holdfast.format.rollbacks import decode_rollback_metadata
from holdfast.model.instant import Action, Instant, InstantTime, State, end_of
from holdfast.model.names import ARCHIVED_UNDONE, instant_file, instant_path
from holdfast.storage.store import Store, read_or_none
from holdfast.table.archive import read_archive
from holdfast.table.line_record import change_lines, decode_lines
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline

log = logging.getLogger(__name__)

_NEVER_AGAIN = (Action.COMMIT, Action.DELTACOMMIT)
"""What Hudi begins anew with another instant. A service that was rolled back is carried out at the same."""


class Stretch(NamedTuple):
    """Moments, to the millisecond, in which nothing stands: from the first to the last."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Undone:
    """Stretches that do not meet, ascending."""

    stretches: tuple[Stretch, ...] = ()

    def covers(self, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the moments lie in a stretch."""
        if not self.stretches:
            return np.zeros(len(moments), dtype=np.bool_)
        bounds = np.array(self.stretches, dtype=np.int64)
        at = np.searchsorted(bounds[:, 0], moments, side="right") - 1
        covered: npt.NDArray[np.bool_] = (at >= 0) & (moments <= bounds[at, 1])
        return covered


def read_undone(store: Store) -> Undone:
    """What the record says; if it cannot be read, what the archive says, as `verify` tells."""
    content = read_or_none(store, ARCHIVED_UNDONE)
    known = _decode_or_warn(store, content)
    if known is not None:
        return Undone(known)
    return Undone(_find_archived_undone(store))


def check_undone(store: Store) -> None:
    """`Malformed` if the record is there and cannot be read."""
    content = read_or_none(store, ARCHIVED_UNDONE)
    if content is not None:
        _decode(content)


def add_to_undone(
    store: Store, stretches: Collection[Stretch], aborted: Callable[[], Collection[InstantTime]]
) -> None:
    """Add what rollbacks and restores took back that are about to leave the timeline.

    A record that is lost, or cannot be read, is made anew; only then `aborted` is asked for
    all instants that the ledger aborted.
    """
    if not stretches:
        return

    def change(content: bytes | None) -> list[str] | None:
        known = None if content is None else _decode_or_warn(store, content)
        merged = _merge((*(_find_archived_undone(store, aborted()) if known is None else known), *stretches))
        return None if merged == known else [f"{one.first} {one.last}" for one in merged]

    change_lines(store, ARCHIVED_UNDONE, change)


def find_undone(
    store: Store,
    instants: Iterable[Instant],
    aborted: Collection[InstantTime],
    *,
    standing: Iterable[InstantTime] = (),
    archived: ArchivedTimeline = NO_ARCHIVE,
) -> tuple[Stretch, ...]:
    """What the rollbacks and restores among the instants took back for good.

    `aborted` are instants of ours, which are never begun again; `standing` are commits that
    stand all the same, as a foreign writer may have left them.
    """
    undoing = [i for i in instants if i.action in (Action.ROLLBACK, Action.RESTORE) and i.is_completed]
    found: list[Stretch] = []
    for instant, content in archived.read_completed(store, undoing):
        with report_damage("what was rolled back cannot be read", file=instant_path(instant)):
            if instant.action is Action.ROLLBACK:
                taken_back = decode_rollback_metadata(content).instants
                times = [i.time for i in taken_back if i.action in _NEVER_AGAIN or i.time in aborted]
            else:
                times = list(decode_restore_metadata(content).commits)
                found += _gap_of(store, instant, archived)
        found += (Stretch(int(end_of(time)), int(end_of(time))) for time in times)
    return _without(_merge(found), standing)


def _gap_of(store: Store, restore: Instant, archived: ArchivedTimeline) -> Iterator[Stretch]:
    """All that lies between the commit that a restore went to, and itself, if it says where it went."""
    content = archived.content(restore.time, Action.RESTORE, State.REQUESTED)
    if content is None:
        content = read_or_none(store, instant_file(restore.time, Action.RESTORE, State.REQUESTED))
    try:
        target = decode_restore_plan(content).savepoint if content else None
    except Malformed:
        target = None  # `verify` reports it. What was taken back is said by name, too.
    if target is not None:
        yield Stretch(int(end_of(target)) + 1, int(end_of(restore.time)) - 1)


def _find_archived_undone(store: Store, aborted: Collection[InstantTime] = ()) -> tuple[Stretch, ...]:
    archived = read_archive(store)
    return find_undone(store, archived.timeline.instants, aborted, archived=archived)


def _without(stretches: Iterable[Stretch], times: Iterable[InstantTime]) -> tuple[Stretch, ...]:
    """The stretches, cut in two where one of the times lies."""
    left = list(stretches)
    for time in times:
        left = [part for stretch in left for part in _cut(stretch, int(end_of(time)))]
    return tuple(left)


def _cut(stretch: Stretch, moment: int) -> list[Stretch]:
    if not stretch.first <= moment <= stretch.last:
        return [stretch]
    parts = Stretch(stretch.first, moment - 1), Stretch(moment + 1, stretch.last)
    return [part for part in parts if part.first <= part.last]


def _merge(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    merged: list[Stretch] = []
    for one in sorted(stretches):
        if merged and one.first <= merged[-1].last + 1:
            merged[-1] = Stretch(merged[-1].first, max(merged[-1].last, one.last))
        elif one.first <= one.last:
            merged.append(one)
    return tuple(merged)


def _decode_or_warn(store: Store, content: bytes | None) -> tuple[Stretch, ...] | None:
    """What a record says, nothing if there is none; None if it cannot be read."""
    try:
        return () if content is None else _decode(content)
    except Malformed as error:
        log.warning(
            "undone.unreadable",
            extra={"table": store.uri(""), "file": ARCHIVED_UNDONE, "cause": str(error)},
        )
        return None


def _decode(content: bytes) -> tuple[Stretch, ...]:
    lines = decode_lines(content)
    try:
        return tuple(Stretch(*map(int, line.split(" "))) for line in lines)
    except (ValueError, TypeError) as error:
        raise Malformed(f"a line is not a stretch of time: {error}") from error
