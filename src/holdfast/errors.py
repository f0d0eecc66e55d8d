"""Every error Holdfast raises on purpose, grouped by what the caller does next.

HoldfastError
├── InvalidRequest      change the call or the configuration
│   ├── TableNotFound
│   ├── TableExists
│   ├── UnsupportedTable
│   ├── UnknownInstant
│   ├── InvalidOption
│   ├── SchemaMismatch
│   ├── SnapshotExpired
│   ├── RowsChanged     the rows to be written were not the same when they were read again
│   └── Refused         a rule protects the table: the message names it
├── Conflict            read fresh state, then try again
│   ├── WriteConflict
│   ├── WriterActive
│   ├── LockTimeout
│   ├── LineageChanged
│   ├── PlanOutdated    more would be deleted now than the plan shows: look at the new plan
│   └── GateFailed      a gate refused the new rows: readers keep the old ones
├── Fenced              stop: another process decided this instant
├── OutcomeUnknown      delete nothing: the ledger decides later
├── StorageUnavailable  wait, then repeat the same call
│   └── StorageRefused  nothing was changed: make room, or give permission
└── TableDamaged        call an operator; the file is named
"""

from typing import Any


class HoldfastError(Exception):
    """Base class of every error Holdfast raises on purpose.

    The message is one clause, the facts are keyword arguments, the hint is
    what to do next. The text form joins the three on one line.
    """

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        text = self.message
        if self.facts:
            text += " (" + ", ".join(f"{name}: {value}" for name, value in self.facts.items()) + ")"
        if self.hint:
            text += f"; {self.hint}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # Facts are keyword-only, so the default pickling by positional
        # arguments would lose them on the way back from another process.
        return _rebuild, (type(self), self.message, self.hint, self.facts)


def _rebuild(kind: type[HoldfastError], message: str, hint: str, facts: dict[str, object]) -> HoldfastError:
    return kind(message, hint=hint, **facts)


class InvalidRequest(HoldfastError):
    """The call or the configuration is wrong."""


class TableNotFound(InvalidRequest):
    """There is no table at the path."""


class TableExists(InvalidRequest):
    """There is already a table at the path."""


class UnsupportedTable(InvalidRequest):
    """The table uses a feature that Holdfast does not handle."""


class UnknownInstant(InvalidRequest):
    """The instant is not on the timeline."""


class InvalidOption(InvalidRequest):
    """An option is unknown, malformed or contradicts another."""


class OptionsIgnored(UserWarning):
    """Options that only tune Apache Hudi were ignored, as was asked for. A warning, not an error."""


class SchemaMismatch(InvalidRequest):
    """The rows do not fit the table's schema."""


class SnapshotExpired(InvalidRequest):
    """The snapshot was removed by a clean."""


class RowsChanged(InvalidRequest):
    """The rows to be written were not the same when they were read again."""


class Refused(InvalidRequest):
    """A rule that protects the table forbids the act."""


class Conflict(HoldfastError):
    """Another process changed the table in the meantime."""


class WriteConflict(Conflict):
    """Another write touched the same file groups."""


class WriterActive(Conflict):
    """Another writer is at work that this act has to wait for."""


class LockTimeout(Conflict):
    """The lock was not granted in time."""


class LineageChanged(Conflict):
    """The segment lineage changed in the meantime."""


class PlanOutdated(Conflict):
    """The table has changed since the plan was made: executing it would do what it does not show."""


class GateFailed(Conflict):
    """The new rows are not what a gate expects."""


class Fenced(HoldfastError):
    """Another process decided the outcome of this instant."""


class OutcomeUnknown(HoldfastError):
    """It is not known whether the change became durable."""


class StorageUnavailable(HoldfastError):
    """Storage did not answer, or refused."""


class StorageRefused(StorageUnavailable):
    """Storage refused before anything was changed: it is full, or does not permit it."""


class TableDamaged(HoldfastError):
    """Stored bytes are not what they must be."""
