"""Benchmarks: variants of one task, run in turn and compared within each round.

    set-up ─► round 0 (discarded, unless a task takes minutes) ─► round 1 ─► … ─► medians, ratios

Every variant runs once per round and the order rotates, so that whatever
drifts (caches, the just-in-time compiler, other work on the machine) meets all
alike. A ratio compares two runs of one round only; numbers of different runs
of the suite are never compared.
"""

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

DISTURBED = 0.15
"""Part of the machine that others may take before a round is called disturbed."""
_SHORT_S = 0.25
_BOOKKEEPING = (".", "_")


def _nothing(_output: Path) -> None:
    pass


class DifferentAnswers(ValueError):
    """Two variants of one task came to different results: a benchmark of a wrong answer says nothing."""


@dataclass(frozen=True, slots=True)
class Variant:
    name: str
    run: Callable[[Path], object]
    """Does the task once. It writes, if at all, into the new folder it is given."""
    prepare: Callable[[Path], object] = _nothing
    """Untimed, before every run: puts into the folder what the run begins with."""
    check: Callable[[Path], object] | None = None
    """Untimed, after the first run: what came out. All variants of a task must say the same."""
    finish: Callable[[Path], object] = _nothing
    """Untimed, after every run: gives back what a run still holds."""
    task: str = ""
    """Where variants do different things on purpose, what this one does."""


class Unit(StrEnum):
    RATIO = "ratio"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Goal:
    """What the median of a variant should not exceed. Missing it is shown and fails nothing."""

    variant: str
    at_most: float
    unit: Unit = Unit.RATIO
    compared_with: str = ""
    """The variant a ratio is taken to; the limit unless named."""


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: Goal
    reached: float
    is_met: bool


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
    is_short: bool = False
    """Whether it takes about a second: few rounds of that say little."""
    discarded: int = 1
    """Rounds to run before those that count. None if a task takes minutes: that warms up by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What running something once took of the machine."""

    seconds: float
    cpu_seconds: float
    foreign_cpu_seconds: float
    """Spent meanwhile by other programs: a round with much of it is disturbed."""
    driver_peak_bytes: int
    """Sum over the driver and the processes it runs beside Spark."""
    jvm_peak_bytes: int
    workers_peak_bytes: int
    """Sum over Spark's Python workers, those that idle included."""


class Meter(Protocol):
    def measure(self, act: Callable[[], object]) -> Usage:
        """Run `act` once and say what it took."""


@dataclass(frozen=True, slots=True)
class Written:
    """Data files a run added; bookkeeping files of either side are not counted."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    usage: Usage
    written: Written


Round = Mapping[str, Run]
"""The runs of one round by variant."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    variant: str
    share: float
    """Part of the machine that other programs took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    workload: str
    limit: str
    goals: tuple[Goal, ...]
    facts: Mapping[str, str | int]
    rounds: tuple[Round, ...]
    """All of them, the discarded ones first."""
    discarded: int
    replaced: tuple[Round, ...] = ()
    """Disturbed ones that do not count, because others were run in their place."""
    sittings: int = 1
    """How often it was begun anew to get them."""

    @property
    def counted(self) -> tuple[Round, ...]:
        return self.rounds[self.discarded :]


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
    verdicts: tuple[Verdict, ...]
    """One for each of its goals."""


def run_workload(
    workload: Workload,
    meter: Meter,
    *,
    rounds: int,
    spare_rounds: int = 0,
    cores: int = 1,
    workspace: Path,
    settle: Callable[[], None],
    announce: Callable[[str], None],
) -> Result:
    """Run the rounds to discard and then `rounds` that count.

    While fewer than these were undisturbed, up to `spare_rounds` more are run, and
    the least disturbed of all count; how long a round took has no part in that.
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
        answers: dict[str, tuple[str, object]] = {}
        for number in range(workload.discarded + rounds + spare_rounds):
            if _quiet(finished[workload.discarded :], cores=cores) == rounds:
                break
            runs: dict[str, Run] = {}
            for variant in rotated(scene.variants, number):
                announce(f"round {number - workload.discarded + 1} of {rounds}: {variant.name}")
                output = workspace / "output"
                runs[variant.name] = _run(variant, meter, output=output, settle=settle)
                if number == 0 and variant.check is not None:
                    answer = (variant.name, variant.check(output))
                    _compare(workload, answers.setdefault(variant.task, answer), answer)
                variant.finish(output)
                shutil.rmtree(output)
            finished.append(runs)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    discarded, later = finished[: workload.discarded], finished[workload.discarded :]
    by_quiet = sorted(range(len(later)), key=lambda number: _share(later[number], cores=cores))
    counted, replaced = (sorted(part) for part in (by_quiet[:rounds], by_quiet[rounds:]))
    return Result(
        workload=workload.name,
        limit=workload.limit,
        goals=workload.goals,
        facts=scene.facts,
        rounds=(*discarded, *(later[number] for number in counted)),
        discarded=workload.discarded,
        replaced=tuple(later[number] for number in replaced),
    )


def disturbance_of(runs: Round, *, cores: int) -> Disturbance | None:
    """The most disturbed run of a round; None if all were too short for the kernel's counters.

    One disturbed run spoils a round's ratios, however quiet the others were.
    """
    found = (
        Disturbance(name, run.usage.foreign_cpu_seconds / (cores * run.usage.seconds))
        for name, run in runs.items()
        if run.usage.seconds >= _SHORT_S
    )
    return max(found, key=lambda one: one.share, default=None)


def _share(runs: Round, *, cores: int) -> float:
    """What others took of the machine, the same 0 for all rounds that are quiet enough."""
    worst = disturbance_of(runs, cores=cores)
    return 0.0 if worst is None or worst.share <= DISTURBED else worst.share


def _quiet(rounds: Sequence[Round], *, cores: int) -> int:
    return sum(_share(runs, cores=cores) == 0 for runs in rounds)


def joined(sittings: Sequence[Result]) -> Result:
    """One workload that was run several times, as one; of the discarded rounds only the first is kept."""
    first, *later = sittings
    counted = [one for result in later for one in result.counted]
    replaced = [one for result in sittings for one in result.replaced]
    return replace(first, rounds=(*first.rounds, *counted), replaced=tuple(replaced), sittings=len(sittings))


def narrowed(workload: Workload, prefixes: Sequence[str]) -> Workload:
    """The workload with only the limit and the variants whose names begin with one of these."""

    def is_kept(name: str) -> bool:
        return name == workload.limit or name.startswith(tuple(prefixes))

    def set_up(folder: Path) -> Scene:
        scene = workload.set_up(folder)
        return replace(scene, variants=tuple(one for one in scene.variants if is_kept(one.name)))

    goals = tuple(
        goal
        for goal in workload.goals
        if is_kept(goal.variant) and is_kept(goal.compared_with or workload.limit)
    )
    return replace(workload, goals=goals, set_up=set_up)


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
    named = [name for goal in workload.goals for name in (goal.variant, goal.compared_with) if name]
    for name in (workload.limit, *named):
        if name not in names:
            raise ValueError(f"{workload.name}: there is no variant {name!r}")


def _compare(workload: Workload, first: tuple[str, object], other: tuple[str, object]) -> None:
    if first[1] != other[1]:
        raise DifferentAnswers(f"{workload.name}: {first[0]!r} gave {first[1]}, {other[0]!r} gave {other[1]}")


def _run(variant: Variant, meter: Meter, *, output: Path, settle: Callable[[], None]) -> Run:
    output.mkdir()
    variant.prepare(output)
    before = data_files(output)
    settle()
    usage = meter.measure(lambda: variant.run(output))
    sizes = [size for path, size in data_files(output).items() if path not in before]
    return Run(usage, Written(len(sizes), sum(sizes)))


def data_files(folder: Path) -> dict[Path, int]:
    """Sizes of the Parquet files with rows; what a format keeps in folders of its own is bookkeeping."""
    return {
        path: path.stat().st_size
        for path in folder.rglob("*.parquet")
        if path.is_file()
        and not any(name.startswith(_BOOKKEEPING) for name in path.relative_to(folder).parts)
    }


def _summary(result: Result, variant: str) -> Summary:
    runs = [one[variant] for one in result.counted]
    ratios = _ratios(result, variant, to=result.limit)
    median = _median_run(runs)
    return Summary(
        variant=variant,
        median=median,
        ratio=statistics.median(ratios),
        least_ratio=min(ratios),
        greatest_ratio=max(ratios),
        cpu_ratio=_cpu_ratio(result, variant),
        verdicts=tuple(_verdict(result, goal, median) for goal in result.goals if goal.variant == variant),
    )


def _ratios(result: Result, variant: str, *, to: str) -> list[float]:
    return [one[variant].usage.seconds / one[to].usage.seconds for one in result.counted]


def _cpu_ratio(result: Result, variant: str) -> float | None:
    pairs = [(one[variant].usage.cpu_seconds, one[result.limit].usage.cpu_seconds) for one in result.counted]
    if any(limit == 0 for _, limit in pairs):
        return None
    return statistics.median(own / limit for own, limit in pairs)


def _verdict(result: Result, goal: Goal, median: Run) -> Verdict:
    if goal.unit is Unit.SECONDS:
        reached = median.usage.seconds
    else:
        reached = statistics.median(_ratios(result, goal.variant, to=goal.compared_with or result.limit))
    return Verdict(goal, reached, is_met=reached <= goal.at_most)


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
