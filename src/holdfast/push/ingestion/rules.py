"""Which rows a table keeps, and what stands in them: Pinot's ingestion settings, read once.

    complex types ─► transforms ─► filter

What is not done here is refused with the path of the setting, when the table is
made and once more by every push.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from holdfast.config.push_support import check_supported, check_supported_schema
from holdfast.errors import InvalidRequest

_FIELDS = ("dimensionFieldSpecs", "metricFieldSpecs", "dateTimeFieldSpecs")
_COMPLEX_KEYS = ("fieldsToUnnest", "delimiter", "collectionNotUnnestedToJson", "prefixesToRename")
_GROOVY = "groovy("


class ListsToJson(StrEnum):
    """Which lists that are not unnested become JSON."""

    NONE = "NONE"
    NON_PRIMITIVE = "NON_PRIMITIVE"
    ALL = "ALL"


@dataclass(frozen=True, slots=True)
class Transform:
    column: str
    expression: str
    place: str
    """Where it stands in the configuration or the schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplexTypes:
    """How nested values become columns."""

    unnest: tuple[str, ...] = ()
    delimiter: str = "."
    lists_to_json: ListsToJson = ListsToJson.NON_PRIMITIVE
    renamed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The beginnings of names, each with what takes its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRules:
    transforms: tuple[Transform, ...] = ()
    """In the order in which they are computed: each after those that it reads."""
    filter: str = ""
    """Rows of which it holds are left out."""
    complex_types: ComplexTypes | None = None

    def __bool__(self) -> bool:
        return bool(self.transforms or self.filter or self.complex_types)

    @property
    def sources(self) -> frozenset[str]:
        """The columns that expressions read."""
        expressions = [one.expression for one in self.transforms] + ([self.filter] if self.filter else [])
        return frozenset(name for text in expressions for name in columns_of_expression(text))


def check_config(config: Mapping[str, Any]) -> None:
    """Refuse a table configuration that asks for what is not done here, by the path of the setting."""
    check_supported(config)
    row_rules(config, {})


def check_schema(schema: Mapping[str, Any]) -> None:
    """The same of a schema."""
    check_supported_schema(schema)
    row_rules({}, schema)


def columns_of_expression(text: str, place: str = "") -> tuple[str, ...]:
    """The columns that an expression reads; `InvalidRequest` names the setting, if it is not understood."""
    try:
        # Loaded here: of tables without expressions, no job needs the parser.
        from holdfast.push.ingestion.expressions import parse_expression
    except ImportError as error:
        raise InvalidRequest(
            "the table computes columns, and what is needed for that is not installed",
            setting=place,
            hint="install the extra server where the job and its tasks run",
        ) from error
    return parse_expression(text, place).columns


def row_rules(config: Mapping[str, Any], schema: Mapping[str, Any]) -> RowRules:
    """The rules of a table; `InvalidRequest` names the setting that is not understood."""
    ingestion = _section(config, "ingestionConfig")
    found = {one.column: one for one in _schema_transforms(schema)}
    # As in Pinot: the table's word counts more than the schema's.
    found |= {one.column: one for one in _table_transforms(ingestion)}
    for one in found.values():
        _check_expression(one.expression, one.place)
    skipped = _section(ingestion, "filterConfig", "ingestionConfig.").get("filterFunction") or ""
    if skipped:
        _check_expression(skipped, "ingestionConfig.filterConfig.filterFunction")
    return RowRules(transforms=_in_order(found), filter=skipped, complex_types=_complex_types(ingestion))


def _table_transforms(ingestion: Mapping[str, Any]) -> Iterator[Transform]:
    listed = ingestion.get("transformConfigs") or ()
    if not isinstance(listed, list | tuple):
        raise _refuse("a setting is not a list", "ingestionConfig.transformConfigs")
    for at, one in enumerate(listed):
        place = f"ingestionConfig.transformConfigs[{at}]"
        column = one.get("columnName") if isinstance(one, Mapping) else None
        if not isinstance(column, str) or not column:
            raise _refuse("a transform names no column", f"{place}.columnName")
        yield Transform(column, one.get("transformFunction") or "", f"{place}.transformFunction")


def _schema_transforms(schema: Mapping[str, Any]) -> Iterator[Transform]:
    for section in _FIELDS:
        for at, spec in enumerate(schema.get(section) or ()):
            if isinstance(spec, Mapping) and spec.get("transformFunction"):
                yield Transform(
                    str(spec.get("name")), spec["transformFunction"], f"{section}[{at}].transformFunction"
                )


def _check_expression(text: object, place: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise _refuse("an expression is missing", place)
    if text.strip().lower().startswith(_GROOVY):
        raise _refuse(
            "Groovy is not run here", place, hint="write it with Pinot's functions, as in upper(city)"
        )
    columns_of_expression(text, place)


def _in_order(transforms: Mapping[str, Transform]) -> tuple[Transform, ...]:
    """Each after the transforms of the columns that it reads."""
    ordered: dict[str, Transform] = {}

    def add(one: Transform, above: tuple[str, ...]) -> None:
        if one.column in above:
            raise _refuse("transforms read each other in a circle", one.place, columns=", ".join(above))
        for name in columns_of_expression(one.expression):
            # A transform of a column may read the column as it comes.
            if name in transforms and name != one.column and name not in ordered:
                add(transforms[name], (*above, one.column))
        ordered.setdefault(one.column, one)

    for one in transforms.values():
        add(one, ())
    return tuple(ordered.values())


def _complex_types(ingestion: Mapping[str, Any]) -> ComplexTypes | None:
    place = "ingestionConfig.complexTypeConfig"
    if ingestion.get("complexTypeConfig") is None:
        return None
    section = _section(ingestion, "complexTypeConfig", "ingestionConfig.")
    unknown = [key for key, value in section.items() if key not in _COMPLEX_KEYS and value]
    if unknown:
        raise _refuse("the table asks for something that is not done here", f"{place}.{unknown[0]}")
    renamed = _section(section, "prefixesToRename", f"{place}.")
    mode = str(section.get("collectionNotUnnestedToJson") or ListsToJson.NON_PRIMITIVE).upper()
    if mode not in ListsToJson.__members__:
        raise _refuse(
            "not a way to write lists", f"{place}.collectionNotUnnestedToJson", known=", ".join(ListsToJson)
        )
    return ComplexTypes(
        unnest=tuple(sorted(_texts(section.get("fieldsToUnnest") or (), f"{place}.fieldsToUnnest"))),
        delimiter=str(section.get("delimiter") or "."),
        lists_to_json=ListsToJson(mode),
        renamed=dict(zip(renamed, _texts(renamed.values(), f"{place}.prefixesToRename"), strict=True)),
    )


def _texts(values: Iterable[object], place: str) -> tuple[str, ...]:
    texts = tuple(one for one in values if isinstance(one, str))
    if isinstance(values, str | Mapping) or len(texts) != len(tuple(values)):
        raise _refuse("not a list of names", place)
    return texts


def _section(config: Mapping[str, Any], key: str, above: str = "") -> Mapping[str, Any]:
    found = config.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise _refuse("a section is not an object", f"{above}{key}")
    return found


def _refuse(message: str, place: str, *, hint: str = "", **facts: object) -> InvalidRequest:
    return InvalidRequest(message, setting=place, **facts, code="UNSUPPORTED_SETTING", hint=hint)
