"""Ingest: uploaded segments become durable files, then part of their table.

A crash before the registration leaves a file that no record names; the orphan
scan removes it. The scan and an upload that it might hit are kept apart by the
scan's record: an upload that began before a scan puts its bytes again. Bytes
that somebody else put are looked for again, and refused if a scan has named
them: the record tells which files are doomed before the first of them goes.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from holdfast.clock import Clock
from holdfast.config.push_rules import Rules
from holdfast.errors import Conflict, HoldfastError, InvalidRequest, LineageChanged, OutcomeUnknown
from holdfast.push.catalog import Catalog
from holdfast.push.deep_store import DeepStore, SegmentFile
from holdfast.push.drafts import digest_of
from holdfast.push.metastore.port import Change, Check, Create, Metastore, Remove, Replace, Versioned
from holdfast.push.payloads import Payload
from holdfast.push.quota import check_upload_quota
from holdfast.push.reports import Caller, Uploaded, UploadOptions
from holdfast.push.segments import Segment
from holdfast.push.state import TableState
from holdfast.push.transactions import Step, Transactions
from holdfast.push.uploads import check_times, check_upload, register

_LOCK_MS = 600_000
_BATCH = 500


def scan_path(table: str) -> str:
    """The record that changes before orphans of a table are deleted."""
    return f"/PROPERTYSTORE/ORPHAN_SCANS/{table}"


def upload_locks_path(table: str) -> str:
    return f"/PROPERTYSTORE/SEGMENT_UPLOADS/{table}"


def upload_lock_path(table: str, segment: str) -> str:
    return f"{upload_locks_path(table)}/{segment}"


def trim_upload_locks(metastore: Metastore, table: str, *, now_ms: int) -> int:
    """Remove the locks that have run out; how many went.

    Nobody else would: an upload that died has a name that no other upload gets.
    """
    lapsed = [
        Remove(upload_lock_path(table, name), record.version)
        for name, record in metastore.read_children(upload_locks_path(table)).items()
        if not _is_held(record, now_ms)
    ]
    removed = 0
    for at in range(0, len(lapsed), _BATCH):
        batch = lapsed[at : at + _BATCH]
        with suppress(LineageChanged):  # Somebody took one of them over.
            metastore.write(batch)
            removed += len(batch)
    return removed


class Ingest:
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

    def upload(
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
        locks = self._locked(table, wanted) if options.protected else ()
        try:
            files.keep(name for name in wanted if not _is_same(state, known.get(name), wanted[name]))
            decide = partial(self._decide, wanted=wanted, files=files, options=options, locks=locks)
            done = self._transactions.run(table, decide, by=by)
        except OutcomeUnknown:
            raise  # The files may belong to the table by now.
        except HoldfastError:
            files.give_up()
            self._unlocked(locks)
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
        locks: Sequence["_Lock"],
    ) -> Step:
        known = self._check(state, wanted, options)
        changed = [name for name in wanted if not _is_same(state, known.get(name), wanted[name])]
        files.keep(changed)
        now_ms = self._clock.now_ms()
        added = {
            name: self._described(state, payload, known.get(name), files.kept.get(name), options, now_ms)
            for name, payload in wanted.items()
        }
        decision = register(state, added, known, now_ms=now_ms)
        shows = decision.after.visible != state.visible
        # An upload into an open push is told by the push's own records.
        audited = shows or decision.after.push.epoch != state.push.epoch
        return Step(
            decision=decision,
            added=added,
            extra=[files.fence(), *(lock.release for lock in locks)],
            operation="upload" if audited else "",
        )

    def _described(
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

    def _locked(self, table: str, names: Mapping[str, Payload]) -> tuple["_Lock", ...]:
        """Say that these segments are being uploaded; refuse if somebody else said so lately."""
        now_ms = self._clock.now_ms()
        token = self._clock.unique()
        metastore = self._catalog.metastore
        changes: list[Change] = []
        for name in names:
            path = upload_lock_path(table, name)
            found = metastore.read(path)
            content = msgspec.json.encode({"at_ms": now_ms, "token": token})
            if found is None:
                changes.append(Create(path, content))
                continue
            if _is_held(found, now_ms):
                raise _is_uploading(name)
            changes.append(Replace(path, content, found.version))
        try:
            metastore.write(changes)
        except LineageChanged as error:
            raise _is_uploading(", ".join(names)) from error
        taken = metastore.read_all([change.path for change in changes])
        return tuple(
            _Lock(Remove(change.path, record.version))
            for change, record in zip(changes, taken, strict=True)
            if record is not None
        )

    def _unlocked(self, locks: Sequence["_Lock"]) -> None:
        for lock in locks:
            try:
                self._catalog.metastore.write([lock.release])
            except HoldfastError:
                continue  # Whoever has it now may keep it; a lost one runs out by itself.


class _Lock(msgspec.Struct, frozen=True):
    release: Remove


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
            self._doomed = frozenset() if found is None else doomed_files(found.data)
        for name in names:
            payload = self._wanted[name]
            if name not in self.kept and payload.is_placed:
                self.kept[name] = self._found(payload.uri)
            elif name not in self.kept and payload.has_bytes:
                self.kept[name] = self._put(payload)

    def _found(self, path: str) -> SegmentFile:
        """A file that somebody else put; the look comes after the scan's record was read."""
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
        """Nothing names these files, and nothing will; what somebody else put is theirs."""
        for name, file in self.kept.items():
            if not self._wanted[name].is_placed:
                self._deep_store.retire(file.path, until_ms=None)
        self.kept = {}


def doomed_files(record: bytes) -> frozenset[str]:
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


def _is_held(lock: Versioned, now_ms: int) -> bool:
    return bool(msgspec.json.decode(lock.data)["at_ms"] > now_ms - _LOCK_MS)


def _is_uploading(name: str) -> Conflict:
    return Conflict(
        "somebody else is uploading the segment",
        segment=name,
        code="UPLOAD_IN_PROGRESS",
        hint="try again later",
    )
