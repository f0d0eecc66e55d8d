"""The controller: every use case of the push service, over the catalog and the deep store."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.config.push import PushTable
from holdfast.model.lineage import Lineage
from holdfast.push.gates import Gate
from holdfast.push.audit import AuditRecord
from holdfast.push.replace import StartRequest, Target
from holdfast.push.reports import (
    Caller,
    Changes,
    Finding,
    GateReport,
    Preflight,
    RetentionReport,
    Started,
    Switched,
    Uploaded,
    UploadOptions,
)
from holdfast.push.segments import Segment
from holdfast.push.snapshots import Snapshot
from holdfast.push.state import TableState


class Controller:
    """All methods take the typed table name (`orders_OFFLINE`). Any number may run on one metastore.

    Constructor: Controller(catalog, deep_store, clock, settings=ControllerSettings(), count=None)
    """

    # Schemas and tables. Documents are plain JSON objects, as they were sent.
    def put_schema(self, schema: Mapping[str, Any], *, override: bool, by: Caller) -> None: ...
    def delete_schema(self, name: str, *, by: Caller) -> None: ...
    def create_table(self, config: Mapping[str, Any], *, by: Caller) -> PushTable: ...
    def update_table(self, config: Mapping[str, Any], *, by: Caller) -> PushTable: ...
    def delete_table(self, table: str, *, retention_ms: int | None = None, by: Caller) -> None: ...
    def set_consistent_push(self, table: str, *, enabled: bool, by: Caller) -> Switched | None: ...

    # The protocol. `dry_run` decides and writes nothing; the answer has the changes.
    def start_replace(
        self, table: str, request: StartRequest, *, dry_run: bool = False, by: Caller
    ) -> Started: ...
    def end_replace(
        self,
        table: str,
        entry_id: str,
        *,
        segments_to: Sequence[str] = (),
        lease_token: str = "",
        override_gates: bool = False,
        cleanup: bool = False,
        online_within_ms: int = 0,
        brokers_within_ms: int = 0,
        dry_run: bool = False,
        by: Caller,
    ) -> Switched: ...
    def revert_replace(
        self, table: str, entry_id: str, *, force: bool = False, dry_run: bool = False, by: Caller
    ) -> Switched: ...
    def rollback(self, table: str, target: Target, *, dry_run: bool = False, by: Caller) -> Switched: ...
    def redo(self, table: str, entry_id: str, *, dry_run: bool = False, by: Caller) -> Switched: ...
    def end_group(
        self, entries: Mapping[str, str], *, override_gates: bool = False, dry_run: bool = False, by: Caller
    ) -> dict[str, Switched]: ...
    def revert_group(
        self, entries: Mapping[str, str], *, force: bool = False, dry_run: bool = False, by: Caller
    ) -> dict[str, Switched]: ...
    def heartbeat(self, table: str, entry_id: str, *, lease_token: str, by: Caller) -> int:
        """When the lease runs out, in milliseconds since the epoch."""

    def validate(
        self, table: str, entry_id: str, gates: Sequence[Gate] | None = None, *, by: Caller
    ) -> GateReport: ...
    def preflight(self, table: str, *, expected_bytes: int) -> Preflight: ...
    def pin(self, table: str, epoch: int, *, until_ms: int, by: Caller) -> Snapshot: ...
    def unpin(self, table: str, epoch: int, *, by: Caller) -> None: ...

    # Segments.
    def upload_file(
        self, table: str, file: Path, *, name: str = "", options: UploadOptions, by: Caller
    ) -> Uploaded: ...
    def upload_uri(self, table: str, uri: str, *, options: UploadOptions, by: Caller) -> Uploaded: ...
    def upload_metadata(
        self, table: str, archive: Path, uri: str, *, copy: bool, options: UploadOptions, by: Caller
    ) -> Uploaded: ...
    def upload_batch(
        self, table: str, archive: Path, *, copy: bool, options: UploadOptions, by: Caller
    ) -> Uploaded: ...
    def delete_segments(
        self, table: str, names: Sequence[str], *, retention_ms: int | None = None, by: Caller
    ) -> Changes: ...

    # Looking.
    def state(self, table: str) -> TableState: ...
    def lineage(self, table: str) -> Lineage: ...
    def snapshots(self, table: str) -> tuple[Snapshot, ...]: ...
    def segments(self, table: str) -> Mapping[str, Segment]: ...
    def select(
        self,
        table: str,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        exclude_replaced: bool = False,
        exclude_overlapping: bool = False,
    ) -> tuple[str, ...]: ...
    def audit(self, table: str, *, since: int = 0, limit: int = 100) -> tuple[AuditRecord, ...]: ...
    def doctor(self, table: str, *, fix: bool = False, by: Caller) -> tuple[Finding, ...]: ...

    # Retention.
    def run_retention(self, table: str, *, dry_run: bool = False, by: Caller) -> RetentionReport: ...
    def run_retention_everywhere(self, *, by: Caller) -> tuple[RetentionReport, ...]:
        """Only on the controller that leads; the others return at once."""
