"""Feeds of changes: the newest row of each key, or every version, whatever order the changes come in."""

import random

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import InvalidRequest, Refused

pytestmark = pytest.mark.spark

COLUMNS = "id string, at bigint, value bigint, op string"


def feed(spark, *changes):
    return spark.createDataFrame(list(changes), COLUMNS)


@pytest.fixture
def newest(tmp_path):
    return holdfast.create_table(str(tmp_path / "newest"), name="newest", record_key="id", ordering="at")


@pytest.fixture
def history(tmp_path):
    return holdfast.create_table(str(tmp_path / "history"), name="history", record_key=["id", "valid_from"])


def current(table):
    return sorted((row["id"], row["at"], row["value"]) for row in table.to_arrow().to_pylist())


def versions(table):
    """(id, from, to, value) without what only remembers a delete."""
    rows = table.to_arrow().to_pylist()
    return sorted(
        ((row["id"], row["valid_from"], row["valid_to"], row["value"]) for row in rows
         if row["valid_from"] != row["valid_to"]), key=lambda row: row[:2],
    )  # fmt: skip


def expected_versions(changes):
    """The versions that all changes make together, in plain Python."""
    found = []
    for key in sorted({change[0] for change in changes}):
        moments = {}
        for _, at, value, op in (change for change in changes if change[0] == key):
            moments[at] = None if op == "D" else value
        ordered = sorted(moments)
        for start, end in zip(ordered, [*ordered[1:], None], strict=True):
            if moments[start] is not None:
                found.append((key, start, end, moments[start]))
    return found


def test_the_newest_change_of_each_key_counts_also_if_older_ones_come_late(newest, spark):
    arguments = {"keys": "id", "sequence_by": "at", "deletes": "op = 'D'"}
    newest.apply_changes(
        feed(spark, ("a", 2, 20, "U"), ("a", 1, 10, "I"), ("b", 1, 1, "I"), ("c", 1, 1, "I")), **arguments
    )
    later = feed(spark, ("a", 1, 11, "U"), ("b", 3, 0, "D"), ("b", 2, 2, "U"), ("c", 5, 5, "U"))
    newest.apply_changes(later, **arguments)
    newest.apply_changes(later, **arguments)

    assert current(newest) == [("a", 2, 20), ("c", 5, 5)]


def test_versions_are_those_of_all_changes_in_whatever_order_and_however_often_they_come(history, spark):
    """Late changes, late deletes, deletes before what they delete, and batches that are repeated."""
    chance = random.Random(7)
    changes = [
        (key, at, at * 10 + number, "D" if chance.random() < 0.3 else "U")
        for number, key in enumerate("abcd")
        for at in chance.sample(range(1, 30), 6)
    ]
    chance.shuffle(changes)
    batches = [changes[first : first + 6] for first in range(0, len(changes), 6)]
    seen = []

    for batch in [*batches[:2], batches[0], *batches[2:], batches[-1]]:
        history.apply_changes(feed(spark, *batch), keys="id", sequence_by="at", scd=2, deletes="op = 'D'")
        seen += batch
        assert versions(history) == expected_versions(seen)


def test_a_delete_that_comes_first_ends_the_version_that_comes_after_it(history, spark):
    arguments = {"keys": "id", "sequence_by": "at", "scd": 2, "deletes": "op = 'D'"}
    history.apply_changes(feed(spark, ("a", 9, None, "D")), **arguments)
    assert versions(history) == []

    history.apply_changes(feed(spark, ("a", 4, 40, "I")), **arguments)

    assert versions(history) == [("a", 4, 9, 40)]


def test_a_change_at_the_moment_of_another_takes_its_place(history, spark):
    arguments = {"keys": "id", "sequence_by": "at", "scd": 2, "deletes": "op = 'D'"}
    history.apply_changes(feed(spark, ("a", 1, 10, "I"), ("a", 5, 50, "U")), **arguments)
    history.apply_changes(feed(spark, ("a", 5, None, "D")), **arguments)
    assert versions(history) == [("a", 1, 5, 10)]

    history.apply_changes(feed(spark, ("a", 5, 55, "U")), **arguments)

    assert versions(history) == [("a", 1, 5, 10), ("a", 5, None, 55)]


def test_tables_of_another_key_or_order_are_refused_and_stay_as_they_are(newest, history, spark):
    rows = feed(spark, ("a", 1, 10, "I"))
    for table, arguments in (
        (newest, {"keys": "id", "sequence_by": "value"}),
        (newest, {"keys": ["id", "value"], "sequence_by": "at"}),
        (newest, {"keys": "id", "sequence_by": "at", "scd": 2}),
        (history, {"keys": "id", "sequence_by": "at"}),
    ):
        with pytest.raises(Refused):
            table.apply_changes(rows, **arguments)
    for arguments in (
        {"keys": "id", "sequence_by": "when"},
        {"keys": "id", "sequence_by": "at", "scd": 3},
        {"keys": [], "sequence_by": "at"},
    ):
        with pytest.raises(InvalidRequest):
            newest.apply_changes(rows, **arguments)
    with pytest.raises(InvalidRequest):
        newest.apply_changes(pa.table({"id": ["a"]}), keys="id", sequence_by="at")

    assert newest.timeline() == history.timeline() == []
