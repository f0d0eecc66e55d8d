"""Failures: what an error means to the shell, and its one line for people."""

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence

from holdfast.cli.layout import width_of, wrap
from holdfast.engines.spark.failures import is_spark_failure, spark_reasons
from holdfast.errors import (
    Conflict,
    Fenced,
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    StorageUnavailable,
    TableDamaged,
)

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130

EXIT_CODES: Mapping[type[HoldfastError], int] = {
    HoldfastError: FAILED,
    InvalidRequest: WRONG_USAGE,
    Conflict: 3,
    Fenced: 3,
    StorageUnavailable: 4,
    TableDamaged: 5,
    OutcomeUnknown: 6,
}

_LONGEST = 500


def exit_code(error: Exception) -> int:
    """The code of the nearest listed ancestor, so that new kinds of errors inherit theirs."""
    for kind in type(error).__mro__:
        if issubclass(kind, HoldfastError) and kind in EXIT_CODES:
            return EXIT_CODES[kind]
    return FAILED


def one_line(error: Exception, path: str | None = None) -> str:
    """The error as one line without control characters, what it proposes for the table at `path`."""
    if isinstance(error, HoldfastError):
        return printable("; ".join([str(_for_table(error, path)), *getattr(error, "__notes__", ())]))
    return _foreign_line(error)


def error_lines(error: Exception, path: str | None = None) -> list[str]:
    """The error for a terminal: the message, a line for each fact, what to do. A short one is one line."""
    if not isinstance(error, HoldfastError):
        return [_foreign_line(error)]
    shown, width = one_line(error, path), shutil.get_terminal_size().columns
    if width_of(shown) + len("holdfast: ") <= width:
        return [shown]
    error = _for_table(error, path)
    more = [f"{name}: {value}" for name, value in error.facts.items()]
    more += [each for each in (error.hint, *getattr(error, "__notes__", ())) if each]
    first, *rest = wrap(f"holdfast: {error.message}", width, indent="  ")
    below = [line for each in more for line in wrap(f"  {each}", width, indent="    ")]
    return [first.removeprefix("holdfast: "), *rest, *below]


def error_document(error: Exception, path: str | None = None) -> dict[str, object]:
    """The error as programs read it."""
    document: dict[str, object] = {"kind": type(error).__name__, "message": one_line(error, path)}
    facts: Mapping[str, object] = {}
    hint = ""
    if isinstance(error, HoldfastError):
        shown = _for_table(error, path)
        document["message"], hint = shown.message, shown.hint
        facts = {name: str(value) for name, value in shown.facts.items()}
        if notes := getattr(error, "__notes__", ()):
            document["notes"] = list(notes)
    return {"error": document | {"facts": facts, "hint": hint, "exit_code": exit_code(error)}}


def is_json(arguments: Sequence[str]) -> bool:
    """Whether one JSON document was asked for, also where the rest of the arguments makes no sense."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _for_table(error: HoldfastError, path: str | None) -> HoldfastError:
    """The error with a hint that can be pasted."""
    hint = error.hint
    if path is not None and isinstance(error, TableDamaged):
        hint = hint or "holdfast verify PATH tells what else is damaged, and what to do"
    shown = type(error)(error.message, hint=for_table(hint, path), **error.facts)
    shown.__notes__ = getattr(error, "__notes__", [])
    return shown


def _foreign_line(error: Exception) -> str:
    if is_spark_failure(error):
        return printable(f"Spark failed: {spark_reasons(error)}; --debug shows more")
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return printable(f"internal error: {type(error).__name__}: {first[:_LONGEST]}; --debug shows where")


def for_table(advice: str, path: str | None) -> str:
    """Advice whose commands name the table instead of PATH, to be pasted as they are."""
    return advice if path is None else re.sub(r"\bPATH\b", lambda _: shlex.quote(path), advice)


def printable(text: str) -> str:
    """The text with control characters spelled out: stored names must not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spell(char) for char in text)


def _spell(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
