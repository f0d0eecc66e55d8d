"""Settings of one write."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.config.archiving import ArchiveSettings
from holdfast.config.cleaning import CleanSettings
from holdfast.config.locks import LockSettings
from holdfast.config.options import HONOURED, recognise
from holdfast.errors import InvalidOption

CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")
_FLAGS = {"true": True, "false": False}
HEARTBEAT_TIMEOUT_MS = 120_000
"""How old a heartbeat may be by default: two intervals of a minute."""
_BUCKETS_MAX = 100_000_000
"""A bucket's number is the first eight digits of its file ids."""


class FailedWritesPolicy(StrEnum):
    """When the traces of failed writes are removed."""

    EAGER = "EAGER"
    """When the next write begins: for tables with one writer."""
    LAZY = "LAZY"
    """When their heartbeat has expired: for tables with many writers."""
    NEVER = "NEVER"
    """When somebody asks for it."""


class ConcurrencyMode(StrEnum):
    SINGLE_WRITER = "SINGLE_WRITER"
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"


class BucketEngine(StrEnum):
    SIMPLE = "SIMPLE"


class IndexType(StrEnum):
    """How the file group that holds a key is found."""

    SIMPLE = "SIMPLE"
    GLOBAL_SIMPLE = "GLOBAL_SIMPLE"
    BLOOM = "BLOOM"
    GLOBAL_BLOOM = "GLOBAL_BLOOM"
    BUCKET = "BUCKET"

    @property
    def is_global(self) -> bool:
        """Whether a key names one record in the whole table, not one in each partition."""
        return self in (IndexType.GLOBAL_SIMPLE, IndexType.GLOBAL_BLOOM)

    @property
    def prunes_by_bloom(self) -> bool:
        return self in (IndexType.BLOOM, IndexType.GLOBAL_BLOOM)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    max_file_bytes: int = 120 * 1024 * 1024
    small_file_bytes: int = 100 * 1024 * 1024
    """File groups below this size receive new records."""
    record_bytes: int = 256
    """How long a stored record is taken to be when many new ones are spread over tasks."""
    compression: str = "zstd"
    bloom_error_rate: float = 1e-9
    index_type: IndexType = IndexType.SIMPLE
    moves_records: bool = True
    """With a global index: whether a record follows its partition column to another partition."""
    bucket_engine: BucketEngine = BucketEngine.SIMPLE
    bucket_count: int = 256
    bucket_fields: str = ""
    """Key columns, separated by commas, that a record's bucket depends on; all of them if empty."""
    combines_inserts: bool = False
    """Whether records of one key within an insert are reduced to one."""
    fills_missing_columns: bool = False
    parallelism: int = 0
    """Tasks that merge; 0 lets the engine choose."""
    heartbeat_interval_ms: int = 60_000
    heartbeat_misses: int = 2
    """Beats that may be missed before a writer counts as gone."""
    failed_writes_policy: FailedWritesPolicy = FailedWritesPolicy.EAGER
    concurrency_mode: ConcurrencyMode = ConcurrencyMode.SINGLE_WRITER
    conflict_retries: int = 0
    """How often a write is made anew after a conflict."""
    refuses_duplicates: bool = False
    """Whether a write fails when tasks left files beside those that count, instead of deleting them."""
    detects_conflicts_early: bool = False
    """Whether tasks look for markers of other writers on their file groups."""
    archives: bool = True
    """Whether a write archives after its commit, when enough commits have gathered."""
    archives_beside_write: bool = False
    """Whether it does so while its files are being written."""
    archives_beyond_savepoints: bool = False
    archive_batch: int = 10
    lock: LockSettings | None = None
    """What keeps out programs that do not know the ledger."""
    clean: CleanSettings = field(default_factory=CleanSettings)
    """Which old versions of files go, and when."""

    def __post_init__(self) -> None:
        if self.compression not in CODECS:
            raise _invalid("compression", self.compression, "one of " + ", ".join(CODECS))
        if not 0 < self.bloom_error_rate < 1:
            raise _invalid("bloom_error_rate", self.bloom_error_rate, "between 0 and 1")
        for setting, least in (
            ("max_file_bytes", 1024),
            ("small_file_bytes", 0),
            ("record_bytes", 1),
            ("bucket_count", 1),
            ("parallelism", 0),
            ("heartbeat_interval_ms", 1000),
            ("heartbeat_misses", 1),
            ("conflict_retries", 0),
            ("archive_batch", 1),
        ):
            if getattr(self, setting) < least:
                raise _invalid(setting, getattr(self, setting), f"at least {least}")
        if self.bucket_count > _BUCKETS_MAX:
            raise _invalid("bucket_count", self.bucket_count, f"at most {_BUCKETS_MAX}")
        is_eager = self.failed_writes_policy is FailedWritesPolicy.EAGER
        if is_eager and self.concurrency_mode is not ConcurrencyMode.SINGLE_WRITER:
            raise InvalidOption(
                "with many writers failed writes cannot be removed eagerly: they may be running",
                option=HONOURED["failed_writes_policy"][0],
                mode=self.concurrency_mode,
                hint="use LAZY, or leave the option out",
            )

    @property
    def is_shared(self) -> bool:
        """Whether the write admits others at the same time."""
        return self.failed_writes_policy is not FailedWritesPolicy.EAGER

    @property
    def heartbeat_timeout_ms(self) -> int:
        return self.heartbeat_interval_ms * self.heartbeat_misses

    @property
    def archive(self) -> ArchiveSettings:
        """How much of the timeline stays active."""
        return ArchiveSettings(
            clean=self.clean, beyond_savepoints=self.archives_beyond_savepoints, batch=self.archive_batch
        )

    @property
    def archives_inline(self) -> bool:
        """Whether a write archives after its commit."""
        return self.archives and self.clean.services_enabled and not self.archives_beside_write

    @property
    def archives_beside(self) -> bool:
        """Whether a write archives while its files are being written."""
        return self.archives and self.clean.services_enabled and self.archives_beside_write

    @property
    def bucket_columns(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.bucket_fields.split(",") if name.strip())

    @classmethod
    def from_options(cls, options: Mapping[str, str] | None) -> Self:
        found = recognise(options or {})
        kinds = {each.name: type(each.default) for each in fields(cls)}
        given = {name: _converted(name, text, kinds[name]) for name, text in found.items()}
        if given.get("concurrency_mode") is ConcurrencyMode.OPTIMISTIC:
            given.setdefault("failed_writes_policy", FailedWritesPolicy.LAZY)
        return cls(
            **given,
            lock=LockSettings.from_options(options),
            clean=CleanSettings.from_options(options),
        )


def _converted(setting: str, text: str, kind: type[Any]) -> Any:
    spelled = text.strip()
    try:
        if kind is str:
            return spelled if setting == "bucket_fields" else spelled.lower()
        if kind is bool:
            return _FLAGS[spelled.lower()]
        return kind(spelled.upper() if issubclass(kind, StrEnum) else spelled)
    except (ValueError, KeyError):
        raise _invalid(setting, text, _wanted(kind)) from None


def _wanted(kind: type[Any]) -> str:
    if kind is bool:
        return "true or false"
    return ", ".join(kind) if issubclass(kind, StrEnum) else f"a number ({kind.__name__})"


def _invalid(setting: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        "option has a value that cannot be used", option=HONOURED[setting][0], value=value, wanted=wanted
    )
