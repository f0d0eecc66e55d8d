import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest
from holdfast.format.partition_paths import (
    check_partition_path,
    escape_value,
    partition_path,
    partition_segment,
    unescape_value,
)


def test_hives_special_characters_become_upper_case_hexadecimal():
    assert escape_value("a/b=c:d") == "a%2Fb%3Dc%3Ad"
    assert escape_value("\"#%'*?\\\x7f{[]^") == "%22%23%25%27%2A%3F%5C%7F%7B%5B%5D%5E"
    assert escape_value("\x00\x01\n\x1f") == "%00%01%0A%1F"


def test_space_closing_brace_and_letters_beyond_ascii_stay():
    text = "São Paulo} 東京 😀 +&~!$(),;@_-.<>|`"

    assert escape_value(text) == text


@given(st.text())
def test_unescaping_gives_back_every_value(text):
    assert unescape_value(escape_value(text)) == text


def test_a_percent_sign_without_two_digits_stands_for_itself():
    assert unescape_value("100%") == "100%"
    assert unescape_value("5%+1%zz%2f") == "5%+1%zz/"


@pytest.mark.parametrize("value", [None, ""])
def test_null_and_empty_values_share_the_default_partition(value):
    assert partition_segment("city", value, hive_style=False, url_encode=True) == "__HIVE_DEFAULT_PARTITION__"
    assert (
        partition_segment("city", value, hive_style=True, url_encode=False)
        == "city=__HIVE_DEFAULT_PARTITION__"
    )


def test_only_the_value_is_escaped_and_only_on_request():
    assert partition_segment("day", "2023/04/01", hive_style=True, url_encode=True) == "day=2023%2F04%2F01"
    assert partition_segment("day", "2023/04/01", hive_style=False, url_encode=False) == "2023/04/01"


def test_several_fields_make_nested_folders():
    fields, values = ["byteField", "shortField"], ["10", "300"]

    assert partition_path(fields, values, hive_style=True, url_encode=False) == "byteField=10/shortField=300"
    assert partition_path(fields, values, hive_style=False, url_encode=False) == "10/300"


def test_a_table_without_partition_fields_has_one_partition_at_its_root():
    assert partition_path([], [], hive_style=True, url_encode=True) == ""


def test_fields_and_values_must_pair_up():
    with pytest.raises(ValueError, match="zip"):
        partition_path(["a", "b"], ["1"], hive_style=False, url_encode=False)


def test_a_path_agrees_with_the_folder_that_hudi_wrote(hudi_fixture):
    table = hudi_fixture("mor_parquet_v6_complexkeygen_hivestyle")

    path = partition_path(["byteField", "shortField"], ["20", "100"], hive_style=True, url_encode=False)

    assert (table / path / ".hoodie_partition_metadata").exists()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "2023/04/01/12",
        "city=São Paulo",
        "x=__HIVE_DEFAULT_PARTITION__",
        "a..b/c.",
        "a=.hoodie",
        "é" * 127,
    ],
)
def test_ordinary_paths_pass(path):
    check_partition_path(path)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("..", "step to another folder"),
        ("a/../b", "step to another folder"),
        ("a/./b", "step to another folder"),
        ("/a", "slash"),
        ("a/", "slash"),
        ("/", "slash"),
        ("a//b", "empty segment"),
        ("a\x00b", "control characters"),
        ("a\nb", "control characters"),
        ("a\x7fb", "control characters"),
        (".hoodie", "the table's own folder"),
        (".hoodie/x", "the table's own folder"),
        ("a/.hidden", "hides it"),
        ("a/.hoodie", "hides it"),
        ("a\ud800", "Unicode"),
        ("é" * 128, "255 bytes"),
        ("a/" + "b" * 256, "255 bytes"),
    ],
)
def test_dangerous_paths_are_refused_and_named(path, reason):
    with pytest.raises(InvalidRequest, match=reason) as refused:
        check_partition_path(path)

    assert refused.value.facts == {"path": repr(path)}


@given(st.lists(st.text(min_size=1, max_size=10), min_size=1, max_size=4))
def test_escaped_values_in_hive_style_never_leave_their_folders(values):
    fields = [f"f{index}" for index in range(len(values))]

    path = partition_path(fields, values, hive_style=True, url_encode=True)

    assert path.count("/") == len(values) - 1
    assert [segment.partition("=")[0] for segment in path.split("/")] == fields
    check_partition_path(path)
