"""What fits on a screen, and what gives way when it does not."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.layout import Column, fit_columns, width_of, wrap

WORDS = st.lists(st.text("abc0123_.-", min_size=1, max_size=30), min_size=1, max_size=12)


@given(WORDS, st.integers(min_value=30, max_value=90))
def test_no_word_is_broken_and_no_line_is_too_long(words, width):
    lines = wrap(" ".join(words), width)

    assert " ".join(lines).split() == words
    assert all(width_of(line) <= width for line in lines)


@given(WORDS, st.integers(min_value=20, max_value=60))
def test_a_path_that_is_too_long_is_broken_after_slashes(names, width):
    path = "/".join(names)

    lines = wrap(path, width, indent="  ")

    assert "".join(line.strip() for line in lines) == path
    assert all(line.endswith("/") for line in lines[:-1])


def test_what_fits_stays_as_it_is_with_its_blanks():
    assert wrap("  a  b ", 10) == ["  a  b "]


def column(place, name, *cells, is_text=False):
    return Column(place, name, cells, is_text=is_text)


def test_a_header_is_broken_before_anything_else_gives_way():
    wide, narrow = column(0, "Total Files Deleted", "1"), column(1, "Instant", "20260101000000000")

    kept, widths = fit_columns([wide, narrow], ["Total Files Deleted"], 30)

    assert kept == [wide, narrow]
    assert widths == [len("Deleted"), 17]


def test_texts_are_broken_before_columns_go():
    text = column(0, "Detail", "one two three four five six seven eight nine ten", is_text=True)
    instant = column(1, "Instant", "20260101000000000")

    kept, widths = fit_columns([text, instant], ["Detail"], 50)

    assert kept == [text, instant]
    assert widths == [31, 17]


def test_the_least_needed_column_goes_first():
    columns = [column(at, name, "x" * 20) for at, name in enumerate("abc")]

    kept, _ = fit_columns(columns, ["b", "a"], 45)

    assert [one.name for one in kept] == ["a", "c"]


def test_if_no_choice_fits_there_is_none():
    assert fit_columns([column(0, "File", "x" * 90)], [], 80) is None


def test_a_wide_character_takes_two_places():
    assert width_of("東京") == 4
    assert wrap("東京 東京", 8) == ["東京", "東京"]
