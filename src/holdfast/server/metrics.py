"""What Prometheus reads at `/metrics`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from holdfast.server.endpoints import Endpoint

_LINEAGE_CALLS = {"StartReplaceSegments", "EndReplaceSegments", "RevertReplaceSegments"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFigures:
    """One table at the moment of a scrape."""

    table: str
    epoch: int
    segments: int
    visible_segments: int
    entries: dict[str, int]
    """By state."""
    oldest_open_seconds: float
    snapshots: int
    record_bytes: int
    waiting_deletions: int


class Metrics:
    """Counters of one service; figures about tables are looked up when they are read."""

    def __init__(self, figures: Callable[[], Iterable[TableFigures]]) -> None:
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "holdfast_http_answers", "Answers by route and status.", ["app", "route", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "holdfast_http_seconds", "How long answers took.", ["app", "route"], registry=self._registry
        )
        self._refusals = Counter(
            "holdfast_refusals", "Refused calls by route and code.", ["route", "code"],
            registry=self._registry,
        )  # fmt: skip
        self._lineage_failures = Counter(
            "holdfast_lineage_failures", "Failed calls of start, end and revert.", ["call", "code"],
            registry=self._registry,
        )  # fmt: skip
        self._blocked_deletes = Counter(
            "holdfast_blocked_deletes", "Deletes that a lineage entry forbade.", registry=self._registry
        )
        self.queries = Counter(
            "holdfast_queries", "Queries by error code; -1 stands for success.", ["code"],
            registry=self._registry,
        )  # fmt: skip
        self.retention_runs = Counter(
            "holdfast_retention_runs", "Runs of retention by outcome.", ["outcome"], registry=self._registry
        )
        self.retention_succeeded_at = Gauge(
            "holdfast_retention_last_success_timestamp_seconds", "When retention last ended well.",
            registry=self._registry,
        )  # fmt: skip
        self._registry.register(_Tables(figures))

    def count_answer(self, app: str, endpoint: Endpoint[Any], status: int, took_ms: int, code: str) -> None:
        self._answers.labels(app, endpoint.name, str(status)).inc()
        self._seconds.labels(app, endpoint.name).observe(took_ms / 1000)
        if not code:
            return
        self._refusals.labels(endpoint.name, code).inc()
        if endpoint.name in _LINEAGE_CALLS:
            self._lineage_failures.labels(endpoint.name, code).inc()
        if code == "SEGMENT_LOCKED":
            self._blocked_deletes.inc()

    def text(self) -> str:
        return generate_latest(self._registry).decode()


class _Tables:
    def __init__(self, figures: Callable[[], Iterable[TableFigures]]) -> None:
        self._figures = figures

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = list(self._figures())
        gauges: tuple[tuple[str, str, Callable[[TableFigures], float]], ...] = (
            ("epoch", "Rises with every change of what queries see.", lambda one: one.epoch),
            ("segments", "Segments, hidden ones included.", lambda one: one.segments),
            ("visible_segments", "Segments that queries see.", lambda one: one.visible_segments),
            ("oldest_open_push_seconds", "Age of the oldest open push.", lambda one: one.oldest_open_seconds),
            ("snapshots", "Retained snapshots.", lambda one: one.snapshots),
            ("lineage_record_bytes", "Size of the lineage record.", lambda one: one.record_bytes),
            (
                "waiting_deletions",
                "Segments whose files wait for brokers.",
                lambda one: one.waiting_deletions,
            ),
        )
        for name, about, value in gauges:
            family = GaugeMetricFamily(f"holdfast_table_{name}", about, labels=["table"])
            for one in found:
                family.add_metric([one.table], value(one))
            yield family
        entries = GaugeMetricFamily(
            "holdfast_table_lineage_entries", "Lineage entries by state.", labels=["table", "state"]
        )
        for one in found:
            for state, count in one.entries.items():
                entries.add_metric([one.table, state], count)
        yield entries
