"""Orphans: files in the deep store that belong to no segment, and how they go without hitting an upload.

The scan's record keeps the two apart: it changes, and names the doomed files,
before the first of them is deleted (see `ingest`).
"""

import logging
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.clock import Clock
from holdfast.errors import InvalidRequest, LineageChanged
from holdfast.push.metastore.port import Create, Replace
from holdfast.push.segments.deep_store import DeepStore, is_file_of
from holdfast.push.state.catalog import Catalog
from holdfast.push.uploads.register import (
    files_of_scan,
    scan_path,
)

log = logging.getLogger(__name__)

_ORPHANS = 100
_DISCARDED = 500
"""Files named in one scan's record: a ZooKeeper packet holds several thousand paths."""
_SCANS = 5


class Orphans:
    def __init__(self, catalog: Catalog, deep_store: DeepStore, clock: Clock, *, orphan_ms: int) -> None:
        """`orphan_ms`: how old a file must be that no record names."""
        self._catalog = catalog
        self._deep_store = deep_store
        self._clock = clock
        self._orphan_ms = orphan_ms

    def remove(self, table: str) -> tuple[str, ...]:
        """Delete old files that no record names."""
        limit = self._clock.now_ms() - self._orphan_ms
        old = [file.path for file in self._deep_store.files(table) if file.modified_ms < limit]
        if not old:
            return ()
        orphans = self._claim(table, self._among(table, old)[:_ORPHANS])
        for path in orphans or ():
            kept_until = self._clock.now_ms() + self._catalog.table(table).deleted_retention_ms
            self._deep_store.retire(path, until_ms=kept_until)
        if orphans:
            log.warning("push.orphans_removed", extra={"table": table, "files": len(orphans)})
        return orphans or ()

    def discard_files(self, table: str, uris: Sequence[str]) -> tuple[str, ...]:
        """Delete files that were built and not registered; one that a record names stays."""
        self._catalog.table(table)
        paths = [self._deep_store.path_of(uri) or uri for uri in uris]
        for path in paths:
            if not is_file_of(table, path):
                raise InvalidRequest("not the file of a segment of this table", file=path, code="NOT_A_FILE")
        removed: list[str] = []
        for at in range(0, len(paths), _DISCARDED):
            batch = paths[at : at + _DISCARDED]
            attempts = (self._claim(table, self._among(table, batch)) for _ in range(_SCANS))
            # What other scans hold up for longer is left to the scan for orphans.
            for path in next((found for found in attempts if found is not None), ()):
                self._deep_store.retire(path, until_ms=None)
                removed.append(path)
        return tuple(removed)

    def remove_runs(self, table: str) -> None:
        """Delete what push jobs of long ago left to say that they were at work."""
        self._deep_store.remove_runs(table, before_ms=self._clock.now_ms() - self._orphan_ms)

    def _claim(self, table: str, candidates: Sequence[str]) -> tuple[str, ...] | None:
        """Those of the files that nothing names and nothing will; None if another scan was faster.

        What an upload registers from here on either has a newer file, or
        fails at the fence and finds its file among the doomed.
        """
        if not candidates:
            return ()
        if not self._fence_off(table, candidates):
            return None
        # Between the look and the fence a file may have been registered.
        return tuple(self._among(table, candidates))

    def _among(self, table: str, paths: Iterable[str]) -> list[str]:
        named = {segment.uri for segment in self._catalog.all_segments(table).values()}
        state = self._catalog.load(table)
        named.update(path for pending in state.push.deletions for path in pending.files)
        return [path for path in paths if path not in named]

    def _fence_off(self, table: str, doomed: Sequence[str]) -> bool:
        """Change the scan's record, so that uploads that are under way put their bytes again.

        It names the doomed files, and those that an earlier scan named as long
        as they exist: that scan may still be about to delete them.
        """
        path = scan_path(table)
        found = self._catalog.metastore.read(path)
        before = frozenset() if found is None else files_of_scan(found.data).difference(doomed)
        # Versions before this one put names into the record that are no files of the table's, as `../x`.
        known = [file for file in sorted(before) if is_file_of(table, file)]
        left = [file for file in known if self._deep_store.stat(file) is not None]
        content = msgspec.json.encode({"at_ms": self._clock.now_ms(), "doomed": [*doomed, *left]})
        change = Create(path, content) if found is None else Replace(path, content, found.version)
        try:
            self._catalog.metastore.write([change])
        except LineageChanged:
            return False  # Another scan is under way.
        return True
