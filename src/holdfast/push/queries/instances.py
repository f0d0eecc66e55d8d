"""DuckDB instances: each can open the files of one query and nothing else, and is locked.

Making one takes longer than most queries, so it is kept for the next query of
the same files. Nothing else passes between them: each query has a connection
of its own, closed with it, and a transaction that cannot write. Only a query
that succeeded leaves its instance behind.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from holdfast.push.queries import wire
from holdfast.push.queries.typed import list_literal

_KEPT = 4
INSTANCES_MAX = _KEPT + 2
"""At a time: those that are kept, the one in use and the blank one."""


class Instances:
    """Those of one worker, for one query at a time; a blank one waits for the first query of other files."""

    def __init__(self, setup: wire.Setup) -> None:
        self._setup = setup
        self._blank: duckdb.DuckDBPyConnection | None = _fresh(setup)
        self._kept: OrderedDict[tuple[str, ...], duckdb.DuckDBPyConnection] = OrderedDict()

    @contextmanager
    def connection(self, paths: tuple[str, ...]) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one query, which can open these files. Only views of its own can be made in it."""
        instance = self._kept.pop(paths, None) or self._locked(paths)
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
        """End what is not needed any more, and make a blank one if the last was used."""
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)[1].close()
        if self._blank is None:
            self._blank = _fresh(self._setup)

    def _locked(self, paths: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
        self.prepare()
        instance, self._blank = self._blank, None
        assert instance is not None, "a blank one was just made"
        instance.execute(f"SET allowed_paths = {list_literal(paths)}")
        instance.execute("SET enable_external_access = false")
        instance.execute("SET lock_configuration = true")
        return instance


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
    # A segment's file never changes. What is kept counts as memory, and goes when that runs short.
    instance.execute("SET GLOBAL parquet_metadata_cache = true")
    return instance
