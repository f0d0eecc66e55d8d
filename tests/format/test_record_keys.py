import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest
from holdfast.format.record_keys import find_bad_key, key_range, record_keys


def simple(column):
    return record_keys([("k", column)], complex_form=False)


def test_a_string_column_is_its_own_key_without_a_copy():
    column = pa.array(["a", "", None])

    assert simple(column) is column


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, -7, None], pa.int32()), ["1", "-7", None]),
        (pa.array([2**63 - 1], pa.int64()), ["9223372036854775807"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (pa.array([dt.date(2023, 4, 1), dt.date(1, 1, 1)]), ["2023-04-01", "0001-01-01"]),
        (pa.array([1_680_350_460_123_456], pa.timestamp("us", tz="UTC")), ["1680350460123456"]),
        (pa.array([-1, 0], pa.timestamp("us")), ["-1", "0"]),
        (pa.array([5], pa.timestamp("ms")), ["5000"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y", "x"]),
        (pa.array(["x"], pa.large_string()), ["x"]),
        (pa.array(["x"], pa.string_view()), ["x"]),
    ],
)
def test_values_are_written_as_hudi_writes_them(column, expected):
    keys = simple(column)

    assert keys.type == pa.string()
    assert keys.to_pylist() == expected


@given(st.data())
def test_decimals_show_all_digits_of_their_scale_and_no_exponent(data):
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    limit = 10**precision - 1
    unscaled = data.draw(st.lists(st.integers(-limit, limit), min_size=1, max_size=5))
    values = [Decimal(f"{number}e-{scale}") for number in unscaled]
    column = pa.array([None, *values], pa.decimal128(precision, scale))

    keys = simple(column.slice(1))

    assert keys.to_pylist() == [f"{value:.{scale}f}" if value else f"{0:.{scale}f}" for value in values]


def test_a_tiny_decimal_stays_plain():
    column = pa.array(
        [Decimal("0.00000001"), Decimal("-0.00000012"), Decimal("12.5"), None], pa.decimal128(20, 8)
    )

    assert simple(column).to_pylist() == ["0.00000001", "-0.00000012", "12.50000000", None]


def test_the_complex_form_names_each_field_in_order():
    columns = [("id", pa.array([1, 2], pa.int32())), ("a.name", pa.array(["Alice", "Bob"]))]

    keys = record_keys(columns, complex_form=True)

    assert keys.to_pylist() == ["id:1,a.name:Alice", "id:2,a.name:Bob"]


def test_the_complex_form_spells_out_null_and_empty():
    columns = [("id", pa.array([1, None], pa.int32())), ("name", pa.array(["", None]))]

    keys = record_keys(columns, complex_form=True)

    assert keys.to_pylist() == ["id:1,name:__empty__", "id:__null__,name:__null__"]


def test_one_field_in_complex_form_keeps_its_name():
    assert record_keys([("id", pa.array([1]))], complex_form=True).to_pylist() == ["id:1"]


def test_keys_agree_with_those_in_a_table_that_hudi_wrote(hudi_fixture):
    table = hudi_fixture("mor_parquet_v6_complexkeygen_hivestyle")
    files = sorted(table.rglob("*_*.parquet"))
    assert files

    for file in files:
        rows = pq.read_table(file).combine_chunks()
        columns = [(name, rows[name].combine_chunks()) for name in ("id", "name")]
        stored = rows["_hoodie_record_key"].to_pylist()

        assert record_keys(columns, complex_form=True).to_pylist() == stored


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.float16()])
def test_floating_point_keys_are_refused_as_inexact(kind):
    with pytest.raises(InvalidRequest, match="not exact") as refused:
        record_keys([("price", pa.array([1, 2], pa.int8()).cast(kind))], complex_form=True)

    assert refused.value.facts["column"] == "price"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"x"]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
        pa.array([1], pa.timestamp("ns")),
        pa.array([None], pa.null()),
    ],
)
def test_types_without_a_key_text_are_refused(column):
    with pytest.raises(InvalidRequest, match="cannot be a key or a partition") as refused:
        simple(column)

    assert refused.value.facts == {"column": "k", "type": str(column.type)}


@pytest.mark.parametrize("day", [-719_163, 2_932_897])
def test_dates_whose_year_has_not_four_digits_are_refused(day):
    column = pa.array([0, None, day], pa.int32()).cast(pa.date32())

    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        simple(column)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ([pa.array(["a", "b"])], None),
        ([pa.array(["a", "", None])], 1),
        ([pa.array(["a", None, ""])], 1),
        ([pa.array([0, 1, None])], 2),
        ([pa.array([0, 1])], None),
        ([pa.array([], pa.string())], None),
        ([pa.array([None, None, 1]), pa.array(["x", "", ""])], 1),
        ([pa.array([None, 1, 1]), pa.array(["x", "", None])], None),
        ([pa.array(["zz", "", "zz", ""]).slice(2)], 1),
        ([pa.array(["a", None, ""], pa.large_string())], 1),
        ([pa.array(["a", "b", ""]).dictionary_encode()], 2),
    ],
)
def test_a_row_that_nothing_names_is_found(columns, row):
    named = [(f"c{index}", column) for index, column in enumerate(columns)]

    assert find_bad_key(named) == row


def utf16(text):
    return text.encode("utf-16-be")


# Characters around every border where the two orders could part.
BORDERS = "a\x7f\x80\u07ff\u0800\ud7ff\ue000\uefff\uf000\uffff\U00010000\U0003ffff\U00040000\U0010ffff"


@settings(max_examples=300)
@given(
    chunks=st.lists(st.lists(st.text(alphabet=BORDERS, max_size=4), max_size=6), max_size=4),
    skipped=st.integers(0, 3),
)
def test_the_range_is_that_of_utf16_code_units(chunks, skipped):
    arrays = [pa.array(chunk, pa.string()).slice(skipped) for chunk in chunks]
    left = [key for chunk in chunks for key in chunk[skipped:]]

    found = key_range(pa.chunked_array(arrays, pa.string()))

    assert found == ((min(left, key=utf16), max(left, key=utf16)) if left else None)


def test_an_emoji_sorts_before_a_private_character():
    keys = pa.chunked_array([["\ue000", "😀"], ["z"]])

    assert key_range(keys) == ("z", "\ue000")


def test_nulls_do_not_count_in_a_range():
    assert key_range(pa.chunked_array([[None, "b", "\uffff"], [None]], pa.string())) == ("b", "\uffff")
    assert key_range(pa.chunked_array([[None, None]], pa.string())) is None


def test_ranges_agree_with_the_footers_that_hudi_wrote(hudi_fixture):
    files = sorted(hudi_fixture("cow_v6_simplekeygen_nonhivestyle").rglob("*_*.parquet"))
    assert files

    for file in files:
        footer = pq.read_metadata(file).metadata
        keys = pq.read_table(file, columns=["_hoodie_record_key"])["_hoodie_record_key"]

        expected = (footer[b"hoodie_min_record_key"].decode(), footer[b"hoodie_max_record_key"].decode())
        assert key_range(keys) == expected
