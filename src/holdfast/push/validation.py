"""Validation: the gates of a table and of a push are evaluated on what the push would show."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from holdfast.config.gates import Gate
from holdfast.errors import Conflict, Refused
from holdfast.model.lineage import EntryState
from holdfast.push.calls import Caller, GateReport
from holdfast.push.replacement.checks import no_such_entry
from holdfast.push.replacement.decisions import Decision
from holdfast.push.replacement.end import gate_scope, is_validated
from holdfast.push.replacement.gates import Ask, evaluate
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import TableState
from holdfast.push.state.transactions import Step, Transactions

InTurn = Callable[[Callable[[], object]], object]
"""Calls a function that asks the engine, when it is the caller's turn."""


def at_once(ask: Callable[[], object]) -> object:
    return ask()


class Validation:
    def __init__(
        self, catalog: Catalog, transactions: Transactions, ask: Callable[[str], Ask] | None
    ) -> None:
        """`ask` gives, for a table, what answers the questions of gates; without it there are no gates."""
        self._catalog = catalog
        self._transactions = transactions
        self._ask = ask

    def validate(
        self, table: str, entry_id: str, gates: Sequence[Gate] | None = None, *, by: Caller
    ) -> GateReport:
        """Evaluate the table's gates and these on what the push would show; its end needs the outcome."""
        if self._ask is None:
            raise Refused("nothing here answers the questions of gates", code="NO_ENGINE")
        state = self._catalog.load(table)
        entry = state.lineage.entry(entry_id)
        if entry is None:
            raise no_such_entry(state, entry_id)
        if entry.state is not EntryState.IN_PROGRESS:
            raise Refused("the push is not open", entry=entry_id, code="ENTRY_NOT_OPEN")
        own = tuple(gate for gate in gates or () if gate not in state.config.gates)
        chosen = (*state.config.gates, *own)
        hidden = frozenset(entry.segments_to) & state.segments
        # Of a push that replaces a part of the table, the part is what its rows are compared with.
        live = frozenset(entry.segments_from)
        outcomes = evaluate(chosen, hidden=hidden, live=live, ask=self._ask(table))
        looked_at = self._catalog.segments(table, hidden)
        scope = gate_scope(hidden, state.config.gates)

        def decide(now: TableState) -> Step:
            if now.lineage.entry(entry_id) != entry or self._catalog.segments(table, hidden) != looked_at:
                raise Conflict(
                    "the push changed while its gates were evaluated",
                    entry=entry_id,
                    code="ENTRY_CHANGED",
                    hint="validate it again",
                )
            judged = replace(now.details_of(entry_id), gates=outcomes, gated=scope)
            return Step(
                decision=Decision(after=now.with_details(entry_id, judged), entry_ids=(entry_id,)),
                operation="validate",
                facts={outcome.name: "passed" if outcome.passed else "failed" for outcome in outcomes},
            )

        self._transactions.run(table, decide, by=by)
        return GateReport(entry_id=entry_id, outcomes=outcomes)

    def validate_if_needed(
        self, table: str, entry_id: str, segments_to: Sequence[str], *, by: Caller, in_turn: InTurn
    ) -> None:
        """Evaluate the gates of a table on a push without validation: Pinot's clients do not ask for it."""
        state = self._catalog.load(table)
        entry = state.lineage.entry(entry_id)
        if entry is None or entry.state is not EntryState.IN_PROGRESS or not state.config.gates:
            return
        chosen = frozenset(segments_to or entry.segments_to)
        # What is missing, or was uploaded and left out, is refused by the end itself.
        is_uploaded = chosen == state.segments.intersection(entry.segments_to)
        if is_uploaded and not is_validated(state, entry_id, chosen):
            in_turn(partial(self.validate, table, entry_id, by=replace(by, key="")))
