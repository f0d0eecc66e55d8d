"""Table configurations of the push service: Pinot's keys, read once into typed settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTable:
    """What a table configuration says that the service acts on."""

    table: str
    """The typed name, as `orders_OFFLINE`."""
    refresh: bool = False
    """Every push delivers the whole table (REFRESH), rather than adding to it (APPEND)."""
    consistent_push: bool = False
    time_column: str | None = None
    replication: int = 1
    replaced_retention_ms: int = DAY_MS
    """How long segments that were replaced stay, so that a revert can bring them back."""
    entry_retention_ms: int = DAY_MS
    """How long a push may stay open without a sign of life."""
    deleted_retention_ms: int = 7 * DAY_MS
    retained_snapshots: int = 2
    storage_quota_bytes: int | None = None
    queries_per_second: float | None = None
    time_retention_ms: int | None = None
    raw: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The configuration as it was sent, unknown keys included."""
