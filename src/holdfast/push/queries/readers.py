"""Reading statements, within their deadlines: the broker's side of `reader`."""

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping

from holdfast.push.queries.engine import Cancellation
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.processes import ProcessPool
from holdfast.push.queries.reader import (
    Admit,
    Asked,
    Reading,
    Setup,
    SpellForSpark,
    Tables,
    Task,
    Translate,
    receive_translation,
    send_tables,
)
from holdfast.push.queries.translate import Translation

_PROGRAM = "holdfast.push.queries.reader"
_READERS = 3
"""At least: while a reader that was ended is started anew, two are left."""
_MEMORY_BYTES = 256 << 20
_WITHIN_S = 2.0
"""No statement may keep a reader longer, however late its own deadline is: others wait for it."""
_KNOWN_STATEMENTS = 512


class StatementReaders:
    """Processes that read statements. Every method may be called from any thread.

    What was read once is remembered, since dashboards send the same statements
    again and again.
    """

    def __init__(self, *, readers: int = _READERS, within_s: float = _WITHIN_S) -> None:
        self._processes = ProcessPool(_PROGRAM, Setup(_MEMORY_BYTES), max(_READERS, readers))
        self._within_s = within_s
        self._known: OrderedDict[Hashable, Reading] = OrderedDict()
        self._lock = threading.Lock()

    def start(self) -> None:
        self._processes.start()

    @property
    def pids(self) -> tuple[int, ...]:
        return self._processes.pids

    def close(self) -> None:
        self._processes.close()

    def tables(self, sql: str, *, deadline_s: float) -> tuple[str, ...]:
        """The tables that an admitted statement reads, as it spells them. `QueryFailed` if it is not."""
        found = self._read(Admit(sql), (sql,), deadline_s).tables
        assert found is not None
        return found

    def translation(
        self,
        sql: str,
        tables: Tables,
        *,
        null_handling: bool,
        default_limit: int,
        deadline_s: float,
    ) -> Translation:
        """What an engine runs for a statement; `tables` holds the columns by the names that it uses."""
        task = Translate(sql, send_tables(tables), null_handling, default_limit)
        found = self._read(task, task, deadline_s).translation
        assert found is not None
        return receive_translation(found, tables)

    def spell_for_spark(self, sql: str, names: Mapping[str, str], *, deadline_s: float) -> str:
        """The statement that `translation` gave, in Spark's SQL, over other names of its views."""
        found = self._read(SpellForSpark(sql, dict(names)), None, deadline_s).sql
        assert found is not None
        return found

    def _read(self, task: Task, key: Hashable, deadline_s: float) -> Reading:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        reading = self._ask(task, deadline_s)
        if reading.failure is not None:
            raise QueryFailed(QueryError(reading.failure.code), reading.failure.message)
        if key is not None:
            with self._lock:
                self._known[key] = reading
                while len(self._known) > _KNOWN_STATEMENTS:
                    self._known.popitem(last=False)
        return reading

    def _ask(self, task: Task, deadline_s: float) -> Reading:
        never = Cancellation()
        reader = self._processes.take((task.sql,), deadline_s=deadline_s, cancellation=never)
        is_reusable = False
        try:
            end_s = min(deadline_s, time.monotonic() + self._within_s)
            reading, _ = reader.ask(Asked(task), Reading, deadline_s=end_s, cancellation=never)
            is_reusable = True
        except QueryFailed as failed:
            if failed.code is not QueryError.EXECUTION_TIMEOUT:
                raise QueryFailed(
                    QueryError.SQL_PARSING, "the process that read the statement ended before it was done"
                ) from failed
            if end_s == deadline_s:
                raise
            raise QueryFailed(QueryError.SQL_PARSING, "the statement takes too long to read") from failed
        finally:
            if is_reusable:
                self._processes.give_back(reader)
            else:
                self._processes.replace(reader)
        return reading
