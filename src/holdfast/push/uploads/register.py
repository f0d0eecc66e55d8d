"""Registration: uploaded segments become durable files, then part of their table.

A crash before the registration leaves a file that no record names; the orphan
scan removes it. The scan and an upload that it might hit are kept apart by the
scan's record: an upload that began before a scan puts its bytes again. Bytes
that a push job put are looked for again, and refused if a scan has named them:
the record names the doomed files before the first of them is deleted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, HoldfastError, InvalidRequest, OutcomeUnknown
from holdfast.model.segment import ColumnRange, Segment
from holdfast.push.calls import (
    Caller,
    Uploaded,
    UploadOptions,
)
from holdfast.push.metastore.port import Check, Remove
from holdfast.push.replacement.quota import check_upload_quota
from holdfast.push.segments.deep_store import DeepStore, SegmentFile
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import TableState, digest_of
from holdfast.push.state.transactions import Step, Transactions
from holdfast.push.uploads.decide import check_times, check_upload, register_segments
from holdfast.push.uploads.locks import lock_uploads, unlock_uploads


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One segment that wants to be registered."""

    name: str
    crc: int
    docs: int
    created_ms: int
    start_ms: int | None = None
    end_ms: int | None = None
    file: Path | None = None
    """Its bytes on this machine; None: they stay where they are."""
    copy_of: str = ""
    """Its bytes in the deep store, which are to be copied."""
    uri: str = ""
    """Where the bytes are, if they stay there."""
    is_placed: bool = False
    """They are in the deep store already, at the path `uri`, and become the segment's as they are."""
    size_bytes: int = 0
    is_opaque: bool = False
    columns: Mapping[str, ColumnRange]

    @property
    def has_bytes(self) -> bool:
        return self.file is not None or bool(self.copy_of)


def payload_of_segment(segment: Segment, *, name: str) -> Payload:
    """The same rows under another name."""
    is_elsewhere = "://" in segment.uri
    return Payload(
        name=name,
        crc=segment.crc,
        docs=segment.docs,
        created_ms=segment.created_ms,
        start_ms=segment.start_ms,
        end_ms=segment.end_ms,
        copy_of="" if is_elsewhere else segment.uri,
        uri=segment.uri if is_elsewhere else "",
        size_bytes=segment.size_bytes,
        is_opaque=segment.is_opaque,
        columns=segment.columns,
    )


def scan_path(table: str) -> str:
    """The record that changes before orphans of a table are deleted."""
    return f"/PROPERTYSTORE/ORPHAN_SCANS/{table}"


class Registrar:
    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        transactions: Transactions,
        clock: Clock,
        rules: Rules,
    ) -> None:
        self._catalog = catalog
        self._deep_store = deep_store
        self._transactions = transactions
        self._clock = clock
        self._rules = rules

    def register(
        self, table: str, payloads: Sequence[Payload], *, options: UploadOptions, by: Caller
    ) -> Uploaded:
        """Keep the bytes, then register all segments in one write."""
        wanted = {payload.name: payload for payload in payloads}
        if len(wanted) < len(payloads):
            raise Conflict("a segment is there twice", code="INVALID_ARCHIVE")
        files = _Files(self._catalog, self._deep_store, self._clock, table, wanted)
        files.keep(name for name in wanted if wanted[name].is_placed)
        for name, file in files.kept.items():
            wanted[name] = replace(wanted[name], size_bytes=file.size_bytes)
        # Refusing before the bytes are copied spares the copy; the decision that counts comes after.
        state = self._catalog.load(table)
        known = self._check(state, wanted, options)
        locks = lock_uploads(self._catalog.metastore, self._clock, table, wanted) if options.protected else ()
        try:
            files.keep(name for name in wanted if not _is_same(state, known.get(name), wanted[name]))
            decide = partial(self._decide, wanted=wanted, files=files, options=options, locks=locks)
            done = self._transactions.run(table, decide, by=by)
        except OutcomeUnknown:
            raise  # The files may belong to the table by now.
        except HoldfastError:
            files.give_up()
            unlock_uploads(self._catalog.metastore, locks)
            raise
        present = done.before.segments
        return Uploaded(
            table=table,
            segments=tuple(wanted),
            refreshed=tuple(name for name in wanted if name in present),
            epoch=done.after.push.epoch,
        )

    def _check(
        self, state: TableState, wanted: Mapping[str, Payload], options: UploadOptions
    ) -> dict[str, Segment]:
        """Refuse what the table does not accept; the metadata there is of these segments."""
        known = self._catalog.segments(state.table, wanted)
        check_upload(
            state,
            {name: payload.crc for name, payload in wanted.items()},
            known,
            options=options,
            rules=self._rules,
            lease=digest_of(options.lease_token) if options.lease_token else "",
        )
        _check_placed(state, wanted, known)
        described = {name: _segment(payload, None, None, 0) for name, payload in wanted.items()}
        for segment in described.values():
            check_times(state, segment)
        if state.config.storage_quota_bytes is not None or state.config.snapshot_quota_bytes is not None:
            check_upload_quota(state, self._catalog.all_segments(state.table), described)
        return known

    def _decide(
        self,
        state: TableState,
        *,
        wanted: Mapping[str, Payload],
        files: "_Files",
        options: UploadOptions,
        locks: Sequence[Remove],
    ) -> Step:
        known = self._check(state, wanted, options)
        changed = [name for name in wanted if not _is_same(state, known.get(name), wanted[name])]
        files.keep(changed)
        now_ms = self._clock.now_ms()
        added = {
            name: self._segment_to_add(state, payload, known.get(name), files.kept.get(name), options, now_ms)
            for name, payload in wanted.items()
        }
        decision = register_segments(state, added, known, now_ms=now_ms)
        shows = decision.after.visible != state.visible
        # An upload into an open push is covered by the push's own audit records.
        audited = shows or decision.after.push.epoch != state.push.epoch
        return Step(
            decision=decision,
            added=added,
            extra=[files.fence(), *locks],
            operation="upload" if audited else "",
        )

    def _segment_to_add(
        self,
        state: TableState,
        payload: Payload,
        known: Segment | None,
        file: SegmentFile | None,
        options: UploadOptions,
        now_ms: int,
    ) -> Segment:
        present = known if payload.name in state.segments else None
        kept = {} if present is None or options.replace_custom else dict(present.custom)
        custom = kept | dict(options.custom)
        if present is not None and _is_same(state, present, payload):
            return replace(present, refreshed_ms=now_ms, custom=custom)
        segment = _segment(payload, file, present, now_ms)
        return replace(segment, custom=custom)


class _Files:
    """The files of one upload, and the scan that they were written after."""

    def __init__(
        self,
        catalog: Catalog,
        deep_store: DeepStore,
        clock: Clock,
        table: str,
        wanted: Mapping[str, Payload],
    ) -> None:
        self._catalog = catalog
        self._deep_store = deep_store
        self._clock = clock
        self._table = table
        self._wanted = wanted
        self._scan: int | None = None
        self._doomed: frozenset[str] = frozenset()
        self.kept: dict[str, SegmentFile] = {}

    def keep(self, names: Iterable[str]) -> None:
        """Make sure that the bytes of these segments are durable and that no scan takes them for orphans."""
        found = self._catalog.metastore.read(scan_path(self._table))
        scan = None if found is None else found.version
        if scan != self._scan:
            self.give_up()
            self._scan = scan
            self._doomed = frozenset() if found is None else files_of_scan(found.data)
        for name in names:
            payload = self._wanted[name]
            if name not in self.kept and payload.is_placed:
                self.kept[name] = self._find_placed(payload.uri)
            elif name not in self.kept and payload.has_bytes:
                self.kept[name] = self._put(payload)

    def _find_placed(self, path: str) -> SegmentFile:
        """A file that a push job put; the look comes after the scan's record was read."""
        if path in self._doomed:
            raise Conflict(
                "the file is being removed, because nothing named it for long",
                file=path,
                code="FILE_DOOMED",
                hint="build the segment again",
            )
        file = self._deep_store.stat(path)
        if file is None:
            raise InvalidRequest("there is no such file in the deep store", file=path, code="FILE_MISSING")
        return SegmentFile(path, file.size, "")

    def _put(self, payload: Payload) -> SegmentFile:
        token = self._clock.unique()
        put = partial(
            self._deep_store.put, self._table, payload.name, token=token, is_opaque=payload.is_opaque
        )
        if payload.file is not None:
            return put(payload.file)
        with self._deep_store.open(payload.copy_of) as source:
            return put(source)

    def fence(self) -> Check:
        """The registration holds only if no scan has begun since."""
        return Check(scan_path(self._table), self._scan)

    def give_up(self) -> None:
        """Delete the files of this upload, which nothing will name. What a push job put stays."""
        for name, file in self.kept.items():
            if not self._wanted[name].is_placed:
                self._deep_store.retire(file.path, until_ms=None)
        self.kept = {}


def files_of_scan(record: bytes) -> frozenset[str]:
    """The files that a scan's record names: they are going, or gone."""
    return frozenset(msgspec.json.decode(record).get("doomed", ()))


def _check_placed(state: TableState, wanted: Mapping[str, Payload], known: Mapping[str, Segment]) -> None:
    """A path that was a segment's already is that of a file that may be going at this moment."""
    leaving = frozenset(path for pending in state.push.deletions for path in pending.files)
    for name, payload in wanted.items():
        is_known = name in known and known[name].uri == payload.uri and name not in state.segments
        if payload.is_placed and (is_known or payload.uri in leaving):
            raise Conflict(
                "the file was a segment's before and is being deleted",
                file=payload.uri,
                code="FILE_DOOMED",
                hint="build the segment again",
            )


def _is_same(state: TableState, known: Segment | None, payload: Payload) -> bool:
    """The same rows are there already: only the metadata is to be renewed."""
    return (
        known is not None
        and payload.name in state.segments
        and known.crc == payload.crc
        and (payload.has_bytes or known.uri == payload.uri)
    )


def _segment(payload: Payload, file: SegmentFile | None, present: Segment | None, now_ms: int) -> Segment:
    return Segment(
        name=payload.name,
        crc=payload.crc,
        docs=payload.docs,
        size_bytes=payload.size_bytes if file is None else file.size_bytes,
        uri=payload.uri if file is None else file.path,
        start_ms=payload.start_ms,
        end_ms=payload.end_ms,
        created_ms=payload.created_ms,
        pushed_ms=now_ms if present is None else present.pushed_ms,
        refreshed_ms=None if present is None else now_ms,
        digest="" if file is None else file.digest,
        is_opaque=payload.is_opaque,
        columns=payload.columns,
    )
