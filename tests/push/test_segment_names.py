"""Which segment names are accepted, and how they become file names."""

import urllib.parse

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest
from holdfast.push.metastore.port import check_path
from holdfast.push.segments.deep_store import segment_of_file
from holdfast.push.segments.names import (
    check_segment_name,
    check_segment_names,
    stable_names,
    url_encode_name,
)


@pytest.mark.parametrize(
    "name", ["orders_OFFLINE_1732752000456_0", "a b", "ü", "a.b", "%2e%2e", "a~b", "a;b'c", "-"]
)
def test_free_text_is_a_segment_name(name):
    check_segment_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " a",
        "a ",
        ".",
        "..",
        ".hidden",
        "a,b",
        "a/b",
        "a\\b",
        "a:b",
        "a*b",
        "a?b",
        'a"b',
        "a<b",
        "a>b",
        "a|b",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "a\x85b",
        "a\ud800b",
        "a\ue000b",
        "a\ufffeb",
        "x" * 181,
        "ü" * 31,
        "\u2003a",
    ],
)
def test_j10_what_pinot_refuses_and_what_would_break_a_record_or_a_path_is_refused(name):
    with pytest.raises(InvalidRequest) as refusal:
        check_segment_names(["good", name])

    assert refusal.value.facts["code"] == "INVALID_SEGMENT_NAME"


def test_names_are_encoded_as_java_does():
    assert url_encode_name("a b~c*d%e+f-g_h.i") == "a+b%7Ec*d%25e%2Bf-g_h.i"


@given(name=st.text(min_size=1, max_size=40))
def test_an_accepted_name_is_one_harmless_file_name_and_comes_back(name):
    try:
        check_segment_name(name)
    except InvalidRequest:
        assume(False)
    encoded = url_encode_name(name)

    assert encoded.isascii()
    assert not {"/", "\\", "\0"} & set(encoded)
    assert not encoded.startswith(".")
    assert urllib.parse.unquote_plus(encoded) == name
    assert segment_of_file(f"orders/{encoded}__{'0' * 32}.parquet") == name
    assert len(f"{encoded}__{'0' * 32}.parquet__RETENTION_UNTIL__202601010000") <= 255
    check_path(f"/SEGMENTS/{name}")


def test_the_time_of_the_push_goes_and_the_number_stays():
    names = ["orders_OFFLINE_1732752000456_0", "orders_OFFLINE_1732752000456_1"]

    assert stable_names(names) == {names[0]: "orders_OFFLINE_0", names[1]: "orders_OFFLINE_1"}


def test_names_without_a_time_stay():
    assert stable_names(["orders_0", "orders_20240101"]) == {}


def test_two_segments_do_not_get_one_name():
    names = ["orders_1732752000456_0", "orders_1732752000457_0", "orders_0"]

    renamed = stable_names(names)

    assert renamed == {names[0]: "orders_0_1", names[1]: "orders_0_2"}
