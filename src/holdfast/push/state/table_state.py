"""What the controller knows of one table at one moment, as values.

`TableState` is loaded in one piece and saved in one transaction; every decision
of the protocol is a pure function from one `TableState` to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import Self

from holdfast.config.push import PushTable
from holdfast.model.lineage import EntryState, Lineage, LineageEntry, visible


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOutcome:
    """One gate that was evaluated against the hidden side of an entry."""

    name: str
    passed: bool
    found: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a table: the rows of a time range, or of one value of a column, or of both."""

    start_ms: int | None = None
    end_ms: int | None = None
    """Exclusive."""
    column: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDetails:
    """What Holdfast remembers of an entry beside Pinot's own record."""

    started_at_ms: int
    ended_at_ms: int | None = None
    actor: str = ""
    note: str = ""
    epoch: int | None = None
    """The epoch at which the entry was published; None until then."""
    exclusive: bool = False
    """While it is open, only its own segments may be uploaded."""
    gates: tuple[GateOutcome, ...] = ()
    gates_required: bool = False
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Where the rows came from: lake table, instant, files."""
    renewed_at_ms: int | None = None
    """The last sign of life of the push, if it sends any."""
    finalised: bool = False
    """Its hidden side is being deleted: neither a revert nor a redo is possible any more."""
    full: bool = False
    """It replaces everything that queries saw when it started."""
    replaced_epoch: int | None = None
    """The epoch that was in force just before it was published."""
    lease: str = ""
    """Digest of the token that its uploads and its end must present; empty: none was asked for."""
    lease_ms: int = 0
    """How long the lease holds after each sign of life."""
    part: Part | None = None
    """The part of the table that it replaces, if that is how it was asked for."""
    gated: str = ""
    """Digest of what the gates looked at; an upload or another list of segments makes it stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """Segments that left the table and whose files go once no broker can be reading them."""

    segments: tuple[str, ...]
    epoch: int
    """Brokers must have applied this epoch, or be gone."""
    since_ms: int
    retention_ms: int
    """How long the files stay in the deleted area."""
    files: tuple[str, ...] = ()
    """Files whose segment has been registered again since, with another file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """How an entry ended that is no longer in the lineage."""

    state: EntryState
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A call that carried a key, and what it was answered: a repeat gets the same (L8)."""

    request: str
    """Digest of what was asked."""
    answer: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PushState:
    """The side record of a table: everything that Pinot's records have no place for."""

    epoch: int = 0
    """Rises with every change of what queries see."""
    details: Mapping[str, EntryDetails] = field(default_factory=lambda: MappingProxyType({}))
    deletions: tuple[PendingDeletion, ...] = ()
    origin: EntryDetails | None = None
    """What is remembered of the newest completed entry that left the lineage: its rows may still be seen."""
    pins: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Epochs exempt from retention, with the time until which they are."""
    deleting_since_ms: int | None = None
    """The table is being deleted: from here on it only shrinks."""
    tombstones: Mapping[str, Tombstone] = field(default_factory=lambda: MappingProxyType({}))
    calls: Mapping[str, AnsweredCall] = field(default_factory=lambda: MappingProxyType({}))
    """By the key that the client chose."""
    writes: tuple[str, ...] = ()
    """Tokens of the latest writes: a writer that does not know whether its write happened looks here."""
    audit_count: int = 0
    audit_head: str = ""
    """Digest of the newest audit record: every record names the one before it."""


@dataclass(frozen=True, kw_only=True)
class TableState:
    """One table at one moment. `versions` holds, by path, what was read (None: absent)."""

    table: str
    """The typed name, as `orders_OFFLINE`."""
    config: PushTable
    segments: frozenset[str]
    """Every segment that exists, hidden ones included (Pinot's ideal state)."""
    lineage: Lineage
    push: PushState
    versions: Mapping[str, int | None]
    offline: frozenset[str] = frozenset()
    """Segments of which fewer replicas are online than the table asks for."""

    @cached_property
    def visible(self) -> frozenset[str]:
        """What queries see. There may be a hundred thousand, so it is worked out once."""
        return visible(self.segments, self.lineage)

    @property
    def open_entries(self) -> tuple[LineageEntry, ...]:
        """The pushes that were started and not ended."""
        return tuple(entry for entry in self.lineage.entries if entry.state is EntryState.IN_PROGRESS)

    @property
    def completed_entries(self) -> tuple[LineageEntry, ...]:
        """The published pushes, in the order in which they were published."""
        return tuple(entry for entry in self.lineage.entries if entry.state is EntryState.COMPLETED)

    def details_of(self, entry_id: str) -> EntryDetails:
        """What is remembered of an entry; an entry that Pinot wrote has no details."""
        return self.push.details.get(entry_id) or EntryDetails(started_at_ms=0)

    def with_push(self, push: PushState) -> Self:
        """The table with another side record. What queries see is the same, and not worked out again."""
        other = replace(self, push=push)
        if "visible" in self.__dict__:
            other.__dict__["visible"] = self.visible
        return other

    def with_details(self, entry_id: str, details: EntryDetails) -> Self:
        known = MappingProxyType({**self.push.details, entry_id: details})
        return self.with_push(replace(self.push, details=known))


def digest_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()
