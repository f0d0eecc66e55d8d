import pytest

from holdfast.model.instant import Action, InstantTime, State
from holdfast.model.names import (
    BaseFileName,
    LogFileName,
    instant_file,
    is_file_of,
    marker_path,
    parse_base_file,
    parse_instant_file,
    parse_log_file,
    parse_marker,
)

T = InstantTime("20240707001301554")


@pytest.mark.parametrize("action", [a for a in Action if a not in (Action.COMPACTION, Action.LOGCOMPACTION)])
@pytest.mark.parametrize("state", State)
def test_an_instant_file_says_what_it_was_named_for(action, state):
    name = instant_file(T, action, state).removeprefix(".hoodie/")

    assert parse_instant_file(name) == (T, action, state)


@pytest.mark.parametrize(
    ("action", "state", "name"),
    [
        (Action.COMMIT, State.INFLIGHT, f"{T}.inflight"),
        (Action.COMMIT, State.REQUESTED, f"{T}.commit.requested"),
        (Action.COMPACTION, State.COMPLETED, f"{T}.commit"),
        (Action.LOGCOMPACTION, State.COMPLETED, f"{T}.deltacommit"),
        (Action.COMPACTION, State.INFLIGHT, f"{T}.compaction.inflight"),
    ],
)
def test_names_are_hudis(action, state, name):
    assert instant_file(T, action, state) == f".hoodie/{name}"


@pytest.mark.parametrize(
    "name",
    [
        f"{T}.commit.tmp",
        f"{T}.commit.1b2c",
        "hoodie.properties",
        f"{T}",
        "x.commit",
        f"{T}.commits",
        f"{T}.savepoint.tmp",
    ],
)
def test_other_names_are_not_instants(name):
    assert parse_instant_file(name) is None


def test_a_base_file_name_has_three_parts():
    name = BaseFileName("4f2685a3-614f-49ca-9b2b-e1cb9fb61f27-0", "0-95-135", T)

    assert parse_base_file(str(name)) == name
    assert parse_base_file("a_b_0-1-2_20240707001301554.parquet") is None
    assert parse_base_file(f".{name}.crc") is None


def test_a_marker_names_its_file_and_kind():
    path = marker_path(T, "city=a/x_0-0-0_1.parquet", "CREATE")

    assert path == f".hoodie/.temp/{T}/city=a/x_0-0-0_1.parquet.marker.CREATE"
    assert parse_marker("city=a/x_0-0-0_1.parquet.marker.CREATE") == ("city=a/x_0-0-0_1.parquet", "CREATE")
    assert parse_marker("MARKERS.type") is None


@pytest.mark.parametrize("version", [1, 9, 10, 1999, 2000, 2001])
def test_a_log_file_of_ours_says_which_write_made_it(version):
    name = LogFileName.of_write("a-0", T, version, attempt=3, instant=InstantTime("20991231235959999"))

    assert parse_log_file(str(name)) == name
    assert name.written_by == "20991231235959999"
    assert all(int(part) < 2**31 for part in name.write_token.split("-")), "Hudi could not read it"


def test_a_log_file_that_took_the_token_of_ours_is_not_of_our_write():
    # Hudi 1.x names a log file with the token of the last one in the slice.
    ours = LogFileName.of_write("a-0", T, 1, attempt=0, instant=T)
    theirs = LogFileName("a-0", T, 2, ours.write_token)

    assert theirs.written_by is None
    assert is_file_of(str(ours), T)
    assert not is_file_of(str(theirs), T)
