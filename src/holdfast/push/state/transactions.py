"""Transactions on tables: read, decide, write; and again when another writer was faster.

Every decision is made on the state it is written over, so nothing that a lost
attempt decided survives it. Each write leaves a token in the table's record:
a writer that does not know whether its write happened finds it by reading.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from weakref import WeakValueDictionary

from holdfast.clock import Clock
from holdfast.errors import Conflict, InvalidRequest, LineageChanged, OutcomeUnknown
from holdfast.model.segment import Segment
from holdfast.push.audit import creation, newest_audit, next_record
from holdfast.push.calls import (
    Caller,
    Changes,
)
from holdfast.push.metastore.port import Change
from holdfast.push.replacement.decisions import Decision, changes
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import AnsweredCall, TableState, digest_of

_ATTEMPTS = 20
_WRITES_KEPT = 64
_CALLS_KEPT = 1000
"""Of each table, and for a day at most: every write of the table carries them."""
_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 0.5
_KEY_LENGTH_MAX = 200
_chance = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A decision and what is written with it."""

    decision: Decision
    added: Mapping[str, Segment] = field(default_factory=lambda: MappingProxyType({}))
    forgotten: Sequence[str] = ()
    extra: Sequence[Change] = ()
    operation: str = ""
    """The word in the audit; empty: not audited."""
    facts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    request: str = ""
    """What the call asked, for calls that carry a key."""
    is_written: bool = False
    """Written although the state stays the same, for the sake of the audit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    before: TableState
    after: TableState
    decision: Decision
    changes: Changes
    already: bool = False


class Transactions:
    """The only way in which tables change."""

    def __init__(self, catalog: Catalog, clock: Clock, *, wait: Callable[[float], None] = time.sleep) -> None:
        self._catalog = catalog
        self._clock = clock
        self._wait = wait
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
        """They go with their last holder: callers may name tables that do not exist."""

    def run(
        self, table: str, decide: Callable[[TableState], Step], *, by: Caller, dry_run: bool = False
    ) -> Done:
        """Decide on the table and write it, until no other writer was faster.

        `decide` may be called several times, each time on a newer state.
        """
        done = self.run_group({table: decide}, by=by, dry_run=dry_run)
        return done[table]

    def run_group(
        self,
        decisions: Mapping[str, Callable[[TableState], Step]],
        *,
        by: Caller,
        dry_run: bool = False,
    ) -> dict[str, Done]:
        """As `run` for several tables: all of them change in one write, or none."""
        _check_key(by)
        tried: dict[str, dict[str, Done]] = {}
        lost: Conflict | OutcomeUnknown | None = None
        with ExitStack() as held:
            # The locks only spare attempts among the threads of this process.
            for table in sorted(decisions):
                held.enter_context(self._lock(table))
            for attempt in range(_ATTEMPTS):
                states = {table: self._catalog.load(table) for table in sorted(decisions)}
                happened = _attempt_that_happened(states, tried)
                if happened is not None:
                    return happened
                steps = {table: decide(states[table]) for table, decide in decisions.items()}
                try:
                    return self._attempt(states, steps, by, tried, dry_run=dry_run)
                except (LineageChanged, OutcomeUnknown) as error:
                    lost = error
                self._wait(_chance.uniform(0, min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**attempt)))
        if isinstance(lost, OutcomeUnknown):
            raise lost
        raise Conflict(
            "others change the table faster than this call could",
            tables=", ".join(sorted(decisions)),
            attempts=_ATTEMPTS,
            code="CAS_EXHAUSTED",
            hint="repeat the call",
        )

    def _attempt(
        self,
        states: Mapping[str, TableState],
        steps: Mapping[str, Step],
        by: Caller,
        tried: dict[str, dict[str, Done]],
        *,
        dry_run: bool,
    ) -> dict[str, Done]:
        done = {table: _outcome(states[table], step) for table, step in steps.items()}
        writing = {table: step for table, step in steps.items() if _writes(states[table], step)}
        if dry_run or not writing:
            return done
        token = self._clock.unique()
        written: list[Change] = []
        for table, step in writing.items():
            after, extra = self._sign(step, done[table].changes, token, by)
            done[table] = replace(done[table], after=after)
            written += self._catalog.changes(states[table], after, added=step.added, forgotten=step.forgotten)
            written += [*step.extra, *extra]
        tried[token] = done
        self._catalog.metastore.write(written)
        return done

    def _sign(self, step: Step, changed: Changes, token: str, by: Caller) -> tuple[TableState, list[Change]]:
        """The state with everything that goes along with a write: token, key, audit record."""
        after = step.decision.after
        push = replace(after.push, writes=(*after.push.writes, token)[-_WRITES_KEPT:])
        now_ms = self._clock.now_ms()
        if by.key and step.request:
            answer = AnsweredCall(
                request=digest_of(step.request), answer=step.decision.entry_ids, at_ms=now_ms
            )
            calls = [*push.calls.items(), (by.key, answer)][-_CALLS_KEPT:]
            push = replace(push, calls=MappingProxyType(dict(calls)))
        extra: list[Change] = []
        if step.operation:
            if not push.audit_count:
                # The table may have had a predecessor of the same name.
                count, head = newest_audit(self._catalog.metastore, after.table)
                push = replace(push, audit_count=count, audit_head=head)
            record = next_record(
                push,
                changed,
                operation=step.operation,
                by=by,
                at_ms=now_ms,
                facts=step.facts,
            )
            created, head = creation(after.table, record)
            push = replace(push, audit_count=record.number, audit_head=head)
            extra.append(created)
        return after.with_push(push), extra

    def _lock(self, table: str) -> threading.RLock:
        with self._guard:
            return self._locks.setdefault(table, threading.RLock())


def previous_answer(state: TableState, by: Caller, request: str) -> tuple[str, ...] | None:
    """What the same call with the same key was answered; None if there was none (L8)."""
    call = state.push.calls.get(by.key) if by.key else None
    if call is None:
        return None
    if call.request != digest_of(request):
        raise InvalidRequest(
            "the key was used for another call", key=by.key, code="KEY_REUSED", hint="use a new key"
        )
    return call.answer


def no_change(state: TableState, entry_ids: tuple[str, ...] = ()) -> Step:
    """A step that writes nothing."""
    return Step(decision=Decision(after=state, entry_ids=entry_ids, already=True))


def _attempt_that_happened(
    states: Mapping[str, TableState], tried: Mapping[str, dict[str, Done]]
) -> dict[str, Done] | None:
    """An attempt whose outcome was unknown and that did happen after all."""
    for state in states.values():
        for token in state.push.writes:
            if token in tried:
                return tried[token]
    return None


def _writes(before: TableState, step: Step) -> bool:
    return step.decision.after != before or bool(
        step.added or step.forgotten or step.extra or step.is_written
    )


def _outcome(before: TableState, step: Step) -> Done:
    decision = step.decision
    return Done(
        before=before,
        after=decision.after,
        decision=decision,
        changes=changes(before, decision),
        already=decision.already,
    )


def _check_key(by: Caller) -> None:
    if len(by.key) > _KEY_LENGTH_MAX:
        raise InvalidRequest(
            "the key is too long", length=len(by.key), limit=_KEY_LENGTH_MAX, code="KEY_INVALID"
        )
