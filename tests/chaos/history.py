"""What happened in a chaos run: the writers' logs, the ledger, and the rows that follow from both.

Every commit in the ledger belongs to one batch. Replayed in the ledger's order
the batches give all states the table ever had, and whatever a reader saw must
be one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import msgspec
import pyarrow as pa

from chaos.writer import Batch, Ended, Line, Retried, Started
from holdfast.format.ledger_entries import Entry, EntryKind
from holdfast.model.instant import Action

LEGAL = ("WriteConflict", "Fenced", "WriterActive", "OutcomeUnknown")
"""What a write may end with, beside a commit."""

Row = tuple[str, str, int, str]
"""Partition, id, value and batch."""


@dataclass
class Call:
    """One batch, and what its writer was told."""

    batch: Batch
    retries: list[str] = field(default_factory=list)
    ended: Ended | None = None

    @property
    def is_open(self) -> bool:
        """Whether the writer does not know what became of it."""
        return self.ended is None or self.ended.error == "OutcomeUnknown"

    @property
    def conflicts(self) -> list[str]:
        """The attempts that lost against another write, each in its own words."""
        is_conflict = self.ended is not None and self.ended.error == "WriteConflict"
        return [*self.retries, *([self.ended.cause] if is_conflict else [])]


@dataclass
class Life:
    """One process of a writer, from its log."""

    name: str
    started: Started
    calls: list[Call] = field(default_factory=list)

    @property
    def acknowledged(self) -> dict[str, Call]:
        """Instant → the call that was told it."""
        return {call.ended.instant: call for call in self.calls if call.ended and call.ended.instant}

    @property
    def fenced(self) -> list[str]:
        """The writes that lost their right, each in its own words."""
        return [call.ended.cause for call in self.calls if call.ended and call.ended.error == "Fenced"]


def read_lives(folder: Path) -> list[Life]:
    logs = ((path.stem, list(_lines(path))) for path in sorted(folder.glob("*.jsonl")))
    return [_life(name, lines) for name, lines in logs if lines]


def _lines(path: Path) -> Iterator[Line]:
    """The whole lines; what a kill cut off in the middle was not acted upon."""
    for line in takewhile(lambda line: line.endswith(b"\n"), path.read_bytes().splitlines(keepends=True)):
        yield msgspec.json.decode(line, type=Line)


def _life(name: str, lines: list[Line]) -> Life:
    assert isinstance(lines[0], Started), f"{name} does not begin with its start"
    life = Life(name, lines[0])
    for line in lines[1:]:
        match line:
            case Batch():
                life.calls.append(Call(line))
            case Retried():
                life.calls[-1].retries.append(line.cause)
            case Ended():
                life.calls[-1].ended = line
    return life


@dataclass(frozen=True)
class Read:
    """What a reader saw, and when."""

    reader: str
    shown: int
    """The newest slot whose commit was shown when the read began."""
    decided: int
    """The newest slot when the read had ended."""
    rows: pa.Table


@dataclass(frozen=True)
class Stop:
    """A process that was stopped while its write was undecided, until others had rolled the write back."""

    instant: str
    log: str


class History:
    """A run, put together from the ledger and the logs. `violations` says what does not fit."""

    def __init__(self, entries: Iterable[Entry], lives: Iterable[Life]) -> None:
        self.entries = list(entries)
        self.lives = list(lives)
        self.violations: list[str] = []
        self._begun = {entry.instant: entry for entry in self.entries if entry.kind is EntryKind.BEGIN}
        self._committed = _committed(self.entries)
        self._batches = self._matched()
        self._slots, self._states = self._replayed()

    @property
    def rows(self) -> list[Row]:
        """What the table must hold at the end."""
        return self._states[-1]

    @property
    def calls(self) -> list[Call]:
        return [call for life in self.lives for call in life.calls]

    @property
    def aborted(self) -> set[str]:
        return {entry.instant for entry in self.entries if entry.kind is EntryKind.ABORT}

    @property
    def revoked(self) -> int:
        return sum(len(entry.revoked) for entry in self.entries if entry.kind is EntryKind.REVOKE)

    def check_calls(self) -> None:
        """Whether every writer was told something that may happen."""
        for call in self.calls:
            ended = call.ended
            if ended is not None and ended.error not in ("", *LEGAL):
                self._say(f"{call.batch.name} ended with {ended.error}: {ended.cause}")
            if ended is not None and ended.problems:
                self._say(f"{call.batch.name} was committed with problems: {ended.problems}")

    def check_stop(self, stop: Stop) -> None:
        """Whether a writer that slept through its own rollback was told so, and changed nothing."""
        if stop.instant in self._committed or stop.instant not in self.aborted:
            self._say(f"{stop.log} was stopped in {stop.instant}, which was not aborted")
        life = next(life for life in self.lives if life.name == stop.log)
        told = [*life.fenced, *(cause for call in life.calls for cause in call.conflicts)]
        # An attempt may have lost against another write already when its process was stopped.
        if not any(f"instant: {stop.instant}" in cause for cause in told):
            self._say(f"{stop.log} was stopped in {stop.instant}, and not told that it was rolled back")

    def check_reads(self, reads: Iterable[Read]) -> None:
        """Whether each read gave one state of its time, and none an older one than the read before it."""
        before: dict[str, int] = {}
        for read in reads:
            first = max(before.get(read.reader, 0), bisect_right(self._slots, read.shown) - 1)
            last = bisect_right(self._slots, read.decided) - 1
            seen = rows_of(read.rows)
            found = next((at for at in range(first, last + 1) if self._states[at] == seen), None)
            if found is None:
                near = difference(self._states[last], seen)
                self._say(f"{read.reader} saw at slots {read.shown} to {read.decided} no such state: {near}")
            else:
                before[read.reader] = found

    def _say(self, violation: str) -> None:
        self.violations.append(violation)

    def _matched(self) -> Mapping[str, Batch]:
        """The batch of every commit. Only the last batch of a process may be unknown to it."""
        batches: dict[str, Batch] = {}
        strangers = set(self._committed)
        for life in self.lives:
            mine = [time for time in self._committed if self._is_of(life, time)]
            strangers -= set(mine)
            acknowledged = {time: call.batch for time, call in life.acknowledged.items()}
            for time in acknowledged.keys() - set(mine):
                self._say(f"{acknowledged[time].name} was acknowledged as {time}, which nobody committed")
            batches |= acknowledged
            unclaimed = [time for time in mine if time not in acknowledged]
            if len(unclaimed) == 1 and life.calls[-1].is_open and unclaimed[0] == max(mine):
                batches[unclaimed[0]] = life.calls[-1].batch
            elif unclaimed:
                self._say(f"{life.name} committed {unclaimed}, and was told that it had not")
        if strangers:
            self._say(f"nobody committed {sorted(strangers)}")
        return batches

    def _is_of(self, life: Life, time: str) -> bool:
        owner = self._begun[time].owner
        return owner is not None and (owner.pid, owner.started) == (life.started.pid, life.started.started)

    def _replayed(self) -> tuple[list[int], list[list[Row]]]:
        """The slots at which the rows changed, and the rows from there on."""
        slots: list[int] = [0]
        states: list[list[Row]] = [[]]
        standing: list[Entry] = []
        table = _Table()
        for entry in self.entries:
            if self._committed.get(entry.instant) == entry.slot:
                standing.append(entry)
                self._apply(table, entry)
            elif entry.kind is EntryKind.REVOKE:
                revoked = {one.instant for one in entry.revoked}
                standing = [other for other in standing if other.instant not in revoked]
                table = _Table()
                for other in standing:
                    self._apply(table, other)
            else:
                continue
            slots.append(entry.slot)
            states.append(table.rows())
        return slots, states

    def _apply(self, table: _Table, commit: Entry) -> None:
        batch = self._batches.get(commit.instant)
        if batch is not None:
            table.apply(batch, begun=self._begun[commit.instant].slot, committed=commit.slot)


def _committed(entries: Iterable[Entry]) -> dict[str, int]:
    """Instant → slot, of those whose first outcome is a COMMIT. Compactions change no row."""
    outcomes: dict[str, Entry] = {}
    for entry in entries:
        if entry.kind in (EntryKind.COMMIT, EntryKind.ABORT) and entry.action is not Action.COMPACTION:
            outcomes.setdefault(entry.instant, entry)
    return {time: entry.slot for time, entry in outcomes.items() if entry.kind is EntryKind.COMMIT}


class _Table:
    """The rows of a table as batches leave them one after the other."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[Row, int]] = {}

    def apply(self, batch: Batch, *, begun: int, committed: int) -> None:
        if batch.operation == "delete":
            self._delete(batch, begun)
            return
        if batch.operation == "insert_overwrite":
            replaced = {partition for partition, _ in batch.keys}
            self._rows = {key: row for key, row in self._rows.items() if key[0] not in replaced}
        for partition, key in batch.keys:
            self._rows[partition, key] = ((partition, key, batch.value, batch.name), committed)

    def _delete(self, batch: Batch, begun: int) -> None:
        """A delete removes what was there when it began; a key that came meanwhile comes after it."""
        for key in batch.keys:
            if key in self._rows and self._rows[key][1] < begun:
                del self._rows[key]

    def rows(self) -> list[Row]:
        return sorted(row for row, _ in self._rows.values())


def rows_of(table: pa.Table) -> list[Row]:
    columns = (table[name].to_pylist() for name in ("part", "id", "value", "batch"))
    return sorted(zip(*columns, strict=True)) if table.num_rows else []


def difference(expected: list[Row], seen: list[Row]) -> str:
    missing, extra = sorted(set(expected) - set(seen)), sorted(set(seen) - set(expected))
    twice = len(seen) - len(set(seen))
    return f"missing {missing[:5]} of {len(missing)}, not expected {extra[:5]} of {len(extra)}, twice {twice}"
