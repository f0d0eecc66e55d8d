"""Records: which bytes a table's state is kept in."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.push.records import decode_push_state, encode_push_state
from holdfast.push.state import EntryDetails, GateOutcome, PendingDeletion, PushState

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
