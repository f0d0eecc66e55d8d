"""YAML files that people write."""

import time

import pytest

from holdfast.config.documents import Section, read_document
from holdfast.config.values import scalar, text, whole
from holdfast.errors import InvalidOption


@pytest.fixture
def read(tmp_path):
    def read(content, **options):
        file = tmp_path / "job.yaml"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_document(file, **options)

    return read


@pytest.fixture
def refused(read):
    """What a content is refused with: the error, its line and its key."""

    def refused(content, **options):
        with pytest.raises(InvalidOption) as caught:
            read(content, **options)
        facts = caught.value.facts
        assert str(facts["file"]).endswith("job.yaml")
        return caught.value, facts.get("line"), facts.get("key")

    return refused


def test_plain_values_are_what_yaml_1_2_says(read):
    document = read(
        "{a: 1, b: -2.5, c: true, d: no, e: 2026-01-02, f: 007, g: 12:30, h: '1', i: ~, j: [x, {k: null}], "
        "l: 1e3, m: .5, n: 0x1f, o: .inf}"
    )

    assert document.values == {
        "a": 1, "b": -2.5, "c": True, "d": "no", "e": "2026-01-02", "f": "007", "g": "12:30", "h": "1",
        "i": None, "j": ["x", {"k": None}], "l": 1000.0, "m": 0.5, "n": "0x1f", "o": ".inf",
    }  # fmt: skip


def test_json_is_read_too(read):
    assert read('{"a": {"b": [1, "x"]}}').values == {"a": {"b": [1, "x"]}}


def test_the_lines_of_keys_and_items_are_known(read):
    document = read("a: 1\nb:\n  - x\n  - c: 2\nd: |\n  SELECT 1\ne: SELECT 2\n")

    assert document.lines[("b", 1, "c")] == 4
    assert (document.text_lines[("d",)], document.text_lines[("e",)]) == (6, 7)


def test_an_alias_stands_for_what_it_names(read):
    assert read("a: &x {b: 1}\nc: *x\nd: [*x, *x]").values["d"] == [{"b": 1}, {"b": 1}]


def test_a_key_that_stands_twice_is_refused(refused):
    error, line, key = refused("a: 1\nb:\n  c: 1\n  'c': 2\n")

    assert (error.message, line, key) == ("a key stands twice", 4, "b.c")


@pytest.mark.parametrize(
    "content",
    ["a: 1\nb: &x\n  c:\n    d: *x\n", "a: 1\nb: &x [1,\n *x]\n", "a: &x {b: 1, c:\n {d: *x}}\n"],
)
def test_an_alias_that_leads_back_to_itself_is_refused(refused, content):
    error, line, key = refused(content)

    assert error.message == "an alias leads back to itself"
    assert line
    assert key


def test_aliases_that_multiply_are_refused_at_once(refused):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    began = time.monotonic()

    error, line, key = refused("\n".join(lines))

    assert error.message == "more values than a file may have"
    assert line
    assert key
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("end", ["", "${day}"])
def test_a_long_text_that_stands_in_many_places_is_refused_at_once(refused, end):
    began = time.monotonic()

    error, line, key = refused(
        f"a: &a {'x' * 500_000}{end}\nb: [{', '.join(['*a'] * 15_000)}]\n", names={"day": "monday"}
    )

    assert (error.message, line, key) == ("more text than a file may have", 1, "b")
    assert time.monotonic() - began < 5


def test_names_that_stand_for_much_are_refused_before_they_are_filled_in(refused):
    error, line, key = refused(f"a: 1\nb: {'${much}' * 100_000}\n", names={"much": "x" * 100_000})

    assert (error.message, line, key) == ("more text than a file may have", 2, "b")


def test_aliases_that_nest_deeper_and_deeper_are_refused(refused):
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]

    error, line, key = refused("\n".join(lines))

    assert error.message == "nested too deeply"
    assert line
    assert key


@pytest.mark.parametrize(
    ("content", "told", "line"),
    [
        ("a: 1\nb:\n\tc: 2\n", "indent with spaces", 3),
        ("a: 1\nb: c: d\n", "mapping values are not allowed here", 2),
        ("a: 1\nb: {\n", "expected", 3),
        ("a: 1\nb: [x-${n}]\n", "needs quotes", 2),
        ("a: 1\nb: *nobody\n", "undefined alias", 2),
        ("a: 1\n---\nb: 2\n", "another document", 2),
        ("a: 1\nb: !!python/object/apply:os.getcwd []\n", "tags are not used here", 2),
        ("a: 1\nb: !!str 5\n", "tags are not used here", 2),
        ("a: 1\nb: " + "[" * 100_000, "nested too deeply", 2),
        ("a: 1\nb: x\x00y\n", "not text", 2),
        ("a: 1\nb: \x1b[31m\n", "not text", 2),
        (b"a: 1\nb: \xff\xfe\n", "not text in UTF-8", 2),
        (b"PAR1\x15\x04\x15\x80", "not text", 1),
        ("- a\n- b\n", "not a mapping", 1),
        ("just words\n", "not a mapping", 1),
        ("a: 1\n? [b, c]\n: d\n", "a key is not a name", 2),
        ("a: 1\nb: " + "9" * 5000, "not a number that can be used", 2),
        ("a: 1\nb: 1e999", "not a number that can be used", 2),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_line(refused, content, told, line):
    error, found, _ = refused(content)

    assert told in str(error)
    assert found == line


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n", "---\n", "~\n"])
def test_an_empty_file_is_refused_unless_it_may_be_empty(read, refused, content):
    assert refused(content)[0].message == "the file is empty"
    assert read(content, may_be_empty=True).values == {}


def test_anchors_are_refused_where_they_have_no_place(refused):
    error, line, _ = refused("a: 1\nb: &x 2\n", may_have_anchors=False)

    assert "anchors" in str(error)
    assert line == 2


def test_a_file_that_is_missing_or_a_folder_is_refused_by_name(tmp_path):
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(InvalidOption, match="cannot be read") as caught:
            read_document(path)
        assert caught.value.facts["file"] == str(path)


def test_a_file_without_end_is_not_read_to_its_end():
    with pytest.raises(InvalidOption, match="too large"):
        read_document("/dev/zero")


def test_a_wrong_line_is_not_quoted(refused):
    error, line, _ = refused("a: 1\ntoken: canary-9f2: x\n")

    assert "canary" not in str(error)
    assert line == 2


def test_names_are_replaced_within_values_and_keep_their_types(read):
    names = {"day": "2026-01-02", "n": "4", "on": "true"}
    document = read("a: data/${day}/${n}\nb: ${n}\nc: '${n}'\nd: ${on}\ne: ['x-${n}']\n", names=names)

    assert document.values == {"a": "data/2026-01-02/4", "b": 4, "c": "4", "d": True, "e": ["x-4"]}


def test_what_stands_for_a_name_is_only_a_value(read):
    """Unlike a template, that is filled in before it is parsed."""
    document = read("a: ${x}\nb: 1\n", names={"x": "1\nb: 2\nc: [{"})

    assert document.values == {"a": "1\nb: 2\nc: [{", "b": 1}


def test_a_name_that_nobody_gives_is_refused(refused):
    error, line, key = refused("a: 1\nb: [x, 'data/${day}']\n", names={})

    assert (line, key, error.facts["name"]) == (2, "b[1]", "day")


def test_without_names_the_sign_means_nothing(read):
    assert read("a: ${x}").values == {"a": "${x}"}


def test_what_a_section_is_not_asked_for_is_refused_with_the_nearest_name(read):
    top = Section(read("table: t\nrow:\n  counts: 3\n"), "/")
    top.read("table", text)

    with pytest.raises(InvalidOption) as caught:
        top.section("row", lambda part: part.read("count", lambda value: whole(value, 1, 9)))

    assert caught.value.facts["key"] == "row.counts"
    assert caught.value.facts["line"] == 3
    assert caught.value.hint == "did you mean count?"


def test_a_missing_key_is_refused_with_its_name_and_a_misspelled_one_with_both(read):
    top = Section(read("a:\n  x: 1\n  tabel: t\n"), "/")

    with pytest.raises(InvalidOption, match="unknown key") as misspelled:
        top.section("a", lambda part: part.require("table", text))
    with pytest.raises(InvalidOption, match="a key is missing") as missing:
        top.section("a", lambda part: part.require("record", text))

    assert (misspelled.value.facts["line"], misspelled.value.hint) == (3, "did you mean table?")
    assert (missing.value.facts["line"], missing.value.facts["key"]) == (1, "a.record")


def test_every_item_of_a_list_is_named_when_it_is_wrong(read):
    top = Section(read("a:\n  - x\n  - [y]\n"), "/")

    with pytest.raises(InvalidOption) as caught:
        top.each("a", scalar)

    assert (caught.value.facts["line"], caught.value.facts["key"]) == (3, "a[1]")


@pytest.mark.parametrize("content", ["a: 5", "a: {b: 1}", "a: text"])
def test_what_is_not_a_list_is_refused(read, content):
    with pytest.raises(InvalidOption, match="not a list"):
        Section(read(content), "/").each("a", scalar)


@pytest.mark.parametrize("content", ["a: 5", "a: [1]", "a: text"])
def test_what_is_not_a_mapping_is_refused(read, content):
    with pytest.raises(InvalidOption, match="not a mapping") as caught:
        Section(read(content), "/").section("a", lambda part: None)

    assert (caught.value.facts["line"], caught.value.facts["key"]) == (1, "a")


def test_a_mapping_of_a_program_has_no_file_and_no_line():
    with pytest.raises(InvalidOption) as caught:
        Section({"a": {"b": []}}, "/").section("a", lambda part: part.read("b", text))

    assert caught.value.facts == {"key": "a.b", "cause": "not a text"}
