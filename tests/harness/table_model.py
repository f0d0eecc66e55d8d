"""What a table must hold after any sequence of writes, by a dict and plain Python.

Nothing here is shared with the code under test: keys and partition paths are
spelled out by hand, and rows are merged one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Row = Mapping[str, Any]
Identity = tuple[str, str]
"""Partition and key of a record; with a global index the partition is left open."""

FLAG = "_hoodie_is_deleted"
_KEYGEN = "hoodie.table.keygenerator.class"
_HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
_TIMESTAMPS = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
}
_NOON = 12 * 3_600_000
_DAY_1, _DAY_2, _DAY_3 = (days * 86_400_000 + _NOON for days in (19675, 19676, 0))
"""2023-11-14, 2023-11-15 and 1970-01-01."""


@dataclass(frozen=True)
class Generator:
    """A key generator, with the places its rows can be at."""

    name: str
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    places: tuple[tuple[Row, str], ...]
    """The values of partition columns, each with the path they make."""
    key: Callable[[Row], str]
    properties: Mapping[str, str] = field(default_factory=dict)


def _plain_key(row: Row) -> str:
    return row["id"]


def _complex_key(row: Row) -> str:
    return f"id:{row['id']},n:{row['n']}"


GENERATORS = (
    Generator(
        "simple",
        ("id",),
        ("city",),
        (
            ({"city": "paris"}, "city=paris"),
            ({"city": "new york"}, "city=new york"),
            ({"city": None}, "city=__HIVE_DEFAULT_PARTITION__"),
        ),
        _plain_key,
    ),
    Generator(
        "simple, not hive style",
        ("id",),
        ("city",),
        (
            ({"city": "paris"}, "paris"),
            ({"city": "eu/rome"}, "eu/rome"),
            ({"city": "eu/são"}, "eu/são"),
        ),
        _plain_key,
        {_HIVE_STYLE: "false"},
    ),
    Generator(
        "simple, url-encoded",
        ("id",),
        ("city",),
        (
            ({"city": "eu/rome"}, "city=eu%2Frome"),
            ({"city": "50% = a?"}, "city=50%25 %3D a%3F"),
            ({"city": "são"}, "city=são"),
        ),
        _plain_key,
        {"hoodie.datasource.write.partitionpath.urlencode": "true"},
    ),
    Generator(
        "complex",
        ("id", "n"),
        ("city", "zone"),
        (
            ({"city": "paris", "zone": 1}, "city=paris/zone=1"),
            ({"city": "paris", "zone": None}, "city=paris/zone=__HIVE_DEFAULT_PARTITION__"),
            ({"city": "rome", "zone": -1}, "city=rome/zone=-1"),
        ),
        _complex_key,
    ),
    Generator(
        "complex of one key column",
        ("id",),
        ("city",),
        (({"city": "paris"}, "paris"), ({"city": "rome"}, "rome"), ({"city": "oslo"}, "oslo")),
        lambda row: f"id:{row['id']}",
        {_KEYGEN: "org.apache.hudi.keygen.ComplexKeyGenerator", _HIVE_STYLE: "false"},
    ),
    Generator(
        "non-partitioned",
        ("id",),
        (),
        (({"city": "paris"}, ""), ({"city": "rome"}, ""), ({"city": None}, "")),
        _plain_key,
    ),
    Generator(
        "timestamp-based",
        ("id",),
        ("at",),
        (({"at": _DAY_1}, "2023/11/14"), ({"at": _DAY_2}, "2023/11/15"), ({"at": _DAY_3}, "1970/01/01")),
        _plain_key,
        {_KEYGEN: "TIMESTAMP", _HIVE_STYLE: "false", **_TIMESTAMPS},
    ),
    Generator(
        "custom",
        ("id", "n"),
        ("city:SIMPLE", "at:TIMESTAMP"),
        (
            ({"city": "paris", "at": _DAY_1}, "city=paris/at=2023/11/14"),
            ({"city": "paris", "at": _DAY_2}, "city=paris/at=2023/11/15"),
            ({"city": "rome", "at": _DAY_1}, "city=rome/at=2023/11/14"),
        ),
        _complex_key,
        {_KEYGEN: "CUSTOM", **_TIMESTAMPS},
    ),
)


@dataclass(frozen=True)
class Index:
    name: str
    options: Mapping[str, str]
    is_global: bool = False
    moves: bool = False
    """Whether a record follows its partition columns."""


def _index(kind: str, **more: str) -> dict[str, str]:
    return {"hoodie.index.type": kind, **more}


_STAYS = {"hoodie.simple.index.update.partition.path": "false"}
_STAYS_BLOOM = {"hoodie.bloom.index.update.partition.path": "false"}

INDEXES = (
    Index("SIMPLE", {}),
    Index("BLOOM", _index("BLOOM")),
    Index("GLOBAL_SIMPLE", _index("GLOBAL_SIMPLE"), is_global=True, moves=True),
    Index("GLOBAL_SIMPLE in place", _index("GLOBAL_SIMPLE", **_STAYS), is_global=True),
    Index("GLOBAL_BLOOM", _index("GLOBAL_BLOOM"), is_global=True, moves=True),
    Index("GLOBAL_BLOOM in place", _index("GLOBAL_BLOOM", **_STAYS_BLOOM), is_global=True),
    Index("BUCKET", _index("BUCKET", **{"hoodie.bucket.index.num.buckets": "3"})),
)


@dataclass(frozen=True)
class Record:
    row: Row
    key: str
    partition: str
    """Where it is stored, whatever its columns say by now."""
    time: str | None
    """The commit that wrote it; None until that has a name."""


Records = Mapping[Identity, Record]


@dataclass(frozen=True)
class Outcome:
    """What a write must give."""

    records: Records
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def at(self, time: str) -> Records:
        """The records once the commit has this time."""
        return {
            identity: replace(record, time=record.time or time) for identity, record in self.records.items()
        }


@dataclass(frozen=True)
class TableModel:
    """The rules of a table; its records are passed in and out."""

    generator: Generator
    index: Index
    by_event_time: bool

    def partition(self, row: Row) -> str:
        for columns, path in self.generator.places:
            if all(row[name] == value for name, value in columns.items()):
                return path
        raise AssertionError(f"a row is at no known place: {row}")

    def identity(self, row: Row) -> Identity:
        return ("" if self.index.is_global else self.partition(row), self.generator.key(row))

    def upsert(self, records: Records, rows: Iterable[Row]) -> Outcome:
        return self._merged(records, [(row, bool(row.get(FLAG))) for row in rows], ordered=True)

    def delete(self, records: Records, rows: Iterable[Row], *, ordered: bool) -> Outcome:
        """`ordered`: whether the rows have the ordering column."""
        return self._merged(records, [(row, True) for row in rows], ordered=ordered)

    def insert(self, records: Records, rows: Iterable[Row]) -> Outcome:
        """Of rows whose identities are not in the table."""
        new = {self.identity(row): self._record(row) for row in self.reduced(rows)}
        assert not new.keys() & records.keys(), "an insert would not look for these keys"
        return Outcome({**records, **new}, inserted=len(new))

    def overwrite(self, records: Records, rows: list[Row]) -> Outcome:
        """Rows in place of the partitions they are of."""
        reduced = self.reduced(rows)
        return self.insert(self.beside(records, reduced), reduced)

    def beside(self, records: Records, rows: Iterable[Row]) -> Records:
        """The records in other partitions than the rows."""
        return self.without(records, {self.partition(row) for row in rows})

    def without(self, records: Records, partitions: set[str]) -> Records:
        return {name: record for name, record in records.items() if record.partition not in partitions}

    def reduced(self, rows: Iterable[Row], *, ordered: bool = True) -> list[Row]:
        """One row per identity: the greatest in order, of equals the last; null is the least."""
        newest: dict[Identity, Row] = {}
        for row in rows:
            name = self.identity(row)
            if name not in newest or not ordered or not _is_older(row["ts"], newest[name]["ts"]):
                newest[name] = row
        return list(newest.values())

    def _merged(self, records: Records, rows: list[tuple[Row, bool]], *, ordered: bool) -> Outcome:
        removes = {id(row): remove for row, remove in rows}
        left = dict(records)
        inserted = updated = deleted = 0
        for row in self.reduced((row for row, _ in rows), ordered=ordered):
            name, new, remove = self.identity(row), self._record(row), removes[id(row)]
            old = left.get(name)
            if old is None:
                if not remove:
                    left[name] = new
                    inserted += 1
                continue
            if self.by_event_time and ordered and _is_older(row["ts"], old.row["ts"]):
                continue
            if remove:
                del left[name]
                deleted += 1
            elif new.partition != old.partition and self.index.moves:
                left[name] = new
                deleted += 1
                inserted += 1
            else:
                left[name] = replace(new, partition=old.partition)
                updated += 1
        return Outcome(left, inserted, updated, deleted)

    def _record(self, row: Row) -> Record:
        return Record(row, self.generator.key(row), self.partition(row), None)


def _is_older(ordering: int | None, other: int | None) -> bool:
    if other is None:
        return False
    return ordering is None or ordering < other
