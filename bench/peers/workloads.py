"""One task for all peers: each run begins with a copy of the peer's own table of the same rows.

A table lies at the same path in every run, because some formats name their
files by absolute paths; what was prepared is kept beside it, for later runs, too.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.framework import Goal, Scene, Usage, Variant, Workload, data_files
from bench.peers.engine import Load
from bench.peers.remote import Answer, Peer, PeerFailed
from bench.peers.rows import Rows
from bench.workloads.prepared import link_copy
from bench.workloads.trips import CITIES

OURS = "Holdfast"
HUDI = "Apache Hudi"
DELTA = "Delta Lake"
ICEBERG = "Apache Iceberg"
PLAIN = "Spark, Parquet files"
DELTALAKE = "deltalake"
HUDI_BARE = "Apache Hudi, no metadata table"
OURS_MERGING = "Holdfast, merge-on-read"
HUDI_MERGING = "Apache Hudi, merge-on-read"
DELTA_VECTORS = "Delta Lake, deletion vectors"
ICEBERG_MERGING = "Apache Iceberg, merge-on-read"

_MERGING = (OURS_MERGING, HUDI_MERGING, DELTA_VECTORS, ICEBERG_MERGING)
_MERGING_NAME = "merge-on-read"

_TASKS = 4
_HOUR_MS = 3_600_000
_VERSIONS_LEFT = 2


@dataclass(frozen=True, slots=True)
class Arena:
    peers: Sequence[Peer]
    data: Path
    workspace: Path

    def with_history(self) -> list[Peer]:
        """Plain files have none to read, undo or reclaim."""
        return [peer for peer in self.peers if peer.name != PLAIN]

    def copying(self) -> "Arena":
        """With those alone that write data files anew."""
        return replace(self, peers=[peer for peer in self.peers if peer.name not in _MERGING])

    def merging(self, *others: str) -> "Arena":
        """With those alone that leave data files as they are, and write beside them what changes."""
        return replace(self, peers=[peer for peer in self.peers if peer.name in (*_MERGING, *others)])

    def without(self, name: str) -> "Arena":
        return replace(self, peers=[peer for peer in self.peers if peer.name != name])

    @property
    def table(self) -> Path:
        """Where every table lies while something is done to it."""
        return self.workspace / "output" / "table"

    def prepared(self, peer: Peer, name: str, build: Callable[[str], None]) -> Path:
        """The peer's table of that name, built at its place and kept under another."""
        place = hashlib.sha256(str(self.workspace).encode()).hexdigest()[:8]
        kept = self.data / "peers" / place / name / peer.engine
        if not kept.exists():
            shutil.rmtree(self.table.parent, ignore_errors=True)
            self.table.parent.mkdir(parents=True)
            build(str(self.table))
            kept.parent.mkdir(parents=True, exist_ok=True)
            self.table.rename(kept)
            shutil.rmtree(self.table.parent)
        return kept

    def variant(
        self,
        peer: Peer,
        act: Callable[[], Answer],
        *,
        begins_with: Path | None = None,
        check: Callable[[Answer], object] | None = None,
    ) -> Variant:
        """One peer at one task. What comes out is read back unless `check` takes it from the answer."""
        answers: list[Answer] = []

        def prepare(_output: Path) -> None:
            if begins_with is not None:
                link_copy(begins_with, self.table)
            peer.ask("ready", table=str(self.table))

        def run(_output: Path) -> Answer:
            answers[:] = [act()]
            return answers[0]

        def came_out(_output: Path) -> object:
            return check(answers[0]) if check is not None else self._read_back(peer)

        return Variant(peer.name, run, prepare=prepare, check=came_out)

    def leaving(self, peer: Peer, at_most: int) -> Callable[[Answer], object]:
        """A check that reads back, and refuses a peer that left more data files than belong there."""

        def check(_answer: Answer) -> object:
            left = len(data_files(self.table))
            if left > at_most:
                raise PeerFailed(peer.name, f"{peer.name} left {left} data files, of at most {at_most}")
            return self._read_back(peer)

        return check

    def _read_back(self, peer: Peer) -> object:
        peer.ask("ready", table=str(self.table))
        return peer.ask("read", table=str(self.table)).value


def peers_of(workload: str, arena: Arena) -> Sequence[Peer]:
    """Those that take part in a workload of this name."""
    return (arena.merging(OURS) if workload.startswith(_MERGING_NAME) else arena.copying()).peers


def bulk_load_name(count: int) -> str:
    return f"bulk load {count:,} rows"


def bulk_load(arena: Arena, rows: str, count: int, *, discarded: int = 1) -> Workload:
    def set_up(_folder: Path) -> Scene:
        for peer in arena.peers:
            # All have started before the first is timed, which may count.
            peer.ask("ready", table=str(arena.table))
        variants = [
            arena.variant(peer, _asking(arena, peer, "load", rows=Load(path=rows))) for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": count})

    workload = _workload(arena, bulk_load_name(count), set_up, hudi=0.5, others=1.1)
    return replace(workload, discarded=discarded)


def upsert(arena: Arena, rows: Rows, percent: int) -> Workload:
    hudi = 1 / 3 if percent == 10 else 1.0
    others = 1.0 if percent in (1, 10) else 1.1
    return _change(arena, rows, f"upsert {percent} %", "upsert", rows.incoming[percent], hudi, others)


def delete(arena: Arena, rows: Rows) -> Workload:
    return _change(arena, rows, "delete 1 %", "delete", rows.keys)


def overwrite(arena: Arena, rows: Rows) -> Workload:
    change = _change(arena, rows, "overwrite one partition", "overwrite", rows.one_city)
    return replace(change, is_short=True)


def snapshot_read(arena: Arena, rows: Rows) -> Workload:
    def set_up(_folder: Path) -> Scene:
        variants = [
            arena.variant(
                peer, _asking(arena, peer, "read"), begins_with=_base(arena, peer, rows), check=_value
            )
            for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": rows.count})

    return _workload(arena, "snapshot read", set_up, is_short=True)


def time_travel(arena: Arena, rows: Rows) -> Workload:
    """The table before its last upsert."""

    def set_up(_folder: Path) -> Scene:
        variants = []
        for peer in arena.with_history():
            base = _updated(arena, peer, rows)
            before = _versions(arena, peer, base)[-2]
            act = _asking(arena, peer, "read", version=before)
            variants.append(arena.variant(peer, act, begins_with=base, check=_value))
        return Scene(tuple(variants), {"rows": rows.count})

    return _workload(arena, "time travel", set_up, is_short=True)


def change_read(arena: Arena, rows: Rows) -> Workload:
    """What one commit of several appended."""

    def set_up(_folder: Path) -> Scene:
        variants = []
        for peer in arena.with_history():
            base = arena.prepared(peer, f"parts-{rows.count}", _build_parts(peer, rows))
            versions = _versions(arena, peer, base)[-len(rows.parts) :]
            middle = len(versions) // 2
            act = _asking(arena, peer, "changes", since=versions[middle - 1], until=versions[middle])
            variants.append(arena.variant(peer, act, begins_with=base, check=_value))
        return Scene(tuple(variants), {"rows": rows.count, "commits": len(rows.parts)})

    return _workload(arena, "change read", set_up, is_short=True)


def undo(arena: Arena, rows: Rows) -> Workload:
    """An upsert of a tenth of the rows is taken back."""

    def set_up(_folder: Path) -> Scene:
        variants = []
        for peer in arena.with_history():
            base = _updated(arena, peer, rows)
            before, newest = _versions(arena, peer, base)[-2:]
            act = _asking(arena, peer, "undo", newest=newest, before=before)
            variants.append(arena.variant(peer, act, begins_with=base))
        return Scene(tuple(variants), {"rows": rows.count})

    return _workload(arena, "undo the last commit", set_up, is_short=True)


def reclaim(arena: Arena, rows: Rows, *, groups: int, versions: int) -> Workload:
    def build(peer: Peer) -> Callable[[str], None]:
        def act(table: str) -> None:
            few = Load(path=rows.groups, tasks_by_city=_TASKS, has_many_cities=True, more_follow=True)
            peer.ask("load", table=table, rows=few)
            for number in range(1, versions):
                later, more = number * _HOUR_MS, number < versions - 1
                peer.ask("upsert", table=table, rows=Load(path=rows.groups, later_ms=later, more_follow=more))

        return act

    def set_up(_folder: Path) -> Scene:
        variants = [
            arena.variant(
                peer,
                _asking(arena, peer, "reclaim"),
                begins_with=arena.prepared(peer, f"groups-{groups}-{versions}", build(peer)),
                check=arena.leaving(peer, _VERSIONS_LEFT * groups),
            )
            for peer in arena.with_history()
        ]
        return Scene(tuple(variants), {"file groups": groups, "versions": versions})

    return _workload(arena, "reclaim old versions", set_up)


def recovery(arena: Arena, rows: Rows, *, tasks: int) -> Workload:
    """A writer was killed when its files were there: one for each city from each task."""

    def set_up(_folder: Path) -> Scene:
        variants = []
        for peer in arena.with_history():
            base = _base(arena, peer, rows)
            killed = _changed(
                arena, peer, f"killed-{tasks}", rows, "fail", Load(path=rows.incoming[10], tasks=tasks)
            )
            check = arena.leaving(peer, len(data_files(base)))
            act = _asking(arena, peer, "recover")
            variants.append(arena.variant(peer, act, begins_with=killed, check=check))
        return Scene(tuple(variants), {"rows": rows.count, "files": tasks * CITIES})

    return _workload(arena, "recover from a killed writer", set_up, is_short=True)


def merging_upsert(arena: Arena, rows: Rows) -> Workload:
    """One row in a hundred, in all files, changes; ours that copies takes part."""
    arena = arena.merging(OURS)

    def set_up(_folder: Path) -> Scene:
        new = Load(path=rows.scattered[0])
        variants = [
            arena.variant(
                peer, _asking(arena, peer, "upsert", rows=new), begins_with=_base(arena, peer, rows)
            )
            for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": rows.count})

    return _merging(arena, "upsert 1 %", set_up, {HUDI_MERGING: 0.15, OURS: 0.5})


def merging_rounds(arena: Arena, rows: Rows) -> Workload:
    """Ten times one row in a hundred changes, and all are read."""
    arena = arena.merging(OURS)

    def act(peer: Peer) -> Callable[[], Answer]:
        def rounds() -> Answer:
            answers = []
            for path in rows.scattered:
                answers.append(peer.ask("upsert", table=str(arena.table), rows=Load(path=path)))
                answers.append(peer.ask("read", table=str(arena.table)))
            return in_turn(answers)

        return rounds

    def set_up(_folder: Path) -> Scene:
        variants = [
            arena.variant(peer, act(peer), begins_with=_base(arena, peer, rows), check=_value)
            for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": rows.count, "rounds": len(rows.scattered)})

    goals = {HUDI_MERGING: 0.25, DELTA_VECTORS: 0.5, ICEBERG_MERGING: 0.5}
    return _merging(arena, "rounds of upsert 1 % and read", set_up, goals)


def merging_read(arena: Arena, rows: Rows) -> Workload:
    """A snapshot read after all of these upserts."""
    arena = arena.merging(OURS)

    def build(peer: Peer) -> Callable[[str], None]:
        base = _base(arena, peer, rows)

        def act(table: str) -> None:
            link_copy(base, Path(table))
            peer.ask("ready", table=table)
            for path in rows.scattered:
                peer.ask("upsert", table=table, rows=Load(path=path))

        return act

    def set_up(_folder: Path) -> Scene:
        variants = [
            arena.variant(
                peer,
                _asking(arena, peer, "read"),
                begins_with=arena.prepared(peer, f"scattered-{rows.count}", build(peer)),
                check=_value,
            )
            for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": rows.count, "upserts": len(rows.scattered)})

    goals = {OURS: 1.2, HUDI_MERGING: 1.0, DELTA_VECTORS: 1.0, ICEBERG_MERGING: 1.0}
    return _merging(arena, "read after ten upserts", set_up, goals, is_short=True)


def compaction(arena: Arena, rows: Rows) -> Workload:
    """A tenth of the rows lies beside the data files."""
    arena = arena.merging()

    def set_up(_folder: Path) -> Scene:
        new = Load(path=rows.tenth, keeps_logs=True)
        variants = [
            arena.variant(
                peer,
                _asking(arena, peer, "compact"),
                begins_with=_changed(arena, peer, "tenth", rows, "upsert", new),
            )
            for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": rows.count})

    return _merging(arena, "compaction of 10 %", set_up, {HUDI_MERGING: 0.3})


def in_turn(answers: Sequence[Answer]) -> Answer:
    """What several things took that were done one after the other, and what came of the last."""
    usages = [answer.usage for answer in answers]
    return Answer(
        answers[-1].value,
        Usage(
            seconds=sum(usage.seconds for usage in usages),
            cpu_seconds=sum(usage.cpu_seconds for usage in usages),
            foreign_cpu_seconds=sum(usage.foreign_cpu_seconds for usage in usages),
            driver_peak_bytes=max(usage.driver_peak_bytes for usage in usages),
            jvm_peak_bytes=max(usage.jvm_peak_bytes for usage in usages),
            workers_peak_bytes=max(usage.workers_peak_bytes for usage in usages),
        ),
    )


def _merging(
    arena: Arena,
    name: str,
    set_up: Callable[[Path], Scene],
    wanted: Mapping[str, float],
    *,
    is_short: bool = False,
) -> Workload:
    there = {peer.name for peer in arena.peers}
    goals = [Goal(OURS_MERGING, most, compared_with=peer) for peer, most in wanted.items() if peer in there]
    return Workload(
        name=f"{_MERGING_NAME} {name}",
        limit=OURS_MERGING,
        goals=tuple(goals),
        set_up=set_up,
        is_short=is_short,
    )


def _change(
    arena: Arena,
    rows: Rows,
    name: str,
    verb: str,
    new: str,
    hudi: float = 1.0,
    others: float = 1.1,
) -> Workload:
    def set_up(_folder: Path) -> Scene:
        variants = [
            arena.variant(
                peer, _asking(arena, peer, verb, rows=Load(path=new)), begins_with=_base(arena, peer, rows)
            )
            for peer in arena.peers
        ]
        return Scene(tuple(variants), {"rows": rows.count})

    return _workload(arena, name, set_up, hudi=hudi, others=others)


def _workload(
    arena: Arena,
    name: str,
    set_up: Callable[[Path], Scene],
    *,
    hudi: float = 1.0,
    others: float = 1.1,
    is_short: bool = False,
) -> Workload:
    wanted = {HUDI: hudi, HUDI_BARE: hudi, DELTA: others, ICEBERG: others}
    there = {peer.name for peer in arena.peers}
    goals = [Goal(OURS, most, compared_with=peer) for peer, most in wanted.items() if peer in there]
    return Workload(name=name, limit=OURS, goals=tuple(goals), set_up=set_up, is_short=is_short)


def _asking(arena: Arena, peer: Peer, verb: str, **needs: Any) -> Callable[[], Answer]:
    return lambda: peer.ask(verb, table=str(arena.table), **needs)


def _base(arena: Arena, peer: Peer, rows: Rows) -> Path:
    """All rows, in one file for each city."""

    def build(table: str) -> None:
        peer.ask("load", table=table, rows=Load(path=rows.all, tasks_by_city=_TASKS))

    return arena.prepared(peer, f"rows-{rows.count}", build)


def _updated(arena: Arena, peer: Peer, rows: Rows) -> Path:
    return _changed(arena, peer, "updated", rows, "upsert", Load(path=rows.incoming[10]))


def _changed(arena: Arena, peer: Peer, name: str, rows: Rows, verb: str, new: Load) -> Path:
    """All rows, and something done to them."""
    base = _base(arena, peer, rows)

    def build(table: str) -> None:
        link_copy(base, Path(table))
        peer.ask("ready", table=table)
        peer.ask(verb, table=table, rows=new)

    return arena.prepared(peer, f"{name}-{rows.count}", build)


def _build_parts(peer: Peer, rows: Rows) -> Callable[[str], None]:
    def build(table: str) -> None:
        verbs = ["load", *["append"] * (len(rows.parts) - 1)]
        for verb, part in zip(verbs, rows.parts, strict=True):
            peer.ask(verb, table=table, rows=Load(path=part, tasks_by_city=_TASKS, keeps_changes=True))

    return build


def _versions(arena: Arena, peer: Peer, prepared: Path) -> list[Any]:
    """Of a table that is put to its place for the question."""
    arena.table.parent.mkdir(parents=True)
    link_copy(prepared, arena.table)
    try:
        peer.ask("ready", table=str(arena.table))
        found: list[Any] = peer.ask("versions", table=str(arena.table)).value
    finally:
        shutil.rmtree(arena.table.parent)
    return found


def _value(answer: Answer) -> object:
    return answer.value
