import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hudi_avro import read_by_hudi, written_by_hudi
from holdfast.format.avro import encode_container
from holdfast.format.malformed import Malformed
from holdfast.format.rollbacks import RollbackPlan, RolledBackInstant, encode_rollback_plan
from holdfast.format.savepoints import decode_savepoint, encode_savepoint, savepoint_of
from holdfast.model.instant import Action, InstantTime

SAVEPOINT = savepoint_of(
    user="ada",
    at_ms=1_737_864_506_878,
    comment="before the April backfill",
    files={
        "city=köln": ("a-0_0-1-2_20250126040826878.parquet", ".a-0_20250126040826878.log.1_0-3-4"),
        "": ("b-0_1-1-2_20250126040826878.parquet",),
    },
)

# The fields that Hudi reads, in the order and types of its own release 0.15.
HUDI_SAVEPOINT = {
    "type": "record",
    "name": "HoodieSavepointMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "savepointedBy", "type": "string"},
        {"name": "savepointedAt", "type": "long"},
        {"name": "comments", "type": "string"},
        {
            "name": "partitionMetadata",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "HoodieSavepointPartitionMetadata",
                    "fields": [
                        {"name": "partitionPath", "type": "string"},
                        {"name": "savepointDataFile", "type": {"type": "array", "items": "string"}},
                    ],
                },
            },
        },
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}
RECORD = {
    "savepointedBy": "ada",
    "savepointedAt": 1_737_864_506_878,
    "comments": "before the April backfill",
    "partitionMetadata": {
        "city=köln": {
            "partitionPath": "city=köln",
            "savepointDataFile": [
                "a-0_0-1-2_20250126040826878.parquet",
                ".a-0_20250126040826878.log.1_0-3-4",
            ],
        },
        "": {"partitionPath": "", "savepointDataFile": ["b-0_1-1-2_20250126040826878.parquet"]},
    },
    "version": 1,
}

# Hudi's schema in front, then one block: user, moment, comment, one partition with one file, version 1.
GOLDEN_PAYLOAD = bytes.fromhex("02750202630202700270020266000000") + b"\x02"


def test_a_savepoint_is_read_back():
    assert decode_savepoint(encode_savepoint(SAVEPOINT)) == SAVEPOINT


def test_hudi_reads_our_savepoint():
    assert read_by_hudi(encode_savepoint(SAVEPOINT), HUDI_SAVEPOINT) == RECORD


def test_a_savepoint_of_hudi_is_read():
    assert decode_savepoint(written_by_hudi(HUDI_SAVEPOINT, RECORD)) == SAVEPOINT


def test_the_bytes_of_a_savepoint_are_those_the_format_prescribes():
    content = encode_savepoint(savepoint_of("u", 1, "c", {"p": ("f",)}))

    embedded = json.loads(fastavro.reader(io.BytesIO(content)).metadata["avro.schema"])
    sync = content[-16:]
    assert [field["name"] for field in embedded["fields"]] == [f["name"] for f in HUDI_SAVEPOINT["fields"]]
    assert (embedded["namespace"], embedded["name"]) == (
        "org.apache.hudi.avro.model",
        "HoodieSavepointMetadata",
    )
    assert content.endswith(sync + b"\x02" + bytes([2 * len(GOLDEN_PAYLOAD)]) + GOLDEN_PAYLOAD + sync)


def test_a_savepoint_of_an_older_release_has_no_version():
    older = HUDI_SAVEPOINT | {"fields": HUDI_SAVEPOINT["fields"][:-1]}

    assert decode_savepoint(written_by_hudi(older, RECORD)) == SAVEPOINT


def test_fields_of_a_later_release_are_ignored():
    later = HUDI_SAVEPOINT | {"fields": [*HUDI_SAVEPOINT["fields"], {"name": "novelty", "type": "string"}]}

    assert decode_savepoint(written_by_hudi(later, RECORD | {"novelty": "x"})) == SAVEPOINT


def test_a_savepoint_keeps_many_files_in_order():
    names = tuple(f"{number}.parquet" for number in range(20_000))
    many = savepoint_of("", 0, "", {"p": names})

    assert decode_savepoint(encode_savepoint(many)).files["p"] == names


def test_equal_savepoints_have_equal_bytes():
    assert encode_savepoint(SAVEPOINT) == encode_savepoint(decode_savepoint(encode_savepoint(SAVEPOINT)))


_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(
    user=_TEXT,
    at_ms=st.integers(-(2**63), 2**63 - 1),
    comment=_TEXT,
    files=st.dictionaries(_TEXT, st.lists(_TEXT, max_size=4).map(tuple), max_size=4),
)
def test_any_savepoint_is_read_back_by_us_and_by_hudi(user, at_ms, comment, files):
    savepoint = savepoint_of(user, at_ms, comment, files)

    content = encode_savepoint(savepoint)

    assert decode_savepoint(content) == savepoint
    record = read_by_hudi(content, HUDI_SAVEPOINT)
    assert (record["savepointedBy"], record["savepointedAt"], record["comments"]) == (user, at_ms, comment)
    assert {
        partition: (each["partitionPath"], tuple(each["savepointDataFile"]))
        for partition, each in record["partitionMetadata"].items()
    } == {partition: (partition, names) for partition, names in files.items()}


def test_a_rollback_plan_is_not_taken_for_a_savepoint():
    plan = RollbackPlan(RolledBackInstant(InstantTime("20250126040826878"), Action.COMMIT), ())

    with pytest.raises(Malformed, match="savepoint"):
        decode_savepoint(encode_rollback_plan(plan))


def test_a_field_of_another_type_is_refused():
    schema = json.loads(json.dumps(HUDI_SAVEPOINT))
    schema["fields"][1]["type"] = "string"

    with pytest.raises(Malformed, match="savepointedAt"):
        decode_savepoint(encode_container(schema, RECORD | {"savepointedAt": "today"}))


@pytest.mark.timeout(60)
def test_damaged_content_is_read_or_refused(damaged):
    content = encode_savepoint(SAVEPOINT)
    refused = 0

    for copy in damaged(content):
        try:
            decode_savepoint(copy)
        except Malformed:
            refused += 1

    assert refused >= len(content)
