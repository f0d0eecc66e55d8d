"""Benchmarks: variants of one task, run in turn and compared within each round.

    set-up ─► round 0 (discarded) ─► round 1 ─► … ─► medians, ratios to the limit

Every variant runs once per round and the order rotates, so that whatever
drifts (caches, the just-in-time compiler, other work on the machine) meets all
alike. A ratio compares two runs of one round only; numbers of different runs
of the suite are never compared.
"""

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    run: Callable[[Path], object]
    """Does the task once. It writes, if at all, into the new and empty folder it is given."""


class Unit(StrEnum):
    RATIO = "ratio"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Goal:
    """What the median of a variant should not exceed. Missing it is shown and fails nothing."""

    variant: str
    at_most: float
    unit: Unit = Unit.RATIO


@dataclass(frozen=True, slots=True)
class Scene:
    """What a set-up made: the variants over the same input, and facts worth keeping about it."""

    variants: tuple[Variant, ...]
    facts: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    limit: str
    """The variant that all others are compared with."""
    goals: tuple[Goal, ...] = ()
    set_up: Callable[[Path], Scene]
    """Untimed. Gets a folder that stays until the last round has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What running something once took of the machine."""

    seconds: float
    cpu_seconds: float
    foreign_cpu_seconds: float
    """Spent meanwhile by other programs: a round with much of it is disturbed."""
    driver_peak_bytes: int
    jvm_peak_bytes: int
    workers_peak_bytes: int
    """Sum over the Python workers."""


class Meter(Protocol):
    def measure(self, act: Callable[[], object]) -> Usage:
        """Run `act` once and say what it took."""


@dataclass(frozen=True, slots=True)
class Written:
    """Data files a run left; bookkeeping files of either side are not counted."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    usage: Usage
    written: Written


Round = Mapping[str, Run]
"""The runs of one round by variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    workload: str
    limit: str
    goals: tuple[Goal, ...]
    facts: Mapping[str, str | int]
    rounds: tuple[Round, ...]
    """All of them, the discarded first one included."""

    @property
    def counted(self) -> tuple[Round, ...]:
        return self.rounds[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One variant over the counted rounds."""

    variant: str
    median: Run
    ratio: float
    """Median of the ratios to the limit, each taken within its round."""
    least_ratio: float
    greatest_ratio: float
    cpu_ratio: float | None
    """As `ratio`, of CPU seconds: other programs change it less. None if the limit took none that shows."""
    goal: Goal | None
    is_met: bool | None
    """None without a goal."""


def run_workload(
    workload: Workload,
    meter: Meter,
    *,
    rounds: int,
    workspace: Path,
    settle: Callable[[], None],
    announce: Callable[[str], None],
) -> Result:
    """Run one discarded round and then `rounds` that count.

    `settle` is called, untimed, before every run: what one variant left to be
    done later must not be paid by the next. The workspace is removed at the end.
    """
    if rounds < 1:
        raise ValueError(f"at least one round must count, got {rounds}")
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    try:
        announce("setting up")
        kept = workspace / "kept"
        kept.mkdir()
        scene = workload.set_up(kept)
        _check(workload, scene)
        finished: list[Round] = []
        for number in range(rounds + 1):
            runs: dict[str, Run] = {}
            for variant in rotated(scene.variants, number):
                announce(f"round {number} of {rounds}: {variant.name}")
                runs[variant.name] = _run(variant, meter, output=workspace / "output", settle=settle)
            finished.append(runs)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    return Result(
        workload=workload.name,
        limit=workload.limit,
        goals=workload.goals,
        facts=scene.facts,
        rounds=tuple(finished),
    )


def rotated(variants: Sequence[Variant], number: int) -> tuple[Variant, ...]:
    """The variants in the order of a round: each round begins with the next one."""
    first = number % len(variants)
    return (*variants[first:], *variants[:first])


def summaries(result: Result) -> tuple[Summary, ...]:
    """Medians and ratios of every variant, in the order of the first round."""
    return tuple(_summary(result, variant) for variant in result.rounds[0])


def _check(workload: Workload, scene: Scene) -> None:
    names = [variant.name for variant in scene.variants]
    if len(set(names)) != len(names):
        raise ValueError(f"{workload.name}: two variants have one name")
    for name in (workload.limit, *(goal.variant for goal in workload.goals)):
        if name not in names:
            raise ValueError(f"{workload.name}: there is no variant {name!r}")


def _run(variant: Variant, meter: Meter, *, output: Path, settle: Callable[[], None]) -> Run:
    output.mkdir()
    settle()
    usage = meter.measure(lambda: variant.run(output))
    written = _written(output)
    shutil.rmtree(output)
    return Run(usage, written)


def _written(folder: Path) -> Written:
    sizes = [path.stat().st_size for path in folder.rglob("*.parquet") if path.is_file()]
    return Written(len(sizes), sum(sizes))


def _summary(result: Result, variant: str) -> Summary:
    runs = [one[variant] for one in result.counted]
    ratios = [one[variant].usage.seconds / one[result.limit].usage.seconds for one in result.counted]
    median = _median_run(runs)
    ratio = statistics.median(ratios)
    goal = next((goal for goal in result.goals if goal.variant == variant), None)
    return Summary(
        variant=variant,
        median=median,
        ratio=ratio,
        least_ratio=min(ratios),
        greatest_ratio=max(ratios),
        cpu_ratio=_cpu_ratio(result, variant),
        goal=goal,
        is_met=None if goal is None else _reached(goal, ratio=ratio, seconds=median.usage.seconds),
    )


def _cpu_ratio(result: Result, variant: str) -> float | None:
    pairs = [(one[variant].usage.cpu_seconds, one[result.limit].usage.cpu_seconds) for one in result.counted]
    if any(limit == 0 for _, limit in pairs):
        return None
    return statistics.median(own / limit for own, limit in pairs)


def _reached(goal: Goal, *, ratio: float, seconds: float) -> bool:
    return (ratio if goal.unit is Unit.RATIO else seconds) <= goal.at_most


def _median_run(runs: Sequence[Run]) -> Run:
    """Each number's own median: no single run need have had all of them."""
    usages = [run.usage for run in runs]
    return Run(
        Usage(
            seconds=statistics.median(usage.seconds for usage in usages),
            cpu_seconds=statistics.median(usage.cpu_seconds for usage in usages),
            foreign_cpu_seconds=statistics.median(usage.foreign_cpu_seconds for usage in usages),
            driver_peak_bytes=round(statistics.median(usage.driver_peak_bytes for usage in usages)),
            jvm_peak_bytes=round(statistics.median(usage.jvm_peak_bytes for usage in usages)),
            workers_peak_bytes=round(statistics.median(usage.workers_peak_bytes for usage in usages)),
        ),
        Written(
            round(statistics.median(run.written.files for run in runs)),
            round(statistics.median(run.written.size_bytes for run in runs)),
        ),
    )
