"""`holdfast drop`: remove a table, and everything that belongs to it."""

from collections.abc import Mapping

import click

from holdfast.cli.arguments import Mode, asking, table_command
from holdfast.cli.plans import carry_out
from holdfast.clock import SystemClock
from holdfast.host import SystemHost
from holdfast.services.presentation import show_drop_plan, show_drop_report
from holdfast.storage.open import location_of, open_store


@click.command
@table_command
@click.option(
    "--force", is_flag=True, help="Drop it although a write may be running or somebody holds a lease."
)
@asking
def drop(
    path: str,
    *,
    force: bool,
    mode: Mode,
    storage_options: Mapping[str, str],
) -> None:
    """Remove the table at PATH, with its history and savepoints. It cannot be taken back.

    Files below PATH that do not belong to the table stay, and symbolic links are
    not followed. What was pushed from the table stays served. A drop that was
    interrupted is finished by the same command.

    \b
    Example: holdfast drop lake/trips --dry-run
    """
    # Loaded here because it needs Arrow, which other commands must not wait for.
    from holdfast.services.drop import execute_drop, open_to_drop, plan_drop

    location = location_of(path, storage_options)
    table = open_to_drop(open_store(location), location, clock=SystemClock(), host=SystemHost())
    carry_out(
        lambda: plan_drop(table),
        lambda plan: execute_drop(table, plan, force=force),
        show_plan=show_drop_plan,
        question=lambda plan: f"Drop {plan.name} at {plan.path}?",
        show_report=lambda plan, report: show_drop_report(report, plan),
        mode=mode,
    )
