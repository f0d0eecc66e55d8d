"""What a controller can be asked about its tables; nothing here changes anything."""

from collections.abc import Mapping

from holdfast.errors import InvalidRequest
from holdfast.model.lineage import Lineage
from holdfast.model.segment import Segment
from holdfast.push.audit import AuditRecord, read_audit
from holdfast.push.replacement.snapshots import Snapshot, snapshots
from holdfast.push.segments.deep_store import DeepStore, run_path
from holdfast.push.state.catalog import Catalog
from holdfast.push.state.table_state import TableState


class Views:
    """All methods take the typed table name (`orders_OFFLINE`)."""

    def __init__(self, catalog: Catalog, deep_store: DeepStore) -> None:
        self._catalog = catalog
        self._deep_store = deep_store

    def tables(self) -> tuple[str, ...]:
        return self._catalog.tables()

    def state(self, table: str) -> TableState:
        return self._catalog.load(table)

    def lineage(self, table: str) -> Lineage:
        return self._catalog.load(table).lineage

    def sees_run(self, table: str, run: str) -> bool:
        """Whether what a push job writes into the deep store arrives here."""
        if not run.isalnum():
            raise InvalidRequest("not the name of a run", run=run[:80], code="PARAMETER_INVALID")
        return self._deep_store.stat(run_path(table, run)) is not None

    @property
    def deep_store_uri(self) -> str:
        """Where other programs put the files of segments."""
        return self._deep_store.uri("")

    def snapshots(self, table: str) -> tuple[Snapshot, ...]:
        """What can be redone, what queries see, what a rollback can bring back; newest first."""
        return snapshots(self._catalog.load(table))

    def segments(self, table: str) -> Mapping[str, Segment]:
        """The metadata of every segment in the table."""
        state = self._catalog.load(table)
        known = self._catalog.all_segments(table)
        return {name: segment for name, segment in known.items() if name in state.segments}

    def select(
        self,
        table: str,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        exclude_replaced: bool = False,
        exclude_overlapping: bool = False,
    ) -> tuple[str, ...]:
        """Segments of the table, perhaps only those in a range of time that includes its start only."""
        state = self._catalog.load(table)
        chosen = state.visible if exclude_replaced else state.segments
        if start_ms is None and end_ms is None:
            return tuple(sorted(chosen))
        if start_ms is not None and end_ms is not None and start_ms >= end_ms:
            raise InvalidRequest(
                "the range of time is empty", start_ms=start_ms, end_ms=end_ms, code="EMPTY_RANGE"
            )
        known = self._catalog.all_segments(table)
        return tuple(
            sorted(
                name
                for name in chosen & known.keys()
                if _is_within(known[name], start_ms, end_ms, whole=exclude_overlapping)
            )
        )

    def audit(self, table: str, *, since: int = 0, limit: int = 100) -> tuple[AuditRecord, ...]:
        return read_audit(self._catalog.metastore, table, since_ms=since, limit=limit)


def _is_within(segment: Segment, start_ms: int | None, end_ms: int | None, *, whole: bool) -> bool:
    """A segment without times is in every range, as in Pinot."""
    if segment.start_ms is None or segment.end_ms is None:
        return True
    after_start = start_ms is None or segment.end_ms >= start_ms
    before_end = end_ms is None or segment.start_ms < end_ms
    inside = (start_ms is None or segment.start_ms >= start_ms) and (
        end_ms is None or segment.end_ms < end_ms
    )
    return inside if whole else after_start and before_end
