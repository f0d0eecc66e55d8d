"""The replacement protocol as a job speaks it: start, upload, gates, end; or it is taken back.

    start ─► upload ─► gates ─► end              whatever fails before the end reverts the push

Every call may be repeated, so one whose answer was lost is. An `end` that
stays without an answer is never reverted: the service may have published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote

from holdfast.config.push import PushTable, name_with_type, parse_table, raw_name
from holdfast.config.push_schema import Schema, parse_schema
from holdfast.errors import (
    Conflict,
    Fenced,
    GateFailed,
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    Refused,
    StorageUnavailable,
)
from holdfast.format.segments import Creation, SegmentDescription
from holdfast.jobs.reports import GateResult
from holdfast.jobs.service_client import (
    WAITING_FOR_BROKERS,
    ServiceClient,
    late_brokers,
    segments_path,
)
from holdfast.model.pushes import PUSH_RUN
from holdfast.model.segment import ColumnRange
from holdfast.push.ingestion.rules import RowRules, check_config, check_schema, row_rules
from holdfast.push.segments.build import BuiltSegment
from holdfast.push.segments.column_ranges import column_descriptions
from holdfast.push.uploads.archives import BatchSegment, pack_batch, whole_crc

log = logging.getLogger(__name__)

_TYPE = "OFFLINE"
_SHORT_S = 30
_UPLOAD_S = 600
_GATES_S = 900
_END_S = 900
_ONLINE_WITHIN_MS = 600_000
_BATCH = 2000
_LOST = frozenset({"ENTRY_REVERTED", "ENTRY_NOT_FOUND", "LEASE_HELD", "LINEAGE_ENTRY_REVERTED"})

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a call without an answer is repeated, and how long to wait before."""

    attempts: int = 5
    retry_ms: int = 1000
    wait: Callable[[float], None] = time.sleep

    def until_answered(self, call: Callable[[], _Answer]) -> _Answer:
        """Repeat a call that can be repeated until it is answered."""
        for attempt in range(1, self.attempts):
            try:
                return call()
            except HoldfastError as error:
                if not _may_pass(error):
                    raise
                log.warning("push_job.repeats", extra={"attempt": attempt, "cause": str(error)})
            self.wait(self.retry_ms / 1000 * 2 ** (attempt - 1))
        return call()


def _may_pass(error: HoldfastError) -> bool:
    """Whether the same call may be answered later; an error of no other kind is a failure of the service."""
    return isinstance(error, StorageUnavailable | OutcomeUnknown) or type(error) is HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """A table of a push service, as a job sees it."""

    client: ServiceClient
    table: str
    """The typed name."""
    config: PushTable
    schema: Schema
    rules: RowRules = field(default_factory=RowRules)
    """What becomes of rows before they are stored."""
    deep_store: str = ""
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def get(self, *path: str, **query: Any) -> Any:
        return self.retry.until_answered(lambda: self.client.get(segments_path(self.table, *path), **query))

    def post(self, path: str, document: object = None, **more: Any) -> Any:
        whole = segments_path(self.table, path)
        return self.retry.until_answered(lambda: self.client.post(whole, document, **more))


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a push announces when it starts."""

    segments_from: tuple[str, ...]
    segments_to: tuple[str, ...]
    is_whole: bool
    has_gates: bool
    lease_ms: int
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    epoch: int | None
    """What queries see from now on."""
    late: tuple[str, ...] = ()
    """Brokers that had not switched when the service stopped waiting for them."""


def open_target(url: str, token: str, table: str, retry: RetryPolicy) -> PushTarget:
    """The table as the controller describes it, and where its segments are to be built."""
    client = ServiceClient(url, token)
    name = name_with_type(table)
    place = f"/tables/{quote(name, safe='')}"
    config = retry.until_answered(lambda: client.get(place, type=_TYPE))[_TYPE]
    schema = retry.until_answered(lambda: client.get(f"{place}/schema"))
    # A table of before, or of another controller, may ask for what nobody would do.
    check_config(config)
    check_schema(schema)
    facts = retry.until_answered(lambda: client.get(segments_path(name, "preflight"), expectedBytes=0))
    if "deepStore" not in facts:
        raise InvalidRequest("the table may not be written", table=name, hint="ask for the role write")
    return PushTarget(
        client=client,
        table=name,
        config=parse_table(config),
        schema=parse_schema(schema),
        rules=row_rules(config, schema),
        deep_store=facts["deepStore"],
        retry=retry,
    )


def visible_segments(target: PushTarget) -> tuple[str, ...]:
    listed = target.get(type=_TYPE, excludeReplacedSegments=True)
    return tuple(listed[0][_TYPE])


def segment_addresses(target: PushTarget) -> frozenset[str]:
    """Where the files of all segments are, also of those that queries do not see."""
    facts: Mapping[str, Mapping[str, str]] = target.get("zkmetadata", type=_TYPE)
    return frozenset(one.get("segment.download.url", "") for one in facts.values())


def check_shared(target: PushTarget, run: str) -> None:
    """Refuse to build where the service cannot read: its deep store may be a disk of another machine."""
    if not target.get("preflight", expectedBytes=0, run=run)["seesRun"]:
        raise InvalidRequest(
            "the service does not see what this machine writes into the deep store",
            deep_store=target.deep_store,
            hint="mount it here at the same path, or set outputDirURI and copyToDeepStoreForMetadataPush",
        )


def check_start(target: PushTarget, opening: Opening, *, expected_bytes: int, waits: bool = True) -> None:
    """Refuse at once what would be refused later: the quota, or another push in the way.

    A push whose lease is still running may have died, so the lease is waited for.
    """
    left = iter(range(opening.lease_ms // 1000 + 2 if waits else 0))
    while True:
        try:
            _call_start(target, opening, "", expected_bytes=expected_bytes, dry_run=True)
        except Conflict as error:
            if error.facts.get("code") != "LEASE_HELD" or next(left, None) is None:
                raise
            target.retry.wait(1)
        else:
            return


def check_room(target: PushTarget, *, expected_bytes: int) -> None:
    """Refuse at once what the quota does not hold even if it took the place of everything there is.

    Which segments a push that only adds overwrites is not known before they are built.
    """
    facts = target.get("preflight", expectedBytes=expected_bytes)
    allowed, incoming = facts["allowedBytes"], facts["incomingBytes"]
    if allowed is not None and incoming > allowed:
        raise Refused(
            "the push does not fit into the table's storage quota",
            table=target.table,
            allowed_bytes=allowed,
            incoming_bytes=incoming,
            hint="raise quota.storage, or push less at once",
        )


def open_entry_of(target: PushTarget, run: str) -> str:
    """The open push of a run; empty if it has none."""
    entries = target.get("lineage", type=_TYPE)["lineageEntries"]
    found = (
        entry_id
        for entry_id, entry in entries.items()
        if entry["state"] == "IN_PROGRESS" and entry.get("source", {}).get(PUSH_RUN) == run
    )
    return next(found, "")


def revert_entry(target: PushTarget, entry_id: str) -> bool:
    """Give an open push up. False if it was published meanwhile."""
    try:
        target.post(
            "revertReplaceSegments", type=_TYPE, segmentLineageEntryId=entry_id, forceRevert=True,
            onlyOpen=True, timeout_s=_SHORT_S,
        )  # fmt: skip
    except HoldfastError as error:
        if error.facts.get("code") == "ENTRY_COMPLETED":
            return False
        if error.facts.get("code") != "ENTRY_NOT_FOUND":
            raise
    return True


def discard_files(target: PushTarget, paths: Sequence[str]) -> list[str]:
    """Let the service delete files that became no segments; which it did."""
    removed: list[str] = []
    for at in range(0, len(paths), _BATCH):
        answer = target.post("discardFiles", {"files": list(paths[at : at + _BATCH])}, timeout_s=_UPLOAD_S)
        removed += answer["removed"]
    return removed


def upload_segments(
    target: PushTarget,
    segments: Sequence[BuiltSegment],
    *,
    uri_of: Callable[[str], str],
    created_ms: int,
    copies: bool = False,
    lease_token: str = "",
    announce: Callable[[int], None] = lambda _: None,
) -> None:
    """Register what was built, by metadata; as many in one write as an archive and the store hold."""
    headers = {"UPLOAD_TYPE": "METADATA", "X-Lease-Token": lease_token}
    headers |= {"COPY_SEGMENT_TO_DEEP_STORE": "true"} if copies else {}
    at, size = 0, _BATCH
    while at < len(segments):
        batch = [
            _batch_segment(target, one, uri_of(one.path), created_ms) for one in segments[at : at + size]
        ]
        try:
            _upload_batch(target, batch, headers)
        except InvalidRequest as error:
            if error.facts.get("code") != "RECORD_TOO_LARGE" or len(batch) == 1:
                raise
            size = len(batch) // 2
            continue
        at += len(batch)
        announce(at)


def _upload_batch(target: PushTarget, batch: Sequence[BatchSegment], headers: Mapping[str, str]) -> None:
    archive = pack_batch(batch)
    target.retry.until_answered(
        lambda: target.client.upload(
            "/segments/batchUpload", "batch.tar.gz", archive, headers=headers, timeout_s=_UPLOAD_S,
            tableName=target.table, tableType=_TYPE,
        )
    )  # fmt: skip


class Replacement:
    """One push of a job, from its start to its end or its revert."""

    def __init__(self, target: PushTarget, opening: Opening, *, run: str) -> None:
        self.target = target
        self.opening = opening
        self.entry_id = ""
        self.is_ending = False
        """From here on the push may have been published although no answer came."""
        self._run = run
        self._lease_token = ""
        self._lost: HoldfastError | None = None

    @property
    def lease_token(self) -> str:
        return self._lease_token

    def start(self, *, expected_bytes: int) -> None:
        """Open the entry; its segments stay hidden until the end."""
        for attempt in range(self.target.retry.attempts):
            # The answer to a repeat has the entry of the lost call, but not its token: start again.
            key = f"{self._run}-{attempt}"
            answer = _call_start(self.target, self.opening, key, expected_bytes=expected_bytes)
            self.entry_id = answer["segmentLineageEntryId"]
            self._lease_token = answer.get("leaseToken", "")
            if self._lease_token:
                return
            revert_entry(self.target, self.entry_id)
        raise OutcomeUnknown(
            "the push could not be started",
            entry=self.entry_id,
            hint="look at the lineage, then run it again",
        )

    def beat(self) -> None:
        """A sign of life, sent in the background."""
        if not self._lease_token or self._lost is not None:
            return
        try:
            self.target.client.post(
                segments_path(self.target.table, "heartbeat"), type=_TYPE,
                segmentLineageEntryId=self.entry_id, headers={"X-Lease-Token": self._lease_token},
                timeout_s=_SHORT_S,
            )  # fmt: skip
        except (Conflict, InvalidRequest) as error:
            if error.facts.get("code") in _LOST:
                self._lost = error

    def check(self) -> None:
        """`Fenced` if another client has reverted this push."""
        if self._lost is not None:
            raise Fenced("somebody else gave the push up", entry=self.entry_id, cause=self._lost)

    def validate(self, gates: Sequence[Mapping[str, Any]]) -> tuple[GateResult, ...]:
        """Evaluate the gates on what is hidden so far. `GateFailed` names those that failed."""
        self.check()
        answer = self.target.post(
            "validateReplaceSegments", {"gates": list(gates)}, type=_TYPE,
            segmentLineageEntryId=self.entry_id, timeout_s=_GATES_S,
        )  # fmt: skip
        results = tuple(
            GateResult(name=one["name"], passed=one["passed"], found=one["found"], expected=one["expected"])
            for one in answer["gates"]
        )
        failed = [one for one in results if not one.passed]
        if failed:
            raise GateFailed(
                "a gate failed" if len(failed) == 1 else f"{len(failed)} gates failed",
                table=self.target.table,
                gate=", ".join(one.name for one in failed),
                expected=", ".join(one.expected for one in failed),
                found=", ".join(one.found for one in failed),
                entry=self.entry_id,
                hint=f"queries see what they saw before; the rows: {self._query_of_hidden_rows}",
            )
        return results

    @property
    def _query_of_hidden_rows(self) -> str:
        # A text to be pasted; nothing runs it here.
        statement = f"SELECT * FROM {raw_name(self.target.table)} LIMIT 10"  # noqa: S608
        return f'holdfast query "{statement}" --options snapshotEntryId={self.entry_id}'

    def end(self) -> Published:
        """Publish: from now on queries see the new segments.

        `OutcomeUnknown` if no answer tells whether it was published: then nothing
        is taken back.
        """
        self.check()
        self.is_ending = True
        try:
            answer = self.target.post(
                "endReplaceSegments", type=_TYPE, segmentLineageEntryId=self.entry_id,
                onlineTimeoutMs=_ONLINE_WITHIN_MS, **WAITING_FOR_BROKERS,
                headers={"X-Lease-Token": self._lease_token}, timeout_s=_END_S,
            )  # fmt: skip
        except HoldfastError as error:
            if not _may_pass(error):
                raise
            raise OutcomeUnknown(
                "nobody says whether the push was published",
                table=self.target.table,
                entry=self.entry_id,
                cause=error,
                hint="holdfast push lineage tells when the service answers again",
            ) from error
        return Published(epoch=answer.get("epoch"), late=late_brokers(answer))

    def give_up(self) -> bool:
        """Take the push back if it is still open; False if it was published."""
        # A start whose answer was lost may have opened one.
        entry_id = self.entry_id or open_entry_of(self.target, self._run)
        return not entry_id or revert_entry(self.target, entry_id)


def _batch_segment(target: PushTarget, built: BuiltSegment, uri: str, created_ms: int) -> BatchSegment:
    ranges = {name: ColumnRange(*ends) for name, ends in built.ranges.items()}
    description = SegmentDescription(
        name=built.name,
        table=target.table,
        docs=built.rows,
        time_column=target.config.time_column,
        start_ms=built.start_ms,
        end_ms=built.end_ms,
        columns=column_descriptions(target.schema, ranges),
    )
    creation = Creation(whole_crc(description, built.crc), created_ms)
    return BatchSegment(description=description, creation=creation, uri=uri)


def _call_start(
    target: PushTarget, opening: Opening, key: str, *, expected_bytes: int, dry_run: bool = False
) -> Any:
    body = {
        "segmentsFrom": list(opening.segments_from),
        "segmentsTo": list(opening.segments_to),
        "source": dict(opening.source),
        "note": opening.note,
    }
    return target.post(
        "startReplaceSegments", body, type=_TYPE, forceCleanup=True, exclusive=opening.is_whole,
        gatesRequired=opening.has_gates, lease=True, leaseMs=opening.lease_ms,
        expectedBytes=expected_bytes, dryRun=dry_run,
        headers={"Idempotency-Key": key} if key else {},
    )  # fmt: skip
