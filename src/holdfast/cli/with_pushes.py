"""`--with-pushes`: what is served from the commits that a command takes back, and reverting that, too."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeVar, cast

import click

from holdfast.cli.arguments import Mode, ask
from holdfast.cli.output import draw, show
from holdfast.cli.service_calls import check_to_empty, late_text, to_empty_option
from holdfast.errors import HoldfastError, InvalidRequest
from holdfast.jobs.lake_pushes import RevertPlan, plan_reverts, revert
from holdfast.model.instant import InstantTime
from holdfast.model.pushes import Push, newest_of_each_place, source_text
from holdfast.services.documents import Document, Line, Rows, Warned, iso
from holdfast.services.pushes import push_records, push_warnings, revert_command
from holdfast.table.opened import OpenTable

Function = TypeVar("Function", bound=Callable[..., None])

_HEADER = ("Served table", "Service", "Push", "Of commit", "Then")
_STAYS = "stays as it is; --with-pushes reverts it"


@dataclass(frozen=True, slots=True)
class WithPushes:
    """That pushes are reverted, too, and how far."""

    to_empty: bool = False
    """Also where queries see no rows any more afterwards."""


def with_pushes_option(function: Function) -> Function:
    """Give a command --with-pushes and what belongs to it, as one value; None without it."""

    @wraps(function)
    def as_one(*arguments: Any, with_pushes: bool, to_empty: bool, **others: Any) -> None:
        if to_empty and not with_pushes:
            raise InvalidRequest("--to-empty says how far pushes are reverted", hint="add --with-pushes")
        function(*arguments, with_pushes=WithPushes(to_empty) if with_pushes else None, **others)

    decorated: Any = to_empty_option(as_one)
    decorated = click.option(
        "--with-pushes", is_flag=True, help="Also revert the pushes that came from what is taken back."
    )(decorated)
    return cast(Function, decorated)


class ServedCommits:
    """The pushes that came from the commits that a command is about to take back."""

    def __init__(
        self, table: OpenTable, removing: Collection[InstantTime], *, with_pushes: WithPushes | None
    ) -> None:
        """With pushes, the services are asked: what they would refuse is refused before anything is done."""
        self._table = table
        self._records = push_records(table)
        self._named = [push for push in self._records.pushes if push.instant in removing]
        self._is_reverting = with_pushes is not None
        self._to_empty = with_pushes is not None and with_pushes.to_empty
        self._planned = plan_reverts(table, removing) if self._is_reverting else []
        self._done: list[RevertPlan] = []
        self._late: list[str] = []

    @property
    def has_reverts(self) -> bool:
        return has_reverts(self._planned)

    def show_plan(self) -> Document:
        return Document(tuple(_rows(self._documents)))

    def check_to_empty(self) -> None:
        """Refuse, before anything is done, what leaves queries without rows, unless the caller allowed it."""
        _check_to_empty(self._planned, to_empty=self._to_empty)

    def revert(self) -> None:
        """Revert what is served of commits that are gone, once they are."""
        if not self._is_reverting:
            return
        try:
            # A push may have been recorded since the first plan.
            plans = plan_reverts(self._table)
            self._late = _revert_all(self._table, plans, to_empty=self._to_empty)
        except HoldfastError as error:
            commands = [revert_command(self._table, push) for push in newest_of_each_place(self._named)]
            error.add_note(f"the commits are taken back, what is served is not: {'; '.join(commands)}")
            raise
        self._done = plans

    def show_report(self, *, is_done: bool) -> Document:
        reverted = [entry_id for plan in self._done for entry_id in plan.reverted]
        warnings = self._warnings if is_done else []
        return Document(
            (*_revert_lines(self._done), *map(Warned, warnings)),
            {"pushes": self._documents, "reverted": reverted, "warnings": warnings},
        )

    @property
    def _documents(self) -> list[dict[str, object]]:
        if self._is_reverting:
            return _documents(self._planned)
        return [_document(push.place, push.entry_id, push, _STAYS) for push in self._named]

    @property
    def _warnings(self) -> list[str]:
        """What queries still see of commits that are gone, and what to do."""
        if self._is_reverting:
            return [*_still_served(self._done), *self._late]
        return push_warnings(self._table, self._records, {push.instant for push in self._named})


def run_reverts(
    table: OpenTable,
    plans: Sequence[RevertPlan],
    *,
    to_empty: bool,
    mode: Mode,
    document: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Show what is reverted, ask, and revert. `document` is what else the command's document says."""
    if not mode.as_json:
        draw(Document(tuple(_rows(_documents(plans)))))
    reverted = [entry_id for plan in plans for entry_id in plan.reverted]
    is_done = not mode.dry_run and bool(reverted)
    warnings = _still_served(plans)
    if is_done:
        _check_to_empty(plans, to_empty=to_empty)
        ask(f"Revert {', '.join(reverted)}?", yes=mode.yes)
        warnings += _revert_all(table, plans, to_empty=to_empty)
    outcome = {"reverted": reverted if is_done else [], "warnings": warnings}
    fields = {"dry_run": mode.dry_run, **document, "pushes": _documents(plans), **outcome}
    show(
        Document((*_revert_lines(plans if is_done else ()), *map(Warned, warnings)), fields),
        as_json=mode.as_json,
    )


def has_reverts(plans: Iterable[RevertPlan]) -> bool:
    return any(plan.reverted for plan in plans)


def _revert_all(table: OpenTable, plans: Iterable[RevertPlan], *, to_empty: bool) -> list[str]:
    """Carry the plans out; a line for each table whose brokers had not all switched."""
    late = [(plan, revert(table, plan, to_empty=to_empty)) for plan in plans]
    return [f"{plan.table} at {plan.controller}: {late_text(brokers)}" for plan, brokers in late if brokers]


def _check_to_empty(plans: Iterable[RevertPlan], *, to_empty: bool) -> None:
    for plan in plans:
        if plan.empties:
            check_to_empty(plan.table, to_empty=to_empty)


def _documents(plans: Iterable[RevertPlan]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for plan in plans:
        recorded = {push.entry_id: push for push in plan.pushes}
        fates = {**dict.fromkeys(plan.reverted, _fate(plan)), **plan.steps.left}
        found += [
            _document((plan.controller, plan.table), e, recorded.get(e), fate) for e, fate in fates.items()
        ]
    return found


def _document(place: tuple[str, str], entry_id: str, push: Push | None, then: str) -> dict[str, object]:
    return {
        "table": place[1],
        "controller": place[0],
        "entry": entry_id,
        "instant": push and push.instant,
        "published_at": push and iso(push.published_at),
        "then": then,
    }


def _fate(plan: RevertPlan) -> str:
    shown = plan.steps.shown
    if plan.empties:
        return "is reverted: queries see NO ROWS"
    if shown is None:
        return "is reverted"
    return f"is reverted: queries see {source_text(shown['source']) or 'what was before'}"


def _rows(documents: Sequence[Mapping[str, object]]) -> list[Rows]:
    keys = ("table", "controller", "entry", "instant", "then")
    return [Rows(_HEADER, [tuple(one[key] for key in keys) for one in documents])] if documents else []


def _revert_lines(plans: Iterable[RevertPlan]) -> list[Line]:
    return [
        Line(f"reverted push {entry_id} of {plan.table} at {plan.controller}")
        for plan in plans
        for entry_id in plan.reverted
    ]


def _still_served(plans: Iterable[RevertPlan]) -> list[str]:
    return [
        f"{plan.table} at {plan.controller} shows rows that were taken back; {plan.steps.left[entry_id]}"
        for plan in plans
        for entry_id in plan.steps.still_served
    ]
