"""What Pinot's table configurations and schemas may ask for and Holdfast does not do: refused by name.

A table that asks for other rows than are served would give wrong answers without a
word. What is done of transforms, filters and complex types, `push.ingestion` knows.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from holdfast.errors import InvalidRequest

_ROWS = "make such rows before the push: in the SQL of a pipeline, or in the lake table that is pushed"
_INGESTION = (
    "enrichmentConfigs",
    "aggregationConfigs",
    "schemaConformingTransformerConfig",
    "schemaConformingTransformerV2Config",
)
_NOTHING: tuple[object, ...] = (None, "", False, "false", [], {}, ())
_TIME_KEYS = ("name", "timeType", "timeUnitSize", "timeFormat")


_HERE = "segments are Parquet files that one service reads: there is nothing to choose"
_NO_INDEX = "Parquet's statistics and dictionaries find the rows"
_NO_SERVERS = "one service holds all tables"
_NO_TASKS = "no tasks run in the background; push jobs and pipelines do such work"
_WITHOUT_EFFECT: Mapping[str, str] = MappingProxyType(
    {
        "tenants.broker": _NO_SERVERS,
        "tenants.server": _NO_SERVERS,
        "tenants.tagOverrideConfig": _NO_SERVERS,
        "tableIndexConfig": _NO_INDEX,
        "fieldConfigList": _NO_INDEX,
        "tunerConfigs": _NO_INDEX,
        "routing": _NO_SERVERS,
        "query": "limits are those of the service",
        "task": _NO_TASKS,
        "tierConfigs": _NO_SERVERS,
        "instanceAssignmentConfigMap": _NO_SERVERS,
        "instancePartitionsMap": _NO_SERVERS,
        "segmentAssignmentConfigMap": _NO_SERVERS,
        "dimensionTableConfig": "no query looks rows up in it",
        "isDimTable": "no query looks rows up in it",
        "segmentsConfig.segmentAssignmentStrategy": _NO_SERVERS,
        "segmentsConfig.replicaGroupStrategyConfig": _NO_SERVERS,
        "segmentsConfig.replicasPerPartition": _NO_SERVERS,
        "segmentsConfig.minimizeDataMovement": _NO_SERVERS,
        "segmentsConfig.peerSegmentDownloadScheme": _NO_SERVERS,
        "segmentsConfig.completionConfig": _HERE,
        "segmentsConfig.hllConfig": _HERE,
        "segmentsConfig.crypterClassName": "segments are stored as they come",
        "segmentsConfig.segmentPushFrequency": "pushes come when they come",
        "segmentsConfig.timeType": "the schema says what times mean",
        "quota.rateLimiterUnit": "queries are counted by the second",
        "quota.rateLimiterDuration": "queries are counted by the second",
        "ingestionConfig.streamIngestionConfig": "only OFFLINE tables are served",
        "ingestionConfig.continueOnError": "a value that does not fit fails the push",
        "ingestionConfig.rowTimeValueCheck": "the times of segments are checked, not those of rows",
        "ingestionConfig.retryOnSegmentBuildPrecheckFailure": "a push that fails is run again",
    }
)
"""By setting, why it changes nothing."""


def settings_without_effect(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings that are known, set, and change nothing here, each with the reason."""
    found: dict[str, str] = {}
    for path, reason in _WITHOUT_EFFECT.items():
        value: Any = config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            inner = [key for key, each in value.items() if each not in _NOTHING]
            found |= {f"{path}.{key}": reason for key in inner}
        elif value not in _NOTHING:
            found[path] = reason
    return found


def check_supported(config: Mapping[str, Any]) -> None:
    """Refuse a table configuration that asks for other rows than are pushed, or contradicts itself."""
    _refuse_asked(list(_ingestion_settings(config)), _ROWS)
    _refuse_asked(list(_row_settings(config)), "pushes add rows, or replace segments: leave it out")
    ingestion = _section(config, "ingestionConfig")
    batch = _section(ingestion, "batchIngestionConfig")
    older = _section(config, "segmentsConfig").get("segmentPushType") or "APPEND"
    kind = str(batch.get("segmentIngestionType") or older).upper()
    if str(batch.get("consistentDataPush")).lower() == "true" and kind != "REFRESH":
        raise InvalidRequest(
            "consistent push needs a table whose pushes deliver everything",
            setting="ingestionConfig.batchIngestionConfig.consistentDataPush",
            found=kind,
            code="NOT_A_REFRESH_TABLE",
            hint="set segmentIngestionType to REFRESH",
        )


def check_supported_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose time column is to be converted into another unit while it comes in."""
    time = _section(schema, "timeFieldSpec")
    incoming, outgoing = (_section(time, f"{way}GranularitySpec") for way in ("incoming", "outgoing"))
    if incoming and outgoing and any(incoming.get(key) != outgoing.get(key) for key in _TIME_KEYS):
        _refuse_asked(
            ["timeFieldSpec.outgoingGranularitySpec"],
            "use dateTimeFieldSpecs, with a transformFunction such as toEpochDays(millis)",
        )


def _ingestion_settings(config: Mapping[str, Any]) -> Iterator[str]:
    ingestion = _section(config, "ingestionConfig")
    for key in _INGESTION:
        if ingestion.get(key):
            yield f"ingestionConfig.{key}"


def _row_settings(config: Mapping[str, Any]) -> Iterator[str]:
    """Settings of tables whose rows replace or rule out each other by their keys."""
    mode = _section(config, "upsertConfig").get("mode")
    if mode and str(mode).upper() != "NONE":
        yield "upsertConfig.mode"
    if str(_section(config, "dedupConfig").get("dedupEnabled")).lower() == "true":
        yield "dedupConfig.dedupEnabled"


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def _refuse_asked(settings: list[str], hint: str) -> None:
    if settings:
        raise InvalidRequest(
            "the table asks for something that is not done here",
            setting=", ".join(settings),
            code="UNSUPPORTED_SETTING",
            hint=hint,
        )
