import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.malformed import Malformed
from holdfast.format.properties import (
    SEALS,
    decode_table_properties,
    encode_table_properties,
    java_date,
    parse_properties,
    render_properties,
    table_checksum,
)

MOMENT = dt.datetime(2025, 6, 18, 5, 47, 10, 625224, tzinfo=dt.UTC)

VALUES = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "6",
    "hoodie.database.name": "default",
    "hoodie.table.create.schema": '{"type":"record","name":"trips_record","fields":[]}',
}

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=b\n", {"a": "b"}),
        (b"a:b\n", {"a": "b"}),
        (b"a b\n", {"a": "b"}),
        (b"a \t=\f b c \n", {"a": "b c "}),
        (b"  a == b\n", {"a": "= b"}),
        (b"a\n", {"a": ""}),
        (b"a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        (b"# note\n ! note\n\n \t\na=b\n", {"a": "b"}),
        (b"a=b#c!d\n", {"a": "b#c!d"}),
        (b"a=b\\\n   c\\\r\n  d\ne=f\n", {"a": "bcd", "e": "f"}),
        (b"a=b\\\\\nc=d\n", {"a": "b\\", "c": "d"}),
        (b"a=b\\\n#c\n", {"a": "b#c"}),
        (b"# note\\\na=b\n", {"a": "b"}),
        (b"a\\ b\\=c\\:d=e\n", {"a b=c:d": "e"}),
        (b"a=\\t\\n\\r\\f\\z\\ \\\\\n", {"a": "\t\n\r\fz \\"}),
        (b"a=\\u0041\\u00e9\xe9\\ud83d\\uDE00\n", {"a": "Aéé😀"}),
        (b"a=b\na=c\n", {"a": "c"}),
        (b"a=b\\", {"a": "b"}),
        (b"", {}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text, expected):
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    "text", [b"a=\\u12\n", b"a=\\u12x4\n", b"\\u=b", b"a=\\ud83d\n", b"a=\\ude00\\ud83d\n"]
)
def test_an_escape_that_names_no_character_is_refused(text):
    with pytest.raises(Malformed):
        parse_properties(text)


def test_values_are_escaped_as_java_escapes_them():
    values = {"a key:": "  b c=d:e#f!g\\h", "tab\t": "\n\r\f", "é": "\x7f\x01~€😀"}

    text = render_properties(values, comments=["first", "second"])

    assert text == (
        b"#first\n#second\n"
        b"a\\ key\\:=\\  b c\\=d\\:e\\#f\\!g\\\\h\n"
        b"tab\\t=\\n\\r\\f\n"
        b"\\u00E9=\\u007F\\u0001~\\u20AC\\uD83D\\uDE00\n"
    )


def test_a_comment_cannot_become_a_property():
    text = render_properties({"a": "b"}, comments=["one\nhoodie.table.name=x\r€"])

    assert parse_properties(text) == {"a": "b"}


@given(values=st.dictionaries(TEXT.filter(bool), TEXT, max_size=5))
def test_whatever_is_rendered_is_read_back(values):
    text = render_properties(values, comments=["note"])

    assert parse_properties(text) == values


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    try:
        values = parse_properties(content)
    except Malformed:
        return

    assert parse_properties(render_properties(values, comments=[])) == values


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=" + b"\\" * 400_000 + b"\n", {"a": "\\" * 200_000}),
        (b"\\\n" * 400_000 + b"a=b\n", {"a": "b"}),
        (b"a=" + b"b\\\n" * 400_000 + b"c\n", {"a": "b" * 400_000 + "c"}),
    ],
)
def test_long_runs_are_read_in_the_time_of_their_length(text, expected):
    assert parse_properties(text) == expected


def test_the_checksum_covers_database_and_table():
    assert (
        table_checksum({"hoodie.table.name": "v6_trips_8i3d", "hoodie.database.name": "default"})
        == 3180720914
    )


def test_a_table_without_database_has_an_empty_one_in_its_checksum():
    assert table_checksum({"hoodie.table.name": "v8_trips_8i3u1d_metadata"}) == 380169000


def test_table_properties_have_the_comments_hudi_writes_and_end_with_the_version():
    text = encode_table_properties(VALUES, moment=MOMENT)

    lines = text.decode().splitlines()
    assert lines[0] == "#Properties saved on 2025-06-18T05:47:10.625224Z"
    assert lines[1] == "#Wed Jun 18 05:47:10 UTC 2025"
    assert lines[-2] == f"hoodie.table.checksum={table_checksum(VALUES)}"
    assert lines[-1] == "hoodie.table.version=6"


@pytest.mark.parametrize(
    ("microsecond", "text"),
    [(0, "05:47:10Z"), (120_000, "05:47:10.120Z"), (120_050, "05:47:10.120050Z")],
)
def test_the_saved_moment_has_as_many_digits_as_java_gives_it(microsecond, text):
    content = encode_table_properties(VALUES, moment=MOMENT.replace(microsecond=microsecond))

    assert content.decode().splitlines()[0] == f"#Properties saved on 2025-06-18T{text}"


def test_a_moment_elsewhere_is_told_in_utc():
    there = dt.datetime(2024, 7, 7, 0, 13, 1, tzinfo=dt.timezone(dt.timedelta(hours=-5)))

    assert java_date(there) == "Sun Jul 07 05:13:01 UTC 2024"


def test_table_properties_are_read_back_with_their_checksum():
    content = encode_table_properties(VALUES, moment=MOMENT)

    values = decode_table_properties(content)

    seals = values.pop("holdfast.table.seals")
    assert values == VALUES | {"hoodie.table.checksum": str(table_checksum(VALUES))}
    assert {seal.partition("@")[0] for seal in seals.split(",")} <= values.keys()


def test_a_stale_checksum_is_replaced():
    renamed = VALUES | {"hoodie.table.name": "rides", "hoodie.table.checksum": str(table_checksum(VALUES))}

    values = decode_table_properties(encode_table_properties(renamed, moment=MOMENT))

    assert values["hoodie.table.checksum"] == str(table_checksum(renamed))


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\t"])
def test_empty_table_properties_are_refused(content):
    with pytest.raises(Malformed, match="empty"):
        decode_table_properties(content)


@pytest.mark.parametrize("key", ["hoodie.table.name", "hoodie.table.type", "hoodie.table.version"])
@pytest.mark.parametrize("value", [None, ""])
def test_table_properties_without_a_mandatory_key_are_refused(key, value):
    values = {name: text for name, text in VALUES.items() if name != key}
    if value is not None:
        values[key] = value

    with pytest.raises(Malformed, match=key):
        decode_table_properties(render_properties(values, comments=[]))


@pytest.mark.parametrize("stored", ["1", "", "x", "-5", "9" * 5000, "٣"])
def test_a_wrong_checksum_is_refused(stored):
    values = VALUES | {"hoodie.table.checksum": stored}

    with pytest.raises(Malformed, match="checksum"):
        decode_table_properties(render_properties(values, comments=[]))


def test_table_properties_without_checksum_are_accepted():
    content = render_properties(VALUES, comments=[])

    assert decode_table_properties(content) == VALUES


def test_table_properties_cut_off_anywhere_are_refused():
    content = encode_table_properties(VALUES, moment=MOMENT)
    assert content.endswith(b"\n")

    for size in range(len(content) - 1):
        with pytest.raises(Malformed):
            decode_table_properties(content[:size])


def test_damaged_table_properties_are_read_or_refused(damaged):
    refused = 0

    for content in damaged(encode_table_properties(VALUES, moment=MOMENT)):
        try:
            decode_table_properties(content)
        except Malformed:
            refused += 1

    assert refused > 500


def test_properties_of_hudi_survive_a_round_trip(hudi_table):
    original = (hudi_table / ".hoodie" / "hoodie.properties").read_bytes()

    values = decode_table_properties(original)
    written = encode_table_properties(values, moment=MOMENT)

    assert values["hoodie.table.version"] == "6"
    read = decode_table_properties(written)
    assert read.pop(SEALS)
    assert read == values
    assert _entries(written) == _entries(original)


def _entries(content):
    """What Hudi writes: no comments, and not our checksums."""
    ours = (b"#", SEALS.encode())
    return sorted(line for line in content.splitlines() if not line.startswith(ours))
