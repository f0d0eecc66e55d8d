"""What the commands that call the push service share: their options, and switching what queries see."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from holdfast.cli.arguments import Mode, ask, remember_debug, wide_option
from holdfast.cli.output import print_facts, print_json, print_line, print_warning
from holdfast.errors import InvalidRequest
from holdfast.jobs.service_client import (
    DEFAULT_CONTROLLER,
    WAITING_FOR_BROKERS,
    late_brokers,
)
from holdfast.services.documents import Bytes, quantity

Function = TypeVar("Function", bound=Callable[..., None])

TYPE = "OFFLINE"


def service_command(function: Function) -> Function:
    """Give a command TABLE and the options of every command that calls the controller."""
    for decorate in (
        wide_option,
        click.option(
            "--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks."
        ),
        click.option("--json", "as_json", is_flag=True, help="Give one JSON document instead of text."),
        click.option(
            "--controller", default=DEFAULT_CONTROLLER, show_default=True, metavar="URL",
            envvar="HOLDFAST_CONTROLLER", help="The controller. HOLDFAST_TOKEN holds the credentials.",
        ),
        click.argument("table"),
    ):  # fmt: skip
        function = decorate(function)
    return function


def to_empty_option(function: Function) -> Function:
    return click.option("--to-empty", is_flag=True, help="Go on although queries will see no rows any more.")(
        function
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A call that changes what queries see: shown first, asked about, and made."""

    verb: str
    done: str
    """The verb when it has happened."""
    table: str
    entry_id: str
    call: Callable[..., Mapping[str, Any]]
    """Takes the parameters that tell a dry run, and what may come of it."""


def run_switch(switch: Switch, *, to_empty: bool, mode: Mode) -> None:
    """Show what a call would change, ask, and make it; it ends when every broker has switched."""
    plan = switch.call(dryRun=True)
    # What was carried out before is answered without one.
    changes = plan.get("changes", {})
    empties = bool(plan.get("empties"))
    if not mode.as_json:
        _print_plan(switch.entry_id, changes, empties=empties)
    answer: Mapping[str, Any] | None = None
    if not mode.dry_run:
        if empties:
            check_to_empty(switch.table, to_empty=to_empty)
        ask(f"{switch.verb} {switch.entry_id}?", yes=mode.yes)
        answer = switch.call(toEmpty=to_empty, **WAITING_FOR_BROKERS)
    late = late_brokers(answer or {})
    if mode.as_json:
        print_json(
            {
                "dry_run": mode.dry_run,
                "entry": switch.entry_id,
                "planned": changes,
                "empties": empties,
                switch.done: answer is not None,
                "late_brokers": late,
            }
        )
    elif answer is not None:
        is_repeated = answer.get("alreadyReverted") or answer.get("already")
        print_line(f"{f'had been {switch.done} before' if is_repeated else switch.done}: {switch.entry_id}")
        if late:
            print_warning(late_text(late))


def check_to_empty(table: str, *, to_empty: bool) -> None:
    """Refuse to leave queries without rows unless that is what the user says."""
    if not to_empty:
        raise InvalidRequest(
            "queries would see NO ROWS any more",
            table=table,
            hint="add --to-empty if the table is meant to become empty",
        )


def late_text(late: tuple[str, ...]) -> str:
    return (
        f"{', '.join(late)} had not switched when the service stopped waiting; "
        "until then queries may see there what was before"
    )


def moment(at_ms: int | None) -> dt.datetime | None:
    return None if at_ms is None else dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)


def _print_plan(entry_id: str, changes: Mapping[str, Any], *, empties: bool) -> None:
    shown, hidden, removed = (len(changes.get(key, ())) for key in ("shown", "hidden", "removed"))
    print_facts(
        [
            ("entry", entry_id),
            ("queries will see", "NO ROWS: THE TABLE BECOMES EMPTY" if empties else _segments(shown)),
            ("and no longer", quantity(hidden + removed, "segment")),
            ("of these go for good", quantity(removed, "segment")),
            ("bytes freed", Bytes(changes.get("bytesFreed", 0))),
        ]
    )


def _segments(count: int) -> str:
    return f"{quantity(count, 'segment')} again"
