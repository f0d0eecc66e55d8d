"""Settings of one write."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from holdfast.config.choices import ConcurrencyMode, FailedWritesPolicy, IndexType, TableType
from holdfast.config.cleaning import ArchiveSettings, CleanSettings
from holdfast.config.locks import LockSettings
from holdfast.config.option import Area, split_names
from holdfast.config.option_table import NO_NUMBER, WriteOptions, check_settings, options_of, parse_settings
from holdfast.config.options import effective_options
from holdfast.errors import InvalidOption

WRITE_AREAS = (Area.WRITE, Area.LOCK, Area.CLEAN)
"""What options of a write are about."""
_OF_LOGS = ("log_ratio_max", "logs_max", "log_block_format")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings(WriteOptions):
    """One write: its options, which are declared in the option table, with its lock and its clean."""

    lock: LockSettings | None = None
    """What keeps out programs that do not know the ledger."""
    clean: CleanSettings = field(default_factory=CleanSettings)
    """Which old versions of files go, and when."""

    def __post_init__(self) -> None:
        check_settings(Area.WRITE, self)
        if not 0 < self.bloom_error_rate < 1:
            option = options_of(Area.WRITE)["bloom_error_rate"]
            raise option.refuse(self.bloom_error_rate, "between 0 and 1")
        if not self.log_ratio_max >= 0:
            raise options_of(Area.WRITE)["log_ratio_max"].refuse(self.log_ratio_max, "at least 0")
        if self.compacts_inline and self.schedules_inline:
            raise InvalidOption(
                "a write either compacts or plans a compaction, not both",
                options=", ".join(
                    options_of(Area.WRITE)[one].name for one in ("compacts_inline", "schedules_inline")
                ),
                hint="leave out one of them",
            )
        if bool(self.application) != (self.batch_number != NO_NUMBER) or self.batch_number < NO_NUMBER:
            raise InvalidOption(
                "a numbered write needs the application and a number that is not negative",
                application=repr(self.application),
                number=self.batch_number if self.batch_number != NO_NUMBER else None,
                hint="give both, as idempotency=(application, number) or as txnAppId and txnVersion",
            )
        is_eager = self.failed_writes_policy is FailedWritesPolicy.EAGER
        if is_eager and self.concurrency_mode is not ConcurrencyMode.SINGLE_WRITER:
            raise InvalidOption(
                "with many writers failed writes cannot be removed eagerly: they may be running",
                option=options_of(Area.WRITE)["failed_writes_policy"].name,
                mode=self.concurrency_mode,
                hint="use LAZY, or leave the option out",
            )

    def with_number(self, idempotency: object) -> Self:
        """The same, as the write that an application gives this number; unchanged if it is None."""
        if idempotency is None:
            return self
        match idempotency:
            case (str() as application, int() as number) if not isinstance(number, bool):
                if self.application and (self.application, self.batch_number) != (application, number):
                    raise InvalidOption(
                        "the options number this write in another way",
                        given=idempotency,
                        options=(self.application, self.batch_number),
                    )
                return replace(self, application=application, batch_number=number)
        raise InvalidOption(
            "idempotency is an application and the number it gives this write",
            given=repr(idempotency),
            hint='such as idempotency=("nightly load", 17)',
        )

    def check_fits(self, kind: TableType) -> None:
        """`InvalidOption` if an option is about log files, and a table of this type has none."""
        if kind is TableType.MERGE_ON_READ:
            return
        for setting in _OF_LOGS:
            option, value = options_of(Area.WRITE)[setting], getattr(self, setting)
            if value != option.default:
                raise InvalidOption(
                    "the option is about log files, which only merge-on-read tables have",
                    option=option.name,
                    value=value,
                    hint='leave it out, or create the table with table_type="MERGE_ON_READ"',
                )

    @property
    def is_shared(self) -> bool:
        """Whether the write admits others at the same time."""
        return self.failed_writes_policy is not FailedWritesPolicy.EAGER

    @property
    def moves_records(self) -> bool:
        """With a global index: whether a record follows its partition column to another partition."""
        is_bloom = self.index_type is IndexType.GLOBAL_BLOOM
        return self.bloom_moves_records if is_bloom else self.simple_moves_records

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
        return split_names(self.bucket_fields)

    @classmethod
    def from_options(cls, options: Mapping[str, str] | None) -> Self:
        """The settings; `InvalidOption` names every option that cannot be honoured."""
        found = effective_options(options, WRITE_AREAS)
        given = parse_settings(Area.WRITE, found)
        if given.get("concurrency_mode") is ConcurrencyMode.OPTIMISTIC:
            given.setdefault("failed_writes_policy", FailedWritesPolicy.LAZY)
        return cls(
            **given,
            lock=LockSettings.from_options(found),
            clean=CleanSettings.from_options(found),
        )


HEARTBEAT_TIMEOUT_MS = WriteSettings().heartbeat_timeout_ms
"""How old a heartbeat may be by default."""
