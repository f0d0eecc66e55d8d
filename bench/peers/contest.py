"""The contest: which workloads are run, with which peers, and what happens when one of them fails."""

import datetime as dt
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from bench.framework import DifferentAnswers, Result, Workload, joined, run_workload
from bench.peers import workloads
from bench.peers.remote import PeerFailed, ReportedMeter
from bench.peers.results import keep
from bench.peers.rows import MORE, PERCENTS, Rows
from bench.peers.workloads import Arena
from bench.report import print_result

Machine = Mapping[str, str | int]


class UnknownWorkload(ValueError):
    """Somebody asked for a workload that there is not; the text lists those there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    rows: int
    has_more: bool
    """Whether four times as many are loaded, too."""
    groups: int
    versions: int
    killed_tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many count."""

    all: int
    short: int
    """Of tasks that take about a second, if that is more."""
    sittings: int
    """How often such tasks are begun anew, with new JVMs, to get them.

    Some compile a query to code that is slow for as long as they live.
    """


@dataclass(frozen=True, slots=True)
class Contest:
    """All workloads with all peers; one that a peer cannot do goes on without it."""

    console: Console
    arena: Arena
    rows: Rows
    size: Size

    def names(self, prefixes: tuple[str, ...]) -> list[str]:
        every = [workload.name for workload in self._workloads(self.arena)]
        for prefix in prefixes:
            if not any(name.startswith(prefix) for name in every):
                raise UnknownWorkload(f"no workload begins with {prefix!r}; there are: {', '.join(every)}")
        return [name for name in every if not prefixes or name.startswith(prefixes)]

    def run(self, name: str, act: Callable[[Workload], object]) -> bool:
        """A peer that fails is told and left out, and the others begin anew. False if that happened."""
        arena = self.arena
        while True:
            (workload,) = [one for one in self._workloads(arena) if one.name == name]
            try:
                act(workload)
            except PeerFailed as error:
                self._tell(f"{name}: {error}")
                if error.peer == workload.limit:
                    return False
                arena = arena.without(error.peer)
            except DifferentAnswers as error:
                self._tell(f"not measured: {error}")
                return False
            else:
                return len(arena.peers) == len(self.arena.peers)
            finally:
                # What one workload made of a JVM would be seen in the next, and would depend on their order.
                self._end_peers()

    def prepare(self, workload: Workload) -> None:
        workspace = self.arena.workspace
        shutil.rmtree(workspace, ignore_errors=True)
        (workspace / "kept").mkdir(parents=True)
        with self.console.status(f"{workload.name}: setting up"):
            workload.set_up(workspace / "kept")
        shutil.rmtree(workspace)
        self.console.print(f"{workload.name}: prepared")

    def measure(self, rounds: Rounds, results: Path, machine: Machine, workload: Workload) -> None:
        sittings = rounds.sittings if workload.is_short else 1
        counted = math.ceil(max(rounds.all, rounds.short if workload.is_short else 1) / sittings)

        def sit(number: int, status: Status) -> Result:
            self._end_peers()
            # At once: the first round asks all of them.
            for peer in workloads.peers_of(workload.name, self.arena):
                peer.start()
            return run_workload(
                workload,
                ReportedMeter(),
                rounds=counted,
                # Others on the machine spoil what takes a second, and that can be done again.
                spare_rounds=counted if workload.is_short else 0,
                cores=int(machine["cores"]),
                workspace=self.arena.workspace,
                settle=os.sync,
                announce=lambda step: status.update(f"{workload.name}, {number} of {sittings}: {step}"),
            )

        with self.console.status(workload.name) as status:
            result = joined([sit(number, status) for number in range(1, sittings + 1)])
        print_result(self.console, result, cores=int(machine["cores"]))
        overview = keep(results, result, machine=machine, moment=dt.datetime.now(dt.UTC))
        self.console.print(f"[dim]kept beside {overview}[/dim]")

    def _end_peers(self) -> None:
        """The next question starts new ones."""
        for peer in self.arena.peers:
            peer.end()

    def _tell(self, message: str) -> None:
        self.console.print(Text(f"\n{message}", style="bold red"))

    def _workloads(self, arena: Arena) -> tuple[Workload, ...]:
        rows, size = self.rows, self.size
        copying = arena.copying()
        return (
            workloads.bulk_load(copying, rows.all, rows.count),
            *([workloads.bulk_load(copying, rows.more, MORE * rows.count, discarded=0)] if rows.more else []),
            *(workloads.upsert(copying, rows, percent) for percent in PERCENTS),
            workloads.delete(copying, rows),
            workloads.overwrite(copying, rows),
            workloads.snapshot_read(copying, rows),
            workloads.change_read(copying, rows),
            workloads.time_travel(copying, rows),
            workloads.undo(copying, rows),
            workloads.reclaim(copying, rows, groups=size.groups, versions=size.versions),
            workloads.recovery(copying, rows, tasks=size.killed_tasks),
            workloads.merging_upsert(arena, rows),
            workloads.merging_rounds(arena, rows),
            workloads.merging_read(arena, rows),
            workloads.compaction(arena, rows),
        )
