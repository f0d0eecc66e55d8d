"""What Pinot's table configurations and schemas may ask for and Holdfast does not do: refused by name.

Whoever asked for other rows than are served would get wrong answers without a
word. What is done of transforms, filters and complex types, `push.ingestion` knows.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import InvalidRequest

_ROWS = "make such rows before the push: in the SQL of a pipeline, or in the lake table that is pushed"
_INGESTION = (
    "enrichmentConfigs",
    "aggregationConfigs",
    "schemaConformingTransformerConfig",
    "schemaConformingTransformerV2Config",
)
_TIME_KEYS = ("name", "timeType", "timeUnitSize", "timeFormat")


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
