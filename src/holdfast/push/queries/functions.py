"""The functions that queries may call, each with its meaning in DuckDB.

What is not in this table is refused. Names match without regard to case and
underscores, as in Pinot.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.config.push_schema import DataType
from holdfast.push.queries import points, times
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.typed import Typed, as_double, as_long, as_text, as_timestamp, cast

Arguments = tuple[Typed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What stands around a call."""

    null_handling: bool
    distinct: bool = False
    tail: str = ""
    """FILTER and OVER, which must follow the aggregate itself."""


Rule = Callable[[Arguments, Context], Typed]


@dataclass(frozen=True, slots=True)
class Function:
    rule: Rule
    least: int
    most: int
    is_aggregate: bool = False
    """It takes DISTINCT, FILTER and OVER."""


_PERCENTILE_NAME = re.compile(r"percentile(est|tdigest|kll|smarttdigest|rawest|rawtdigest)?(\d{1,2})")


def canonical(name: str) -> str:
    return name.replace("_", "").lower()


def is_known(name: str) -> bool:
    return canonical(name) in _FUNCTIONS or _PERCENTILE_NAME.fullmatch(canonical(name)) is not None


def functions() -> Mapping[str, Function]:
    """Every function by its canonical name; beside them `percentile95` and its like."""
    return _FUNCTIONS


def is_aggregate(name: str) -> bool:
    function = _FUNCTIONS.get(canonical(name))
    return function is None or function.is_aggregate


def apply(name: str, arguments: Arguments, context: Context) -> Typed:
    """The call in DuckDB's SQL."""
    key = canonical(name)
    function = _FUNCTIONS.get(key)
    if function is None:
        match = _PERCENTILE_NAME.fullmatch(key)
        if match is None:
            raise QueryFailed(QueryError.SQL_PARSING, "this function is not supported", found=name[:80])
        percent = Typed(match[2], DataType.INT, literal=int(match[2]))
        rule = _percentile_estimate if match[1] == "est" else _percentile
        function, arguments = Function(rule, 2, 2, True), (*arguments, percent)
    if not function.least <= len(arguments) <= function.most:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION,
            "the function does not take so many arguments",
            function=name,
            arguments=len(arguments),
        )
    if not function.is_aggregate and (context.tail or context.distinct):
        raise QueryFailed(QueryError.QUERY_VALIDATION, "this function is no aggregate", function=name)
    return function.rule(arguments, context)


# Aggregates


def _call(name: str, inner: str, context: Context) -> str:
    return f"{name}({'DISTINCT ' if context.distinct else ''}{inner}){context.tail}"


def _or_when_empty(sql: str, value: str, context: Context) -> str:
    """What an aggregate of no rows is where nulls are not handled."""
    return sql if context.null_handling else f"COALESCE({sql}, {value})"


_LOWEST, _HIGHEST = "CAST('-Infinity' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"


def _count(arguments: Arguments, context: Context) -> Typed:
    inner = ", ".join(argument.sql for argument in arguments)
    if len(arguments) > 1:
        inner = f"({inner})"
    return Typed(_call("COUNT", inner, context), DataType.LONG)


def _sum(arguments: Arguments, context: Context) -> Typed:
    total = f"CAST({_call('SUM', _numeric(arguments[0]), context)} AS DOUBLE)"
    return Typed(_or_when_empty(total, "0e0", context), DataType.DOUBLE)


def _whole_sum(kind: DataType) -> Rule:
    def rule(arguments: Arguments, context: Context) -> Typed:
        total = f"CAST({_call('SUM', as_long(arguments[0]), context)} AS BIGINT)"
        return Typed(_or_when_empty(total, "0", context), kind)

    return rule


def _exact_sum(arguments: Arguments, context: Context) -> Typed:
    total = f"CAST({_call('SUM', f'CAST({_numeric(arguments[0])} AS DECIMAL(38, 10))', context)} AS VARCHAR)"
    trimmed = f"rtrim(rtrim({total}, '0'), '.')"
    return Typed(_or_when_empty(trimmed, "'0'", context), DataType.STRING)


def _extreme(name: str, when_empty: str) -> Rule:
    def rule(arguments: Arguments, context: Context) -> Typed:
        value = arguments[0]
        if value.is_text or value.kind is DataType.BYTES or value.is_array:
            return Typed(_call(name, value.sql, context), value.kind, value.is_array)
        return Typed(
            _or_when_empty(_call(name, as_double(value), context), when_empty, context), DataType.DOUBLE
        )

    return rule


def _double_aggregate(name: str, when_empty: str = _LOWEST) -> Rule:
    def rule(arguments: Arguments, context: Context) -> Typed:
        inner = ", ".join(as_double(argument) for argument in arguments)
        return Typed(_or_when_empty(_call(name, inner, context), when_empty, context), DataType.DOUBLE)

    return rule


def _range(arguments: Arguments, context: Context) -> Typed:
    value = as_double(arguments[0])
    spread = f"({_call('MAX', value, context)} - {_call('MIN', value, context)})"
    return Typed(_or_when_empty(spread, _LOWEST, context), DataType.DOUBLE)


def _distinct_count(kind: DataType) -> Rule:
    def rule(arguments: Arguments, context: Context) -> Typed:
        counted = f"COUNT(DISTINCT {arguments[0].sql}){context.tail}"
        return Typed(counted if kind is DataType.LONG else f"CAST({counted} AS INTEGER)", kind)

    return rule


def _distinct_double(name: str, when_empty: str) -> Rule:
    def rule(arguments: Arguments, context: Context) -> Typed:
        value = f"CAST({name}(DISTINCT {_numeric(arguments[0])}){context.tail} AS DOUBLE)"
        return Typed(_or_when_empty(value, when_empty, context), DataType.DOUBLE)

    return rule


def _percentile(arguments: Arguments, context: Context) -> Typed:
    """Pinot takes the value at index floor(n * p); DuckDB the one at ceil(n * p) - 1.

    The two differ only where n * p is whole, and an offset that is smaller
    than any other fraction puts DuckDB on Pinot's side of it.
    """
    value = _call("quantile_disc", f"{as_double(arguments[0])}, {_fraction(arguments[1])!r}", context)
    return Typed(_or_when_empty(value, _LOWEST, context), DataType.DOUBLE)


def _fraction(value: Typed) -> float:
    percent = value.literal
    if not isinstance(percent, int | float) or not 0 <= percent <= 100:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "the percentile is not a number from 0 to 100")
    return min(1.0, percent / 100 + 1e-12)


def _percentile_estimate(arguments: Arguments, context: Context) -> Typed:
    """PERCENTILEEST answers a whole number, the exact one here."""
    value = _call("quantile_disc", f"{as_long(arguments[0])}, {_fraction(arguments[1])!r}", context)
    return Typed(_or_when_empty(value, "CAST(-9223372036854775808 AS BIGINT)", context), DataType.LONG)


def _boolean_aggregate(name: str) -> Rule:
    return lambda arguments, context: Typed(
        _call(name, f"CAST({arguments[0].sql} AS BOOLEAN)", context), DataType.BOOLEAN
    )


def _with_time(name: str) -> Rule:
    """LASTWITHTIME(value, time, 'type')."""

    def rule(arguments: Arguments, context: Context) -> Typed:
        value, time, _kind_name = arguments
        return Typed(_call(name, f"{value.sql}, {time.sql}", context), value.kind)

    return rule


def _list_aggregate(arguments: Arguments, context: Context) -> Typed:
    separator = arguments[1].sql if len(arguments) > 1 else "','"
    return Typed(_call("string_agg", f"{as_text(arguments[0])}, {separator}", context), DataType.STRING)


def _array_aggregate(arguments: Arguments, context: Context) -> Typed:
    return Typed(_call("list", arguments[0].sql, context), arguments[0].kind, True)


def _window_number(name: str) -> Rule:
    return lambda arguments, context: Typed(
        f"{name}({', '.join(argument.sql for argument in arguments)}){context.tail}", DataType.LONG
    )


def _window_value(name: str) -> Rule:
    return lambda arguments, context: Typed(
        f"{name}({', '.join(argument.sql for argument in arguments)}){context.tail}", arguments[0].kind
    )


# Numbers


def _numeric(value: Typed) -> str:
    if value.kind is DataType.TIMESTAMP:
        return f"epoch_ms({value.sql})"
    return as_double(value) if value.is_text or value.kind is DataType.BOOLEAN else value.sql


def _double(name: str) -> Rule:
    return lambda arguments, _: Typed(
        f"{name}({', '.join(as_double(argument) for argument in arguments)})", DataType.DOUBLE
    )


def _operator(sign: str) -> Rule:
    return lambda arguments, _: arithmetic(sign, arguments[0], arguments[1])


def arithmetic(sign: str, left: Typed, right: Typed) -> Typed:
    sql = f"({_numeric(left)} {sign} {_numeric(right)})"
    if sign == "/" or DataType.DOUBLE in (left.kind, right.kind):
        return Typed(sql, DataType.DOUBLE)
    wide = left.is_number and right.is_number and DataType.FLOAT not in (left.kind, right.kind)
    if wide and DataType.BIG_DECIMAL not in (left.kind, right.kind):
        # Sums and products of INT may not fit an INT.
        return Typed(f"({as_long(left)} {sign} {as_long(right)})", DataType.LONG)
    return Typed(sql, None)


def _absolute(arguments: Arguments, _: Context) -> Typed:
    return Typed(f"abs({_numeric(arguments[0])})", arguments[0].kind)


def _round(arguments: Arguments, _: Context) -> Typed:
    """With two arguments Pinot cuts down to a multiple of the second."""
    if len(arguments) == 1:
        return Typed(f"round({as_double(arguments[0])})", DataType.DOUBLE)
    value, step = as_long(arguments[0]), as_long(arguments[1])
    return Typed(f"(({value} // {step}) * {step})", DataType.LONG)


def _with_places(name: str) -> Rule:
    def rule(arguments: Arguments, _: Context) -> Typed:
        if len(arguments) == 1:
            return Typed(f"{name}({as_double(arguments[0])})", DataType.DOUBLE)
        places = f"CAST({arguments[1].sql} AS INTEGER)"
        if name == "round":
            return Typed(f"round({as_double(arguments[0])}, {places})", DataType.DOUBLE)
        scale = f"power(10e0, {places})"
        return Typed(f"(trunc({as_double(arguments[0])} * {scale}) / {scale})", DataType.DOUBLE)

    return rule


def _round_decimal(arguments: Arguments, context: Context) -> Typed:
    """The number as it is written, rounded half up: 2.675 to 2.68, though the double lies below it."""
    places = arguments[1].literal if len(arguments) > 1 else 0
    if not isinstance(places, int):
        return _with_places("round")(arguments, context)
    double = as_double(arguments[0])
    written = f"TRY_CAST(CAST({double} AS VARCHAR) AS DECIMAL(38, 15))"
    rounded = f"CAST(round({written}, {places}) AS DOUBLE)"
    # What is too large for that has no such digits.
    return Typed(f"COALESCE({rounded}, round({double}, {places}))", DataType.DOUBLE)


def _same_kind(name: str) -> Rule:
    return lambda arguments, _: Typed(
        f"{name}({', '.join(argument.sql for argument in arguments)})", arguments[0].kind
    )


# Text


def _text(name: str, kind: DataType = DataType.STRING) -> Rule:
    return lambda arguments, _: Typed(
        f"{name}({', '.join(as_text(argument) for argument in arguments)})", kind
    )


def _length(arguments: Arguments, _: Context) -> Typed:
    return Typed(f"CAST(length({as_text(arguments[0])}) AS INTEGER)", DataType.INT)


def _concat(arguments: Arguments, _: Context) -> Typed:
    first, second = as_text(arguments[0]), as_text(arguments[1])
    between = f" || {as_text(arguments[2])}" if len(arguments) == 3 else ""
    return Typed(f"({first}{between} || {second})", DataType.STRING)


def _substr(arguments: Arguments, _: Context) -> Typed:
    """SUBSTR counts from zero and names the end; SUBSTRING counts from one and names the length."""
    whole, begin = as_text(arguments[0]), as_long(arguments[1])
    if len(arguments) == 2:
        return Typed(f"substring({whole}, {begin} + 1)", DataType.STRING)
    end = as_long(arguments[2])
    return Typed(
        f"CASE WHEN {end} = -1 THEN substring({whole}, {begin} + 1) "
        f"ELSE substring({whole}, {begin} + 1, greatest({end} - {begin}, 0)) END",
        DataType.STRING,
    )


def _substring(arguments: Arguments, _: Context) -> Typed:
    places = ", ".join(as_long(argument) for argument in arguments[1:])
    return Typed(f"substring({as_text(arguments[0])}, {places})", DataType.STRING)


def _text_and_number(name: str) -> Rule:
    return lambda arguments, _: Typed(
        f"{name}({as_text(arguments[0])}, {as_long(arguments[1])})", DataType.STRING
    )


def _pad(name: str) -> Rule:
    return lambda arguments, _: Typed(
        f"{name}({as_text(arguments[0])}, CAST({arguments[1].sql} AS INTEGER), {as_text(arguments[2])})",
        DataType.STRING,
    )


def _strpos(arguments: Arguments, _: Context) -> Typed:
    return Typed(
        f"CAST(strpos({as_text(arguments[0])}, {as_text(arguments[1])}) - 1 AS INTEGER)", DataType.INT
    )


def _split_part(arguments: Arguments, _: Context) -> Typed:
    whole, separator = as_text(arguments[0]), as_text(arguments[1])
    return Typed(f"split_part({whole}, {separator}, CAST({arguments[2].sql} AS BIGINT) + 1)", DataType.STRING)


def _regexp_like(arguments: Arguments, _: Context) -> Typed:
    flags = f", {arguments[2].sql}" if len(arguments) == 3 else ""
    return Typed(f"regexp_matches({as_text(arguments[0])}, {arguments[1].sql}{flags})", DataType.BOOLEAN)


def _regexp_extract(arguments: Arguments, _: Context) -> Typed:
    group = f", {arguments[2].sql}" if len(arguments) > 2 else ""
    return Typed(f"regexp_extract({as_text(arguments[0])}, {arguments[1].sql}{group})", DataType.STRING)


def _regexp_replace(arguments: Arguments, _: Context) -> Typed:
    pieces = ", ".join((as_text(arguments[0]), arguments[1].sql, arguments[2].sql))
    return Typed(f"regexp_replace({pieces}, 'g')", DataType.STRING)


# Choice, JSON and arrays


def _coalesce(arguments: Arguments, _: Context) -> Typed:
    kinds = {argument.kind for argument in arguments}
    return Typed(
        f"COALESCE({', '.join(argument.sql for argument in arguments)})",
        kinds.pop() if len(kinds) == 1 else None,
    )


def _if(arguments: Arguments, _: Context) -> Typed:
    condition, chosen, other = arguments
    kind = chosen.kind if chosen.kind is other.kind else None
    return Typed(f"CASE WHEN {condition.sql} THEN {chosen.sql} ELSE {other.sql} END", kind)


def _json_scalar(arguments: Arguments, _: Context) -> Typed:
    """JSON_EXTRACT_SCALAR(json, '$.path', 'TYPE', default)."""
    name = arguments[2].literal
    try:
        kind = DataType(str(name).upper())
    except ValueError:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "not a type", found=str(name)[:40]) from None
    found = Typed(f"json_extract_string({as_text(arguments[0])}, {arguments[1].sql})", DataType.STRING)
    value = cast(found, kind)
    if len(arguments) == 4:
        return Typed(f"COALESCE({value.sql}, {cast(arguments[3], kind).sql})", kind)
    return value


def _array_length(arguments: Arguments, _: Context) -> Typed:
    return Typed(f"CAST(len({arguments[0].sql}) AS INTEGER)", DataType.INT)


def _aggregate(rule: Rule, least: int = 1, most: int = 1) -> Function:
    return Function(rule, least, most, True)


def _plain(rule: Callable[[Arguments], Typed]) -> Rule:
    return lambda arguments, _: rule(arguments)


_ONE_DOUBLE = (
    "exp", "ln", "log2", "log10", "sqrt", "cbrt", "sin", "cos", "tan", "cot", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "degrees", "radians", "sign",
)  # fmt: skip
_WINDOW_NUMBERS = {"rownumber": "row_number", "rank": "rank", "denserank": "dense_rank", "ntile": "ntile"}
_WINDOW_VALUES = {"lag": "lag", "lead": "lead", "firstvalue": "first_value", "lastvalue": "last_value"}
_MANY = 100

_FUNCTIONS: Mapping[str, Function] = {
    "count": _aggregate(_count, 1, _MANY),
    "sum": _aggregate(_sum),
    "sum0": _aggregate(_sum),
    "sumlong": _aggregate(_whole_sum(DataType.LONG)),
    "sumint": _aggregate(_whole_sum(DataType.LONG)),
    "sumprecision": _aggregate(_exact_sum, 1, 3),
    "min": _aggregate(_extreme("MIN", _HIGHEST)),
    "max": _aggregate(_extreme("MAX", _LOWEST)),
    "avg": _aggregate(_double_aggregate("AVG")),
    "mode": _aggregate(_double_aggregate("mode"), 1, 2),
    "minmaxrange": _aggregate(_range),
    "distinctcount": _aggregate(_distinct_count(DataType.INT)),
    "distinctcountbitmap": _aggregate(_distinct_count(DataType.INT)),
    "segmentpartitioneddistinctcount": _aggregate(_distinct_count(DataType.LONG)),
    "distinctcounthll": _aggregate(_distinct_count(DataType.LONG), 1, 1),
    "distinctcounthllplus": _aggregate(_distinct_count(DataType.LONG), 1, 1),
    "distinctcountsmarthll": _aggregate(_distinct_count(DataType.INT), 1, 1),
    "distinctcountthetasketch": _aggregate(_distinct_count(DataType.LONG), 1, 1),
    "distinctsum": _aggregate(_distinct_double("SUM", "0e0")),
    "distinctavg": _aggregate(_distinct_double("AVG", _LOWEST)),
    "percentile": _aggregate(_percentile, 2, 2),
    "percentileest": _aggregate(_percentile_estimate, 2, 2),
    "percentiletdigest": _aggregate(_percentile, 2, 2),
    "percentilekll": _aggregate(_percentile, 2, 2),
    "percentilesmarttdigest": _aggregate(_percentile, 2, 2),
    "stddevpop": _aggregate(_double_aggregate("stddev_pop")),
    "stddevsamp": _aggregate(_double_aggregate("stddev_samp")),
    "varpop": _aggregate(_double_aggregate("var_pop")),
    "varsamp": _aggregate(_double_aggregate("var_samp")),
    "covarpop": _aggregate(_double_aggregate("covar_pop"), 2, 2),
    "covarsamp": _aggregate(_double_aggregate("covar_samp"), 2, 2),
    "corr": _aggregate(_double_aggregate("corr"), 2, 2),
    "booland": _aggregate(_boolean_aggregate("bool_and")),
    "boolor": _aggregate(_boolean_aggregate("bool_or")),
    "lastwithtime": _aggregate(_with_time("arg_max"), 3, 3),
    "firstwithtime": _aggregate(_with_time("arg_min"), 3, 3),
    "listagg": _aggregate(_list_aggregate, 1, 2),
    "arrayagg": _aggregate(_array_aggregate, 1, 2),
    **{name: _aggregate(_window_number(duck), 0, 1) for name, duck in _WINDOW_NUMBERS.items()},
    **{name: _aggregate(_window_value(duck), 1, 3) for name, duck in _WINDOW_VALUES.items()},
    "abs": Function(_absolute, 1, 1),
    "ceil": Function(_double("ceil"), 1, 1),
    "ceiling": Function(_double("ceil"), 1, 1),
    "floor": Function(_double("floor"), 1, 1),
    "log": Function(_double("ln"), 1, 1),
    **{name: Function(_double(name), 1, 1) for name in _ONE_DOUBLE},
    "atan2": Function(_double("atan2"), 2, 2),
    "power": Function(_double("power"), 2, 2),
    "pow": Function(_double("power"), 2, 2),
    "round": Function(_round, 1, 2),
    "rounddecimal": Function(_round_decimal, 1, 2),
    "truncate": Function(_with_places("trunc"), 1, 2),
    "mod": Function(_operator("%"), 2, 2),
    "add": Function(_operator("+"), 2, 2),
    "plus": Function(_operator("+"), 2, 2),
    "sub": Function(_operator("-"), 2, 2),
    "minus": Function(_operator("-"), 2, 2),
    "mult": Function(_operator("*"), 2, 2),
    "times": Function(_operator("*"), 2, 2),
    "div": Function(_operator("/"), 2, 2),
    "divide": Function(_operator("/"), 2, 2),
    "least": Function(_same_kind("least"), 1, _MANY),
    "greatest": Function(_same_kind("greatest"), 1, _MANY),
    "upper": Function(_text("upper"), 1, 1),
    "lower": Function(_text("lower"), 1, 1),
    "trim": Function(_text("trim"), 1, 1),
    "ltrim": Function(_text("ltrim"), 1, 1),
    "rtrim": Function(_text("rtrim"), 1, 1),
    "reverse": Function(_text("reverse"), 1, 1),
    "replace": Function(_text("replace"), 3, 3),
    "startswith": Function(_text("starts_with", DataType.BOOLEAN), 2, 2),
    "endswith": Function(_text("ends_with", DataType.BOOLEAN), 2, 2),
    "contains": Function(_text("contains", DataType.BOOLEAN), 2, 2),
    "length": Function(_length, 1, 1),
    "concat": Function(_concat, 2, 3),
    "substr": Function(_substr, 2, 3),
    "substring": Function(_substring, 2, 3),
    "leftsubstr": Function(_text_and_number("left"), 2, 2),
    "left": Function(_text_and_number("left"), 2, 2),
    "rightsubstr": Function(_text_and_number("right"), 2, 2),
    "right": Function(_text_and_number("right"), 2, 2),
    "repeat": Function(_text_and_number("repeat"), 2, 2),
    "lpad": Function(_pad("lpad"), 3, 3),
    "rpad": Function(_pad("rpad"), 3, 3),
    "strpos": Function(_strpos, 2, 2),
    "splitpart": Function(_split_part, 3, 3),
    "regexplike": Function(_regexp_like, 2, 3),
    "regexpextract": Function(_regexp_extract, 2, 3),
    "regexpreplace": Function(_regexp_replace, 3, 3),
    "md5": Function(_text("md5"), 1, 1),
    "sha256": Function(_text("sha256"), 1, 1),
    "coalesce": Function(_coalesce, 1, _MANY),
    "nullif": Function(_same_kind("nullif"), 2, 2),
    "if": Function(_if, 3, 3),
    "jsonextractscalar": Function(_json_scalar, 3, 4),
    "arraylength": Function(_array_length, 1, 1),
    "cardinality": Function(_array_length, 1, 1),
    "now": Function(_plain(times.now), 0, 0),
    "ago": Function(_plain(times.ago), 1, 1),
    "datetrunc": Function(_plain(times.date_trunc), 2, 5),
    "todatetime": Function(_plain(times.to_date_time), 2, 3),
    "fromdatetime": Function(_plain(times.from_date_time), 2, 4),
    "datetimeconvert": Function(_plain(times.date_time_convert), 4, 5),
    "timeconvert": Function(_plain(times.time_convert), 3, 3),
    "timestampadd": Function(_plain(times.add), 3, 3),
    "dateadd": Function(_plain(times.add), 3, 3),
    "timestampdiff": Function(_plain(times.difference), 3, 3),
    "datediff": Function(_plain(times.difference), 3, 3),
    "totimestamp": Function(lambda arguments, _: Typed(as_timestamp(arguments[0]), DataType.TIMESTAMP), 1, 1),
    "fromtimestamp": Function(lambda arguments, _: Typed(as_long(arguments[0]), DataType.LONG), 1, 1),
    "stpoint": Function(_plain(points.point), 2, 3),
    "tosphericalgeography": Function(_plain(points.to_geography), 1, 1),
    "togeometry": Function(_plain(points.to_geometry), 1, 1),
    **{name: Function(_plain(rule), 1, 1) for name, rule in times.EPOCH_RULES.items()},
    **{name: Function(_plain(rule), 2, 2) for name, rule in times.BUCKET_RULES.items()},
    **{name: Function(_plain(rule), 1, 2) for name, rule in times.PART_RULES.items()},
}
