"""What a run of the push service's load did and saw, and what must hold of it.

The audit tells which snapshot every epoch of every table shows. Each answer
must be that snapshot, whole; each acknowledged switch must be in the audit;
and the lineage must be what the audit leads to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.model.lineage import Lineage
from holdfast.push.audit import AuditRecord

_NAMED = re.compile(r"_(\d+)_\d+\Z")


def segment_name(table: str, number: int, part: int) -> str:
    return f"{table}_{number}_{part}"


def parts_of(number: int) -> int:
    """How many segments a snapshot has; its neighbours have another number of them."""
    return 1 + number % 3


def rows_of(number: int) -> int:
    """How many rows a snapshot has; they are numbered from 0, and each carries the snapshot's number."""
    return 60 + 12 * (number % 5)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one query said of all the rows that it read."""

    client: int
    broker: str
    epochs: Mapping[str, int]
    """By table."""
    asked: Mapping[str, int]
    """The epochs that it asked for at least."""
    least: int
    greatest: int
    """Of the numbers of the snapshots that the rows carry."""
    rows: int
    total: int
    """Of the numbers of the rows."""
    times: int = 1
    """How often the query reads each row: once for every table of a union."""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """An end or a revert that was acknowledged."""

    table: str
    entry: str
    state: str
    """What the entry became."""
    epoch: int
    is_repeat: bool
    """An earlier attempt may have done it: nobody was told."""


@dataclass
class TableHistory:
    """What is left of a table's story when all is over."""

    audit: Sequence[AuditRecord]
    """Oldest first."""
    lineage: Lineage
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shown: dict[int, int | None] = {}
        """The number of the snapshot at each epoch; None where there was none, or not one alone."""
        self._replay()
        self._check_lineage()

    def _replay(self) -> None:
        visible: set[str] = set()
        for number, (before, record) in enumerate(_pairs(self.audit), start=1):
            if record.number != number:
                self.violations.append(f"record {number} of the audit is missing: {record.number} follows")
            if before is not None and record.epoch_before != before.epoch_after:
                self.violations.append(
                    f"between records {before.number} and {record.number} the epoch went "
                    f"from {before.epoch_after} to {record.epoch_before}"
                )
            visible -= _names(record, "hidden") | _names(record, "removed")
            visible |= _names(record, "shown")
            numbers = {_number_of(name) for name in visible}
            one = numbers.pop() if len(numbers) == 1 else None
            is_whole = one is not None and len(visible) == parts_of(one)
            self.shown[record.epoch_after] = one if is_whole else None

    def _check_lineage(self) -> None:
        told: dict[str, str] = {}
        for record in self.audit:
            told |= record.entries
        left = {entry: state for entry, state in told.items() if state}
        found = {entry.id: str(entry.state) for entry in self.lineage.entries}
        for entry in left.keys() | found.keys():
            if left.get(entry) != found.get(entry):
                self.violations.append(
                    f"{entry} is {found.get(entry, 'not')} in the lineage, "
                    f"and {left.get(entry, 'gone')} by the audit"
                )

    def check_switch(self, switch: Switch) -> None:
        """An acknowledged end or revert must have happened, once, at the epoch that was told."""
        happened = [one for one in self.audit if one.entries.get(switch.entry) == switch.state]
        changed = [one for one in happened if one.epoch_after != one.epoch_before]
        if not changed:
            self.violations.append(f"{switch} was acknowledged and is not in the audit")
        elif not switch.is_repeat and switch.epoch not in {one.epoch_after for one in changed}:
            self.violations.append(f"{switch} was acknowledged with another epoch than the audit has")

    def check_epoch(self, answer: Answer, table: str) -> None:
        """Every epoch shows one snapshot, the same to everybody."""
        epoch = answer.epochs[table]
        if epoch not in self.shown:
            self.violations.append(f"{answer} has an epoch that the audit does not know")
        elif self.shown[epoch] != answer.least:
            self.violations.append(f"{answer}: at this epoch {table} shows {self.shown[epoch]}")


def mixed(answers: Iterable[Answer]) -> list[str]:
    """Answers that are not from exactly one snapshot, or not from all of it."""
    return [f"mixed or partial: {answer}" for answer in answers if not _is_whole(answer)]


def gone_back(answers: Iterable[Answer]) -> list[str]:
    """Answers older than what was asked for, or than what the same client had seen before."""
    found: list[str] = []
    seen: dict[tuple[int, str], int] = {}
    for answer in answers:
        for table, epoch in answer.epochs.items():
            newest = max(seen.get((answer.client, table), 0), answer.asked.get(table, 0))
            if epoch < newest:
                found.append(f"gone back from epoch {newest} of {table}: {answer}")
            seen[answer.client, table] = max(newest, epoch)
    return found


def _is_whole(answer: Answer) -> bool:
    rows = rows_of(answer.least)
    return (
        answer.least == answer.greatest
        and answer.rows == answer.times * rows
        and answer.total == answer.times * rows * (rows - 1) // 2
    )


def _pairs(audit: Sequence[AuditRecord]) -> Iterator[tuple[AuditRecord | None, AuditRecord]]:
    yield from zip((None, *audit), audit, strict=False)


def _names(record: AuditRecord, fact: str) -> set[str]:
    """`3: a, b, c` as the audit lists names; no snapshot here has so many that some are left out."""
    _, _, listed = record.facts.get(fact, "").partition(": ")
    return set(listed.split(", ")) if listed else set()


def _number_of(name: str) -> int:
    found = _NAMED.search(name)
    assert found is not None, name
    return int(found[1])
