"""Table configurations of the push service: Pinot's keys, read once into typed settings."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeVar

from holdfast.errors import InvalidOption, InvalidRequest, UnsupportedTable

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
OFFLINE = "OFFLINE"
RETAINED_SNAPSHOTS_MAX = 50

_TYPES = (OFFLINE, "REALTIME")
_SUFFIX = f"_{OFFLINE}"
_TABLE_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?")
_NAME_MAX = 200
_RESERVED = frozenset({"Deleted_Segments", "Push_Runs"})
"""Where the deep store keeps deleted files."""

_DIGITS = re.compile(r"[0-9]{1,10}")
_PERIOD = re.compile(r"(?=.)(?:(-?[0-9]+)d)?(?:(-?[0-9]+)h)?(?:(-?[0-9]+)m)?(?:(-?[0-9]+)s)?")
_PERIOD_UNITS_MS = (DAY_MS, HOUR_MS, 60_000, 1000)
_PERIOD_DIGITS_MAX = 12
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15})\s*([KMGTP]?)B?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_TIME_UNITS_MS = {
    "MILLISECONDS": 1,
    "SECONDS": 1000,
    "MINUTES": 60_000,
    "HOURS": HOUR_MS,
    "DAYS": DAY_MS,
}

_SECTIONS = frozenset(
    {
        "tableName", "tableType", "segmentsConfig", "tenants", "tableIndexConfig", "metadata", "quota",
        "task", "routing", "query", "instanceAssignmentConfigMap", "fieldConfigList", "upsertConfig",
        "dedupConfig", "dimensionTableConfig", "ingestionConfig", "tierConfigs", "isDimTable", "tunerConfigs",
        "instancePartitionsMap", "segmentAssignmentConfigMap", "tableSamplers", "description", "tags",
        "consistentDataPush", "gates",
    }
)  # fmt: skip

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTable:
    """What a table configuration says that the service acts on."""

    table: str
    """The typed name, as `orders_OFFLINE`."""
    refresh: bool = False
    """Every push delivers the whole table (REFRESH), rather than adding to it (APPEND)."""
    consistent_push: bool = False
    time_column: str | None = None
    replication: int = 1
    replaced_retention_ms: int = DAY_MS
    """How long segments that were replaced stay, so that a revert can bring them back."""
    entry_retention_ms: int = DAY_MS
    """How long a push may stay open without a sign of life."""
    deleted_retention_ms: int = 7 * DAY_MS
    retained_snapshots: int = 2
    storage_quota_bytes: int | None = None
    queries_per_second: float | None = None
    time_retention_ms: int | None = None
    raw: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The configuration as it was sent, unknown keys included."""
    snapshot_quota_bytes: int | None = None
    """The limit of everything that is kept, old snapshots included."""
    checks_segment_times: bool = True
    """Segments must lie between 1971 and 2071, and have a time range if there is a time column."""
    warnings: tuple[str, ...] = ()
    """Settings that could not be read, and for which the default is used."""

    @property
    def raw_table(self) -> str:
        return raw_name(self.table)


def parse_table(config: object) -> PushTable:
    """The settings in a table configuration of Pinot's.

    What decides about data is refused if it is malformed; a retention period
    that cannot be read is reported, and its default holds.
    """
    if not isinstance(config, Mapping):
        raise _malformed("the table configuration is not an object", key="")
    table = _typed_table(config)
    check_json(config)
    segments = _section(config, "segmentsConfig")
    batch = _section(_section(config, "ingestionConfig"), "batchIngestionConfig")
    quota = _section(config, "quota")
    refresh = _is_refresh(batch, segments)
    lenient = _Lenient(table)
    storage = _optional(quota, "storage", parse_size_bytes)
    return PushTable(
        table=table,
        refresh=refresh,
        consistent_push=_flag(batch, "consistentDataPush"),
        time_column=_text(segments, "timeColumnName") or None,
        replication=_whole(segments, "replication", default=1, least=1),
        replaced_retention_ms=lenient.period(
            segments, "replacedSegmentsRetentionPeriod", DAY_MS if refresh else 4 * HOUR_MS
        ),
        entry_retention_ms=lenient.period(segments, "lineageEntryCleanupRetentionPeriod", DAY_MS),
        deleted_retention_ms=lenient.period(segments, "deletedSegmentsRetentionPeriod", 7 * DAY_MS),
        retained_snapshots=_whole(
            batch, "retainedSnapshots", default=2, least=1, greatest=RETAINED_SNAPSHOTS_MAX
        ),
        storage_quota_bytes=storage,
        snapshot_quota_bytes=_optional(quota, "snapshotStorage", parse_size_bytes)
        or (None if storage is None else 2 * storage),
        queries_per_second=_optional(quota, "maxQueriesPerSecond", _rate),
        time_retention_ms=lenient.time_retention(segments),
        checks_segment_times=_flag(_section(config, "ingestionConfig"), "segmentTimeValueCheck", True),
        raw={**config, "tableName": table, "tableType": OFFLINE},
        # Last: by now every period was read.
        warnings=tuple(lenient.warnings),
    )


def unrecognized_properties(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that are not Pinot's, by JSON pointer; they are kept all the same."""
    return {f"/{key}": value for key, value in config.items() if key not in _SECTIONS}


def check_json(value: Mapping[str, Any]) -> None:
    """Refuse what could not be written down again: half of a surrogate pair, or not a number."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("the document is not JSON", cause=str(error), code="INVALID_JSON") from error


def typed_name(name: str) -> str:
    """`orders` or `orders_OFFLINE` → `orders_OFFLINE`."""
    return name if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"


def raw_name(table: str) -> str:
    """`orders_OFFLINE` or `orders` → `orders`."""
    return table.removesuffix(_SUFFIX)


def check_table_name(name: str) -> None:
    """Refuse a name, raw or typed, that could not stand in every path, query and file name."""
    if not _TABLE_NAME.fullmatch(name) or len(name) > _NAME_MAX or raw_name(name) in _RESERVED:
        raise InvalidRequest(
            "not a table name",
            table=repr(name[: 2 * _NAME_MAX]),
            code="INVALID_TABLE_NAME",
            hint=f"use at most {_NAME_MAX} letters, digits, _ and -, and one dot after a database",
        )


def parse_period_ms(text: str) -> int:
    """`1d`, `4h30m`, `0s` or `-1d` in milliseconds."""
    match = _PERIOD.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or any(part and len(part) > _PERIOD_DIGITS_MAX for part in match.groups()):
        raise InvalidOption("not a period", period=repr(text), hint="write it as 7d, 4h30m or 0s")
    return sum(int(part) * unit for part, unit in zip(match.groups(), _PERIOD_UNITS_MS, strict=True) if part)


def parse_size_bytes(text: str) -> int:
    """`10G`, `1.5T`, `512MB` or `1024` in bytes; units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise InvalidOption("not a size", size=repr(text), hint="write it as 512M, 10G or 1.5T")
    return int(Decimal(match[1]) * _SIZE_UNITS[match[2].upper()])


class _Lenient:
    """Reads retention settings; one that is malformed costs a warning, as in Pinot."""

    def __init__(self, table: str) -> None:
        self._table = table
        self.warnings: list[str] = []

    def period(self, section: Mapping[str, Any], key: str, default: int) -> int:
        value = section.get(key)
        if value is None or value == "":
            return default
        try:
            return parse_period_ms(value)
        except InvalidOption as error:
            self._warn(key, value, error)
            return default

    def time_retention(self, segments: Mapping[str, Any]) -> int | None:
        unit, value = segments.get("retentionTimeUnit"), segments.get("retentionTimeValue")
        if not unit or not value:
            return None
        try:
            return _TIME_UNITS_MS[str(unit).upper()] * int(str(value))
        except (KeyError, ValueError) as error:
            self._warn("retentionTimeValue", f"{value} {unit}", error)
            return None

    def _warn(self, key: str, value: object, error: Exception) -> None:
        self.warnings.append(f"{key} cannot be read: {str(value)[:80]!r}")
        log.warning(
            "table_config.unreadable_setting",
            extra={"table": self._table, "setting": key, "cause": str(error)},
        )


def _typed_table(config: Mapping[str, Any]) -> str:
    name, kind = config.get("tableName"), config.get("tableType", OFFLINE)
    if not isinstance(name, str) or not name:
        raise _malformed("the table has no name", key="tableName")
    if not isinstance(kind, str) or kind.upper() not in _TYPES:
        raise _malformed("not a table type", key="tableType", value=repr(kind))
    if kind.upper() != OFFLINE or name.endswith("_REALTIME"):
        raise UnsupportedTable(
            "only OFFLINE tables are served", table=name, type=kind, code="UNSUPPORTED_TABLE_TYPE"
        )
    check_table_name(name)
    return typed_name(name)


def _is_refresh(batch: Mapping[str, Any], segments: Mapping[str, Any]) -> bool:
    # The second spelling is deprecated in Pinot, and still what many tables have.
    kind = _text(batch, "segmentIngestionType") or _text(segments, "segmentPushType") or "APPEND"
    if kind.upper() not in ("APPEND", "REFRESH"):
        raise _malformed("not an ingestion type", key="segmentIngestionType", value=repr(kind))
    return kind.upper() == "REFRESH"


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = config.get(key)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise _malformed("a section is not an object", key=key)
    return section


def _text(section: Mapping[str, Any], key: str) -> str:
    value = section.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _malformed("a setting is not text", key=key, value=repr(value)[:80])
    return value


def _flag(section: Mapping[str, Any], key: str, default: bool = False) -> bool:
    value = section.get(key)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _malformed("a setting is neither true nor false", key=key, value=repr(value)[:80])


def _whole(section: Mapping[str, Any], key: str, *, default: int, least: int, greatest: int = 1 << 31) -> int:
    value = section.get(key)
    if value is None or value == "":
        return default
    text = str(value)
    if isinstance(value, bool) or not _DIGITS.fullmatch(text) or not least <= int(text) <= greatest:
        raise _malformed(
            "a setting is not a whole number in its range",
            key=key,
            value=repr(value)[:80],
            least=least,
            greatest=greatest,
        )
    return int(text)


def _optional(section: Mapping[str, Any], key: str, read: Callable[[str], _Read]) -> _Read | None:
    value = section.get(key)
    if value is None or value == "":
        return None
    try:
        return read(str(value))
    except (InvalidOption, ValueError) as error:
        raise _malformed("a setting cannot be read", key=key, value=repr(value)[:80]) from error


def _rate(text: str) -> float:
    rate = float(text)
    if not 0 < rate < float("inf"):
        raise ValueError("not a rate")
    return rate


def _malformed(message: str, *, key: str, **facts: object) -> InvalidRequest:
    return InvalidRequest(message, hint="", setting=key, **facts, code="INVALID_TABLE_CONFIG")
