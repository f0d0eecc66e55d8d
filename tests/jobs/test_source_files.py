"""The files of a source."""

import pytest

from holdfast.errors import InvalidRequest
from holdfast.jobs.source_files import SourceFile, list_files, matching_files


@pytest.fixture
def folder(tmp_path):
    shown = ("b.csv", "a.csv", "a.json", "x/c.csv", "x/y/d.csv", "city=_/f.csv")
    for name in (*shown, "_hidden.csv", ".b.csv.crc", "_tmp/e.csv", "g.csv._COPYING_"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def names(found, folder):
    return [file.uri.removeprefix(f"{folder}/") for file in found]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv", "b.csv"]),
        ("*/*.csv", ["city=_/f.csv", "x/c.csv"]),
        ("**/*.csv", ["a.csv", "b.csv", "city=_/f.csv", "x/c.csv", "x/y/d.csv"]),
        ("{a,b}.*", ["a.csv", "a.json", "b.csv"]),
        ("*.orc", []),
        ("", ["a.csv", "a.json", "b.csv", "city=_/f.csv", "x/c.csv", "x/y/d.csv"]),
        ("a.csv", ["a.csv"]),
        ("x", ["x/c.csv", "x/y/d.csv"]),
    ],
)
def test_a_glob_finds_files_in_order_and_skips_what_spark_skips(folder, pattern, expected):
    assert names(matching_files(f"{folder}/{pattern}".rstrip("/")), folder) == expected


def test_a_file_comes_with_its_size_and_time(folder):
    stat = (folder / "a.csv").stat()

    assert matching_files(f"{folder}/a.csv") == (
        SourceFile(f"{folder}/a.csv", 5, stat.st_mtime_ns // 1_000_000),
    )


@pytest.mark.parametrize(
    ("path", "message"), [("none/*.csv", "no such folder"), ("none.csv", "no such file or folder")]
)
def test_what_is_not_there_is_refused_and_named(folder, path, message):
    with pytest.raises(InvalidRequest, match=f"there is {message}.*none"):
        matching_files(f"{folder}/{path}")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ({"include": "glob:**/*.csv"}, ["a.csv", "b.csv", "city=_/f.csv", "x/c.csv", "x/y/d.csv"]),
        ({"include": "glob:**/*.csv", "exclude": "glob:**/x/**"}, ["a.csv", "b.csv", "city=_/f.csv"]),
        ({"include": r"regex:.*/[ab]\.csv"}, ["a.csv", "b.csv"]),
        ({"recursive": False}, ["a.csv", "a.json", "b.csv"]),
    ],
)
def test_files_beneath_a_folder_are_chosen_by_patterns_over_whole_paths(folder, patterns, expected):
    assert names(list_files(str(folder), **patterns), folder) == expected


@pytest.mark.parametrize("pattern", ["*.csv", "regex:(", "sql:x"])
def test_a_pattern_that_is_none_is_refused(folder, pattern):
    with pytest.raises(InvalidRequest):
        list_files(str(folder), include=pattern)
