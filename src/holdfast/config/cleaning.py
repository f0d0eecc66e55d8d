"""Settings of cleaning: which versions of files stay, and when the others go."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.errors import InvalidOption

log = logging.getLogger(__name__)

CLEAN_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "policy": ("hoodie.clean.policy", "hoodie.cleaner.policy"),
    "commits_retained": ("hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained"),
    "hours_retained": ("hoodie.clean.hours.retained", "hoodie.cleaner.hours.retained"),
    "versions_retained": ("hoodie.clean.fileversions.retained", "hoodie.cleaner.fileversions.retained"),
    "automatic": ("hoodie.clean.automatic",),
    "asynchronous": ("hoodie.clean.async.enabled", "hoodie.clean.async"),
    "services_enabled": ("hoodie.table.services.enabled",),
    "trigger": ("hoodie.clean.trigger.strategy", "hoodie.cleaner.trigger.strategy"),
    "max_commits": (
        "hoodie.clean.max.commits",
        "hoodie.clean.trigger.max.commits",
        "hoodie.cleaner.trigger.max.commits",
    ),
    "incremental": (
        "hoodie.clean.incremental.enabled",
        "hoodie.cleaner.incremental.enabled",
        "hoodie.cleaner.incremental.mode",
    ),
    "parallelism": ("hoodie.clean.parallelism", "hoodie.cleaner.parallelism"),
    "plans_beside_pending": ("hoodie.clean.multiple.enabled", "hoodie.clean.allow.multiple"),
    "max_commits_to_clean": ("hoodie.clean.max.commits.to.clean", "hoodie.cleaner.max.commits.clean"),
    "empty_clean_hours": ("hoodie.write.empty.clean.interval.hours",),
    "partition_pattern": ("hoodie.clean.partition.filter.regex",),
    "partitions_selected": ("hoodie.clean.partition.filter.selected",),
    "cleans_idle_tables": ("holdfast.clean.idle.tables",),
    "keep_min": ("hoodie.keep.min.commits",),
    "keep_max": ("hoodie.keep.max.commits",),
}
"""Setting → its option names, newest spelling first."""

KEEP_MIN_COMMITS = 20
KEEP_MAX_COMMITS = 30
"""What archiving leaves on the active timeline unless told otherwise."""

_FLAGS = {"true": True, "false": False}


class CleanPolicy(StrEnum):
    """What decides how long a version of a file stays."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"


class CleanTrigger(StrEnum):
    NUM_COMMITS = "NUM_COMMITS"


_POLICY_OF = {
    "commits_retained": CleanPolicy.KEEP_LATEST_COMMITS,
    "hours_retained": CleanPolicy.KEEP_LATEST_BY_HOURS,
    "versions_retained": CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    policy: CleanPolicy = CleanPolicy.KEEP_LATEST_COMMITS
    commits_retained: int = 10
    hours_retained: int = 24
    versions_retained: int = 3
    automatic: bool = True
    """Whether a write cleans."""
    asynchronous: bool = False
    """Whether a write that cleans does so while its files are being written."""
    services_enabled: bool = True
    """Whether a write does anything but write."""
    trigger: CleanTrigger = CleanTrigger.NUM_COMMITS
    max_commits: int = 1
    """Commits since the last clean that make the next one worth planning."""
    incremental: bool = True
    """Whether only partitions that changed since the last clean are looked at."""
    parallelism: int = 200
    plans_beside_pending: bool = False
    """Whether a run that carried out somebody's pending clean plans one of its own, too."""
    max_commits_to_clean: int = 0
    """How many commits the earliest that stays may advance in one clean; 0 is without limit."""
    empty_clean_hours: int = -1
    """After how long a clean is recorded though nothing was to be deleted; negative is never."""
    partition_pattern: str = ""
    """What the whole path of a partition must match to be cleaned."""
    partitions_selected: tuple[str, ...] = ()
    """The only partitions to clean; wins over the pattern."""
    cleans_idle_tables: bool = True
    """By hours: whether a table without a commit in the window keeps its latest versions only.

    Apache Hudi then cleans nothing until the next commit.
    """
    keep_min: int | None = None
    """Commits that archiving leaves on the timeline, if that is prescribed."""
    keep_max: int | None = None
    """Commits that may gather before archiving begins, if that is prescribed."""

    def __post_init__(self) -> None:
        for setting, least in (
            ("commits_retained", 1),
            ("hours_retained", 1),
            ("versions_retained", 1),
            ("max_commits", 1),
            ("parallelism", 1),
            ("max_commits_to_clean", 0),
            ("keep_min", 1),
            ("keep_max", 1),
        ):
            value = getattr(self, setting)
            if value is not None and value < least:
                raise _invalid(setting, value, f"at least {least}")
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
        given = _by_setting(options or {})
        retentions = [policy for setting, policy in _POLICY_OF.items() if setting in given]
        if len(retentions) == 1:
            given.setdefault("policy", retentions[0])
        kinds = {field.name: type(field.default) for field in fields(cls)}
        return cls(**{name: _converted(name, text, kinds[name]) for name, text in given.items()})

    def _check_pattern(self) -> None:
        try:
            re.compile(self.partition_pattern)
        except re.error as error:
            raise _invalid("partition_pattern", self.partition_pattern, f"a pattern: {error}") from None

    def _contradictions(self) -> list[str]:
        found = []
        keep_min, keep_max = self.keep_min, self.keep_max
        least = KEEP_MIN_COMMITS if keep_min is None else keep_min
        if keep_max is not None and keep_max <= least:
            found.append(f"{_name('keep_max')}={keep_max} is not more than {_name('keep_min')}={least}")
        # Bounds that nobody prescribed give way: archiving raises them to what cleaning needs.
        is_by_commits = self.policy is CleanPolicy.KEEP_LATEST_COMMITS
        if is_by_commits and keep_min is not None and keep_min <= self.commits_retained:
            found.append(
                f"{_name('keep_min')}={keep_min} is not more than"
                f" {_name('commits_retained')}={self.commits_retained}"
            )
        return found


def _by_setting(options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for setting, names in CLEAN_OPTIONS.items():
        present = {name: str(options[name]).strip() for name in names if name in options}
        if present:
            found[setting] = next(iter(present.values()))
        if len(set(present.values())) > 1:
            log.warning("options.contradictory", extra={"options": present, "used": next(iter(present))})
    return found


def _converted(setting: str, text: str, kind: type[Any]) -> Any:
    if kind is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        if kind is bool:
            return _FLAGS[text.lower()]
        if issubclass(kind, StrEnum):
            return kind(text.upper())
        return text if kind is str else int(text)
    except (ValueError, KeyError):
        raise _invalid(setting, text, _wanted(kind)) from None


def _wanted(kind: type[Any]) -> str:
    if kind is bool:
        return "true or false"
    return ", ".join(kind) if issubclass(kind, StrEnum) else "a whole number"


def _name(setting: str) -> str:
    return CLEAN_OPTIONS[setting][0]


def _invalid(setting: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        "option has a value that cannot be used", option=_name(setting), value=value, wanted=wanted
    )
