"""A contest: one change of one table, made by Holdfast, by hand on Spark, and by deltalake.

Each run begins with a copy of the same prepared table, which is not timed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.framework import Variant
from bench.workloads.delta import delta, delta_process
from bench.workloads.prepared import Prepared, link_copy
from bench.workloads.trips import KEY, ORDERING
from bench.workloads.waiting import WaitingProcess
from holdfast import Table, open_table

_TABLE = "table"
_NEW = "new"


@dataclass(frozen=True, slots=True)
class Contest:
    session: SparkSession
    prepared: Prepared

    def holdfast(self, name: str, act: Callable[[Table], object]) -> Variant:
        return self._holdfast(name, act, self.prepared.holdfast)

    def holdfast_buckets(self, name: str, act: Callable[[Table], object]) -> Variant:
        return self._holdfast(name, act, self.prepared.buckets)

    def merge_on_read(self, name: str, act: Callable[[Table], object]) -> Variant:
        return self._holdfast(name, act, self.prepared.merge_on_read)

    def by_hand(self, name: str, act: Callable[[DataFrame, Path], object]) -> Variant:
        """`act` gets the old rows and a path for all rows, old and new."""

        def run(output: Path) -> None:
            old = self.session.read.schema(self.prepared.parts[0].schema)
            act(old.parquet(str(self.prepared.plain())), output / _NEW)

        return Variant(
            name,
            run,
            prepare=lambda _: self.prepared.plain(),
            check=lambda output: checksum(self.session.read.parquet(str(output / _NEW))),
        )

    def by_hand_in_place(self, name: str, act: Callable[[Path], object]) -> Variant:
        return Variant(
            name,
            lambda output: act(output / _TABLE),
            prepare=lambda output: link_copy(self.prepared.plain(), output / _TABLE),
            check=lambda output: checksum(self.session.read.parquet(str(output / _TABLE))),
        )

    def deltalake(self, name: str, action: str, **needs: object) -> Variant:
        runner = _DeltaRunner(self, action, needs)
        return Variant(name, runner.run, prepare=runner.prepare, check=runner.check, finish=runner.finish)

    def _holdfast(self, name: str, act: Callable[[Table], object], source: Callable[[], Path]) -> Variant:
        return Variant(
            name,
            lambda output: act(opened(output)),
            prepare=lambda output: link_copy(source(), output / _TABLE),
            check=lambda output: checksum(opened(output).read(self.session)),
        )


@dataclass(slots=True)
class _DeltaRunner:
    """Runs one process after the other; each is ready before the time is taken."""

    contest: Contest
    action: str
    needs: dict[str, object]
    process: WaitingProcess | None = None

    def prepare(self, output: Path) -> None:
        link_copy(self.contest.prepared.delta(), output / _TABLE)
        self.process = delta_process(self.action, output / _TABLE, **self.needs)

    def run(self, _output: Path) -> None:
        assert self.process is not None
        self.process.act()

    def finish(self, _output: Path) -> None:
        assert self.process is not None
        self.process.end()

    def check(self, output: Path) -> object:
        files = delta("files", output / _TABLE)
        assert isinstance(files, list)
        return checksum(self.contest.session.read.parquet(*files))


def checksum(rows: DataFrame) -> tuple[int, int]:
    """Count of the rows, and their keys and orderings in one number, whatever their order."""
    found = rows.agg(f.count("*"), f.bit_xor(f.xxhash64(KEY, ORDERING))).first()
    assert found is not None
    return found[0], found[1]


def opened(output: Path) -> Table:
    """The table that a run works on."""
    return open_table(str(output / _TABLE))
