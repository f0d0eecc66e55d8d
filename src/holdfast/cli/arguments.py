"""Arguments that several commands share, and the table they name."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import click

from holdfast.cli.output import WIDE
from holdfast.errors import InvalidRequest
from holdfast.table.archive import read_archive
from holdfast.table.opened import OpenTable
from holdfast.timeline.archived import NO_ARCHIVE, ArchivedTimeline

Function = TypeVar("Function", bound=Callable[..., None])

DEBUG = "holdfast.debug"
"""Where a context remembers that a traceback is wanted."""
_SENTENCE = 300
"""The most characters of a command's first sentence."""
PATH = "holdfast.path"
"""Where it remembers the table's path, for the commands that a message proposes."""


class CommandGroup(click.Group):
    """A group that tells of each command in a whole sentence what it does."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [(name, command) for name, command in sorted(self.commands.items()) if not command.hidden]
        rows = [(name, command.get_short_help_str(_SENTENCE)) for name, command in shown]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class ShownByDefault(CommandGroup):
    """A group that shows something: `holdfast timeline PATH` is `holdfast timeline show PATH`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names) and not self._is_slip(args):
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def _is_slip(self, args: list[str]) -> bool:
        """Whether the first word is a command misspelled: what comes after it may be the path."""
        has_path = any(not word.startswith("-") for word in args[1:2])
        return has_path and bool(difflib.get_close_matches(args[0], self.commands, n=1, cutoff=0.7))


def wide_option(function: Function) -> Function:
    """Let people have everything, however wide: for the commands that print tables."""
    return click.option(
        "--wide", is_flag=True, expose_value=False, callback=_remember_wide,
        help="Show all columns, each row on one line.",
    )(function)  # fmt: skip


def table_command(function: Function) -> Function:
    """Give a command PATH and the options that every command has."""
    for decorate in (
        wide_option,
        click.option(
            "--debug", is_flag=True, expose_value=False, callback=remember_debug, help="Show tracebacks."
        ),
        click.option(
            "--storage-option",
            "storage_options",
            multiple=True,
            callback=pairs,
            metavar="KEY=VALUE",
            help="An option of the object store, such as region or endpoint. Repeats.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Give one JSON document instead of text."),
        click.argument("path", callback=_remember_path),
    ):
        function = decorate(function)
    return function


@dataclass(frozen=True, slots=True)
class Mode:
    """How a command that shows a plan goes on."""

    yes: bool
    dry_run: bool
    as_json: bool

    @property
    def lists_files(self) -> bool:
        """Whether to find out what would be gone, which takes as long as the run."""
        return self.dry_run or not self.yes


def asking(function: Function) -> Function:
    """Give a command that shows a plan first the options to agree to it, or to stop there.

    A document is never mixed with a question.
    """

    @wraps(function)
    def without_question(*arguments: Any, as_json: bool, yes: bool, dry_run: bool, **others: Any) -> None:
        if as_json and not (yes or dry_run):
            raise InvalidRequest("--json does not ask", hint="add --yes, or --dry-run to see the plan")
        function(*arguments, mode=Mode(yes, dry_run, as_json), **others)

    decorated: Any = without_question
    for decorate in (
        click.option("--dry-run", is_flag=True, help="Show the plan, and stop."),
        click.option("--yes", is_flag=True, help="Carry out the plan without asking."),
    ):
        decorated = decorate(decorated)
    return cast(Function, decorated)


def ask(question: str, *, yes: bool) -> None:
    """Go on only if the answer is yes."""
    if not yes:
        click.confirm(question, default=False, abort=True, err=True)


def remember_debug(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
    """The callback of --debug."""
    context.meta[DEBUG] = bool(value)


def _remember_wide(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
    context.meta[WIDE] = bool(value)


def _remember_path(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    context.meta[PATH] = value
    return value


def limit_option(help_text: str) -> Callable[[Function], Function]:
    return click.option("--limit", type=click.IntRange(min=0), metavar="N", help=help_text)


def include_archived_option(function: Function) -> Function:
    return click.option("--archived", is_flag=True, help="Show archived instants, too.")(function)


def archive_of(table: OpenTable, *, archived: bool) -> ArchivedTimeline:
    """The archive, if it is asked for."""
    return read_archive(table.store, table.settings) if archived else NO_ARCHIVE


def pairs(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    """`key=value` texts as a mapping; a later one wins."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", ctx=context, param=parameter)
        found[key.strip()] = value
    return found


def conf_option(help_text: str, *spellings: str) -> Callable[[Function], Function]:
    """Options of an operation, one by one, as `conf`."""
    return click.option(
        *spellings, "conf", multiple=True, callback=pairs, metavar="KEY=VALUE", help=help_text
    )


def names(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Names separated by commas, in one or several texts."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())
