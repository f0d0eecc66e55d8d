"""What is asked of the replacement protocol, by which rules it decides, and what a decision is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from holdfast.push.state import Part, TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Where Holdfast is stricter or kinder than Pinot. A field that is off means Pinot's own behaviour."""

    attempts_have_own_names: bool = True
    """A new push gets no name that a reverted or completed entry hides: it would stay hidden."""
    one_full_push: bool = True
    """A table with consistent push has one open push of the whole table at a time, and it is exclusive."""
    narrowing_removes: bool = True
    """A segment that was uploaded and then left out at the end goes in the same write, before it is seen."""
    all_replicas: bool = True
    """A switch needs every replica of every segment online, not one."""
    remembers_ended: bool = True
    """An entry that retention removed still answers a repeated end or revert."""
    repeats_revert: bool = True
    """Reverting what is reverted succeeds and changes nothing."""
    keeps_reverted: bool = True
    """What a revert takes back stays for the retention window, so that it can be redone."""
    times_rise: bool = True
    """An entry's time is later than every other's, whatever the clocks of the controllers say."""
    guards_uploads: bool = True
    """No upload into a reverted entry, beside an exclusive push, or over what queries or a revert need."""
    locks_deletes: bool = True
    """Pinot's own switch: what a live entry needs cannot be deleted."""
    keeps_newest_entry: bool = True
    """The newest completed entry stays for the retention window even when nothing is left to delete."""
    counts_snapshots: bool = True
    """Retention also deletes by number of snapshots, and a start leaves room for the new one."""
    keeps_by_either: bool = False
    """A snapshot goes only when it is too old *and* too many are newer, rather than for one of the two."""
    reverts_stale: bool = True
    """Retention reverts a push that died when it removes its segments, so that its end fails clearly."""


PINOT = Rules(**{each.name: each.name == "locks_deletes" for each in fields(Rules)})
"""What Apache Pinot does, hazards included."""


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
    """Ask for a lease that holds so long after each sign of life; 0: none."""
    expected_bytes: int | None = None
    note: str = ""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a rollback goes: one of the three."""

    steps: int | None = None
    entry_id: str | None = None
    epoch: int | None = None
    newest: str | None = None
    """The entry that is the newest completed one, or nothing is done: a later push was not asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the table. `after` equals the state before when there is nothing to write."""

    after: TableState
    removed: tuple[str, ...] = ()
    """Segments that leave the table; their files go once no broker can be reading them."""
    entry_ids: tuple[str, ...] = ()
    already: bool = False
    """The call had been carried out before."""
