"""The command line: its commands, and the one place where errors become exit codes.

0 done                          4 storage did not answer
1 failed or declined            5 the table is damaged
2 wrong usage, invalid request  6 the outcome is unknown
3 conflict, or fenced           130 interrupted
"""

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click
from click.shell_completion import shell_complete

from holdfast import __version__
from holdfast.cli.archive import archive
from holdfast.cli.arguments import DEBUG, PATH, CommandGroup
from holdfast.cli.cleans import cleans
from holdfast.cli.commits import commits
from holdfast.cli.compactions import compaction, compactions
from holdfast.cli.console import console
from holdfast.cli.convert import convert
from holdfast.cli.create import create
from holdfast.cli.drop import drop
from holdfast.cli.exports import exports
from holdfast.cli.failures import (
    DONE,
    FAILED,
    INTERRUPTED,
    WRONG_USAGE,
    error_document,
    error_lines,
    exit_code,
    is_json,
    one_line,
    printable,
)
from holdfast.cli.fsview import fsview
from holdfast.cli.heartbeats import heartbeats
from holdfast.cli.output import print_json
from holdfast.cli.push import push
from holdfast.cli.query import query
from holdfast.cli.read import read
from holdfast.cli.restore import restore, undo
from holdfast.cli.rollbacks import rollbacks
from holdfast.cli.run import run
from holdfast.cli.savepoints import savepoints
from holdfast.cli.serve import serve
from holdfast.cli.show import show
from holdfast.cli.sql import sql
from holdfast.cli.streams import streams
from holdfast.cli.timeline import timeline
from holdfast.cli.verify import repair, verify
from holdfast.cli.write import write
from holdfast.errors import OptionsIgnored

_NAME = "holdfast"
_COMPLETION = "_HOLDFAST_COMPLETE"


class Program(click.Group):
    """A group of commands whose every failure is one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        asked = os.environ.get(_COMPLETION)
        if asked:
            sys.exit(shell_complete(self, {}, _NAME, _COMPLETION, asked))
        _prepare_streams()
        sys.exit(self._run(list(sys.argv[1:] if args is None else args), extra))

    def _run(self, arguments: list[str], extra: dict[str, Any]) -> int:
        context: click.Context | None = None
        try:
            with _warnings_as_lines(), self.make_context(_NAME, arguments, **extra) as context:
                self.invoke(context)
                sys.stdout.flush()
        except click.exceptions.Exit as leaving:
            return leaving.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return WRONG_USAGE
        except click.ClickException as error:
            _complain(_usage(error))
            return _report("WrongUsage", _usage(error), error.exit_code, arguments)
        except click.Abort as error:
            return _say_stopped(isinstance(error.__context__, KeyboardInterrupt), arguments)
        except KeyboardInterrupt:
            return _say_stopped(True, arguments)
        except BrokenPipeError:
            _forget_stdout()
            return FAILED
        except Exception as error:  # noqa: BLE001  # the outermost frame
            if context is not None and context.meta.get(DEBUG):
                traceback.print_exc()
            path = None if context is None else context.meta.get(PATH)
            _complain(*error_lines(error, path) if sys.stderr.isatty() else [one_line(error, path)])
            if is_json(arguments):
                print_json(error_document(error, path))
            return exit_code(error)
        return DONE

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        longest = max(len(name) for name in self.commands)
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                room = formatter.width - longest - 6
                rows = [(each.name or "").ljust(longest) for each in commands]
                texts = [each.get_short_help_str(room) for each in commands]
                formatter.write_dl(list(zip(rows, texts, strict=True)))


@click.group(_NAME, cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=_NAME)
def cli() -> None:
    """Lakehouse tables, on Spark, that you can always take back.

    PATH is a directory or the address of one in an object store; TABLE is a
    table of the push service. Every command takes --json, and says with its
    exit code how it ended: 0 done, 1 failed or declined, 2 wrong usage,
    3 conflict, 4 storage, 5 damaged, 6 outcome unknown.
    """


_SECTIONS: Mapping[str, Sequence[click.Command]] = {
    "Write": (create, write, sql, run, drop),
    "Look": (show, read, timeline, commits, fsview, heartbeats, streams, verify, console),
    "Go back": (undo, restore, savepoints, rollbacks),
    "Serve": (serve, push, query),
    "Maintain": (cleans, archive, compactions, compaction, exports, repair, convert),
}
_AS_IN_HUDI_CLI = {"commit": commits, "clean": cleans, "savepoint": savepoints}
"""Other names, by which hudi-cli's commands work as they are written there."""

for _commands in _SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)
for _name, _group in _AS_IN_HUDI_CLI.items():
    cli.add_command(CommandGroup(_name, commands=_group.commands, help=_group.help, hidden=True))


def main() -> NoReturn:
    if not __debug__:
        _complain("python -O removes checks that protect tables; run without it")
        sys.exit(WRONG_USAGE)
    cli.main()


def _prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A name that is not text in the terminal's encoding is spelled out instead of failing.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # Without a handler of its own the library's events would be printed as bare words.
    log = logging.getLogger("holdfast")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show the library's warnings as lines to standard error, each once."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        text = str(message)
        if not issubclass(category, OptionsIgnored):
            elsewhere(message, category, *place, **more)
        elif text not in shown:
            shown.add(text)
            _complain(f"warning: {text}")

    with warnings.catch_warnings():
        elsewhere = warnings.showwarning
        warnings.simplefilter("always", OptionsIgnored)
        warnings.showwarning = show
        yield


def _usage(error: click.ClickException) -> str:
    message = " ".join(error.format_message().rstrip(".").split())
    if isinstance(error, click.UsageError):
        message += f"; see {error.ctx.command_path if error.ctx else _NAME} --help"
    return message


def _say_stopped(is_interrupt: bool, arguments: Sequence[str]) -> int:
    text = "interrupted" if is_interrupt else "declined, nothing was changed"
    _complain(text)
    kind = "Interrupted" if is_interrupt else "Declined"
    return _report(kind, text, INTERRUPTED if is_interrupt else FAILED, arguments)


def _report(kind: str, message: str, code: int, arguments: Sequence[str]) -> int:
    """Say to programs, too, how the command ended. The exit code."""
    if is_json(arguments):
        print_json({"error": {"kind": kind, "message": message, "facts": {}, "hint": "", "exit_code": code}})
    return code


def _complain(*lines: str) -> None:
    with suppress(BrokenPipeError):
        click.echo("\n".join([printable(f"{_NAME}: {lines[0]}"), *map(printable, lines[1:])]), err=True)


def _forget_stdout() -> None:
    """The reader has gone. Let the interpreter flush into nothing, or it would complain at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
