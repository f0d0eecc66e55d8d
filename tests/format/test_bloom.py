import base64
import math
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidOption
from holdfast.format.bloom import (
    BITS_MAX,
    DYNAMIC,
    BloomFilter,
    BloomShape,
    bloom_shape,
    build_bloom,
    decode_bloom,
    encode_bloom,
    extend_bloom,
    fill_bloom,
)
from holdfast.format.malformed import Malformed

HUDI_DEFAULT = BloomShape(bits=2_587_966, hashes=30)

TABLES = (
    "cow_v6_nonpartitioned",
    "cow_v6_simplekeygen_nonhivestyle",
    "cow_v6_timebasedkeygen_nonhivestyle",
    "mor_avro_v6_trips_8i1u",
    "mor_parquet_v6_complexkeygen_hivestyle",
)


def signed(number, width):
    return number - (1 << width) if number >> (width - 1) else number


def reference_hash(key, seed):
    """Hadoop's murmur, one key and one byte at a time, as Java's signed arithmetic has it."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = seed ^ len(key)
    for start in range(0, len(key) - 3, 4):
        word = int.from_bytes(key[start : start + 4], "little")
        word = word * m & mask
        word ^= word >> 24
        word = word * m & mask
        h = (h * m & mask) ^ word
    left = len(key) % 4
    if left:
        for back in range(left, 0, -1):
            h ^= (signed(key[-back], 8) << (8 * (back - 1))) & mask
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ (h >> 15)


def reference_positions(key, shape):
    seed, positions = 0, set()
    for _ in range(shape.hashes):
        seed = reference_hash(key, seed)
        positions.add(abs(int(math.fmod(signed(seed, 32), shape.bits))))
    return positions


def set_positions(row):
    return set(np.flatnonzero(np.unpackbits(row, bitorder="little")).tolist())


def base_files(table):
    return sorted(path for path in table.rglob("*.parquet") if not path.name.startswith("."))


@pytest.mark.parametrize("name", TABLES)
def test_filters_have_exactly_the_bits_that_hudi_wrote(hudi_fixture, name):
    files = base_files(hudi_fixture(name))
    assert files

    for file in files:
        footer = pq.read_metadata(file).metadata
        stored = decode_bloom(
            footer[b"org.apache.hudi.bloomfilter"].decode(), footer[b"hoodie_bloom_filter_type_code"].decode()
        )
        keys = pq.read_table(file, columns=["_hoodie_record_key"])["_hoodie_record_key"]
        ours = fill_bloom(keys, shape=stored.shape)

        assert stored.shape == HUDI_DEFAULT
        assert stored.newest_row_keys == ours.newest_row_keys == len(keys)
        assert np.array_equal(ours.rows[0], stored.rows[0])
        assert stored.might_contain(keys.combine_chunks()).all()


@pytest.mark.parametrize("name", TABLES)
def test_encoding_a_decoded_footer_gives_the_same_text(hudi_fixture, name):
    for file in base_files(hudi_fixture(name)):
        text = pq.read_metadata(file).metadata[b"org.apache.hudi.bloomfilter"].decode()

        assert encode_bloom(decode_bloom(text, DYNAMIC)) == text


@settings(max_examples=200)
@given(
    keys=st.lists(st.text(max_size=23), min_size=1, max_size=40),
    bits=st.integers(1, 5000),
    hashes=st.integers(1, 12),
)
def test_keys_of_any_length_and_script_set_the_bits_of_the_reference(keys, bits, hashes):
    shape = BloomShape(bits, hashes)

    bloom = fill_bloom([pa.array(keys)], shape=shape)

    expected = set().union(*(reference_positions(key.encode(), shape) for key in keys))
    assert set_positions(bloom.rows[0]) == expected


@settings(max_examples=100)
@given(
    added=st.lists(st.text(max_size=12), max_size=30),
    asked=st.lists(st.text(max_size=12), min_size=1, max_size=60),
    bits=st.integers(1, 400),
)
def test_a_look_up_answers_as_the_reference_does(added, asked, bits):
    shape = BloomShape(bits, hashes=4)
    bloom = fill_bloom([pa.array(added, pa.string())], shape=shape)

    answers = bloom.might_contain(pa.array(asked))

    occupied = set_positions(bloom.rows[0])
    assert answers.tolist() == [reference_positions(key.encode(), shape) <= occupied for key in asked]


def test_slices_and_many_chunks_give_the_filter_of_the_whole():
    keys = pa.array(["not this"] + [f"{'ä' * (number % 9)}key-{number}" for number in range(70_000)])
    shape = BloomShape(bits=500_009, hashes=5)
    whole = fill_bloom([pa.array(keys[1:].to_pylist())], shape=shape)

    pieces = pa.chunked_array([keys.slice(1, 7), keys.slice(8, 0), keys.slice(8)])
    pieced = fill_bloom(pieces, shape=shape)

    assert np.array_equal(pieced.rows[0], whole.rows[0])
    assert pieced.newest_row_keys == 70_000
    assert pieced.might_contain(keys.slice(1)).all()


def test_large_strings_hash_like_strings():
    keys = pa.array(["a", "bcd", "straße-77"])
    shape = BloomShape(bits=999, hashes=3)

    large = fill_bloom([keys.cast(pa.large_string())], shape=shape)

    assert np.array_equal(large.rows[0], fill_bloom([keys], shape=shape).rows[0])


def test_long_keys_that_fill_several_pieces_are_all_added():
    keys = pa.array([f"{number}" * 1200 for number in range(1000, 2200)] + ["short"])
    shape = BloomShape(bits=99_991, hashes=2)

    bloom = fill_bloom([keys], shape=shape)

    assert keys.nbytes > 5_000_000
    expected = set().union(
        *(reference_positions(keys[row].as_py().encode(), shape) for row in (0, 900, 1199, 1200))
    )
    assert expected <= set_positions(bloom.rows[0])
    assert bloom.might_contain(keys).all()


def test_absent_keys_are_found_about_as_often_as_promised():
    present = pa.array([f"present-{number}" for number in range(20_000)])
    absent = pa.array([f"absent-{number}" for number in range(50_000)])
    bloom = decode_bloom(build_bloom([present], false_positive_rate=0.01), DYNAMIC)

    wrong = np.count_nonzero(bloom.might_contain(absent))

    assert bloom.might_contain(present).all()
    assert 250 < wrong < 750


def test_an_extended_filter_is_the_one_built_from_all_keys():
    old = pa.array([f"old-{number}" for number in range(2000)])
    new = pa.chunked_array([[f"new-{number}" for number in range(300)], [], ["straße"]])
    text = encode_bloom(fill_bloom([old], shape=BloomShape(bits=28_757, hashes=10)))

    extended = decode_bloom(extend_bloom(text, new, type_code=DYNAMIC), DYNAMIC)

    whole = fill_bloom([old, *new.chunks], shape=BloomShape(bits=28_757, hashes=10))
    assert np.array_equal(extended.rows[0], whole.rows[0])
    assert (extended.row_capacity, extended.newest_row_keys) == (2000, 2301)


def test_a_filter_without_new_keys_stays_as_it_is():
    text = build_bloom([pa.array(["a", "b"])], false_positive_rate=0.01)

    assert extend_bloom(text, [], type_code=DYNAMIC) == text


def test_a_filter_is_extended_up_to_a_quarter_beyond_its_capacity_and_no_further():
    """However many small writes it takes, the rate stays near the one promised."""
    text = build_bloom([pa.array([f"old-{number}" for number in range(4000)])], false_positive_rate=0.001)
    steps = 0

    while (longer := extend_bloom(text, [step_keys(steps)], type_code=DYNAMIC)) is not None:
        text, steps = longer, steps + 1

    bloom = decode_bloom(text, DYNAMIC)
    absent = pa.array([f"absent-{number}" for number in range(100_000)])
    assert steps == 10
    assert bloom.newest_row_keys == 5000
    assert all(bloom.might_contain(step_keys(step)).all() for step in range(steps))
    assert np.count_nonzero(bloom.might_contain(absent)) < 600


def step_keys(step):
    return pa.array([f"new-{step}-{number}" for number in range(100)])


def test_new_keys_go_into_the_newest_row_of_a_dynamic_filter():
    shape = BloomShape(bits=9999, hashes=5)
    first, second = (fill_bloom([pa.array([key])], shape=shape).rows[0] for key in "ab")
    text = encode_bloom(BloomFilter(shape, (first, second), row_capacity=2, newest_row_keys=1))

    extended = decode_bloom(extend_bloom(text, [pa.array(["c"])], type_code=DYNAMIC), DYNAMIC)

    assert np.array_equal(extended.rows[0], first)
    assert np.array_equal(extended.rows[1], fill_bloom([pa.array(["b", "c"])], shape=shape).rows[0])
    assert extended.newest_row_keys == 2
    assert extend_bloom(text, [pa.array(["c", "d"])], type_code=DYNAMIC) is None


def test_a_filter_that_does_not_say_how_full_it_is_cannot_be_extended():
    text = simple_text(hashes=3, bits=999, content=bytes(125))

    assert extend_bloom(text, [pa.array(["a"])], type_code=None) is None
    assert extend_bloom(text, [], type_code="SIMPLE") is None


def test_filters_that_hudi_wrote_can_be_extended(hudi_fixture):
    for file in base_files(hudi_fixture("cow_v6_nonpartitioned")):
        text = pq.read_metadata(file).metadata[b"org.apache.hudi.bloomfilter"].decode()
        keys = pq.read_table(file, columns=["_hoodie_record_key"])["_hoodie_record_key"].combine_chunks()

        extended = decode_bloom(extend_bloom(text, [pa.array(["new"])], type_code=DYNAMIC), DYNAMIC)

        assert extended.might_contain(pa.concat_arrays([keys, pa.array(["new"])])).all()
        assert extended.newest_row_keys == len(keys) + 1


def test_an_empty_file_has_a_filter_that_contains_nothing():
    bloom = decode_bloom(build_bloom(pa.chunked_array([], pa.string()), false_positive_rate=1e-9), DYNAMIC)

    assert not bloom.might_contain(pa.array(["", "a", "abcd"])).any()
    assert len(bloom.might_contain(pa.array([], pa.string()))) == 0


def test_the_shape_follows_hudis_rule_up_to_the_limit():
    assert bloom_shape(60_000, false_positive_rate=1e-9) == HUDI_DEFAULT
    assert bloom_shape(3, false_positive_rate=1e-9) == bloom_shape(1000, false_positive_rate=1e-9)


def test_a_huge_file_gets_fewer_hashes_and_not_a_larger_or_saturated_filter():
    shape = bloom_shape(1_000_000, false_positive_rate=1e-9)

    assert shape == BloomShape(BITS_MAX, hashes=4)
    assert bloom_shape(100_000_000, false_positive_rate=1e-9) == BloomShape(BITS_MAX, hashes=1)
    occupied = 1 - math.exp(-shape.hashes * 1_000_000 / shape.bits)
    assert 0.4 < occupied < 0.6


@pytest.mark.parametrize("rate", [0, 1, -0.5, 2, math.nan])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(InvalidOption, match="false-positive rate"):
        bloom_shape(10, false_positive_rate=rate)


def test_the_stored_form_starts_with_the_documented_header():
    text = build_bloom([pa.array(["a", "b"])], false_positive_rate=0.01)

    content = base64.b64decode(text)
    assert struct.unpack_from(">iiBi", content, 0) == (-1, 7, 1, 9586)
    assert struct.unpack_from(">iii", content, 13) == (1000, 2, 1)
    assert struct.unpack_from(">iiBi", content, 25) == (-1, 7, 1, 9586)
    assert len(content) == 38 + 1199


def simple_text(*, version=-1, hashes=2, hash_type=1, bits=16, content=b"\x00\x00"):
    return base64.b64encode(struct.pack(">iiBi", version, hashes, hash_type, bits) + content).decode()


def dynamic_text(*, rows=2, row_bits=16, cut=0):
    header = struct.pack(">iiBi", -1, 2, 1, 16)
    row = struct.pack(">iiBi", -1, 2, 1, row_bits) + b"\x00\x00"
    content = header + struct.pack(">iii", 10, 1, rows) + row * 2
    return base64.b64encode(content[: len(content) - cut]).decode()


@pytest.mark.parametrize("type_code", ["SIMPLE", None])
def test_a_simple_filter_is_one_row_after_its_header(type_code):
    shape = BloomShape(bits=999, hashes=3)
    row = fill_bloom([pa.array(["a", "bc"])], shape=shape).rows[0]

    bloom = decode_bloom(simple_text(hashes=3, bits=999, content=row.tobytes()), type_code)

    assert bloom.shape == shape
    assert bloom.might_contain(pa.array(["a", "x", "bc", "y"])).tolist() == [True, False, True, False]


def test_a_key_in_any_row_of_a_dynamic_filter_is_found():
    shape = BloomShape(bits=9999, hashes=5)
    header = struct.pack(">iiBi", -1, 5, 1, 9999)
    first = fill_bloom([pa.array(["a", "b"])], shape=shape).rows[0].tobytes()
    second = fill_bloom([pa.array(["c"])], shape=shape).rows[0].tobytes()
    content = header + struct.pack(">iii", 2, 1, 2) + header + first + header + second

    bloom = decode_bloom(base64.b64encode(content).decode(), DYNAMIC)

    assert bloom.might_contain(pa.array(["c", "z", "a", "b", "y"])).tolist() == [
        True,
        False,
        True,
        True,
        False,
    ]
    assert (bloom.row_capacity, bloom.newest_row_keys) == (2, 1)


@pytest.mark.parametrize(
    ("text", "type_code"),
    [
        ("", DYNAMIC),
        ("", None),
        ("no base64!", DYNAMIC),
        ("é", DYNAMIC),
        (simple_text(), "OTHER"),
        (simple_text(), DYNAMIC),
        (simple_text(version=1), None),
        (simple_text(hash_type=0), None),
        (simple_text(hashes=0), None),
        (simple_text(hashes=2**31 - 1), None),
        (simple_text(bits=0), None),
        (simple_text(bits=-8), None),
        (simple_text(bits=17), None),
        (simple_text(bits=2**31 - 1), None),
        (simple_text(content=b"\x00\x00\x00"), None),
        (dynamic_text(rows=1), DYNAMIC),
        (dynamic_text(rows=0), DYNAMIC),
        (dynamic_text(rows=-1), DYNAMIC),
        (dynamic_text(rows=2**31 - 1), DYNAMIC),
        (dynamic_text(row_bits=15), DYNAMIC),
        (dynamic_text(cut=1), DYNAMIC),
        (dynamic_text(cut=40), DYNAMIC),
    ],
)
def test_bytes_that_are_no_filter_are_malformed(text, type_code):
    with pytest.raises(Malformed, match="bloom filter"):
        decode_bloom(text, type_code)


@given(content=st.binary(max_size=80), type_code=st.sampled_from([DYNAMIC, None]))
def test_random_bytes_never_raise_anything_but_malformed(content, type_code):
    try:
        bloom = decode_bloom(base64.b64encode(content).decode(), type_code)
    except Malformed:
        return
    assert sum(row.nbytes for row in bloom.rows) < len(content)
