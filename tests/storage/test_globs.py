"""Globs over paths."""

import pytest

from holdfast.errors import InvalidRequest
from holdfast.storage.globs import glob_regex, split_glob


@pytest.mark.parametrize(
    ("path", "folder", "pattern"),
    [
        ("data/trips/*.csv", "data/trips", "*.csv"),
        ("data/trips/*/day?.csv", "data/trips", "*/day?.csv"),
        ("/data/{a,b}/x", "/data", "{a,b}/x"),
        ("/*.csv", "/", "*.csv"),
        ("*.csv", ".", "*.csv"),
        ("s3://bucket/*.csv", "s3://bucket", "*.csv"),
        ("data/trips", "data/trips", ""),
    ],
)
def test_a_pattern_is_relative_to_the_deepest_folder_without_wildcards(path, folder, pattern):
    assert split_glob(path) == (folder, pattern)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.csv", ["a.csv", ".csv"], ["a.csv.gz", "b/a.csv"]),
        ("day?.csv", ["day1.csv"], ["day.csv", "day10.csv", "day/.csv"]),
        ("**/*.csv", ["a.csv", "x/a.csv", "x/y/a.csv"], ["a.json"]),
        ("a/**", ["a/b", "a/b/c"], ["b/a", "a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb"]),
        ("[ab]*", ["a", "bc"], ["c"]),
        ("[!ab]*", ["c"], ["a"]),
        ("[a-c]", ["b"], ["d", "-"]),
        ("[]x]", ["]", "x"], ["a"]),
        ("{day,night}*.{csv,json}", ["day1.csv", "night.json"], ["noon.csv", "day.xml"]),
        (r"\*\{", ["*{"], ["a{"]),
        ("a.b+c", ["a.b+c"], ["axb+c", "a.bbc"]),
        ("a,b}", ["a,b}"], ["a"]),
    ],
)
def test_a_glob_matches_whole_paths(pattern, matching, others):
    regex = glob_regex(pattern)

    assert [path for path in (*matching, *others) if regex.fullmatch(path)] == matching


@pytest.mark.parametrize("pattern", ["[ab", "{a,b", "a\\", "[z-a]"])
def test_a_glob_that_does_not_end_is_refused(pattern):
    with pytest.raises(InvalidRequest, match="pattern"):
        glob_regex(pattern)
