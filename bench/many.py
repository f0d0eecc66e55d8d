"""`python -m bench.many`: what a commit, an undo, a recovery and a restore cost after many and after few.

Each history is made on local disk, without Spark, with default settings: commits
beside a savepoint, writes that fail, commits that are undone, and commits that a
restore takes back. A table with many
of them and one with few take turns, so that what else the machine does falls on
both alike. Wall time and CPU time of each act are taken; of both the median,
which is the usual act, and the mean, in which checkpoints, archives and cleans
count, for there are enough turns to meet each of them. The ratio of many to few
is what counts, and more than 1.5 in any of the four is a failure.
"""

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
import pyarrow as pa

import holdfast
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.errors import Refused
from holdfast.table.opened import open_at
from holdfast.writes import operations
from holdfast.writes.origin import Origin

_HERE = Path(__file__).resolve().parent
_FEW = 20
_MANY = 2_000
_TURNS = 60
"""Acts of each kind that are timed: the ledger has a checkpoint after fifty commits, archives come sooner."""
_RATIO_MAX = 1.5
_SETTLING = 3
"""Commits that every table begins with."""


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of one act."""

    wall: float
    cpu: float


@dataclass(slots=True)
class _Watch:
    took: list[Took] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.took.append(Took(time.perf_counter() - wall, time.process_time() - cpu))


Act = Callable[[str, int, _Watch], None]


def _rows(number: int) -> pa.Table:
    return pa.table({"id": [1], "fare": [float(number)]})


def _commit(path: str, number: int, watch: _Watch) -> None:
    with watch.running():
        holdfast.open_table(path).upsert(_rows(number))


def _undo(path: str, number: int, watch: _Watch) -> None:
    holdfast.open_table(path).upsert(_rows(number))
    with watch.running():
        holdfast.open_table(path).undo()


def _restore(path: str, number: int, watch: _Watch) -> None:
    """Back over one commit, to one that stays."""
    target = holdfast.open_table(path).upsert(_rows(number)).instant
    holdfast.open_table(path).upsert(_rows(number))
    with watch.running():
        holdfast.open_table(path).restore(target)


def _recover(path: str, number: int, watch: _Watch) -> None:
    """A process dies while it writes; the time is that of the rollback."""
    child = os.fork()
    if child == 0:
        dying = Origin(check=lambda: os._exit(0))
        operations.write(
            open_at(path), Operation.UPSERT, ArrowRows(_rows(number)), WriteSettings(), origin=dying
        )
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the write was to die"
    with watch.running():
        rolled_back = holdfast.open_table(path).roll_back_failed_writes()
    assert len(rolled_back) == 1


def _fail(path: str, number: int, watch: _Watch) -> None:
    """A write that is refused after it has begun, and removes itself."""

    def refuse() -> None:
        raise Refused("the source is gone")

    origin = Origin(check=refuse)
    try:
        with watch.running():
            operations.write(
                open_at(path), Operation.UPSERT, ArrowRows(_rows(number)), WriteSettings(), origin=origin
            )
    except Refused:
        return
    raise AssertionError("the write was to fail")


HISTORIES: dict[str, tuple[Act, bool]] = {
    "commits with a savepoint": (_commit, True),
    "failures": (_fail, False),
    "undos": (_undo, False),
    "restores": (_restore, False),
}
"""What a table goes through, and whether it has a savepoint, which keeps its commit for good."""

ACTS: dict[str, Act] = {"commit": _commit, "undo": _undo, "recovery": _recover, "restore": _restore}


@dataclass(frozen=True, slots=True)
class Cost:
    """One act after few and after many of a history."""

    history: str
    act: str
    few: Sequence[Took]
    many: Sequence[Took]

    def ratios(self) -> dict[str, float]:
        """How much more it costs after many: of wall time and of CPU time, the usual act and all of them."""
        return {
            f"{kind} {name}": measure(getattr(one, kind) for one in self.many)
            / measure(getattr(one, kind) for one in self.few)
            for kind in ("wall", "cpu")
            for name, measure in _MEASURES.items()
        }

    @property
    def is_slower(self) -> bool:
        return max(self.ratios().values()) > _RATIO_MAX


_MEASURES: dict[str, Callable[[Iterator[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
}


def costs(folder: Path, history: str, *, few: int, many: int, turns: int) -> Iterator[Cost]:
    """What each act costs on a table with few and on one with many, by turns.

    Each act has copies of its own, so that none finds what another has added.
    """
    act, has_savepoint = HISTORIES[history]
    grown = folder / "grown"
    table = holdfast.create_table(str(grown), name="many", record_key="id")
    for number in range(_SETTLING):
        _commit(str(grown), number, _Watch())
    if has_savepoint:
        table.savepoint()
    for length in range(many):
        if length == few:
            _copy_for_each_act(grown, "few")
        act(str(grown), length, _Watch())
    _copy_for_each_act(grown, "many")
    for name, measured in ACTS.items():
        on_few, on_many = _Watch(), _Watch()
        for number in range(turns):
            measured(str(folder / f"few {name}"), number, on_few)
            measured(str(folder / f"many {name}"), number, on_many)
        yield Cost(history, name, on_few.took, on_many.took)


def _copy_for_each_act(table: Path, length: str) -> None:
    for name in ACTS:
        shutil.copytree(table, table.parent / f"{length} {name}")


@click.command("many", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--few", type=click.IntRange(min=1), default=_FEW, help="Acts of each history, few.")
@click.option("--many", type=click.IntRange(min=1), default=_MANY, help="Acts of each history, many.")
@click.option("--turns", type=click.IntRange(min=1), default=_TURNS, help="Acts of each kind that are timed.")
@click.option("--data", type=click.Path(path_type=Path), default=_HERE / "data", help="Folder for tables.")
def run(*, few: int, many: int, turns: int, data: Path) -> None:
    """Print how much slower a commit, an undo, a recovery and a restore are after many of anything."""
    is_slower = False
    print(f"{'milliseconds, mean of wall time':44}{f'after {few}':>11}{f'after {many}':>11}", end="")
    print("  ratios: wall median, mean, CPU median, mean")
    for history in HISTORIES:
        folder = data / "many"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for cost in costs(folder, history, few=few, many=many, turns=turns):
            is_slower |= cost.is_slower
            means = [statistics.fmean(one.wall for one in side) * 1000 for side in (cost.few, cost.many)]
            ratios = " ".join(f"{ratio:6.2f}" for ratio in cost.ratios().values())
            mark = f"  slower than {_RATIO_MAX}" if cost.is_slower else ""
            name = f"{cost.act} after {cost.history}"
            print(f"{name:44}{means[0]:11.1f}{means[1]:11.1f} {ratios}{mark}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if is_slower else 0)


if __name__ == "__main__":
    run()
