"""Settings of one write."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self

from holdfast.config.options import HONOURED, recognise
from holdfast.errors import InvalidOption

CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")


class FailedWritesPolicy(StrEnum):
    EAGER = "EAGER"


class ConcurrencyMode(StrEnum):
    SINGLE_WRITER = "SINGLE_WRITER"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    max_file_bytes: int = 120 * 1024 * 1024
    compression: str = "zstd"
    bloom_error_rate: float = 1e-9
    heartbeat_interval_ms: int = 60_000
    failed_writes_policy: FailedWritesPolicy = FailedWritesPolicy.EAGER
    concurrency_mode: ConcurrencyMode = ConcurrencyMode.SINGLE_WRITER

    def __post_init__(self) -> None:
        if self.max_file_bytes < 1024:
            raise _invalid("max_file_bytes", self.max_file_bytes, "at least 1024")
        if self.compression not in CODECS:
            raise _invalid("compression", self.compression, "one of " + ", ".join(CODECS))
        if not 0 < self.bloom_error_rate < 1:
            raise _invalid("bloom_error_rate", self.bloom_error_rate, "between 0 and 1")
        if self.heartbeat_interval_ms < 1000:
            raise _invalid("heartbeat_interval_ms", self.heartbeat_interval_ms, "at least 1000")

    @classmethod
    def from_options(cls, options: Mapping[str, str] | None) -> Self:
        found = recognise(options or {})
        kinds = {field.name: type(field.default) for field in fields(cls)}
        return cls(**{name: _converted(name, text, kinds[name]) for name, text in found.items()})


def _converted(setting: str, text: str, kind: type[Any]) -> Any:
    spelled = text.strip()
    try:
        if kind is str:
            return spelled.lower()
        return kind(spelled.upper() if issubclass(kind, StrEnum) else spelled)
    except ValueError:
        wanted = ", ".join(kind) if issubclass(kind, StrEnum) else f"a number ({kind.__name__})"
        raise _invalid(setting, text, wanted) from None


def _invalid(setting: str, value: object, wanted: str) -> InvalidOption:
    return InvalidOption(
        "option has a value that cannot be used", option=HONOURED[setting][0], value=value, wanted=wanted
    )
