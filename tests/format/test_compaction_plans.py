import io
import json

import fastavro
import pytest

from holdfast.format.avro import encode_container
from holdfast.format.compaction_plans import (
    CompactionOperation,
    CompactionPlan,
    decode_compaction_plan,
    encode_compaction_plan,
)
from holdfast.format.malformed import Malformed

BASE_INSTANT = "20260307135827749"
BASE = f"db2fca8f-0_1-3-7_{BASE_INSTANT}.parquet"
LOG = f".db2fca8f-0_{BASE_INSTANT}.log.1_0-10-23"
METRICS = {"TOTAL_LOG_FILES": 2.0, "TOTAL_IO_MB": 0.0}
PLAN = CompactionPlan(
    (
        CompactionOperation("db2fca8f-0", "region=us", BASE_INSTANT, BASE, (LOG,), METRICS),
        CompactionOperation("new-0", "", BASE_INSTANT, None, (f".new-0_{BASE_INSTANT}.log.1",)),
    ),
    {"a": "b"},
)

HUDI_SCHEMA = {
    "type": "record", "name": "HoodieCompactionPlan", "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "operations", "type": ["null", {"type": "array", "items": {
            "type": "record", "name": "HoodieCompactionOperation", "fields": [
                {"name": "baseInstantTime", "type": ["null", "string"]},
                {"name": "deltaFilePaths", "type": ["null", {"type": "array", "items": "string"}],
                 "default": None},
                {"name": "dataFilePath", "type": ["null", "string"], "default": None},
                {"name": "fileId", "type": ["null", "string"]},
                {"name": "partitionPath", "type": ["null", "string"], "default": None},
                {"name": "metrics", "type": ["null", {"type": "map", "values": "double"}], "default": None},
                {"name": "bootstrapFilePath", "type": ["null", "string"], "default": None},
            ]}}], "default": None},
        {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None},
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "strategy", "type": ["null", {
            "type": "record", "name": "HoodieCompactionStrategy", "fields": [
                {"name": "compactorClassName", "type": ["null", "string"], "default": None},
                {"name": "strategyParams", "type": ["null", {"type": "map", "values": "string"}],
                 "default": None},
                {"name": "version", "type": ["int", "null"], "default": 1},
            ]}], "default": None},
        {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
    ],
}  # fmt: skip


def of_hudi(operations, *, more=(), **values):
    """A plan as another program writes it; `more` are fields that we do not know."""
    schema = {**HUDI_SCHEMA, "fields": [*HUDI_SCHEMA["fields"], *more]}
    return encode_container(schema, {"operations": operations, **values})


def operation(**values):
    return {"baseInstantTime": BASE_INSTANT, "fileId": "a-0", **values}


def test_a_plan_is_read_back():
    assert decode_compaction_plan(encode_compaction_plan(PLAN)) == PLAN


def test_the_schema_we_write_is_that_of_hudi():
    ours = json.loads(fastavro.reader(io.BytesIO(encode_compaction_plan(PLAN))).metadata["avro.schema"])

    canonical = [fastavro.schema.to_parsing_canonical_form(schema) for schema in (ours, HUDI_SCHEMA)]
    assert canonical[0] == canonical[1]


def test_another_program_reads_our_plan():
    (record,) = fastavro.reader(io.BytesIO(encode_compaction_plan(PLAN)))

    assert (record["version"], record["strategy"], record["preserveHoodieMetadata"]) == (2, None, False)
    assert record["operations"][0] == {
        "baseInstantTime": BASE_INSTANT,
        "deltaFilePaths": [LOG],
        "dataFilePath": BASE,
        "fileId": "db2fca8f-0",
        "partitionPath": "region=us",
        "metrics": METRICS,
        "bootstrapFilePath": None,
    }


def test_fields_that_are_not_known_are_ignored():
    names = {"type": "array", "items": "string"}
    more = [{"name": "missingSchedulePartitions", "type": ["null", names], "default": None}]

    plan = decode_compaction_plan(of_hudi([operation()], more=more, missingSchedulePartitions=["p"]))

    assert plan.operations == (CompactionOperation("a-0", "", BASE_INSTANT),)


def test_absolute_paths_of_old_plans_are_read_as_names():
    logs = [f"hdfs://h/t/p/{LOG}"]

    (read,) = decode_compaction_plan(
        of_hudi([operation(dataFilePath=f"hdfs://h/t/p/{BASE}", deltaFilePaths=logs)], version=1)
    ).operations

    assert (read.base_file, read.log_files) == (BASE, (LOG,))


@pytest.mark.parametrize("operations", [None, []])
def test_a_plan_may_be_empty(operations):
    assert decode_compaction_plan(of_hudi(operations)).operations == ()


def test_a_slice_without_instant_is_left_without():
    (read,) = decode_compaction_plan(of_hudi([operation(baseInstantTime=None)])).operations

    assert read.base_instant is None


@pytest.mark.parametrize("wrong", [{"fileId": None}, {"baseInstantTime": "yesterday"}])
def test_an_operation_that_names_nothing_is_refused(wrong):
    with pytest.raises(Malformed, match="compaction plan"):
        decode_compaction_plan(of_hudi([operation(**wrong)]))


def test_a_record_of_another_kind_is_refused():
    schema = {"type": "record", "name": "Other", "fields": [{"name": "version", "type": "int"}]}

    with pytest.raises(Malformed, match="compaction plan"):
        decode_compaction_plan(encode_container(schema, {"version": 1}))


@pytest.mark.timeout(60)
def test_a_damaged_plan_is_read_or_refused(damaged):
    content = encode_compaction_plan(PLAN)
    refused = 0

    for copy in damaged(content):
        try:
            decode_compaction_plan(copy)
        except Malformed:
            refused += 1

    assert refused >= len(content) - 1
