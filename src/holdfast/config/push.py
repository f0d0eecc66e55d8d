"""Table configurations of the push service: Pinot's keys, read once into typed settings."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from holdfast.config import values
from holdfast.config.gates import Gate, parse_gates
from holdfast.config.values import DAY_MS, HOUR_MS, parse_period_ms
from holdfast.errors import InvalidOption, InvalidRequest, UnsupportedTable

log = logging.getLogger(__name__)

OFFLINE = "OFFLINE"
RETAINED_SNAPSHOTS_MAX = 50
_REPLICATION_MAX = 1 << 31

_TYPES = (OFFLINE, "REALTIME")
_SUFFIX = f"_{OFFLINE}"
_TABLE_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?")
_NAME_MAX = 200
_NO_DATABASE = "default"
_RESERVED = frozenset({"Deleted_Segments", "Push_Runs"})
"""Where the deep store keeps deleted files."""

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

_KEYS: Mapping[str, frozenset[str]] = {
    "/segmentsConfig": frozenset(
        {
            "retentionTimeUnit", "retentionTimeValue", "deletedSegmentsRetentionPeriod",
            "replacedSegmentsRetentionPeriod", "lineageEntryCleanupRetentionPeriod", "segmentPushFrequency",
            "segmentPushType", "timeColumnName", "timeType", "schemaName", "segmentAssignmentStrategy",
            "replicaGroupStrategyConfig", "completionConfig", "hllConfig", "replicasPerPartition",
            "replication", "crypterClassName", "minimizeDataMovement", "peerSegmentDownloadScheme",
            "untrackedSegmentsDeletionBatchSize", "untrackedSegmentsRetentionTimeUnit",
            "untrackedSegmentsRetentionTimeValue",
        }
    ),
    "/ingestionConfig": frozenset(
        {
            "batchIngestionConfig", "streamIngestionConfig", "filterConfig", "enrichmentConfigs",
            "transformConfigs", "complexTypeConfig", "schemaConformingTransformerConfig",
            "schemaConformingTransformerV2Config", "aggregationConfigs", "continueOnError",
            "retryOnSegmentBuildPrecheckFailure", "rowTimeValueCheck", "segmentTimeValueCheck",
        }
    ),
    "/ingestionConfig/batchIngestionConfig": frozenset(
        {
            "batchConfigMaps", "segmentIngestionType", "segmentIngestionFrequency", "consistentDataPush",
            "retainedSnapshots",
        }
    ),
    "/ingestionConfig/transformConfigs": frozenset({"columnName", "transformFunction"}),
    "/ingestionConfig/filterConfig": frozenset({"filterFunction"}),
    "/ingestionConfig/complexTypeConfig": frozenset(
        {
            "fieldsToUnnest", "delimiter", "collectionNotUnnestedToJson", "prefixesToRename",
            "fieldsToUnnestAndKeepOriginalValue",
        }
    ),
    "/tenants": frozenset({"broker", "server", "tagOverrideConfig"}),
    "/metadata": frozenset({"customConfigs"}),
    "/task": frozenset({"taskTypeConfigsMap"}),
    "/upsertConfig": frozenset(
        {
            "mode", "hashFunction", "partialUpsertStrategies", "defaultPartialUpsertStrategy",
            "comparisonColumns", "comparisonColumn", "deleteRecordColumn", "deletedKeysTTL", "metadataTTL",
            "outOfOrderRecordColumn", "enableSnapshot", "snapshot", "preload", "enablePreload",
            "dropOutOfOrderRecord", "consistencyMode", "upsertViewRefreshIntervalMs", "metadataManagerClass",
            "metadataManagerConfigs", "allowPartialUpsertConsumptionDuringCommit", "newSegmentTrackingTimeMs",
            "enableDeletedKeysCompactionConsistency", "partialUpsertMergerClass",
        }
    ),
    "/dedupConfig": frozenset(
        {
            "dedupEnabled", "hashFunction", "metadataTTL", "dedupTimeColumn", "enablePreload", "preload",
            "metadataManagerClass", "metadataManagerConfigs", "allowDedupConsumptionDuringCommit",
            "ignoreNonDefaultTiers",
        }
    ),
    "/quota": frozenset(
        {"storage", "maxQueriesPerSecond", "rateLimiterUnit", "rateLimiterDuration", "snapshotStorage"}
    ),
}  # fmt: skip
"""By section, its keys."""

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
    gates: tuple[Gate, ...] = ()
    """What must hold of every push."""
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
        raise _refuse("the table configuration is not an object", key="")
    table = _parse_name(config)
    check_json(config)
    segments = _section(config, "segmentsConfig")
    ingestion = _section(config, "ingestionConfig")
    batch = _section(ingestion, "batchIngestionConfig")
    quota = _section(config, "quota")
    refresh = _is_refresh(batch, segments)
    lenient = _Lenient(table)
    storage = _read(quota, "storage", _size, None)
    return PushTable(
        table=table,
        refresh=refresh,
        consistent_push=_read(batch, "consistentDataPush", values.flag, False),
        time_column=_read(segments, "timeColumnName", _text, "") or None,
        replication=_read(segments, "replication", lambda value: _whole(value, _REPLICATION_MAX), 1),
        replaced_retention_ms=lenient.period(
            segments, "replacedSegmentsRetentionPeriod", DAY_MS if refresh else 4 * HOUR_MS
        ),
        entry_retention_ms=lenient.period(segments, "lineageEntryCleanupRetentionPeriod", DAY_MS),
        deleted_retention_ms=lenient.period(segments, "deletedSegmentsRetentionPeriod", 7 * DAY_MS),
        retained_snapshots=_read(
            batch, "retainedSnapshots", lambda value: _whole(value, RETAINED_SNAPSHOTS_MAX), 2
        ),
        storage_quota_bytes=storage,
        snapshot_quota_bytes=_read(quota, "snapshotStorage", _size, None)
        or (None if storage is None else 2 * storage),
        queries_per_second=_read(quota, "maxQueriesPerSecond", _rate, None),
        time_retention_ms=lenient.time_retention(segments),
        gates=parse_gates(config.get("gates") or []),
        checks_segment_times=_read(ingestion, "segmentTimeValueCheck", values.flag, True),
        raw={**config, "tableName": table, "tableType": OFFLINE},
        # Last: by now every period was read.
        warnings=tuple(lenient.warnings),
    )


def unknown_sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is neither Pinot's nor Holdfast's, by JSON pointer; it is kept all the same.

    Within sections, in those that the service reads: a slip in a name there would change what it does.
    """
    found = {f"/{key}": value for key, value in config.items() if key not in _SECTIONS}
    for path, known in _KEYS.items():
        section: Any = config
        for key in path.split("/")[1:]:
            section = section.get(key) if isinstance(section, Mapping) else None
        each = enumerate(section) if isinstance(section, list) else [("", section)]
        for at, one in each:
            if isinstance(one, Mapping):
                place = f"{path}/{at}" if at != "" else path
                found |= {f"{place}/{key}": value for key, value in one.items() if key not in known}
    return found


def check_json(value: Mapping[str, Any]) -> None:
    """Refuse what could not be written down again: half of a surrogate pair, or not a number."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest("the document is not JSON", cause=str(error), code="INVALID_JSON") from error


def name_with_type(name: str) -> str:
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


def check_new_name(table: str) -> None:
    """Refuse a typed name for a new table by which requests could mean another one.

    Its raw name ends like a type, or begins like the database that means none.
    """
    raw = raw_name(table)
    if raw.lower().startswith(f"{_NO_DATABASE}."):
        raise InvalidRequest(
            "the name of a table must not begin with the database that means none",
            table=raw,
            code="INVALID_TABLE_NAME",
            hint="leave it off, in any case of its letters",
        )
    if raw.upper().endswith(tuple(f"_{kind}" for kind in _TYPES)):
        raise InvalidRequest(
            "the name of a table must not end with a type",
            table=raw,
            code="INVALID_TABLE_NAME",
            hint="leave _OFFLINE or _REALTIME off; the type stands in tableType",
        )


def table_name(value: Any) -> str:
    """The name of a push table in a configuration file, raw or with its type."""
    name = values.text(value)
    try:
        check_table_name(name)
    except InvalidRequest as error:
        raise ValueError(f"{error.message}: {error.hint}") from error
    return name


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


def _parse_name(config: Mapping[str, Any]) -> str:
    name, kind = config.get("tableName"), config.get("tableType", OFFLINE)
    if not isinstance(name, str) or not name:
        raise _refuse("the table has no name", key="tableName")
    if not isinstance(kind, str) or kind.upper() not in _TYPES:
        raise _refuse("not a table type", key="tableType", value=repr(kind))
    if kind.upper() != OFFLINE or name.endswith("_REALTIME"):
        raise UnsupportedTable(
            "only OFFLINE tables are served", table=name, type=kind, code="UNSUPPORTED_TABLE_TYPE"
        )
    check_table_name(name)
    return name_with_type(name)


def _is_refresh(batch: Mapping[str, Any], segments: Mapping[str, Any]) -> bool:
    # Pinot deprecates the older spelling, and many tables still have it.
    older = _read(segments, "segmentPushType", _text, "APPEND")
    kind = _read(batch, "segmentIngestionType", _text, older)
    if kind.upper() not in ("APPEND", "REFRESH"):
        raise _refuse("not an ingestion type", key="segmentIngestionType", value=repr(kind))
    return kind.upper() == "REFRESH"


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = config.get(key)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise _refuse("a section is not an object", key=key)
    return section


def _read(section: Mapping[str, Any], key: str, parse: Callable[[Any], _Read], default: _Read) -> _Read:
    """The value of a key; the default if there is none."""
    value = section.get(key)
    # An empty text is a setting left out, but no flag.
    if value is None or (value == "" and parse is not values.flag):
        return default
    try:
        return parse(value)
    except (InvalidOption, ValueError) as error:
        cause = error.message if isinstance(error, InvalidOption) else str(error)
        raise _refuse("a setting cannot be read", key=key, value=repr(value)[:80], cause=cause) from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def _whole(value: Any, most: int) -> int:
    return values.whole(str(value), 1, most)


def _size(value: Any) -> int:
    return values.parse_size_bytes(str(value))


def _rate(value: Any) -> float:
    rate = float(str(value))
    if not 0 < rate < float("inf"):
        raise ValueError("not a rate")
    return rate


def _refuse(message: str, *, key: str, **facts: object) -> InvalidRequest:
    return InvalidRequest(message, hint="", setting=key, **facts, code="INVALID_TABLE_CONFIG")
