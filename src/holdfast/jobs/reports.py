"""Reports of push jobs and of pipeline runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.model.reports import CleanReport, Commit

Announce = Callable[[str, int, int], None]
"""Called when a stage begins or advances: its name, how much is done, and of how much; 0: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    name: str
    passed: bool
    found: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    table: str
    """The typed name."""
    entry_id: str
    """The lineage entry, if the table is pushed consistently; else empty."""
    segments: tuple[str, ...]
    replaced: tuple[str, ...]
    rows: int
    bytes: int
    gates: tuple[GateResult, ...] = ()
    epoch: int | None = None
    """The snapshot that queries see from now on."""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where the rows came from: the lake table and its instant, or the files."""
    seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By stage: build, upload, gates, publish."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """One run. `commit` is None if there was nothing new, `push` if nothing had to be pushed."""

    name: str
    files: tuple[str, ...] = ()
    """The files that this run ingested."""
    files_left: int = 0
    """New files that are left to the next run."""
    commit: Commit | None = None
    earlier: tuple[Commit, ...] = ()
    """Commits that a stream made before it, oldest first."""
    rejected: int = 0
    """Rows that did not fit their columns, and were left out."""
    rejects: str = ""
    """The file that lists them, each with its place and the reason."""
    clean: CleanReport | None = None
    push: PushReport | None = None
    seconds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By stage: plan, write, clean, push."""
    warnings: tuple[str, ...] = ()
