"""The clean and the archiving that go with a write: after its commit, or beside its tasks."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Self

from holdfast.concurrency.locks.open import open_lock
from holdfast.config.write import WriteSettings
from holdfast.model.reports import ArchiveReport, CleanReport
from holdfast.services.archive.archive import archive_without_recovery
from holdfast.services.clean.clean import clean_without_recovery
from holdfast.table.opened import OpenTable
from holdfast.timeline.ledger import Ledger


class BackgroundServices:
    """Cleans and archives once, as the settings of a write say. Nothing runs any more when its block ends."""

    def __init__(self, table: OpenTable, settings: WriteSettings) -> None:
        self._table = table
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="clean")
        self._cleaning: Future[CleanReport | None] | None = None
        self._archiving: Future[ArchiveReport] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def start(self) -> None:
        """Start what is to happen beside the write."""
        # What a ledger has read so far belongs to one thread.
        own = replace(self._table, ledger=Ledger(self._table.store, self._table.clock))
        if self._settings.clean.is_beside_write:
            self._cleaning = self._thread.submit(self._clean, own)
        if self._settings.archives_beside:
            self._archiving = self._thread.submit(self._archive, own)

    def finish_clean(self) -> None:
        """Wait for the clean, or clean now if that is to happen after the commit; raise what went wrong."""
        if self._cleaning is not None:
            self._cleaning.result()
        elif self._settings.clean.is_inline:
            self._clean(self._table)

    def finish_archive(self) -> None:
        """As `finish_clean`, for archiving."""
        if self._archiving is not None:
            self._archiving.result()
        elif self._settings.archives_inline:
            self._archive(self._table)

    def _archive(self, table: OpenTable) -> ArchiveReport:
        lock = open_lock(table, self._settings.lock)
        return archive_without_recovery(table, self._settings.archive, lock=lock)

    def _clean(self, table: OpenTable) -> CleanReport | None:
        lock = open_lock(table, self._settings.lock)
        return clean_without_recovery(table, self._settings.clean, lock=lock)
