import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.format.commits import (
    CommitMetadata,
    RuntimeStats,
    WriteStat,
    decode_commit,
    decode_replaced_file_ids,
    decode_writes,
    decode_writes_in,
    decode_written_files,
    encode_commit,
    inflight_metadata,
)
from holdfast.format.malformed import Malformed

NEW_FILE = WriteStat(
    "a-0",
    "10/a-0_0-95-135_20240707001302376.parquet",
    num_writes=2,
    num_inserts=2,
    total_write_bytes=441556,
    partition_path="10",
    file_size_in_bytes=441556,
    runtime_stats=RuntimeStats(total_create_time=94),
)
LOG_FILE = WriteStat(
    "b-0",
    "10/.b-0_20240707001301554.log.1_0-26-85",
    cdc_stats={"10/.b-0.cdc": 12},
    prev_commit="20240707001301554",
    num_deletes=1,
    partition_path="10",
    file_size_in_bytes=1148,
    min_event_time=1,
    max_event_time=2**62,
    log_version=1,
    log_offset=0,
    base_file="b-0_0-13-60_20240707001301554.parquet",
    log_files=[".b-0_20240707001301554.log.1_0-26-85"],
    records_stats={"val": None},
)
COMMIT = CommitMetadata(
    {"10": [NEW_FILE, LOG_FILE], "städte/😀": []},
    extra_metadata={"schema": '{"type":"record"}', "note": None},
    operation_type="INSERT_OVERWRITE",
    partition_to_replace_file_ids={"10": ["old-0", "old-1"], "20": []},
)

DECODERS = (
    decode_commit,
    decode_replaced_file_ids,
    decode_writes,
    decode_written_files,
    lambda content: decode_writes_in(content, ["10"]),
)


def test_a_commit_is_read_back():
    assert decode_commit(encode_commit(COMMIT)) == COMMIT


def test_a_new_file_has_the_members_hudi_writes_and_no_others():
    commit = encode_commit(CommitMetadata({"10": [NEW_FILE]}, operation_type="UPSERT"))

    assert json.loads(commit) == {
        "partitionToWriteStats": {
            "10": [
                {
                    "fileId": "a-0",
                    "path": "10/a-0_0-95-135_20240707001302376.parquet",
                    "cdcStats": None,
                    "prevCommit": "null",
                    "numWrites": 2,
                    "numDeletes": 0,
                    "numUpdateWrites": 0,
                    "numInserts": 2,
                    "totalWriteBytes": 441556,
                    "totalWriteErrors": 0,
                    "tempPath": None,
                    "partitionPath": "10",
                    "totalLogRecords": 0,
                    "totalLogFilesCompacted": 0,
                    "totalLogSizeCompacted": 0,
                    "totalUpdatedRecordsCompacted": 0,
                    "totalLogBlocks": 0,
                    "totalCorruptLogBlock": 0,
                    "totalRollbackBlocks": 0,
                    "fileSizeInBytes": 441556,
                    "minEventTime": None,
                    "maxEventTime": None,
                    "runtimeStats": {"totalScanTime": 0, "totalUpsertTime": 0, "totalCreateTime": 94},
                }
            ]
        },
        "compacted": False,
        "extraMetadata": {},
        "operationType": "UPSERT",
    }


def test_a_log_file_has_the_members_of_a_delta_as_well():
    stat = json.loads(encode_commit(COMMIT))["partitionToWriteStats"]["10"][1]

    assert list(stat)[-5:] == ["logVersion", "logOffset", "baseFile", "logFiles", "recordsStats"]


def test_members_nobody_knows_are_ignored():
    content = json.loads(encode_commit(COMMIT))
    content["novelty"] = {"a": [1, 2]}
    content["partitionToWriteStats"]["10"][0]["prevBaseFile"] = "x"

    assert decode_commit(json.dumps(content).encode()) == COMMIT


def test_absent_members_have_the_values_hudi_gives_them():
    content = b'{"partitionToWriteStats":{"":[{"fileId":"a-0","path":"a.parquet"}]}}'

    commit = decode_commit(content)

    assert commit == CommitMetadata({"": [WriteStat("a-0", "a.parquet", prev_commit="null")]})
    assert commit.operation_type == "UNKNOWN"
    assert commit.compacted is False


def test_an_inflight_file_announces_the_operation_and_no_workload():
    assert json.loads(inflight_metadata("UPSERT")) == {
        "partitionToWriteStats": {},
        "compacted": False,
        "extraMetadata": {},
        "operationType": "UPSERT",
    }


def test_one_question_is_answered_without_the_rest():
    content = encode_commit(COMMIT)

    assert decode_replaced_file_ids(content) == {"10": ["old-0", "old-1"], "20": []}
    assert {f.path: f.file_size_in_bytes for f in decode_written_files(content)} == {
        "10/a-0_0-95-135_20240707001302376.parquet": 441556,
        "10/.b-0_20240707001301554.log.1_0-26-85": 1148,
    }


@pytest.mark.parametrize(
    ("operation", "text", "schema"),
    [
        ("UPSERT", "{}", "{}"),
        (None, "{}", "{}"),
        ("UPSERT", "", None),
        ("UPSERT", None, None),
        ("CLUSTER", "{}", None),
        ("COMPACT", "{}", None),
    ],
)
def test_a_commit_tells_the_schema_of_its_files_unless_it_rewrote_others(operation, text, schema):
    commit = CommitMetadata({"10": [NEW_FILE]}, extra_metadata={"schema": text}, operation_type=operation)

    said = decode_writes(encode_commit(commit))

    assert [file.path for file in said.files] == [NEW_FILE.path]
    assert said.schema == schema


def test_of_some_partitions_only_the_files_in_those_are_told():
    commit = encode_commit(CommitMetadata({"10": [NEW_FILE, LOG_FILE], "20": [WriteStat("b", path="20/b")]}))

    assert [file.path for file in decode_writes_in(commit, ["20", "30"])] == ["20/b"]
    assert decode_writes_in(commit, ["10", "20"]) == decode_writes(commit).files
    assert decode_writes_in(commit, []) == []


def test_a_commit_that_replaces_nothing_hides_nothing():
    assert decode_replaced_file_ids(encode_commit(CommitMetadata({}))) == {}


def test_planned_files_without_path_have_no_size():
    planned = CommitMetadata({"10": [WriteStat("", num_inserts=3)]})

    assert decode_written_files(encode_commit(planned)) == []


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("content", [b"", b" ", b"[]", b"null", b"{", b"{}{}", b'{"x":' + b"[" * 200_000])
def test_what_is_not_a_json_object_is_refused(decode, content):
    with pytest.raises(Malformed):
        decode(content)


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"partitionToWriteStats":null}',
        b'{"partitionToWriteStats":{"a":[{}]}}',
        b'{"partitionToWriteStats":{"a":[{"fileId":7}]}}',
        b'{"partitionToWriteStats":{"a":[{"fileId":"\xff"}]}}',
        b'{"partitionToWriteStats":{"a":[{"fileId":"\\ud800"}]}}',
        b'{"partitionToWriteStats":{"a":[{"fileId":"a","numWrites":"1"}]}}',
        b'{"partitionToWriteStats":{"a":[{"fileId":"a","numWrites":9223372036854775808}]}}',
        b'{"partitionToWriteStats":{"a":[{"fileId":"a","numWrites":' + b"9" * 5000 + b"}]}}",
        b'{"partitionToWriteStats":{},"extraMetadata":{"a":1}}',
        b'{"partitionToWriteStats":{},"partitionToReplaceFileIds":{"a":"b"}}',
    ],
)
def test_members_of_a_wrong_type_are_refused(content):
    with pytest.raises(Malformed):
        decode_commit(content)


def test_the_refusal_names_the_place():
    content = b'{"partitionToWriteStats":{"a":[{"fileId":"a"},{"fileId":7}]}}'

    with pytest.raises(Malformed, match=r"\[1\]\.fileId"):
        decode_commit(content)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("decode", DECODERS)
def test_a_damaged_commit_is_read_or_refused(damaged, decode):
    content = encode_commit(COMMIT)
    refused = 0

    for copy in damaged(content):
        try:
            decode(copy)
        except Malformed:
            refused += 1

    assert refused > len(content)


@pytest.mark.parametrize("decode", DECODERS)
def test_every_truncation_is_refused(decode):
    content = encode_commit(COMMIT)

    for size in range(len(content)):
        with pytest.raises(Malformed):
            decode(content[:size])


@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=3, max_size=3),
    number=st.integers(-(2**63), 2**63 - 1),
)
def test_any_text_and_any_java_long_are_read_back(names, number):
    partition, path, note = names
    commit = CommitMetadata(
        {partition: [WriteStat("a", path, num_writes=number, log_version=number)]},
        extra_metadata={note: note},
    )

    assert decode_commit(encode_commit(commit)) == commit


def test_a_hundred_thousand_files_take_well_under_a_second():
    stats = [
        WriteStat(
            f"{number:036d}-0", f"10/{number:036d}-0_0-95-135_20240707001302376.parquet", partition_path="10"
        )
        for number in range(100_000)
    ]
    commit = CommitMetadata({"10": stats}, partition_to_replace_file_ids={"10": ["a"]})

    began = time.perf_counter()
    content = encode_commit(commit)
    encoded = time.perf_counter()
    replaced = decode_replaced_file_ids(content)
    answered = time.perf_counter()

    assert replaced == {"10": ["a"]}
    assert encoded - began < 0.8
    assert answered - encoded < 0.5


def test_commits_of_hudi_are_read_without_losing_a_member_and_survive_a_round_trip(hudi_table):
    completed = 0

    for name, content in _commit_files(hudi_table):
        commit = decode_commit(content)
        written = encode_commit(commit)

        assert json.loads(written) == json.loads(content), name
        assert decode_commit(written) == commit
        completed += not name.endswith(".inflight")

    assert bool(completed) == (not hudi_table.name.endswith("_empty"))


def test_single_answers_from_commits_of_hudi_agree_with_the_whole(hudi_table):
    for name, content in _commit_files(hudi_table):
        whole = json.loads(content)

        assert decode_replaced_file_ids(content) == whole.get("partitionToReplaceFileIds", {})
        sizes = {f.path: f.file_size_in_bytes for f in decode_written_files(content)}
        if not name.endswith(".inflight"):
            assert sizes == {path: (hudi_table / path).stat().st_size for path in sizes}
            assert len(sizes) == sum(map(len, whole["partitionToWriteStats"].values()))


def _commit_files(table):
    """Name and content of every instant file of a table that holds commit metadata."""
    for file in sorted((table / ".hoodie").glob("[0-9]*")):
        # What Hudi's bulk insert keeps as inflight may be empty.
        if not file.name.endswith(".requested") and (
            not file.name.endswith(".inflight") or file.stat().st_size
        ):
            yield file.name, file.read_bytes()
