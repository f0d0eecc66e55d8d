"""Record keys: the text that names a row, made from its key columns.

The text is what Hudi's key generators write, so both find each other's rows.
Columns come in whole Arrow arrays of the types a table stores.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import InvalidRequest

_NULL = "__null__"
_EMPTY = "__empty__"

_FIRST_DAY = -719_162  # 0001-01-01
_LAST_DAY = 2_932_896  # 9999-12-31

# In UTF-16, characters beyond U+FFFF (UTF-8 lead bytes F0 to F4) are written as
# surrogates and so come before U+E000 to U+FFFF (EE and EF); in UTF-8 after.
# No other byte of UTF-8 is EE or above, so swapping these changes nothing else.
_FIRST_SWAPPED = 0xEE
_UTF8_LEADS = bytes(range(0xEE, 0xF5))
_UTF16_RANKS = bytes([0xF3, 0xF4, 0xEE, 0xEF, 0xF0, 0xF1, 0xF2])
_TO_UTF16_ORDER = bytes.maketrans(_UTF8_LEADS, _UTF16_RANKS)
_FROM_UTF16_ORDER = bytes.maketrans(_UTF16_RANKS, _UTF8_LEADS)


def record_keys(columns: Sequence[tuple[str, pa.Array]], *, complex_form: bool) -> pa.StringArray:
    """The keys of the rows in these named key columns.

    The simple form is the value of the only column, and null where that is;
    the complex form is `a:1,b:x`. A string column in simple form is returned
    as it is. Ask `find_bad_key` before storing them.
    """
    if not complex_form:
        assert len(columns) == 1, "the simple form has one key column"
        name, column = columns[0]
        return text_column(name, column)
    parts: list[pa.Array | pa.Scalar] = []
    for name, column in columns:
        parts.append(pa.scalar(f",{name}:" if parts else f"{name}:"))
        parts.append(_mark_empty(text_column(name, column)))
    return pc.binary_join_element_wise(*parts, pa.scalar(""))


def find_bad_key(columns: Sequence[tuple[str, pa.Array]]) -> int | None:
    """The first row whose key columns are all null or empty, so that nothing names it."""
    nameless: pa.Array | None = None
    for _, column in columns:
        values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        absent = pc.is_null(values)
        if _is_text(values.type):
            absent = pc.or_kleene(absent, pc.equal(pc.binary_length(values), 0))
        nameless = absent if nameless is None else pc.and_(nameless, absent)
    assert nameless is not None, "a table with keys has key columns"
    row: int = pc.index(nameless, True).as_py()
    return None if row < 0 else row


def key_range(keys: pa.ChunkedArray) -> tuple[str, str] | None:
    """Least and greatest key in Java's order, that of UTF-16 code units; None without keys."""
    ranges = [_utf16_range(chunk.drop_null()) for chunk in keys.chunks if len(chunk) > chunk.null_count]
    if not ranges:
        return None
    least = min(low for low, _ in ranges)
    greatest = max(high for _, high in ranges)
    return least.translate(_FROM_UTF16_ORDER).decode(), greatest.translate(_FROM_UTF16_ORDER).decode()


def keys_within(keys: pa.StringArray, least: str, greatest: str) -> pa.StringArray:
    """Those keys that lie between two others, in Java's order."""
    ranked = _utf16_order(keys)
    low, high = (end.encode().translate(_TO_UTF16_ORDER) for end in (least, greatest))
    inside = pc.and_(pc.greater_equal(ranked, pa.scalar(low)), pc.less_equal(ranked, pa.scalar(high)))
    return keys.filter(inside)


def _utf16_range(chunk: pa.StringArray) -> tuple[bytes, bytes]:
    """Least and greatest key of a chunk, as bytes that compare in UTF-16 order."""
    ends = pc.min_max(_utf16_order(chunk))
    return ends["min"].as_py(), ends["max"].as_py()


def _utf16_order(keys: pa.StringArray) -> pa.BinaryArray:
    """Keys that are not null, as bytes that compare in UTF-16 order."""
    _, offset_buffer, content = keys.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    text = memoryview(content or b"")[offsets[0] : offsets[-1]]
    if np.frombuffer(text, dtype=np.uint8).max(initial=0) < _FIRST_SWAPPED:
        return keys.cast(pa.binary())
    buffers = [
        None,
        pa.py_buffer(offsets - offsets[0]),
        pa.py_buffer(bytes(text).translate(_TO_UTF16_ORDER)),
    ]
    return pa.BinaryArray.from_buffers(pa.binary(), len(keys), buffers)


def _mark_empty(texts: pa.StringArray) -> pa.StringArray:
    """The texts with null and empty ones spelled out, as the complex form has them."""
    return pc.if_else(pc.equal(pc.binary_length(texts), 0), _EMPTY, texts).fill_null(_NULL)


def text_column(name: str, column: pa.Array) -> pa.StringArray:
    """The values as Hudi spells them in keys and partition paths; strings as they are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return text_column(name, column.dictionary_decode())
    if pa.types.is_string(kind):
        return column
    if _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_date32(kind):
        _check_years(name, column)
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return _decimal_texts(column.cast(pa.decimal128(kind.precision, kind.scale)))
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind):
        raise InvalidRequest(
            "floating-point numbers are not exact as keys or partitions",
            hint="choose another column, or cast this one to a decimal or a string",
            column=name,
            type=str(kind),
        )
    raise InvalidRequest(
        "a column of this type cannot be a key or a partition",
        hint="use string, integer, boolean, date, decimal or timestamp in microseconds",
        column=name,
        type=str(kind),
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _check_years(name: str, dates: pa.Array) -> None:
    # Java writes a sign before years that do not have four digits; Arrow does not.
    ends = pc.min_max(dates.cast(pa.int32()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is not None and (first < _FIRST_DAY or last > _LAST_DAY):
        raise InvalidRequest("a date in a key or a partition must lie in the years 1 to 9999", column=name)


def _decimal_texts(decimals: pa.Array) -> pa.StringArray:
    """Every digit of the scale and no exponent: Arrow would write 0.00000001 as 1E-8."""
    scale = decimals.type.scale
    whole = pa.Array.from_buffers(
        pa.decimal128(decimals.type.precision, 0), len(decimals), decimals.buffers(), offset=decimals.offset
    )
    texts = whole.cast(pa.string())
    if scale == 0:
        return texts
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(texts, "-"), width=scale + 1, padding="0")
    return pc.binary_join_element_wise(
        sign, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale), ""
    )
