"""Points as Pinot stores them: a byte for the kind, and two doubles, the largest byte first."""

from holdfast.config.push_schema import DataType
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.typed import Typed, as_double

Arguments = tuple[Typed, ...]

_GEOMETRY, _GEOGRAPHY = "'\\x00'::BLOB", "'\\x80'::BLOB"


def point(arguments: Arguments) -> Typed:
    """ST_POINT(x, y), on a plane; with 1 as a third argument, on the globe."""
    kind = _GEOMETRY
    if len(arguments) > 2:
        if not isinstance(arguments[2].literal, int):
            raise QueryFailed(QueryError.QUERY_VALIDATION, "whether it is a geography must be 0 or 1")
        kind = _GEOGRAPHY if arguments[2].literal else _GEOMETRY
    first, second = (f"CAST(CAST({as_double(one)} AS BIT) AS BLOB)" for one in arguments[:2])
    return Typed(f"({kind} || {first} || {second})", DataType.BYTES)


def to_geography(arguments: Arguments) -> Typed:
    return _as(_GEOGRAPHY, arguments[0])


def to_geometry(arguments: Arguments) -> Typed:
    return _as(_GEOMETRY, arguments[0])


def _as(kind: str, value: Typed) -> Typed:
    """A point as the other kind."""
    if value.kind is not DataType.BYTES:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a point")
    rest = f"from_hex(substr(hex({value.sql}), 3))"
    is_point = f"octet_length({value.sql}) = 17 AND substr(hex({value.sql}), 2, 1) = '0'"
    return Typed(
        f"CASE WHEN {is_point} THEN {kind} || {rest} "
        f"WHEN {value.sql} IS NOT NULL THEN error('only points are supported') END",
        DataType.BYTES,
    )
