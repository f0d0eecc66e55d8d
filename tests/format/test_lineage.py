"""Pinot's lineage record: entries of four or five elements."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.lineage import lineage_of, lineage_record
from holdfast.format.malformed import Malformed
from holdfast.format.znode import ZNRecord, decode_record, encode_record
from holdfast.model.lineage import EntryState, Lineage, LineageEntry

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=","), min_size=1, max_size=10)
ENTRIES = st.builds(
    LineageEntry,
    id=st.uuids(version=4).map(str),
    segments_from=st.lists(NAMES, max_size=4).map(tuple),
    segments_to=st.lists(NAMES, max_size=4).map(tuple),
    state=st.sampled_from(EntryState),
    changed_at_ms=st.integers(0, 2**63 - 1),
    auto_complete=st.booleans(),
)


def in_order(entries):
    return tuple(sorted(entries, key=lambda entry: (entry.changed_at_ms, entry.id)))


@given(
    entries=st.lists(ENTRIES, max_size=5, unique_by=lambda entry: entry.id),
    custom=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.just("v"), max_size=3),
)
def test_what_is_written_is_read_with_order_and_repetition(entries, custom):
    lineage = Lineage(in_order(entries), custom)

    content = encode_record(lineage_record("t_OFFLINE", lineage))

    assert lineage_of(decode_record(content)) == lineage


ENTRY = LineageEntry(
    id="e", segments_from=("a", "b", "a"), segments_to=("c",), state=EntryState.COMPLETED, changed_at_ms=5
)


def elements(entry):
    return lineage_record("t", Lineage((entry,))).lists[entry.id]


def read(*values):
    (entry,) = lineage_of(ZNRecord(id="t", lists={"e": values})).entries
    return entry


def test_j1_empty_lists_are_empty_texts():
    empty = replace(ENTRY, segments_from=(), segments_to=())

    assert elements(empty) == ("", "", "COMPLETED", "5")
    assert read("", "", "COMPLETED", "5") == empty


def test_j2_only_the_flag_that_is_set_is_written():
    assert elements(ENTRY) == ("a,b,a", "c", "COMPLETED", "5")
    assert elements(replace(ENTRY, auto_complete=True)) == ("a,b,a", "c", "COMPLETED", "5", "true")


def test_j3_an_entry_of_four_elements_has_no_flag():
    assert read("a,b,a", "c", "COMPLETED", "5") == ENTRY


@pytest.mark.parametrize(("text", "flag"), [("true", True), ("TRUE", True), ("false", False), ("x", False)])
def test_the_flag_is_true_in_any_case_and_else_false(text, flag):
    assert read("a", "b", "IN_PROGRESS", "5", text).auto_complete is flag


def test_elements_after_the_fifth_are_ignored():
    assert read("a,b,a", "c", "COMPLETED", "5", "false", "later", "versions") == ENTRY


def test_empty_names_are_dropped():
    assert read("a,,b,", ",", "REVERTED", "5").segments_from == ("a", "b")
    assert read("a,,b,", ",", "REVERTED", "5").segments_to == ()


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("a", "b", "COMPLETED"),
        ("a", "b", "completed", "5"),
        ("a", "b", "DONE", "5"),
        ("a", "b", "COMPLETED", "now"),
        ("a", "b", "COMPLETED", ""),
        ("a", "b", "COMPLETED", "5" * 30),
        ("a", "b", "COMPLETED", "٥"),
    ],
)
def test_j4_j5_an_entry_that_cannot_be_read_spoils_the_record(values):
    with pytest.raises(Malformed):
        read(*values)


def test_j6_the_custom_map_survives_a_rewrite():
    record = ZNRecord(id="t", maps={"custom.map": {"owner": "growth"}}, lists={"e": elements(ENTRY)})

    assert lineage_record("t", lineage_of(record)) == record


def test_j7_other_fields_of_the_record_are_dropped_by_a_rewrite():
    """As in Pinot; nothing of ours is kept there."""
    record = ZNRecord(id="t", simple={"x": "1"}, maps={"y": {"z": "1"}}, lists={"e": elements(ENTRY)})

    assert lineage_record("t", lineage_of(record)) == ZNRecord(id="t", lists={"e": elements(ENTRY)})


def test_j11_entries_of_one_millisecond_are_in_the_order_of_their_ids():
    entries = {name: elements(replace(ENTRY, id=name)) for name in ("c", "a", "b")}
    entries["older"] = elements(replace(ENTRY, id="older", changed_at_ms=4))

    lineage = lineage_of(ZNRecord(id="t", lists=entries))

    assert [entry.id for entry in lineage.entries] == ["older", "a", "b", "c"]


def test_a_name_with_a_comma_is_never_written():
    with pytest.raises(AssertionError, match="no comma"):
        lineage_record("t", Lineage((replace(ENTRY, segments_to=("a,b",)),)))
