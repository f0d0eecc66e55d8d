"""A conversation: two engines, tables of its own, and what they have to agree on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast
from interop.engines import Engine, Holdfast, Hudi, Rows
from interop.lines import Line
from interop.shapes import TRIPS, Shape, trips

_HOUR = re.compile(r"\d{4}/\d\d/\d\d/\d\d")

Check = Callable[["Talk"], None]


@dataclass(frozen=True)
class Registered:
    check: Check
    is_short: bool
    """Whether it is part of the short form."""
    absent: Mapping[str, str]
    """Line of Hudi → why it cannot take part there."""

    @property
    def name(self) -> str:
        return self.check.__name__.replace("_", " ")

    def left_out(self, line: Line, *, is_short: bool) -> str | None:
        """Why this is not asked here, or None."""
        if line.name in self.absent:
            return self.absent[line.name]
        return "only in the whole conversation" if is_short and not self.is_short else None


CHECKS: list[Registered] = []


def check(*, short: bool = False, absent: Mapping[str, str] | None = None) -> Callable[[Check], Check]:
    """Make a function part of the conversation; its name is the sentence that it checks."""

    def register(function: Check) -> Check:
        CHECKS.append(Registered(function, short, absent or {}))
        return function

    return register


class Talk:
    def __init__(self, line: Line, folder: Path, *, is_short: bool = False) -> None:
        self.line = line
        self.folder = folder
        self.is_short = is_short
        self.ours = Holdfast(line.timeline_zone)
        self.hudi = Hudi(line, folder)
        self.comparisons = 0
        self._tables = 0

    @property
    def engines(self) -> tuple[Engine, Engine]:
        return self.ours, self.hudi

    @property
    def both_ways(self) -> tuple[tuple[Engine, Engine], ...]:
        """Who begins, and who continues."""
        return (self.ours, self.hudi), (self.hudi, self.ours)

    @contextmanager
    def in_zone(self, zone: str, timeline_zone: str) -> Iterator[None]:
        """Let both engines be elsewhere, and make tables that go by that clock."""
        try:
            self._move(zone, timeline_zone)
            yield
        finally:
            self._move(self.line.zone, self.line.timeline_zone)

    def _move(self, zone: str, timeline_zone: str) -> None:
        self.ours.timeline_zone = self.hudi.timeline_zone = timeline_zone
        move_us_to(zone)
        self.hudi.move_to(zone)

    def path(self, name: str = "trips") -> str:
        """Where a table is going to be."""
        self._tables += 1
        return str(self.folder / f"{name}_{self._tables}")

    def begun(self, by: Engine, *given: tuple[str, str, float], shape: Shape = TRIPS) -> str:
        """A table with these rows."""
        path = self.path(shape.name)
        by.write(path, shape, "insert", trips(*given))
        return path

    def agree(self, path: str, fares: Mapping[str, float] | None = None, *, as_of: str | None = None) -> Rows:
        """Both read the same snapshot, meta columns included, and in it these fares by id."""
        ours, theirs = (_without_moments(engine.snapshot(path, as_of=as_of)) for engine in self.engines)
        self.same(ours, theirs)
        if fares is not None:
            self.same({row["id"]: row["fare"] for row in ours.values()}, fares)
            self.same(len(ours), len(fares))
        return ours

    def agree_on_changes(self, path: str, ids: set[str], *, since: str, until: str | None = None) -> None:
        """Both read the same changes, meta columns included: of these ids."""
        found = (engine.changes(path, since=since, until=until) for engine in self.engines)
        ours, theirs = map(_without_moments, found)
        self.same(ours, theirs)
        self.same({row["id"] for row in ours.values()}, ids)

    def same(self, found: object, expected: object) -> None:
        self.comparisons += 1
        if found == expected:
            return
        if isinstance(found, Mapping) and isinstance(expected, Mapping):
            raise AssertionError("\n".join(_differences(found, expected)))
        raise AssertionError(f"{found!r}\nis not\n{expected!r}")

    def sound(self, path: str) -> None:
        """Our own look at everything in the table finds nothing wrong."""
        report = holdfast.open_table(path).verify()
        self.same([f"{f.kind} {f.path}: {f.detail}" for f in report.findings if f.severity != "info"], [])

    def die(
        self, path: str, shape: Shape, operation: str, rows: pa.Table, *, at: str,
        options: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Let a process of ours be killed in the middle of a write. The first instant that it made."""
        file = self.folder / "dying.parquet"
        pq.write_table(rows, file)
        given = [f"{name}={value}" for name, value in (shape.options | dict(options or {})).items()]
        return _first_instant_of_a_dying_process(path, operation, str(file), at, *given)

    def die_restoring(self, path: str, to: str, *, at: str) -> str:
        """Let a process of ours be killed in the middle of a restore. The restore."""
        return _first_instant_of_a_dying_process(path, "restore", to, at)


def _first_instant_of_a_dying_process(path: str, *arguments: str) -> str:
    known = {instant.time for instant in holdfast.open_table(path).timeline()}
    command = [sys.executable, "-m", "interop.dying_writer", path, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode < 0, f"the process was to be killed:\n{ran.stdout}{ran.stderr}"
    return min(i.time for i in holdfast.open_table(path).timeline() if i.time not in known)


def as_if_killed(path: str, act: Callable[[], object], *endings: str) -> set[str]:
    """Let an act begin instants and do nothing else, as if its process had been killed then.

    Of all that it changed, only new instant files with these endings stay. The data
    files that it would have left.
    """
    table, before = Path(path), Path(path).with_suffix(".before")
    shutil.copytree(table, before)
    act()
    known = {file.name for file in (before / ".hoodie").iterdir()}
    begun = {
        file.name: file.read_bytes()
        for file in (table / ".hoodie").iterdir()
        if file.name not in known and file.name.endswith(endings)
    }
    left = data_files(path)
    shutil.rmtree(table)
    before.rename(table)
    assert len(begun) == len(endings), f"the act was to begin {endings}, and began {list(begun)}"
    for name, content in begun.items():
        (table / ".hoodie" / name).write_bytes(content)
    return left


def move_us_to(zone: str) -> None:
    """Let this process, and those that it starts, be in a time zone."""
    os.environ["TZ"] = zone
    time.tzset()


def refusal(act: Callable[[], object]) -> str:
    """What an engine says when it fails to act, or nothing."""
    try:
        act()
    except Exception as error:  # noqa: BLE001  # py4j's or ours
        return f"{type(error).__name__} {error}"
    return ""


def data_files(path: str) -> set[str]:
    """Every base file in the table's folder, of whatever instant."""
    return {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")}


def log_files(path: str) -> set[str]:
    """Every log file in the table's folder, of whatever instant."""
    found = (file for file in Path(path).rglob(".*.log.*") if not file.name.endswith(".crc"))
    return {str(file.relative_to(path)) for file in found if ".hoodie" not in file.parts}


def files_of(path: str, instant: str) -> set[str]:
    """The base files of an instant, and its markers."""
    below = {file for file in data_files(path) if file.endswith(f"_{instant}.parquet")}
    markers = Path(path) / ".hoodie" / ".temp" / instant
    return below | ({str(markers)} if markers.exists() else set())


def states(path: str) -> list[str]:
    """The timeline, as text."""
    return [f"{i.time} {i.action} {i.state}" for i in holdfast.open_table(path).timeline()]


def _without_moments(rows: Rows) -> Rows:
    """Without the column of a timestamp key generator, which Hudi gives as text: its value or its path."""
    return {
        key: {name: value for name, value in row.items() if name != "at"} if _HOUR.search(key) else row
        for key, row in rows.items()
    }


def _differences(found: Mapping[str, object], expected: Mapping[str, object]) -> Iterable[str]:
    for key in sorted(found.keys() | expected.keys()):
        one, other = found.get(key, "nothing"), expected.get(key, "nothing")
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from (f"{key}: {line}" for line in _differences(one, other))
        else:
            yield f"{key}: {one!r}, not {other!r}"
