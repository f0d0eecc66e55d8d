import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import hudi_avro
from harness.hudi_avro import INSTANT, embedded_schema, read_by_hudi, written_by_hudi
from holdfast.format.malformed import Malformed
from holdfast.format.restores import (
    RestoreMetadata,
    RestorePlan,
    decode_restore_metadata,
    decode_restore_plan,
    encode_restore_metadata,
    encode_restore_plan,
)
from holdfast.format.rollbacks import RollbackMetadata, RolledBackInstant, RolledBackPartition
from holdfast.model.instant import Action, InstantTime

SAVEPOINT = InstantTime("20250126040000000")
NEWER = InstantTime("20250126040826878")
NEWEST = InstantTime("20250126040936578")
RESTORE = InstantTime("20250126050000000")
FILE = "file:/lake/trips/city=köln/a-0_1-33-44_20250126040936578.parquet"
INSTANTS = (RolledBackInstant(NEWEST, Action.REPLACECOMMIT), RolledBackInstant(NEWER, Action.COMMIT))

PLAN = RestorePlan(INSTANTS, SAVEPOINT)
ROLLBACK = RollbackMetadata(
    start_time=InstantTime("20250126050000001"),
    time_taken_ms=195,
    total_files_deleted=1,
    commits=(NEWEST,),
    by_partition={"city=köln": RolledBackPartition("city=köln", (FILE,))},
    instants=INSTANTS[:1],
)
METADATA = RestoreMetadata(
    start_time=RESTORE,
    time_taken_ms=1234,
    commits=(NEWEST, NEWER),
    rollbacks={NEWEST: (ROLLBACK,), NEWER: ()},
    instants=INSTANTS,
)

# The fields that Hudi reads, in the order and types of its own release 0.15.
HUDI_PLAN = {
    "type": "record",
    "name": "HoodieRestorePlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantsToRollback", "type": {"type": "array", "items": INSTANT}, "default": []},
        {"name": "version", "type": ["int", "null"], "default": 2},
        {"name": "savepointToRestoreTimestamp", "type": ["string", "null"]},
    ],
}
HUDI_METADATA = {
    "type": "record",
    "name": "HoodieRestoreMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "startRestoreTime", "type": "string"},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "instantsToRollback", "type": {"type": "array", "items": "string"}},
        {
            "name": "hoodieRestoreMetadata",
            "type": {"type": "map", "values": {"type": "array", "items": ["null", hudi_avro.ROLLBACK]}},
        },
        {"name": "version", "type": ["int", "null"], "default": 1},
        {
            "name": "restoreInstantInfo",
            "type": {"type": "array", "items": "HoodieInstantInfo"},
            "default": [],
        },
    ],
}

INSTANT_RECORDS = [
    {"commitTime": "20250126040936578", "action": "replacecommit"},
    {"commitTime": "20250126040826878", "action": "commit"},
]
PLAN_RECORD = {
    "instantsToRollback": INSTANT_RECORDS,
    "version": 2,
    "savepointToRestoreTimestamp": "20250126040000000",
}
ROLLBACK_RECORD = {
    "startRollbackTime": "20250126050000001",
    "timeTakenInMillis": 195,
    "totalFilesDeleted": 1,
    "commitsRollback": ["20250126040936578"],
    "partitionMetadata": {
        "city=köln": {
            "partitionPath": "city=köln",
            "successDeleteFiles": [FILE],
            "failedDeleteFiles": [],
            "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        }
    },
    "version": 1,
    "instantsRollback": INSTANT_RECORDS[:1],
}
METADATA_RECORD = {
    "startRestoreTime": "20250126050000000",
    "timeTakenInMillis": 1234,
    "instantsToRollback": ["20250126040936578", "20250126040826878"],
    "hoodieRestoreMetadata": {"20250126040936578": [ROLLBACK_RECORD], "20250126040826878": []},
    "version": 1,
    "restoreInstantInfo": INSTANT_RECORDS,
}

# One instant "20250126040826878" of action "commit", the end of the list, version 2, no savepoint.
GOLDEN_PLAN_PAYLOAD = b"\x02\x2220250126040826878\x0ccommit\x00\x00\x04\x02"


def test_a_plan_is_read_back():
    assert decode_restore_plan(encode_restore_plan(PLAN)) == PLAN


def test_hudi_reads_our_plan():
    assert read_by_hudi(encode_restore_plan(PLAN), HUDI_PLAN) == PLAN_RECORD


def test_a_plan_of_hudi_is_read():
    assert decode_restore_plan(written_by_hudi(HUDI_PLAN, PLAN_RECORD)) == PLAN


def test_a_plan_of_an_older_release_does_not_say_where_the_table_goes():
    older = HUDI_PLAN | {"fields": HUDI_PLAN["fields"][:2]}

    assert decode_restore_plan(written_by_hudi(older, PLAN_RECORD)) == RestorePlan(INSTANTS, None)


def test_the_bytes_of_a_plan_are_those_the_format_prescribes():
    content = encode_restore_plan(RestorePlan(INSTANTS[1:], None))

    sync = content[-16:]
    assert [f["name"] for f in embedded_schema(content)["fields"]] == [f["name"] for f in HUDI_PLAN["fields"]]
    assert content.endswith(
        sync + b"\x02" + bytes([2 * len(GOLDEN_PLAN_PAYLOAD)]) + GOLDEN_PLAN_PAYLOAD + sync
    )


def test_metadata_is_read_back():
    assert decode_restore_metadata(encode_restore_metadata(METADATA)) == METADATA


def test_hudi_reads_our_metadata():
    assert read_by_hudi(encode_restore_metadata(METADATA), HUDI_METADATA) == METADATA_RECORD


def test_our_metadata_has_the_fields_of_hudi_in_its_order():
    embedded = embedded_schema(encode_restore_metadata(METADATA))

    assert (embedded["namespace"], embedded["name"]) == (
        "org.apache.hudi.avro.model",
        "HoodieRestoreMetadata",
    )
    assert [f["name"] for f in embedded["fields"]] == [f["name"] for f in HUDI_METADATA["fields"]]


def test_metadata_of_hudi_is_read():
    assert decode_restore_metadata(written_by_hudi(HUDI_METADATA, METADATA_RECORD)) == METADATA


def test_nulls_in_metadata_of_hudi_are_no_rollbacks():
    record = METADATA_RECORD | {"hoodieRestoreMetadata": {"20250126040936578": [None, ROLLBACK_RECORD]}}

    metadata = decode_restore_metadata(written_by_hudi(HUDI_METADATA, record))

    assert metadata.rollbacks == {NEWEST: (ROLLBACK,)}


def test_metadata_of_an_older_release_does_not_name_actions():
    older = HUDI_METADATA | {"fields": HUDI_METADATA["fields"][:5]}

    metadata = decode_restore_metadata(written_by_hudi(older, METADATA_RECORD))

    assert metadata.commits == (NEWEST, NEWER)
    assert metadata.instants == ()


def test_fields_of_a_later_release_are_ignored():
    extra = {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None}
    later = HUDI_METADATA | {"fields": [*HUDI_METADATA["fields"], extra]}

    metadata = decode_restore_metadata(
        written_by_hudi(later, METADATA_RECORD | {"extraMetadata": {"a": "b"}})
    )

    assert metadata == METADATA


_TIME = st.integers(10**16, 10**17 - 1).map(str).map(InstantTime)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
_INSTANTS = st.lists(st.builds(RolledBackInstant, _TIME, st.sampled_from(Action)), max_size=4).map(tuple)
_TEXTS = st.lists(_TEXT, max_size=3).map(tuple)
_PARTITIONS = st.lists(
    st.builds(RolledBackPartition, _TEXT, _TEXTS, _TEXTS), max_size=3, unique_by=lambda each: each.partition
)
_ROLLBACKS = st.builds(
    RollbackMetadata,
    start_time=_TIME,
    time_taken_ms=st.integers(0, 2**62),
    total_files_deleted=st.integers(0, 2**31 - 1),
    commits=st.lists(_TIME, max_size=2).map(tuple),
    by_partition=_PARTITIONS.map(lambda found: {each.partition: each for each in found}),
    instants=_INSTANTS,
)


@given(instants=_INSTANTS, savepoint=st.none() | _TIME)
def test_any_plan_is_read_back_by_us_and_by_hudi(instants, savepoint):
    content = encode_restore_plan(RestorePlan(instants, savepoint))

    assert decode_restore_plan(content) == RestorePlan(instants, savepoint)
    assert read_by_hudi(content, HUDI_PLAN)["savepointToRestoreTimestamp"] == savepoint


@given(
    time=_TIME,
    rollbacks=st.dictionaries(_TIME, st.lists(_ROLLBACKS, max_size=2).map(tuple), max_size=3),
    instants=_INSTANTS,
)
def test_any_metadata_is_read_back_by_us_and_by_hudi(time, rollbacks, instants):
    metadata = RestoreMetadata(time, 7, tuple(rollbacks), rollbacks, instants)

    content = encode_restore_metadata(metadata)

    assert decode_restore_metadata(content) == metadata
    read = read_by_hudi(content, HUDI_METADATA)["hoodieRestoreMetadata"]
    assert {instant: len(found) for instant, found in read.items()} == {
        instant: len(each) for instant, each in rollbacks.items()
    }


@pytest.mark.parametrize(
    "change",
    [
        {"startRestoreTime": "now"},
        {"instantsToRollback": ["2025"]},
        {"hoodieRestoreMetadata": {"soon": []}},
    ],
)
def test_metadata_with_a_wrong_time_is_refused(change):
    with pytest.raises(Malformed, match="time"):
        decode_restore_metadata(written_by_hudi(HUDI_METADATA, METADATA_RECORD | change))


def test_a_plan_with_an_unknown_action_is_refused():
    record = PLAN_RECORD | {"instantsToRollback": [{"commitTime": NEWER, "action": "dance"}]}

    with pytest.raises(Malformed, match="instant"):
        decode_restore_plan(written_by_hudi(HUDI_PLAN, record))


def test_a_plan_and_metadata_are_not_taken_for_each_other():
    with pytest.raises(Malformed):
        decode_restore_plan(encode_restore_metadata(METADATA))
    with pytest.raises(Malformed):
        decode_restore_metadata(encode_restore_plan(PLAN))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("decode", "content"),
    [
        (decode_restore_plan, encode_restore_plan(PLAN)),
        (decode_restore_metadata, encode_restore_metadata(METADATA)),
    ],
)
def test_damaged_content_is_read_or_refused(damaged, decode, content):
    refused = 0

    for copy in damaged(content):
        try:
            decode(copy)
        except Malformed:
            refused += 1

    assert refused >= len(content)
