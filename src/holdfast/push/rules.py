"""What is asked of the replacement protocol, and what a decision is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.push.state import Part, TableState


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
    overridden: bool = False
    """Published by an operator although its gates did not let it."""
