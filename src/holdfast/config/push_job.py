"""Push jobs: Pinot's job specification and what Holdfast adds to it, read once into typed values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInput:
    """Files of one format beneath a folder, chosen by patterns."""

    folder: str
    """An absolute path, or a URI."""
    format: str
    """`parquet`, `csv`, `json`, `avro` or `orc`."""
    recursive: bool = True
    include: str = ""
    """`glob:…` or `regex:…` over the whole path; empty: every file."""
    exclude: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options of Spark's reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInput:
    """A snapshot of a lake table."""

    path: str
    as_of: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSizing:
    """How much goes into a segment. With neither limit, as much as the default in bytes."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNaming:
    """Pinot's name generators that give every run names of its own."""

    kind: str = ""
    """`simple`, `normalizedDate`, or empty: as Pinot chooses."""
    prefix: str = ""
    """Empty: the table's typed name."""
    postfix: str = ""
    """Stands before the moment of the run."""
    exclude_sequence: bool = False
    exclude_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The part of an APPEND table that the push replaces.

    The segments that lie wholly in [start_ms, end_ms) are replaced, of all
    those that carry `partition`, if it is given.
    """

    start_ms: int
    end_ms: int
    partition: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushJob:
    table: str
    """As written: raw or typed."""
    controllers: tuple[str, ...]
    input: FileInput | TableInput | None = None
    """None: the caller brings a DataFrame."""
    columns: tuple[str, ...] = ()
    """The columns to push; empty: those of the schema."""
    sizing: SegmentSizing = field(default_factory=SegmentSizing)
    naming: SegmentNaming = field(default_factory=SegmentNaming)
    gates: Sequence[Mapping[str, Any]] = ()
    """As `push.gates.parse_gates` reads them; checked when the job is read."""
    output: str = ""
    """Where the segments are built; empty: in the deep store of the service."""
    copies: bool = False
    """The service copies the segments from `output` into its deep store."""
    backfill: Backfill | None = None
    fail_on_empty: bool = False
    parallelism: int = 0
    """Tasks that build segments; 0: as Spark cuts the input."""
    attempts: int = 5
    retry_ms: int = 1000
    token: str = field(default="", repr=False)
    """Sent as `Authorization`; empty: `HOLDFAST_TOKEN`."""
    note: str = ""
    warnings: tuple[str, ...] = ()
    """What was passed over, to be shown once."""
