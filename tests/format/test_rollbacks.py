import json

import pytest

from harness.hudi_avro import INSTANT, ROLLBACK, read_by_hudi, written_by_hudi
from holdfast.format.avro import encode_container
from holdfast.format.malformed import Malformed
from holdfast.format.rollbacks import (
    RollbackMetadata,
    RollbackPlan,
    RollbackRequest,
    RolledBackInstant,
    RolledBackPartition,
    decode_rollback_metadata,
    decode_rollback_plan,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from holdfast.model.instant import Action, InstantTime

TARGET = InstantTime("20250126040826878")
BASE_FILE = "/lake/trips/a-0_1-33-44_20250126040826878.parquet"
LOG_FILE = "file:/lake/trips/.b-0_20250126040823628.log.1_0-33-43"
COMMAND_FILE = "file:/lake/trips/.b-0_20250126040823628.log.2_1-0-1"

PLAN = RollbackPlan(
    RolledBackInstant(TARGET, Action.DELTACOMMIT),
    (
        RollbackRequest("", files=(BASE_FILE,)),
        RollbackRequest("", "b-0", "20250126040823628", log_blocks={LOG_FILE: 11828}),
    ),
)
METADATA = RollbackMetadata(
    start_time=InstantTime("20250126040936578"),
    time_taken_ms=195,
    total_files_deleted=1,
    commits=(TARGET,),
    by_partition={
        "": RolledBackPartition("", (BASE_FILE,), (), {COMMAND_FILE: 105}, {LOG_FILE: 11828}),
        "city=köln": RolledBackPartition("city=köln", (), ("/lake/trips/city=köln/x.parquet",)),
    },
    instants=(RolledBackInstant(TARGET, Action.DELTACOMMIT),),
)

# The fields that Hudi reads, in the order and types of its own release 0.15.
HUDI_REQUEST = {
    "type": "record",
    "name": "HoodieRollbackRequest",
    "fields": [
        {"name": "partitionPath", "type": "string"},
        {"name": "fileId", "type": ["null", "string"], "default": None},
        {"name": "latestBaseInstant", "type": ["null", "string"], "default": None},
        {"name": "filesToBeDeleted", "type": {"type": "array", "items": "string"}, "default": []},
        {
            "name": "logBlocksToBeDeleted",
            "type": ["null", {"type": "map", "values": "long"}],
            "default": None,
        },
    ],
}
HUDI_PLAN = {
    "type": "record",
    "name": "HoodieRollbackPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantToRollback", "type": ["null", INSTANT], "default": None},
        {
            "name": "RollbackRequests",
            "type": ["null", {"type": "array", "items": HUDI_REQUEST}],
            "default": None,
        },
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}
PLAN_RECORD = {
    "instantToRollback": {"commitTime": "20250126040826878", "action": "deltacommit"},
    "RollbackRequests": [
        {
            "partitionPath": "",
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": [BASE_FILE],
            "logBlocksToBeDeleted": {},
        },
        {
            "partitionPath": "",
            "fileId": "b-0",
            "latestBaseInstant": "20250126040823628",
            "filesToBeDeleted": [],
            "logBlocksToBeDeleted": {LOG_FILE: 11828},
        },
    ],
    "version": 1,
}
METADATA_RECORD = {
    "startRollbackTime": "20250126040936578",
    "timeTakenInMillis": 195,
    "totalFilesDeleted": 1,
    "commitsRollback": ["20250126040826878"],
    "partitionMetadata": {
        "": {
            "partitionPath": "",
            "successDeleteFiles": [BASE_FILE],
            "failedDeleteFiles": [],
            "rollbackLogFiles": {COMMAND_FILE: 105},
            "logFilesFromFailedCommit": {LOG_FILE: 11828},
        },
        "city=köln": {
            "partitionPath": "city=köln",
            "successDeleteFiles": [],
            "failedDeleteFiles": ["/lake/trips/city=köln/x.parquet"],
            "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        },
    },
    "version": 1,
    "instantsRollback": [{"commitTime": "20250126040826878", "action": "deltacommit"}],
}


def test_a_plan_is_read_back():
    assert decode_rollback_plan(encode_rollback_plan(PLAN)) == PLAN


def test_hudi_reads_our_plan():
    assert read_by_hudi(encode_rollback_plan(PLAN), HUDI_PLAN) == PLAN_RECORD


def test_a_plan_of_hudi_is_read():
    assert decode_rollback_plan(written_by_hudi(HUDI_PLAN, PLAN_RECORD)) == PLAN


def test_nulls_in_a_plan_of_hudi_mean_nothing_to_do():
    instant = PLAN_RECORD["instantToRollback"]
    request = {"partitionPath": "p", "filesToBeDeleted": ["/a"]}

    without_requests = decode_rollback_plan(written_by_hudi(HUDI_PLAN, {"instantToRollback": instant}))
    with_nulls = decode_rollback_plan(
        written_by_hudi(HUDI_PLAN, {"instantToRollback": instant, "RollbackRequests": [request]})
    )

    assert without_requests == RollbackPlan(RolledBackInstant(TARGET, Action.DELTACOMMIT), ())
    assert with_nulls == RollbackPlan(
        RolledBackInstant(TARGET, Action.DELTACOMMIT), (RollbackRequest("p", files=("/a",)),)
    )


@pytest.mark.parametrize(
    "instant",
    [
        None,
        {"commitTime": "soon", "action": "commit"},
        {"commitTime": "20250126040826878", "action": "dance"},
    ],
)
def test_a_plan_whose_target_is_not_an_instant_is_refused(instant):
    with pytest.raises(Malformed, match="instant"):
        decode_rollback_plan(written_by_hudi(HUDI_PLAN, {"instantToRollback": instant}))


def test_a_plan_keeps_many_files_in_order():
    files = tuple(f"/lake/trips/{number}.parquet" for number in range(20_000))
    plan = RollbackPlan(RolledBackInstant(TARGET, Action.COMMIT), (RollbackRequest("p", files=files),))

    assert decode_rollback_plan(encode_rollback_plan(plan)).requests[0].files == files


def test_metadata_is_read_back():
    assert decode_rollback_metadata(encode_rollback_metadata(METADATA)) == METADATA


def test_hudi_reads_our_metadata():
    assert read_by_hudi(encode_rollback_metadata(METADATA), ROLLBACK) == METADATA_RECORD


def test_metadata_of_hudi_is_read():
    assert decode_rollback_metadata(written_by_hudi(ROLLBACK, METADATA_RECORD)) == METADATA


def test_metadata_of_an_older_release_is_read_without_what_it_did_not_know():
    older = json.loads(json.dumps(ROLLBACK))
    older["fields"] = older["fields"][:5]
    older["fields"][4]["type"]["values"]["fields"] = older["fields"][4]["type"]["values"]["fields"][:3]

    metadata = decode_rollback_metadata(written_by_hudi(older, METADATA_RECORD))

    assert metadata.instants == ()
    assert metadata.version == 1
    assert metadata.partitions[0] == RolledBackPartition("", (BASE_FILE,))


def test_fields_of_a_later_release_are_ignored():
    later = json.loads(json.dumps(ROLLBACK))
    later["fields"].append({"name": "novelty", "type": "string"})

    metadata = decode_rollback_metadata(written_by_hudi(later, METADATA_RECORD | {"novelty": "x"}))

    assert metadata == METADATA


@pytest.mark.parametrize("change", [{"startRollbackTime": "now"}, {"commitsRollback": ["2025"]}])
def test_metadata_with_a_wrong_time_is_refused(change):
    with pytest.raises(Malformed, match="time"):
        decode_rollback_metadata(written_by_hudi(ROLLBACK, METADATA_RECORD | change))


def test_a_plan_and_metadata_are_not_taken_for_each_other():
    with pytest.raises(Malformed):
        decode_rollback_plan(encode_rollback_metadata(METADATA))
    with pytest.raises(Malformed):
        decode_rollback_metadata(encode_rollback_plan(PLAN))


def test_a_field_of_another_type_is_refused():
    schema = json.loads(json.dumps(ROLLBACK))
    schema["fields"][1]["type"] = "string"

    with pytest.raises(Malformed, match="timeTakenInMillis"):
        decode_rollback_metadata(encode_container(schema, METADATA_RECORD | {"timeTakenInMillis": "long"}))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("decode", "content"),
    [
        (decode_rollback_plan, encode_rollback_plan(PLAN)),
        (decode_rollback_metadata, encode_rollback_metadata(METADATA)),
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
