import json

import pytest

from harness.hudi_avro import read_by_hudi, written_by_hudi
from holdfast.format.avro import encode_container
from holdfast.format.cleans import (
    CleanedPartition,
    CleanMetadata,
    StoredCleanPlan,
    decode_clean_metadata,
    decode_clean_plan,
    encode_clean_metadata,
    encode_clean_plan,
)
from holdfast.format.malformed import Malformed
from holdfast.model.instant import Action, InstantTime

ROOT = "s3://lake/trips"
CLEAN = InstantTime("20250126040936578")
EARLIEST = InstantTime("20250126040826878")
NEWEST = InstantTime("20250126040926111")
OLD_1 = "a-0_1-33-44_20250126040823628.parquet"
OLD_2 = "b-0_0-33-43_20250126040823628.parquet"
POLICY = "KEEP_LATEST_COMMITS"

PLAN = StoredCleanPlan(
    earliest=EARLIEST,
    earliest_action=Action.REPLACECOMMIT,
    last_completed=NEWEST,
    policy=POLICY,
    files={"": (OLD_1,), "city=köln/day=1": (OLD_2, OLD_1)},
    partitions_to_delete=("city=köln/day=1",),
    extra={"savepointed_timestamps": "20250126040823628"},
)
METADATA = CleanMetadata(
    start_time=CLEAN,
    took_ms=195,
    deleted_count=2,
    earliest=EARLIEST,
    last_completed=NEWEST,
    partitions=(
        CleanedPartition(partition="", policy=POLICY, deleted=(OLD_1,)),
        CleanedPartition(
            partition="city=köln/day=1", policy=POLICY, deleted=(OLD_2,), failed=(OLD_1,), is_deleted=True
        ),
    ),
    extra={"savepointed_timestamps": "20250126040823628"},
)

# The fields that Hudi reads, in the order and types of its own release 0.15.
HUDI_PLAN = {
    "type": "record",
    "name": "HoodieCleanerPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {
            "name": "earliestInstantToRetain",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "HoodieActionInstant",
                    "fields": [
                        {"name": "timestamp", "type": "string"},
                        {"name": "action", "type": "string"},
                        {"name": "state", "type": "string"},
                    ],
                },
            ],
            "default": None,
        },
        {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
        {"name": "policy", "type": "string"},
        {
            "name": "filesToBeDeletedPerPartition",
            "type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}],
            "default": None,
        },
        {"name": "version", "type": ["int", "null"], "default": 1},
        {
            "name": "filePathsToBeDeletedPerPartition",
            "type": [
                "null",
                {
                    "type": "map",
                    "values": {
                        "type": "array",
                        "items": {
                            "type": "record",
                            "name": "HoodieCleanFileInfo",
                            "fields": [
                                {"name": "filePath", "type": ["null", "string"], "default": None},
                                {"name": "isBootstrapBaseFile", "type": ["null", "boolean"], "default": None},
                            ],
                        },
                    },
                },
            ],
            "default": None,
        },
        {
            "name": "partitionsToBeDeleted",
            "type": ["null", {"type": "array", "items": "string"}],
            "default": None,
        },
        {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None},
    ],
}
HUDI_PARTITION = {
    "type": "record",
    "name": "HoodieCleanPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": "string"},
        {"name": "policy", "type": "string"},
        {"name": "deletePathPatterns", "type": {"type": "array", "items": "string"}},
        {"name": "successDeleteFiles", "type": {"type": "array", "items": "string"}},
        {"name": "failedDeleteFiles", "type": {"type": "array", "items": "string"}},
        {"name": "isPartitionDeleted", "type": ["null", "boolean"], "default": None},
    ],
}
HUDI_METADATA = {
    "type": "record",
    "name": "HoodieCleanMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "startCleanTime", "type": "string"},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "earliestCommitToRetain", "type": "string"},
        {"name": "lastCompletedCommitTimestamp", "type": "string", "default": ""},
        {"name": "partitionMetadata", "type": {"type": "map", "values": HUDI_PARTITION}},
        {"name": "version", "type": ["int", "null"], "default": 1},
        {
            "name": "bootstrapPartitionMetadata",
            "type": ["null", {"type": "map", "values": "HoodieCleanPartitionMetadata"}],
            "default": None,
        },
        {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None},
    ],
}


def info(path, is_bootstrap=False):
    return {"filePath": path, "isBootstrapBaseFile": is_bootstrap}


PLAN_RECORD = {
    "earliestInstantToRetain": {
        "timestamp": "20250126040826878",
        "action": "replacecommit",
        "state": "COMPLETED",
    },
    "lastCompletedCommitTimestamp": "20250126040926111",
    "policy": "KEEP_LATEST_COMMITS",
    "filesToBeDeletedPerPartition": {},
    "version": 2,
    "filePathsToBeDeletedPerPartition": {
        "": [info(f"s3://lake/trips/{OLD_1}")],
        "city=köln/day=1": [
            info(f"s3://lake/trips/city=köln/day=1/{OLD_2}"),
            info(f"s3://lake/trips/city=köln/day=1/{OLD_1}"),
        ],
    },
    "partitionsToBeDeleted": ["city=köln/day=1"],
    "extraMetadata": {"savepointed_timestamps": "20250126040823628"},
}
METADATA_RECORD = {
    "startCleanTime": "20250126040936578",
    "timeTakenInMillis": 195,
    "totalFilesDeleted": 2,
    "earliestCommitToRetain": "20250126040826878",
    "lastCompletedCommitTimestamp": "20250126040926111",
    "partitionMetadata": {
        "": {
            "partitionPath": "",
            "policy": "KEEP_LATEST_COMMITS",
            "deletePathPatterns": [OLD_1],
            "successDeleteFiles": [OLD_1],
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        },
        "city=köln/day=1": {
            "partitionPath": "city=köln/day=1",
            "policy": "KEEP_LATEST_COMMITS",
            "deletePathPatterns": [OLD_2, OLD_1],
            "successDeleteFiles": [OLD_2],
            "failedDeleteFiles": [OLD_1],
            "isPartitionDeleted": True,
        },
    },
    "version": 2,
    "bootstrapPartitionMetadata": {},
    "extraMetadata": {"savepointed_timestamps": "20250126040823628"},
}


def without(schema, *names):
    return schema | {"fields": [field for field in schema["fields"] if field["name"] not in names]}


def test_a_plan_is_read_back():
    assert decode_clean_plan(encode_clean_plan(PLAN, root=ROOT)) == PLAN


def test_hudi_reads_our_plan():
    assert read_by_hudi(encode_clean_plan(PLAN, root=ROOT), HUDI_PLAN) == PLAN_RECORD


def test_a_plan_of_hudi_is_read():
    assert decode_clean_plan(written_by_hudi(HUDI_PLAN, PLAN_RECORD)) == PLAN


def test_a_plan_is_good_for_a_table_that_was_moved():
    """Names and partitions count; where the table was when the plan was made does not."""
    elsewhere = encode_clean_plan(PLAN, root="/mnt/other place")

    assert decode_clean_plan(elsewhere) == PLAN


def test_a_plan_that_counts_versions_names_no_earliest_commit():
    plan = StoredCleanPlan(
        earliest=None,
        earliest_action=None,
        last_completed=None,
        policy="KEEP_LATEST_FILE_VERSIONS",
        files={"p": (OLD_1,)},
    )

    content = encode_clean_plan(plan, root=ROOT)

    assert read_by_hudi(content, HUDI_PLAN)["earliestInstantToRetain"] is None
    assert read_by_hudi(content, HUDI_PLAN)["lastCompletedCommitTimestamp"] == ""
    assert decode_clean_plan(content) == plan


def test_nulls_in_a_plan_of_hudi_mean_nothing_to_do():
    plan = decode_clean_plan(written_by_hudi(HUDI_PLAN, {"policy": POLICY}))

    assert (plan.earliest, plan.last_completed, plan.files) == (None, None, {})
    assert (plan.partitions_to_delete, plan.extra) == ((), {})


def test_a_plan_of_the_first_releases_lists_names():
    older = without(
        HUDI_PLAN,
        "lastCompletedCommitTimestamp",
        "filePathsToBeDeletedPerPartition",
        "partitionsToBeDeleted",
        "extraMetadata",
    )
    record = PLAN_RECORD | {"filesToBeDeletedPerPartition": {"p": [OLD_1, OLD_2]}, "version": 1}

    plan = decode_clean_plan(written_by_hudi(older, record))

    assert plan.files == {"p": (OLD_1, OLD_2)}
    assert plan.last_completed is None


@pytest.mark.parametrize(
    "files",
    [
        {"p": [info(f"{ROOT}/q/{OLD_1}")]},
        {"p": [info(f"{ROOT}/xp/{OLD_1}")]},
        {"p": [info(f"{ROOT}/p/")]},
        {"p": [info(None)]},
        {"p": [info(f"{ROOT}/p/{OLD_1}", is_bootstrap=True)]},
    ],
)
def test_a_plan_that_would_delete_elsewhere_is_refused(files):
    record = PLAN_RECORD | {"filePathsToBeDeletedPerPartition": files}

    with pytest.raises(Malformed, match="outside"):
        decode_clean_plan(written_by_hudi(HUDI_PLAN, record))


def test_a_name_that_leads_elsewhere_is_refused():
    record = PLAN_RECORD | {"filesToBeDeletedPerPartition": {"p": [f"../q/{OLD_1}"]}}

    with pytest.raises(Malformed, match="outside"):
        decode_clean_plan(written_by_hudi(HUDI_PLAN, record))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lastCompletedCommitTimestamp": "now"}, "time"),
        (
            {"earliestInstantToRetain": {"timestamp": "2025", "action": "commit", "state": "COMPLETED"}},
            "time",
        ),
        (
            {"earliestInstantToRetain": {"timestamp": EARLIEST, "action": "dance", "state": "COMPLETED"}},
            "action",
        ),
    ],
)
def test_a_plan_whose_instants_are_none_is_refused(change, said):
    with pytest.raises(Malformed, match=said):
        decode_clean_plan(written_by_hudi(HUDI_PLAN, PLAN_RECORD | change))


def test_a_plan_keeps_many_files_in_order():
    names = tuple(f"{number}.parquet" for number in range(20_000))
    plan = StoredCleanPlan(
        earliest=EARLIEST, earliest_action=Action.COMMIT, last_completed=NEWEST, policy=POLICY,
        files={"p": names},
    )  # fmt: skip

    assert decode_clean_plan(encode_clean_plan(plan, root=ROOT)).files["p"] == names


def test_metadata_is_read_back():
    assert decode_clean_metadata(encode_clean_metadata(METADATA)) == METADATA


def test_hudi_reads_our_metadata():
    assert read_by_hudi(encode_clean_metadata(METADATA), HUDI_METADATA) == METADATA_RECORD


def test_metadata_of_hudi_is_read():
    assert decode_clean_metadata(written_by_hudi(HUDI_METADATA, METADATA_RECORD)) == METADATA


def test_an_earliest_commit_that_is_empty_is_none():
    record = METADATA_RECORD | {"earliestCommitToRetain": "", "lastCompletedCommitTimestamp": ""}

    metadata = decode_clean_metadata(written_by_hudi(HUDI_METADATA, record))

    assert (metadata.earliest, metadata.last_completed) == (None, None)


def test_metadata_of_the_first_releases_lists_addresses():
    partition = without(HUDI_PARTITION, "isPartitionDeleted")
    older = json.loads(
        json.dumps(
            without(
                HUDI_METADATA, "bootstrapPartitionMetadata", "extraMetadata", "lastCompletedCommitTimestamp"
            )
        )
    )
    older["fields"][4]["type"]["values"] = partition
    each = METADATA_RECORD["partitionMetadata"][""] | {"successDeleteFiles": [f"{ROOT}/{OLD_1}"]}

    metadata = decode_clean_metadata(
        written_by_hudi(older, METADATA_RECORD | {"partitionMetadata": {"": each}})
    )

    assert metadata.partitions == (CleanedPartition(partition="", policy=POLICY, deleted=(OLD_1,)),)
    assert (metadata.last_completed, metadata.extra) == (None, {})


def test_fields_of_a_later_release_are_ignored():
    later = json.loads(json.dumps(HUDI_METADATA))
    later["fields"].append({"name": "novelty", "type": "string"})

    metadata = decode_clean_metadata(written_by_hudi(later, METADATA_RECORD | {"novelty": "x"}))

    assert metadata == METADATA


@pytest.mark.parametrize(
    "change",
    [
        {"startCleanTime": "now"},
        {"earliestCommitToRetain": "2025"},
        {"lastCompletedCommitTimestamp": "yesterday"},
    ],
)
def test_metadata_with_a_wrong_time_is_refused(change):
    with pytest.raises(Malformed, match="time"):
        decode_clean_metadata(written_by_hudi(HUDI_METADATA, METADATA_RECORD | change))


def test_a_plan_and_metadata_are_not_taken_for_each_other():
    with pytest.raises(Malformed):
        decode_clean_plan(encode_clean_metadata(METADATA))
    with pytest.raises(Malformed):
        decode_clean_metadata(encode_clean_plan(PLAN, root=ROOT))


def test_a_field_of_another_type_is_refused():
    schema = json.loads(json.dumps(HUDI_METADATA))
    schema["fields"][1]["type"] = "string"

    with pytest.raises(Malformed, match="timeTakenInMillis"):
        decode_clean_metadata(encode_container(schema, METADATA_RECORD | {"timeTakenInMillis": "long"}))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("decode", "content"),
    [
        (decode_clean_plan, encode_clean_plan(PLAN, root=ROOT)),
        (decode_clean_metadata, encode_clean_metadata(METADATA)),
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
