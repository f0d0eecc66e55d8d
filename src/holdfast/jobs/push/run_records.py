"""Run records: which push jobs are under way, and what a killed one left.

A job puts a small record beside the segments before it builds the first, and
removes it when nothing is left to tidy up. The next job of the table finds the
records of others: of one whose process is provably gone it takes back the open
push and the files that became no segments; it keeps away from one that lives;
of one that cannot be judged it waits until the lease of its push has expired.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.config.push import raw_name
from holdfast.errors import Conflict
from holdfast.host import Host, Liveness, Owner
from holdfast.jobs.push.replacement import PushTarget, open_entry_of, revert_entry
from holdfast.push.segments.deep_store import run_path, runs_folder
from holdfast.storage.store import Store


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What a job replaces: everything, or the rows of a time and a partition."""

    start_ms: int | None = None
    end_ms: int | None = None
    partition: tuple[str, str] | None = None
    adds_only: bool = False
    """It replaces nothing, and so blocks no other job."""

    def meets(self, other: "Scope") -> bool:
        """Whether both cannot be under way at once."""
        if self.adds_only or other.adds_only:
            return False
        if None in (self.start_ms, self.end_ms, other.start_ms, other.end_ms):
            return True
        assert self.start_ms is not None and self.end_ms is not None  # noqa: PT018
        assert other.start_ms is not None and other.end_ms is not None  # noqa: PT018
        apart = self.end_ms <= other.start_ms or other.end_ms <= self.start_ms
        is_elsewhere = None not in (self.partition, other.partition) and self.partition != other.partition
        return not (apart or is_elsewhere)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    owner: Owner
    started_ms: int
    scope: Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedUp:
    """What was found of another job, and taken back."""

    owner: Owner
    entry_id: str
    files: int

    def __str__(self) -> str:
        push = f"its push {self.entry_id} and " if self.entry_id else ""
        return f"a job of {self.owner} had been killed: {push}{self.files} files were taken back"


def write_record(store: Store, table: str, record: RunRecord) -> None:
    store.put(run_path(table, record.run), msgspec.json.encode(record))


def remove_record(store: Store, table: str, run: str) -> None:
    store.delete(run_path(table, run))


def clean_up(
    targets: Sequence[PushTarget],
    store: Store,
    host: Host,
    mine: RunRecord,
    discard: Callable[[RunRecord], int],
) -> list[CleanedUp]:
    """Take back what dead jobs left; `Conflict` names one that lives and is in the way.

    `discard` deletes the files of a run that became no segments, and counts them.
    """
    table = targets[0].table
    found: list[CleanedUp] = []
    for record in _others(store, table, mine.run):
        match host.liveness(record.owner):
            case Liveness.ALIVE if mine.scope.meets(record.scope) and _is_first(record, mine):
                raise Conflict(
                    "another push job of the table is running",
                    table=table,
                    job=record.run,
                    owner=record.owner,
                    hint="wait until it has ended",
                )
            case Liveness.GONE:
                entries = [_revert_open_push(target, record.run) for target in targets]
                found.append(CleanedUp(owner=record.owner, entry_id=entries[0], files=discard(record)))
                remove_record(store, table, record.run)
    return found


def run_files(store: Store, table: str, run: str) -> list[str]:
    """The files that a run has built, registered or not."""
    return [path for path in store.paths(raw_name(table)) if f"__{run}-" in path]


def _revert_open_push(target: PushTarget, run: str) -> str:
    """The push that the run had left open; empty if there was none."""
    entry_id = open_entry_of(target, run)
    if entry_id:
        revert_entry(target, entry_id)
    return entry_id


def _is_first(other: RunRecord, mine: RunRecord) -> bool:
    """Of two that begin at once one must go on; both look only after their records are there."""
    return (other.started_ms, other.run) < (mine.started_ms, mine.run)


def _others(store: Store, table: str, run: str) -> Iterator[RunRecord]:
    for path in store.paths(runs_folder(table)):
        try:
            record = msgspec.json.decode(store.read(path), type=RunRecord)
        except FileNotFoundError:
            continue  # That job has just ended.
        except msgspec.MsgspecError:
            continue  # Not one of ours, or of a later version: its lease protects it.
        if record.run != run:
            yield record
