"""Records: which bytes a table's state is kept in."""

import gc

from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.znode import ZNRecord, encode_record
from holdfast.push.metastore.port import Versioned
from holdfast.push.state.records import (
    DecodedRecords,
    Placement,
    decode_push_state,
    encode_push_state,
)
from holdfast.push.state.table_state import EntryDetails, GateOutcome, PendingDeletion, PushState

DETAILS = st.builds(
    EntryDetails,
    started_at_ms=st.integers(0, 2**50),
    ended_at_ms=st.none() | st.integers(0, 2**50),
    actor=st.just("ann"),
    epoch=st.none() | st.integers(0, 100),
    gates=st.lists(
        st.builds(
            GateOutcome, name=st.just("rows"), passed=st.booleans(), found=st.just("1"), expected=st.just("2")
        )
    ).map(tuple),
    source=st.dictionaries(st.just("k"), st.just("v")),
)


@given(
    state=st.builds(
        PushState,
        epoch=st.integers(0, 2**40),
        details=st.dictionaries(st.uuids().map(str), DETAILS, max_size=3),
        pins=st.dictionaries(st.integers(0, 100), st.integers(0, 2**50), max_size=3),
        deletions=st.lists(
            st.builds(
                PendingDeletion,
                segments=st.lists(st.just("s")).map(tuple),
                epoch=st.just(1),
                since_ms=st.just(2),
                retention_ms=st.just(3),
            ),
            max_size=2,
        ).map(tuple),
    )
)
def test_the_side_record_is_read_as_it_was_written(state):
    assert decode_push_state(encode_push_state(state)) == state


def placed(name, state="ONLINE"):
    record = ZNRecord(id=name, maps={f"{name}-segment": {"Server_localhost_8098": state}})
    return Versioned(encode_record(record), 1)


def test_what_is_offline_is_worked_out_once_for_the_same_records_and_anew_for_others():
    records = DecodedRecords()
    ideal = records.placement("/ideal", placed("orders"))
    view = records.placement("/view", placed("orders", "OFFLINE"))

    found = records.offline(ideal, view)

    assert found == {"orders-segment"}
    assert records.offline(ideal, view) is found
    assert records.offline(ideal, ideal) == frozenset()


def test_tables_that_come_and_go_do_not_pile_up():
    records, before = DecodedRecords(), _placements()
    for number in range(3000):
        ideal = records.placement("/ideal", placed(f"table{number}"))
        records.offline(ideal, ideal)

    assert _placements() - before < 1500


def _placements():
    return sum(isinstance(one, Placement) for one in gc.get_objects())
