"""What can be asked of the push service, by whom, and what it answers."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.model.lineage import LineageEntry
from holdfast.push.state.table_state import GateOutcome, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. `operator` may take over what belongs to others."""

    actor: str = ""
    operator: bool = True
    address: str = ""
    request_id: str = ""
    key: str = ""
    """Chosen by the client: a call that is repeated with the same key is answered the same (L8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    segments_from: tuple[str, ...] = ()
    segments_to: tuple[str, ...] = ()
    part: Part | None = None
    """Replace whatever lies in this part, instead of named segments."""
    force: bool = False
    """Revert open pushes that overlap, and make room."""
    takeover: bool = False
    """With `force`, also revert a push whose lease still holds; for operators."""
    exclusive: bool | None = None
    """Only this push may upload while it is open; None: if it replaces the whole table."""
    gates_required: bool = False
    lease_ms: int = 0
    """How long the lease holds after each sign of life; 0: no lease."""
    expected_bytes: int | None = None
    note: str = ""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackTarget:
    """Where a rollback goes: one of the three."""

    steps: int | None = None
    entry_id: str | None = None
    epoch: int | None = None
    newest: str | None = None
    """The entry that is the newest completed one, or nothing is done: a later push was not asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a call changed, or on a dry run would change."""

    table: str
    shown: tuple[str, ...] = ()
    """Segments that queries see from now on."""
    hidden: tuple[str, ...] = ()
    """Segments that queries no longer see, and that stay."""
    removed: tuple[str, ...] = ()
    """Segments that leave the table."""
    entries_before: tuple[LineageEntry, ...] = ()
    """The lineage entries that changed or went, as they were."""
    entries_after: tuple[LineageEntry, ...] = ()
    """The lineage entries that changed or came, as they are."""
    epoch_before: int = 0
    epoch_after: int = 0
    bytes_freed: int = 0
    reasons: tuple[str, ...] = ()
    """Why each removal: retention gives one sentence per entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    entry_id: str
    changes: Changes
    segments_from: tuple[str, ...] = ()
    """What it replaces, as named or as found in the part that was asked for."""
    lease_token: str = ""
    lease_expires_at_ms: int | None = None
    preflight: "Preflight | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """An end, a revert, a rollback or a redo."""

    entry_ids: tuple[str, ...]
    changes: Changes
    epoch: int
    already: bool = False
    """Nothing was written: the entry was in that state before."""
    empties: bool = False
    """Queries saw rows before, and see none afterwards."""
    brokers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """The epoch each broker has applied, if the call waited for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    allow_refresh: bool = True
    refresh_only: bool = False
    if_match: int | None = None
    """The CRC that the segment must have at present."""
    protected: bool = False
    """Refuse while another upload of the same segment is under way (Pinot's parallel push protection)."""
    allow_in_place: bool = False
    accept_opaque: bool = False
    custom: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    replace_custom: bool = False
    """`custom` takes the place of the segment's map rather than being added to it."""
    lease_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    table: str
    segments: tuple[str, ...]
    refreshed: tuple[str, ...] = ()
    """Those of them that existed before."""
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Whether a push fits: the figures behind the answer."""

    fits: bool
    allowed_bytes: int | None
    """For everything that is kept, replaced snapshots included; None: no limit."""
    used_bytes: int
    incoming_bytes: int
    freed_bytes: int = 0
    """What starting the push removes."""
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateReport:
    entry_id: str
    outcomes: tuple[GateOutcome, ...]

    @property
    def passed(self) -> bool:
        return all(outcome.passed for outcome in self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionReport:
    """One pass over one table."""

    table: str
    changes: Changes
    deleted: tuple[str, ...] = ()
    """Segments whose files went."""
    waiting: tuple[str, ...] = ()
    """Segments whose files wait for a broker."""
    orphans: tuple[str, ...] = ()
    """Files that belonged to nothing."""
    expired: int = 0
    """Files that left the deleted area."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a self-check found."""

    code: str
    message: str
    names: tuple[str, ...] = ()
    is_fixable: bool = False


def moment_ms(text: str) -> int:
    """Milliseconds since the epoch, from a number of them or from an ISO time; without a zone it is UTC.

    `ValueError` if it is neither.
    """
    if text.lstrip("-").isdigit():
        return int(text)
    moment = dt.datetime.fromisoformat(text)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return round(aware.timestamp() * 1000)
