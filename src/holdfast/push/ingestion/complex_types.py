"""Nested values as columns: structs in columns of their own, lists in rows of their own, the rest as JSON."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from holdfast.errors import SchemaMismatch
from holdfast.push.ingestion.rules import ComplexTypes, ListsToJson
from holdfast.push.queries.typed import quote, text_literal


@dataclass(frozen=True, slots=True)
class Value:
    """A column of a stage: its SQL in terms of the stage before, and its type."""

    name: str
    sql: str
    type: pa.DataType


def flat_stages(rules: ComplexTypes, schema: pa.Schema, wanted: Collection[str]) -> Iterator[list[Value]]:
    """The columns of each step, the first in terms of the input; `wanted` are the keys to take from maps."""
    flat = _Flattening(rules, wanted)
    columns = [piece for one in schema for piece in flat.pieces(one.name, quote(one.name), one.type)]
    yield columns
    for name in rules.unnest:
        at = next((one for one in columns if one.name == name and _is_list(one.type)), None)
        if at is None:
            continue
        whole = quote(name)
        rows = f"unnest(CASE WHEN len({whole}) > 0 THEN {whole} ELSE [NULL] END)"
        others = [_same(one) for one in columns if one.name != name]
        yield [*others, Value(name, rows, at.type.value_type)]
        columns = [*others, *flat.pieces(name, whole, at.type.value_type)]
        yield columns
    if rules.renamed:
        yield _rename(rules, columns)


@dataclass(frozen=True, slots=True)
class _Flattening:
    rules: ComplexTypes
    wanted: Collection[str]

    def pieces(self, name: str, sql: str, kind: pa.DataType) -> Iterator[Value]:
        if pa.types.is_struct(kind):
            for at in range(kind.num_fields):
                child = kind.field(at)
                inner = f"struct_extract({sql}, {text_literal(child.name)})"
                yield from self.pieces(f"{name}{self.rules.delimiter}{child.name}", inner, child.type)
        elif pa.types.is_map(kind):
            # Which keys there are only the rows tell; those that the table has columns for are asked.
            before = f"{name}{self.rules.delimiter}"
            keys = sorted({one.removeprefix(before) for one in self.wanted if one.startswith(before)})
            for key in keys:
                yield Value(f"{before}{key}", f"{sql}[{text_literal(key)}]", kind.item_type)
        elif _is_list(kind) and name not in self.rules.unnest and self._becomes_json(kind):
            yield Value(name, f"CAST(to_json({sql}) AS VARCHAR)", pa.string())
        else:
            yield Value(name, sql, kind)

    def _becomes_json(self, kind: pa.DataType) -> bool:
        match self.rules.lists_to_json:
            case ListsToJson.ALL:
                return True
            case ListsToJson.NONE:
                return False
            case _:
                return is_nested(kind.value_type)


def is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind) or pa.types.is_map(kind) or _is_list(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _same(one: Value) -> Value:
    return Value(one.name, quote(one.name), one.type)


def _rename(rules: ComplexTypes, columns: list[Value]) -> list[Value]:
    names = [one.name for one in columns]
    for prefix, other in rules.renamed.items():
        names = [other + name.removeprefix(prefix) if name.startswith(prefix) else name for name in names]
    twice = sorted({name for name in names if names.count(name) > 1 or not name})
    if twice:
        raise SchemaMismatch(
            "two columns get the same name",
            setting="ingestionConfig.complexTypeConfig.prefixesToRename",
            column=twice[0],
        )
    return [Value(name, quote(one.name), one.type) for name, one in zip(names, columns, strict=True)]
