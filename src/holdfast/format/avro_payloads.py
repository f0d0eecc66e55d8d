"""Avro payloads: plans and reports on the timeline, each by its published schema and one struct.

The schemas are Apache Hudi's, one file each in `avro_schemas`. A file of any
release is read by the schema found in it; one form is written.
"""

import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from holdfast.format.avro import decode_container, encode_container
from holdfast.format.malformed import Malformed
from holdfast.model.instant import InstantTime

T = TypeVar("T", bound=msgspec.Struct)

InstantText = Annotated[InstantTime, msgspec.Meta(pattern=r"\A[0-9]{14}([0-9]{3})?\Z")]
"""An instant time in a payload, checked when it is read."""

_PATTERN = re.compile("`str` matching regex '.*'")
"""How msgspec names what `InstantText` asks for."""
_STRING = {"type": "string", "avro.java.string": "String"}
"""Text, in the form that Java turns into its own strings."""


class Payload(Generic[T]):
    """How one kind of payload is written and read.

    `constants` are members that are always written so and are no part of the
    struct. `required` are members that tell the kind even where they are null.
    """

    def __init__(
        self,
        schema: str,
        kind: type[T],
        *,
        what: str,
        constants: Mapping[str, Any] | None = None,
        required: Collection[str] = (),
    ) -> None:
        self._schema = schema
        self._kind = kind
        self._what = what
        self._constants = dict(constants or {})
        self._required = frozenset(required)

    def encode(self, value: T) -> bytes:
        """The content of a file; equal input gives equal bytes."""
        record = {**self._constants, **_without_tuples(msgspec.to_builtins(value))}
        return encode_container(hudi_schema(self._schema), record)

    def decode(self, content: bytes) -> T:
        """The content as a struct; a member that is null counts as absent."""
        record = decode_container(content)
        if not self._required <= record.keys():
            raise Malformed(f"the record is not {self._what}")
        try:
            return msgspec.convert(_without_nulls(record), self._kind)
        except ValueError as error:
            cause = _PATTERN.sub("an instant time", str(error))
            raise Malformed(f"the record is not {self._what}: {cause}") from error


@cache
def hudi_schema(name: str) -> dict[str, Any]:
    """Apache Hudi's schema of that name, complete: types of other files stand where they are used first."""
    return _complete(name, set())


def _complete(name: str, known: set[str]) -> dict[str, Any]:
    known.add(name)
    text = (files("holdfast.format") / "avro_schemas" / f"{name}.avsc").read_text("utf-8")
    schema: dict[str, Any] = _expand(json.loads(text), known)
    return schema


def _expand(schema: Any, known: set[str]) -> Any:
    """A part of a schema; `known` are the names that were defined before it."""
    match schema:
        case "string":
            return dict(_STRING)
        case str() if schema.startswith("Hoodie") and schema not in known:
            return _complete(schema, known)
        case list():
            return [_expand(part, known) for part in schema]
        case {"type": "map", "values": values}:
            return {"type": "map", "values": _expand(values, known), "avro.java.string": "String"}
        case {"type": "record", "name": name, "fields": fields}:
            known.add(name)
            return {
                **schema,
                "fields": [{**field, "type": _expand(field["type"], known)} for field in fields],
            }
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _expand(items, known)}
    return schema


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_nulls(part) for name, part in value.items() if part is not None}
        case list():
            return [_without_nulls(part) for part in value if part is not None]
    return value


def _without_tuples(value: Any) -> Any:
    """The value with lists in their place: for fastavro a tuple is a value with the name of its type."""
    match value:
        case dict():
            return {name: _without_tuples(part) for name, part in value.items()}
        case tuple() | list():
            return [_without_tuples(part) for part in value]
    return value
