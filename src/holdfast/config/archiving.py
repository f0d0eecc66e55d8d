"""Settings of archiving: how much of the timeline stays active."""

from dataclasses import dataclass, field

from holdfast.config.cleaning import KEEP_MAX_COMMITS, KEEP_MIN_COMMITS, CleanSettings

_SPAN = KEEP_MAX_COMMITS - KEEP_MIN_COMMITS


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    clean: CleanSettings = field(default_factory=CleanSettings)
    """What cleaning needs stays, and it knows which bounds were prescribed."""
    beyond_savepoints: bool = False
    """Whether commits after a savepoint are archived, too. The table cannot be restored to it then."""
    batch: int = 10
    """Files of the timeline that share a block of an archive."""

    @property
    def keep_min(self) -> int:
        """Commits that stay, unless cleaning needs more."""
        return KEEP_MIN_COMMITS if self.clean.keep_min is None else self.clean.keep_min

    @property
    def keep_max(self) -> int:
        """Commits that may gather before some are archived."""
        if self.clean.keep_max is not None:
            return self.clean.keep_max
        return KEEP_MAX_COMMITS if self.keep_min < KEEP_MAX_COMMITS else self.keep_min + _SPAN
