"""Where the rows of a write come from, as far as its commit tells it.

A commit may say so in its extra metadata, which every Hudi program shows. What
two commits must not both say is checked like everything else that could stand
between two writes: once the write has begun, and in the slot of its COMMIT.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Said = Mapping[str, str | None]
"""The extra metadata of a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    said: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the commit is to say."""
    check: Callable[[], None] = lambda: None
    """Raises if the write may not go on.

    Called when the timeline shows everything that was decided before the write
    began. A `WriteConflict` would let the write be tried again as it is.
    """
    conflict: Callable[[Said], str | None] = lambda _: None
    """Why the write may not stand beside a commit that says this, as a clause; None if it may. Pure."""


NO_ORIGIN = Origin()
