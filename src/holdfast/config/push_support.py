"""What Pinot's table configurations and schemas may ask for and Holdfast does not do: refused by name.

Rows are served as they are pushed. A table that asks for others, in a filter or a
derived column, would get wrong answers without a word.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import InvalidRequest

_ROWS = "make such rows before the push: in the SQL of a pipeline, or in the lake table that is pushed"
_INGESTION = (
    "transformConfigs",
    "filterConfig",
    "complexTypeConfig",
    "enrichmentConfigs",
    "aggregationConfigs",
    "schemaConformingTransformerConfig",
    "schemaConformingTransformerV2Config",
)
_FIELDS = ("dimensionFieldSpecs", "metricFieldSpecs", "dateTimeFieldSpecs")


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
    """Refuse a schema with columns that are to be computed from others."""
    found = [
        f"{section}[{at}].transformFunction"
        for section in _FIELDS
        for at, spec in enumerate(schema.get(section) or ())
        if isinstance(spec, Mapping) and spec.get("transformFunction")
    ]
    _refuse_asked(found, _ROWS)


def _ingestion_settings(config: Mapping[str, Any]) -> Iterator[str]:
    ingestion = _section(config, "ingestionConfig")
    for key in _INGESTION:
        value = ingestion.get(key)
        if key == "filterConfig" and isinstance(value, Mapping) and not value.get("filterFunction"):
            continue
        if value:
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
