"""Pipelines: source, transform, lake table, clean, gates and push, read once into typed values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What Spark reads. With `path` only files that were not ingested before are."""

    format: str
    path: str = ""
    """A glob, an absolute path or a URI; empty for sources without files, such as JDBC."""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schema: str = ""
    """Spark's DDL; empty: the schema that Spark finds."""
    stream: bool = False
    """Read by Structured Streaming, one commit per micro-batch."""
    files_per_run: int = 0
    """At most so many files in one commit, oldest first; 0: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The lake table, made when it is absent."""

    path: str
    name: str
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    ordering: str | None = None
    operation: str = "upsert"
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    storage_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The push of the table's newest snapshot, when it is newer than the one that is served."""

    table: str
    controller: str
    gates: Sequence[Mapping[str, Any]] = ()
    columns: tuple[str, ...] = ()
    segment_rows: int | None = None
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    source: Source
    destination: Destination
    transform: str = ""
    """One SQL query over `source`; empty: all of it."""
    clean: bool = False
    """Clean after the write, beyond what the table's own options say."""
    push: Publication | None = None
