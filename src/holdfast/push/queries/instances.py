"""DuckDB instances: each can open the files of one query and nothing else, and is locked.

Making one takes longer than most queries, so it is kept for the next query of
the same files. Nothing else passes between them: each query has a connection
of its own, closed with it, and a transaction that cannot write. Only a query
that succeeded leaves its instance behind.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

from holdfast.push.queries import wire
from holdfast.push.queries.typed import list_literal

_KEPT = 4
INSTANCES_MAX = _KEPT + 2
"""At a time: those that are kept, the one in use and the blank one."""

_FOOTER_GROWTH = 16
"""A footer in DuckDB's memory, as a multiple of its size in the file; 3 to 15 were measured."""
_FOOTER_SHARE = 4
"""The footers of all instances may take this part of a query's memory."""


class Instances:
    """Those of one worker, for one query at a time; a blank one waits for the first query of other files."""

    def __init__(self, setup: wire.Setup) -> None:
        self._setup = setup
        self._blank: duckdb.DuckDBPyConnection | None = _fresh(setup)
        self._kept: OrderedDict[tuple[str, ...], duckdb.DuckDBPyConnection] = OrderedDict()

    @contextmanager
    def connection(
        self, paths: tuple[str, ...], *, footer_bytes: int = 0
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one query, which can open these files.

        `footer_bytes` is the size of their footers, together.
        """
        instance = self._kept.pop(paths, None) or self._open_locked(paths, footer_bytes)
        connection = instance.cursor()
        try:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            yield connection
        except BaseException:
            # At once: whatever memory it took, the next query may need.
            instance.close()
            raise
        finally:
            connection.close()
        self._kept[paths] = instance

    def prepare(self) -> None:
        """End what is not needed any more, and make a blank one if the last was used and there is memory."""
        self._keep(_KEPT)
        # Without one the next query of other files tries again, and is told if it fails.
        with suppress(duckdb.Error, MemoryError):
            self._blank = self._blank or self._make()

    def _keep(self, most: int) -> None:
        while len(self._kept) > most:
            self._kept.popitem(last=False)[1].close()

    def _make(self) -> duckdb.DuckDBPyConnection:
        try:
            return _fresh(self._setup)
        except (duckdb.Error, MemoryError):
            # What is kept for later takes the memory that is needed now.
            self._keep(0)
            return _fresh(self._setup)

    def _open_locked(self, paths: tuple[str, ...], footer_bytes: int) -> duckdb.DuckDBPyConnection:
        self._keep(_KEPT)
        instance, self._blank = self._blank or self._make(), None
        if self._keeps_footers(footer_bytes):
            instance.execute("SET GLOBAL parquet_metadata_cache = true")
        instance.execute(f"SET allowed_paths = {list_literal(paths)}")
        instance.execute("SET enable_external_access = false")
        instance.execute("SET lock_configuration = true")
        return instance

    def _keeps_footers(self, footer_bytes: int) -> bool:
        """Whether DuckDB may remember the footers of these files: a segment's file never changes.

        It counts only a part of what they take, and each instance by itself,
        so nothing would go when the memory of the process runs short.
        """
        most = self._setup.memory_bytes // _FOOTER_SHARE // (_KEPT + 1)
        return footer_bytes * _FOOTER_GROWTH <= most


def _fresh(setup: wire.Setup) -> duckdb.DuckDBPyConnection:
    instance = duckdb.connect(
        ":memory:",
        config={
            "threads": str(setup.threads),
            # They fetch remote files ahead, and here there are none.
            "async_threads": "0",
            "memory_limit": f"{setup.memory_bytes}B",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_unsigned_extensions": "false",
            "python_enable_replacements": "false",
            "allow_persistent_secrets": "false",
            "preserve_insertion_order": "true",
        },
    )
    instance.execute("SET GLOBAL TimeZone = 'UTC'")
    return instance
