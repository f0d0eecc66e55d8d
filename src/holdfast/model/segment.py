"""Segments: what is known of one piece of a push table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The least and the greatest value of a column in one segment, as text."""

    least: str
    greatest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One segment's metadata: its bytes are durable before this exists."""

    name: str
    crc: int
    docs: int
    size_bytes: int
    uri: str
    """Where its bytes are: a path in the deep store, or the address it was pushed from."""
    start_ms: int | None = None
    end_ms: int | None = None
    created_ms: int = 0
    pushed_ms: int = 0
    refreshed_ms: int | None = None
    digest: str = ""
    """SHA-256 of the bytes; empty if they were never here."""
    is_opaque: bool = False
    """Built by Pinot: kept, listed and switched, but not queried."""
    custom: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    columns: Mapping[str, ColumnRange] = field(default_factory=lambda: MappingProxyType({}))
    other: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Fields of the record that mean nothing here, kept as they were found."""
