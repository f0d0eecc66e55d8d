"""The search: every state that one protocol and its actors can reach, each checked as it stands."""

import gc
from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocol.model import (
    ARCHIVER,
    FORGETTER,
    KEEPER,
    READER,
    STOPPED,
    Actor,
    Protocol,
    Recovery,
    Step,
    Successors,
    World,
    advance,
)

Value = TypeVar("Value")


@dataclass(frozen=True)
class Population:
    """Who acts: the attempts of each writer's tasks, and how many others of each kind run beside them."""

    writers: tuple[tuple[str, ...], ...]
    rollbacks: int = 0
    readers: int = 0
    archivers: int = 0
    keepers: int = 0
    forgetters: int = 0

    def __str__(self) -> str:
        groups = ", ".join("".join(attempts) for attempts in self.writers)
        text = f"{_count(len(self.writers), 'writer')} ({groups})"
        others = (
            ("rollback", self.rollbacks),
            (READER, self.readers),
            (ARCHIVER, self.archivers),
            (KEEPER, self.keepers),
            (FORGETTER, self.forgetters),
        )
        return ", ".join((text, *(_count(number, noun) for noun, number in others if number)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@dataclass(frozen=True)
class Exploration:
    """All states of one protocol and population, or those met before the first violation."""

    protocol: Protocol
    population: Population
    states: int
    worlds: tuple[World, ...]
    violation: str = ""
    schedule: tuple[str, ...] = ()


class Numbered(Generic[Value]):
    """Values numbered in the order they came, so that a state is a few small integers."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._numbers: dict[Value, int] = {}

    def number(self, value: Value) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def explore(protocol: Protocol, population: Population) -> Exploration:
    """Visit every reachable state, nearest first, until one is wrong."""
    search = _Search(protocol, population)
    # Millions of tuples and no cycle among them: looking for cycles costs a third of the time.
    gc.disable()
    try:
        violation, schedule = search.run()
    finally:
        gc.enable()
    states, worlds = len(search.reached_from), tuple(search.worlds.values)
    return Exploration(protocol, population, states, worlds, violation, schedule)


State = tuple[int, ...]
"""The number of a world, then the numbers of the actors.

Each actor carries its task, so which of two alike is where makes no new state:
the numbers are sorted.
"""


class _Search:
    def __init__(self, protocol: Protocol, population: Population) -> None:
        self.worlds: Numbered[World] = Numbered()
        self.reached_from: dict[State, State | None] = {}
        self._protocol = protocol
        self._recovery = Recovery(protocol)
        self._actors: Numbered[Actor] = Numbered()
        self._moves: dict[tuple[int, int], list[tuple[int, int]]] = {}
        actors = [Actor(attempts=attempts) for attempts in population.writers]
        actors += [Actor()] * population.rollbacks + [Actor(role=READER)] * population.readers
        actors += [Actor(role=ARCHIVER)] * population.archivers + [Actor(role=KEEPER)] * population.keepers
        actors += [Actor(role=FORGETTER)] * population.forgetters
        self._initial = (self.worlds.number(World()), *sorted(map(self._actors.number, actors)))

    def run(self) -> tuple[str, tuple[str, ...]]:
        """The first violation and the steps that lead to it; both empty if there is none."""
        self.reached_from[self._initial] = None
        queue = deque([self._initial])
        worlds_checked = 0
        while queue:
            state = queue.popleft()
            if state[0] == worlds_checked:
                # Worlds are met in the order of their numbers, and a check looks at nothing else.
                worlds_checked += 1
                if violation := self._violation(self.worlds.values[state[0]]):
                    return violation, self._schedule(state)
            for successor in self._successors(state):
                if successor not in self.reached_from:
                    self.reached_from[successor] = state
                    queue.append(successor)
        assert worlds_checked == len(self.worlds.values), "a world was reached and not checked"
        return "", ()

    def _violation(self, world: World) -> str:
        found = (invariant(world) for invariant in self._protocol.invariants)
        return next(filter(None, found), "") or self._protocol.after_recovery(self._recovery, world)

    def _successors(self, state: State) -> list[State]:
        world, *actors = state
        successors = []
        for place, actor in enumerate(actors):
            moves = self._moves.get((world, actor))
            if moves is None:
                moves = self._moves[world, actor] = self._moves_of(world, actor)
            for new_world, new_actor in moves:
                moved = actors.copy()
                moved[place] = new_actor
                moved.sort()
                successors.append((new_world, *moved))
        return successors

    def _moves_of(self, world: int, actor: int) -> list[tuple[int, int]]:
        _, successors = self._advance(world, actor)
        return [(self.worlds.number(world), self._actors.number(actor)) for world, actor in successors]

    def _advance(self, world: int, actor: int) -> tuple[str, Successors]:
        me = self._actors.values[actor]
        if me == STOPPED:
            return "", []
        return advance(self._program(me), self.worlds.values[world], me)

    def _program(self, me: Actor) -> tuple[Step, ...]:
        if me.role:
            program: tuple[Step, ...] = getattr(self._protocol, me.role)
            return program
        return self._protocol.writer if me.attempts else self._protocol.rollback

    def _schedule(self, state: State) -> tuple[str, ...]:
        """The steps that lead to the state, first to last."""
        steps: list[str] = []
        while (before := self.reached_from[state]) is not None:
            steps.append(self._step_between(before, state))
            state = before
        return tuple(reversed(steps))

    def _step_between(self, before: State, after: State) -> str:
        world, *actors = before
        for place, actor in enumerate(actors):
            others = (*actors[:place], *actors[place + 1 :])
            for new_world, new_actor in self._moves[world, actor]:
                if (new_world, *sorted((*others, new_actor))) == after:
                    me, now = self._actors.values[actor], self._actors.values[new_actor]
                    role = me.role or ("writer" if me.attempts else "rollback")
                    name, _ = self._advance(world, actor)
                    return f"{role} of {now.instant or me.instant or '?'}: {name}"
        raise AssertionError(f"no step leads from {before} to {after}")
