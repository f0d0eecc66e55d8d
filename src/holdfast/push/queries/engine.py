"""What an engine is asked: one statement over exactly these segments."""

import threading
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from holdfast.model.segment import Segment
from holdfast.push.queries.scopes import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    sql: str
    """In DuckDB's SQL, over the views by their names."""
    views: tuple[tuple[View, tuple[Segment, ...]], ...]
    max_rows: int


class Cancellation:
    """A request to stop, which the engine looks at while it runs the query."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()


class Engine(Protocol):
    """Implementations keep these promises:

    1. Rows come from the segments given and from nothing else.
    2. All segments were read, or `QueryFailed` is raised.
    3. `run` ends within about a second of the deadline.
    4. `is_well` answers at once, whatever queries do.
    """

    def run(self, work: Work, *, deadline_s: float, cancellation: Cancellation) -> pa.Table: ...

    def is_well(self) -> bool: ...

    def close(self) -> None: ...
