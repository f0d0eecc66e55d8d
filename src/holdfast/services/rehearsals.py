"""What vanishes from a table by an operation: found out by doing it on a store that changes nothing."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from holdfast.errors import Conflict, OutcomeUnknown, Refused, StorageUnavailable
from holdfast.storage.rehearsal import Rehearsal
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import Ledger

Result = TypeVar("Result")
Outcome = TypeVar("Outcome", covariant=True)

_IS_REHEARSING: ContextVar[bool] = ContextVar("is_rehearsing", default=False)


@dataclass(frozen=True, slots=True)
class Rehearsed(Generic[Outcome]):
    result: Outcome | None
    """What the operation says; None if it is refused."""
    vanishing: tuple[str, ...]
    """Every file that would be gone, by its path: data files, and what is kept about them in `.hoodie`."""
    blocked_by: str = ""
    """Why the operation would be refused now, if it would be."""


def rehearse(table: OpenTable, act: Callable[[OpenTable], Result]) -> Rehearsed[Result]:
    """Carry out an operation in memory. Nothing of the table is changed, and no one has to wait for it."""
    store = Rehearsal(table.store, table.clock)
    silent = _IS_REHEARSING.set(True)
    _mute()
    try:
        result = act(replace(table, store=store, ledger=Ledger(store, table.clock)))
    except (Refused, Conflict) as error:
        return Rehearsed(None, (), str(error))
    except OutcomeUnknown as error:
        # What it calls decided is so in the rehearsal alone.
        raise StorageUnavailable("storage failed while a plan was made", cause=error.__cause__) from error
    finally:
        _IS_REHEARSING.reset(silent)
    return Rehearsed(result, tuple(file.path for file in store.deletions()))


class _Rehearsing(logging.Filter):
    """What a rehearsal does has not happened, so it is not reported to anyone."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _IS_REHEARSING.get()


_FILTER = _Rehearsing()


def _mute() -> None:
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("holdfast."):
            logging.getLogger(name).addFilter(_FILTER)
