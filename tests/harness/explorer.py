"""The explorer: runs actors step by step in chosen orders.

Each actor is a greenlet that pauses before every storage step on something
that actors share. A schedule is the list of switches away from an actor that
could have gone on: (step, actor to continue with). With no switches the actors
run one after the other. Schedules are enumerated depth-first up to a number of
switches, or drawn at random from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from greenlet import greenlet

from harness.faults import Crash, StoreWrapper
from holdfast.model.names import PROBE_FOLDER
from holdfast.storage.store import Store

Actor = Callable[[Store], object]
Schedule = tuple[tuple[int, int], ...]


class SteppingStore(StoreWrapper):
    """Hands control back to the explorer before every step."""

    def __init__(self, inner: Store, pause: Callable[[], None]) -> None:
        super().__init__(inner)
        self._pause = pause

    def die(self) -> None:
        """Whatever its actor still tries has no effect."""

        def pause() -> None:
            raise Crash

        self._pause = pause

    def _change(self, verb: str, path: str, act: Callable[[], object]) -> object:
        # A probe of the storage works in a folder of its own, and with threads.
        if not path.startswith(PROBE_FOLDER):
            self._pause()
        return act()

    _look = _change


@dataclass(frozen=True)
class Run:
    """What one schedule did: how the actors ended and where else it could have switched."""

    schedule: Schedule
    outcomes: tuple[BaseException | object, ...]
    choices: tuple[tuple[int, ...], ...]
    """For each step, the actors that could have continued besides the one that did."""


def run_schedule(
    store: Store, actors: Sequence[Actor], schedule: Schedule, *, asleep: int | None = None
) -> Run:
    """Run the actors in the order the schedule says.

    An actor that is switched away from continues when the others have ended,
    however late that is; the one called `asleep` never does.
    """
    explorer = greenlet.getcurrent()
    outcomes: list[BaseException | object] = [None] * len(actors)
    ended = [False] * len(actors)

    stores = [SteppingStore(store, explorer.switch) for _ in actors]

    def body(index: int) -> None:
        try:
            outcomes[index] = actors[index](stores[index])
        except Exception as error:  # noqa: BLE001  (how an actor ended is the result)
            outcomes[index] = error
        ended[index] = True

    threads = [greenlet(lambda index=index: body(index), explorer) for index in range(len(actors))]
    switches = dict(schedule)
    choices: list[tuple[int, ...]] = []
    current = 0
    while True:
        wanted = switches.get(len(choices), current)
        if wanted != current and not ended[wanted]:
            ended[current] |= current == asleep
            current = wanted
        runnable = [index for index in range(len(actors)) if not ended[index]]
        if not runnable:
            _bury(threads, stores)
            return Run(schedule, tuple(outcomes), tuple(choices))
        current = current if current in runnable else runnable[0]
        choices.append(tuple(index for index in runnable if index != current))
        threads[current].switch()


def _bury(threads: Sequence[greenlet], stores: Sequence[SteppingStore]) -> None:
    """End whoever sleeps for ever now, not in the middle of a later run, when its memory is collected."""
    for thread, store in zip(threads, stores, strict=True):
        if not thread.dead:
            store.die()
            with suppress(Crash):
                thread.throw()


def schedules(run: Callable[[Schedule], Run], *, switches: int) -> Iterator[Run]:
    """Every schedule with at most that many switches, whoever starts, each run once."""
    pending: list[Schedule] = [()]
    while pending:
        done = run(pending.pop())
        yield done
        taken = sum(1 for step, _ in done.schedule if step > 0)
        first = done.schedule[-1][0] + 1 if done.schedule else 0
        for step in range(first, len(done.choices)):
            if step == 0 or taken < switches:
                pending += [(*done.schedule, (step, actor)) for actor in done.choices[step]]


def sampled(run: Callable[[Schedule], Run], *, every: int) -> Iterator[Run]:
    """One of so many schedules with one switch, whoever starts, from the first step to the last."""
    starts = [run(())]
    starts += [run(((0, actor),)) for actor in starts[0].choices[0]]
    yield from starts
    for start in starts:
        switches = [(step, a) for step in range(1, len(start.choices)) for a in start.choices[step]]
        for switch in switches[::every]:
            yield run((*start.schedule, switch))


def returning(run: Callable[[Schedule], Run], *, every: int) -> Iterator[Run]:
    """The first pauses, the second begins, the first goes on to its end: at one of so many steps each."""
    for away in range(1, _steps_of_first(run(())), every):
        once = run(((away, 1),))
        for back in range(away + 1, _steps_of_first(once), every):
            if 0 in once.choices[back]:
                yield run(((away, 1), (back, 0)))


def _steps_of_first(done: Run) -> int:
    """How many steps passed until only one actor was left."""
    return sum(1 for others in done.choices if others)


def random_schedules(
    run: Callable[[Schedule], Run], *, switches: int, count: int, seed: int
) -> Iterator[Run]:
    """Schedules with that many switches at random steps; the seed repeats them."""
    chance = random.Random(seed)
    straight = run(())
    longest, actors = len(straight.choices), len(straight.outcomes)
    for _ in range(count):
        steps = sorted(chance.sample(range(1, longest), k=min(switches, longest - 1)))
        yield run(tuple((step, chance.randrange(actors)) for step in steps))
