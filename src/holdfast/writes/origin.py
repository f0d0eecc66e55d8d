"""The origin of a write: where its rows come from, as its commit records it.

A commit has it in its extra metadata, which every Hudi program shows. Two commits
with one origin may be in conflict. That is checked like every conflict of two
writes: once the write has begun, and in the slot of its COMMIT.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

ExtraMetadata = Mapping[str, str | None]
"""The extra metadata of a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    extra_metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the commit records of it."""
    check: Callable[[], None] = lambda: None
    """Raises if the write may not go on.

    Called when the timeline shows everything that was decided before the write
    began. A `WriteConflict` would let the write be tried again as it is.
    """
    conflict: Callable[[ExtraMetadata], str | None] = lambda _: None
    """Why the write may not stand beside a commit with this extra metadata, as a clause; None if it may."""


NO_ORIGIN = Origin()
