"""Settings of cleaning and archiving: which versions of files stay, and how much of the timeline."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from holdfast.config.choices import CleanPolicy
from holdfast.config.option import Area
from holdfast.config.option_table import (
    KEEP_MAX_COMMITS,
    KEEP_MIN_COMMITS,
    CleanOptions,
    check_settings,
    options_of,
    parse_settings,
)
from holdfast.errors import InvalidOption

_POLICY_OF = {
    "commits_retained": CleanPolicy.KEEP_LATEST_COMMITS,
    "hours_retained": CleanPolicy.KEEP_LATEST_BY_HOURS,
    "versions_retained": CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings(CleanOptions):
    """What cleaning keeps and when it runs, and what archiving leaves, by the options of the option table."""

    def __post_init__(self) -> None:
        check_settings(Area.CLEAN, self)
        self._check_pattern()
        contradictions = self._contradictions()
        if contradictions:
            raise InvalidOption(
                "settings of cleaning and archiving contradict each other",
                problems="; ".join(contradictions),
                hint="raise the former of each pair, or lower the latter",
            )

    @property
    def is_inline(self) -> bool:
        """Whether a write cleans after its commit."""
        return self.automatic and self.services_enabled and not self.asynchronous

    @property
    def is_beside_write(self) -> bool:
        """Whether a write cleans while its files are being written."""
        return self.automatic and self.services_enabled and self.asynchronous

    @classmethod
    def from_options(cls, options: Mapping[str, str] | None) -> Self:
        """The settings, among options of any kind. The policy follows from the one retention given."""
        given = parse_settings(Area.CLEAN, options)
        retentions = [policy for setting, policy in _POLICY_OF.items() if setting in given]
        if len(retentions) == 1:
            given.setdefault("policy", retentions[0])
        return cls(**given)

    def _check_pattern(self) -> None:
        try:
            re.compile(self.partition_pattern)
        except re.error as error:
            option = options_of(Area.CLEAN)["partition_pattern"]
            raise option.refuse(self.partition_pattern, f"a pattern: {error}") from None

    def _contradictions(self) -> list[str]:
        problems = []
        keep_min, keep_max = self.keep_min, self.keep_max
        least = KEEP_MIN_COMMITS if keep_min is None else keep_min
        if keep_max is not None and keep_max <= least:
            problems.append(f"{_name('keep_max')}={keep_max} is not more than {_name('keep_min')}={least}")
        # Defaults give way: archiving raises them to what cleaning needs.
        is_by_commits = self.policy is CleanPolicy.KEEP_LATEST_COMMITS
        if is_by_commits and keep_min is not None and keep_min <= self.commits_retained:
            problems.append(
                f"{_name('keep_min')}={keep_min} is not more than"
                f" {_name('commits_retained')}={self.commits_retained}"
            )
        return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    clean: CleanSettings = field(default_factory=CleanSettings)
    """What cleaning needs stays, and it knows which bounds were prescribed."""
    beyond_savepoints: bool = True
    """Whether savepointed commits are archived, and those after them. Only Holdfast restores to them then."""
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
        return (
            KEEP_MAX_COMMITS
            if self.keep_min < KEEP_MAX_COMMITS
            else self.keep_min + KEEP_MAX_COMMITS - KEEP_MIN_COMMITS
        )


def _name(setting: str) -> str:
    return options_of(Area.CLEAN)[setting].name
