import io
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.format.malformed import Malformed
from holdfast.format.parquet_footer import (
    TAIL_BYTES,
    decode_footer,
    encode_footer,
    footer_size,
    move_chunk,
    same_leaf,
)
from holdfast.format.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Items,
    decode_struct,
    encode_struct,
    field,
)

NESTED = pa.table(
    {
        "key": ["a", "b", None, "d", "e"],
        "lists": [[1, None], [], None, [2], [3]],
        "a_struct": [{"x": 1.5, "deep": {"y": True}}] * 5,
        "a_map": pa.array([[("k", 1)], [], None, [("l", None)], []], pa.map_(pa.string(), pa.int32())),
    }
)


def parquet(rows, **options):
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def split(content):
    """The bytes of a file's footer and where they start."""
    size = footer_size(content[-TAIL_BYTES:])
    start = len(content) - TAIL_BYTES - size
    return content[start:-TAIL_BYTES], start


def footer_of(content):
    footer, start = split(content)
    return decode_footer(footer, data_end=start)


def leaf_of(kind, *, nullable=True):
    schema = pa.schema([pa.field("x", kind, nullable=nullable)])
    (leaf,) = footer_of(parquet(schema.empty_table())).leaves
    return leaf


def test_a_footer_says_what_arrow_says_of_the_file():
    content = parquet(NESTED.replace_schema_metadata({"owner": "ä"}), row_group_size=2)
    footer = footer_of(content)
    arrow = pq.ParquetFile(io.BytesIO(content))

    assert footer.rows == 5
    assert [group.rows for group in footer.row_groups] == [2, 2, 1]
    assert [leaf.dotted for leaf in footer.leaves] == [column.path for column in arrow.schema]
    assert [leaf.is_repeated for leaf in footer.leaves] == [
        column.max_repetition_level > 0 for column in arrow.schema
    ]
    assert footer.key_values["owner"] == "ä"
    assert footer.leaves[1].path == ("lists", "list", "element")
    for number, group in enumerate(footer.row_groups):
        for position, chunk in enumerate(group.chunks):
            column = arrow.metadata.row_group(number).column(position)
            assert chunk.size_bytes == column.total_compressed_size
            assert chunk.uncompressed_bytes == column.total_uncompressed_size
            assert chunk.start == (column.dictionary_page_offset or column.data_page_offset)


def test_the_chunks_of_a_file_that_hudi_wrote_fill_it_in_order(hudi_table):
    files = [path for path in hudi_table.rglob("*.parquet") if not path.name.startswith(".")]

    for path in files:
        chunks = [chunk for group in footer_of(path.read_bytes()).row_groups for chunk in group.chunks]
        assert chunks[0].start == 4
        assert all(left.end == right.start for left, right in pairwise(chunks))


def test_a_footer_for_the_same_chunks_says_the_same():
    content = parquet(NESTED, row_group_size=2)
    footer = footer_of(content)

    _, start = split(content)
    again = content[:start] + encode_footer(footer, footer.row_groups, footer.key_values)

    theirs, ours = pq.read_metadata(io.BytesIO(content)), pq.read_metadata(io.BytesIO(again))
    for group in range(3):
        assert ours.row_group(group).to_dict() == theirs.row_group(group).to_dict()
    assert ours.schema.equals(theirs.schema)
    assert ours.created_by == theirs.created_by
    assert ours.metadata == theirs.metadata
    assert footer_of(again).leaves == footer.leaves


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_moved_chunk_points_into_its_new_place_and_nowhere_else(use_dictionary):
    rows = pa.table({"x": ["a", "b", "a"]})
    content = parquet(rows, use_dictionary=use_dictionary, write_page_index=True)
    footer = footer_of(content)
    (group,) = footer.row_groups

    moved = move_chunk(group.chunks[0], 1000)
    written = encode_footer(footer, [replace(group, chunks=(moved,))], {})

    file = pq.read_metadata(io.BytesIO(b"PAR1" + bytes(2000) + written))
    before, after = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0), file.row_group(0).column(0)
    assert before.has_offset_index
    assert not after.has_offset_index
    assert not after.has_column_index
    assert after.has_dictionary_page == use_dictionary
    assert (after.dictionary_page_offset or after.data_page_offset) == 1000
    assert after.data_page_offset - 1000 == before.data_page_offset - 4
    assert after.statistics.to_dict() == before.statistics.to_dict()
    assert after.encodings == before.encodings


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.int8(),
        pa.uint32(),
        pa.int64(),
        pa.float32(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.time64("us"),
        pa.decimal128(9, 2),
        pa.binary(7),
        pa.list_(pa.int32()),
    ],
    ids=str,
)
def test_leaves_of_one_type_are_the_same(kind):
    assert same_leaf(leaf_of(kind), leaf_of(kind))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (leaf_of(pa.string()), leaf_of(pa.binary())),
        (leaf_of(pa.int32()), leaf_of(pa.int64())),
        (leaf_of(pa.int32()), leaf_of(pa.date32())),
        (leaf_of(pa.int8()), leaf_of(pa.int32())),
        (leaf_of(pa.int64()), leaf_of(pa.uint64())),
        (leaf_of(pa.timestamp("us")), leaf_of(pa.timestamp("us", "UTC"))),
        (leaf_of(pa.timestamp("us")), leaf_of(pa.int64())),
        (leaf_of(pa.timestamp("ms")), leaf_of(pa.timestamp("us"))),
        (leaf_of(pa.decimal128(9, 2)), leaf_of(pa.decimal128(9, 3))),
        (leaf_of(pa.decimal128(9, 2)), leaf_of(pa.decimal128(18, 2))),
        (leaf_of(pa.binary(7)), leaf_of(pa.binary(8))),
        (leaf_of(pa.string()), leaf_of(pa.string(), nullable=False)),
        (leaf_of(pa.list_(pa.int32())), leaf_of(pa.list_(pa.int32()), nullable=False)),
        (
            leaf_of(pa.list_(pa.field("element", pa.int32()))),
            leaf_of(pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ),
        (leaf_of(pa.int32()), replace(leaf_of(pa.int32()), path=("y",))),
    ],
)
def test_leaves_that_differ_in_anything_that_matters_are_not_the_same(one, other):
    assert not same_leaf(one, other)
    assert not same_leaf(other, one)


def test_the_older_annotation_counts_where_both_lack_the_newer():
    text = replace(leaf_of(pa.string()), logical_type=None)
    money = replace(leaf_of(pa.decimal128(9, 2)), logical_type=None)
    local, zoned = leaf_of(pa.timestamp("us")), leaf_of(pa.timestamp("us", "UTC"))

    assert same_leaf(text, text)
    assert not same_leaf(text, leaf_of(pa.string()))
    assert not same_leaf(text, leaf_of(pa.binary()))
    assert same_leaf(money, money)
    assert not same_leaf(money, replace(money, scale=3))
    assert not same_leaf(money, replace(money, precision=8))
    assert local.converted_type == zoned.converted_type
    assert not same_leaf(local, replace(zoned, logical_type=None))
    assert same_leaf(local, replace(local, converted_type=None))


def test_a_leaf_without_column_order_fits_only_its_like():
    new = leaf_of(pa.string())
    old = replace(new, column_order=None)

    assert same_leaf(old, old)
    assert not same_leaf(old, new)


def test_a_row_group_without_rows_has_no_chunks():
    (group,) = footer_of(parquet(NESTED.slice(0, 0))).row_groups

    assert group.rows == 0
    assert group.chunks == ()


def test_columns_of_one_name_are_refused():
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])

    with pytest.raises(Malformed, match="two columns of one name"):
        footer_of(parquet(rows))


def test_chunks_in_another_file_are_refused():
    metadata = pq.read_metadata(io.BytesIO(parquet(NESTED)))
    metadata.set_file_path("elsewhere.parquet")
    sink = io.BytesIO()
    metadata.write_metadata_file(sink)

    with pytest.raises(Malformed, match="lives in another file"):
        footer_of(sink.getvalue())


@pytest.mark.parametrize(
    ("where", "changes", "reason"),
    [
        ("chunk", {field(8, STRUCT): {}}, "encrypted"),
        ("chunk", {field(9, BINARY): b"hidden"}, "encrypted"),
        ("column", {field(1, I32): 1}, "another type"),
        ("column", {field(3, LIST): Items(BINARY, [b"other"])}, "does not belong to 'key'"),
        ("column", {field(5, I64): 4}, "another length"),
        ("column", {field(11, I64): 5000}, "outside of its file"),
        ("group", {field(1, LIST): Items(STRUCT, [])}, "0 column chunks for 6 columns"),
        ("group", {field(3, I64): -1}, "-1 for field 3"),
        ("file", {field(3, I64): 6}, "as many rows"),
        ("file", {field(2, LIST): Items(STRUCT, [{field(5, I32): 0}])}, "no columns"),
        ("file", {field(4, LIST): Items(I32, [1])}, "wrong kind"),
    ],
)
def test_footers_that_contradict_themselves_are_malformed(where, changes, reason):
    footer, start = split(parquet(NESTED))
    parts = {"file": decode_struct(footer)}
    parts["group"] = parts["file"][field(4, LIST)].values[0]
    parts["chunk"] = parts["group"][field(1, LIST)].values[0]
    parts["column"] = parts["chunk"][field(3, STRUCT)]

    parts[where] |= changes

    with pytest.raises(Malformed, match=reason):
        decode_footer(encode_struct(parts["file"]), data_end=start)


def test_row_groups_say_where_they_start_and_how_large_they_are():
    content = parquet(NESTED, row_group_size=2)
    footer = footer_of(content)

    written = decode_struct(encode_footer(footer, footer.row_groups, {})[:-TAIL_BYTES])

    theirs = decode_struct(split(content)[0])
    for ours, original in zip(written[field(4, LIST)].values, theirs[field(4, LIST)].values, strict=True):
        sizes_and_places = [field(2, I64), field(3, I64), field(5, I64), field(6, I64)]
        assert [ours[key] for key in sizes_and_places] == [original[key] for key in sizes_and_places]


def test_a_chunk_beyond_the_data_is_refused():
    footer, start = split(parquet(NESTED))

    with pytest.raises(Malformed, match="outside of its file"):
        decode_footer(footer, data_end=start - 1)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"", "8 bytes, not 0"),
        (b"\x00\x00\x00\x00PAR", "8 bytes, not 7"),
        (b"\x00\x00\x00\x00PARE", "encrypted"),
        (b"\x00\x00\x00\x00PAR2", "not Parquet"),
    ],
)
def test_a_file_that_does_not_end_as_parquet_does_is_malformed(tail, reason):
    with pytest.raises(Malformed, match=reason):
        footer_size(tail)


def test_damaged_footers_never_raise_anything_but_malformed(damaged):
    footer, start = split(parquet(NESTED, store_schema=False))
    refused = 0

    for content in damaged(footer):
        try:
            found = decode_footer(content, data_end=start)
        except Malformed:
            refused += 1
            continue
        chunks = [chunk for group in found.row_groups for chunk in group.chunks]
        assert all(4 <= chunk.start <= chunk.end <= start for chunk in chunks)

    assert refused > len(footer), "every truncation at least is refused"
