"""Job files of pushes."""

import copy
import datetime as dt
from pathlib import Path

import pytest

from holdfast.config.documents import read_document
from holdfast.config.push_job import (
    Backfill,
    FileInput,
    SegmentNaming,
    SegmentSizing,
    TableInput,
    load_push_job,
    parse_push_job,
)
from holdfast.errors import InvalidOption

PINOT_JOBS = Path(__file__).parent / "pinot_jobs"
STANDALONE_CSV = (PINOT_JOBS / "standalone.yaml").read_text()
SPARK_METADATA = (PINOT_JOBS / "spark.yaml").read_text()
SHORT = """
tableSpec: {tableName: trips}
pinotClusterSpecs: [{controllerURI: "http://127.0.0.1:9000"}]
source: {table: lake/trips}
"""


@pytest.fixture
def load(tmp_path):
    def load(text, values=None):
        (tmp_path / "job.yaml").write_text(text)
        return load_push_job(tmp_path / "job.yaml", values)

    return load


def test_a_job_of_pinots_is_read_as_it_is(load, tmp_path):
    job = load(STANDALONE_CSV)

    assert (job.table, job.controllers) == ("baseballStats", ("http://localhost:9000",))
    assert job.input == FileInput(
        folder=f"{tmp_path}/examples/batch/baseballStats/rawdata",
        format="csv",
        include="glob:**/*.csv",
        options={"header": "true"},
    )
    assert (job.attempts, job.retry_ms) == (2, 1000)
    assert (job.output, job.copies) == ("", False)
    assert job.naming == SegmentNaming()
    assert job.warnings == ()


def test_a_job_of_pinots_for_spark_with_every_key_is_read_as_it_is(load):
    job = load(SPARK_METADATA)

    assert (job.table, job.controllers) == ("airlineStats_OFFLINE", ("http://one:9000", "https://two"))
    assert job.input == FileInput(
        folder="s3://bucket/raw/",
        format="parquet",
        include="glob:**/*.parquet",
        exclude="regex:.*_SUCCESS",
    )
    assert job.naming == SegmentNaming(
        kind="normalizedDate",
        prefix="airlineStats_batch",
        postfix="x",
        exclude_sequence=True,
        exclude_time=True,
        numbers_all_files=True,
    )
    assert (job.output, job.copies) == ("s3://bucket/segments/", True)
    assert (job.parallelism, job.attempts, job.retry_ms, job.fail_on_empty) == (4, 3, 500, True)
    assert job.token == "Basic YWRtaW46dmVyeXNlY3JldA"
    assert job.warnings == ("pinotFSSpecs.configs of s3 are not used: configure Spark and the environment",)


def test_java_classes_that_nobody_knows_cost_one_warning(load):
    text = STANDALONE_CSV.replace(
        "org.apache.pinot.plugin.inputformat.csv.CSVRecordReader'", "com.acme.Reader'"
    )
    text = text.replace("org.apache.pinot.spi.filesystem.LocalPinotFS", "com.acme.Files")

    assert load(text).warnings == ("Java classes are not loaded: com.acme.Files, com.acme.Reader",)


def test_a_schema_from_elsewhere_is_not_read_and_that_is_told(load):
    text = STANDALONE_CSV.replace("'http://localhost:9000/tables/baseballStats/schema'", "schema.json")

    assert load(text).warnings == ("tableSpec.schemaURI is not read: the controller knows the table",)


def test_the_short_form_has_defaults_for_everything(load, tmp_path):
    job = load(SHORT)

    assert job.input == TableInput(path=f"{tmp_path}/lake/trips")
    assert job.sizing == SegmentSizing()
    assert (job.attempts, job.lease_ms, job.allow_empty, job.gates) == (5, 30_000, False, ())


def test_every_key_of_our_own_is_read(load, tmp_path):
    (tmp_path / "token").write_text("Bearer abc\n")
    job = load(
        SHORT.replace("{table: lake/trips}", "{table: /lake/trips, as_of: 20260102030405678}")
        + """
gates:
  - min_rows: 10
  - row_change: {min_percent: -5}
  - not_null: city
  - unique: [id, city]
  - sql: {name: fares, query: SELECT min(fare) >= 0 FROM snapshot}
segments: {bytes: 64M}
backfill: {start: 2026-01-01, end: "2026-01-02T12:00:00+02:00", partition: {country: NO}}
columns: [id, city]
note: nightly run
authToken: file:token
allow_empty: true
lease: 1m
"""
    )

    assert job.input == TableInput(path="/lake/trips", as_of="20260102030405678")
    assert job.gates[0] == {"min_rows": 10}
    assert len(job.gates) == 5
    assert job.sizing == SegmentSizing(bytes=64 << 20)
    midnight = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
    assert job.backfill == Backfill(
        start_ms=midnight, end_ms=midnight + 34 * 3_600_000, partition=("country", "NO")
    )
    assert (job.columns, job.note, job.token) == (("id", "city"), "nightly run", "Bearer abc")
    assert (job.allow_empty, job.lease_ms) == (True, 60_000)


def test_names_stand_for_given_values_first_and_then_for_the_environment(load, tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE", "of-the-environment")
    monkeypatch.setenv("PLACE", "eu")
    text = SHORT.replace("{table: lake/trips}", "{table: '${LAKE}/${PLACE}/trips'}")

    assert load(text).input == TableInput(path=f"{tmp_path}/of-the-environment/eu/trips")
    assert load(text, {"LAKE": "given"}).input == TableInput(path=f"{tmp_path}/given/eu/trips")


def test_a_token_may_stand_in_the_environment_and_is_never_shown(load, monkeypatch):
    monkeypatch.setenv("PUSH_TOKEN", "canary-9f2")
    job = load(SHORT + "authToken: env:PUSH_TOKEN\n")

    assert job.token == "canary-9f2"
    assert "canary" not in repr(job)


def test_a_program_may_leave_the_input_out_and_bring_a_frame():
    job = parse_push_job(
        {"tableSpec": {"tableName": "trips"}, "pinotClusterSpecs": [{"controllerURI": "http://h:1"}]}, "/"
    )

    assert job.input is None


@pytest.mark.parametrize(
    ("added", "line", "key", "told"),
    [
        ("gate: []", 5, "gate", "did you mean gates?"),
        ("jobTyp: SegmentCreation", 5, "jobTyp", "did you mean jobType?"),
        ("pushJobSpec:\n  pushAttemps: 2", 6, "pushJobSpec.pushAttemps", "did you mean pushAttempts?"),
        ("gates:\n  - min_rows: 1\n  - min_row: 1", 7, "gates[1]", "did you mean min_rows?"),
        ("gates: {min_rows: 1}", 5, "gates", "not a list"),
        ("gates:\n  - not_null: 5", 6, "gates[0]", "not a column name"),
        ("segments: {rows: none}", 5, "segments.rows", "not a whole number"),
        ("segments: {rows: 1, bytes: 1M}", 5, "segments.bytes", "by rows or by bytes"),
        ("segments: {bytes: lots}", 5, "segments.bytes", "not a size"),
        ("segments: 5", 5, "segments", "not a mapping"),
        ("jobType: SegmentCreation", 5, "jobType", "use SegmentCreationAndMetadataPush"),
        ("jobType: Everything", 5, "jobType", "none of"),
        ("inputDirURI: data", 4, "source", "a job has one input"),
        ("includeFileNamePattern: '*.csv'", 5, "includeFileNamePattern", "glob:"),
        ("excludeFileNamePattern: 'regex:('", 5, "excludeFileNamePattern", "not a regular expression"),
        ("searchRecursively: sometimes", 5, "searchRecursively", "neither true nor false"),
        ("backfill: {start: 2026-01-02, end: 2026-01-02}", 5, "backfill.end", "not after the start"),
        ("backfill: {start: 2026-01-02}", 5, "backfill.end", "a key is missing"),
        ("backfill: {start: soon, end: 2026-01-02}", 5, "backfill.start", "a value is wrong"),
        (
            "backfill: {start: 2026-01-01, end: 2026-01-02, partition: {a: 1, b: 2}}",
            5,
            "backfill.partition",
            "not one column",
        ),
        (
            "segmentNameGeneratorSpec: {type: uploadedRealtime}",
            5,
            "segmentNameGeneratorSpec.type",
            "simple, normalizedDate",
        ),
        (
            "segmentNameGeneratorSpec: {type: fixed}",
            5,
            "segmentNameGeneratorSpec.configs",
            "segment.name",
        ),
        (
            "segmentNameGeneratorSpec: {type: inputFile, configs: {file.path.pattern: .+}}",
            5,
            "segmentNameGeneratorSpec.configs",
            "segment.name.template",
        ),
        (
            "segmentNameGeneratorSpec: {type: inputFile, configs: {file.path.pattern: '('}}",
            5,
            "segmentNameGeneratorSpec.configs.file.path.pattern",
            "not a regular expression",
        ),
        ("authToken: env:NOT_THERE_AT_ALL", 5, "authToken", "the environment has no"),
        ("authToken: file:absent", 5, "authToken", "cannot be read"),
        ("pinotFSSpecs: [5]", 5, "pinotFSSpecs[0]", "not a mapping"),
        ("recordReaderSpec: {dataFormat: thrift}", 5, "recordReaderSpec.dataFormat", "none of parquet"),
        (
            "recordReaderSpec: {dataFormat: csv, configs: {delimeter: ;}}",
            5,
            "recordReaderSpec.configs.delimeter",
            "did you mean delimiter?",
        ),
        ("note: [1]", 5, "note", "not a text"),
        ("lease: 1s", 5, "lease", "10s to 1h"),
        ("columns: {}", 5, "columns", "not a list"),
        ("note: ${NOBODY_GIVES_THIS}", 5, "note", "nothing is given"),
        ("note: a\nnote: b", 6, "note", "stands twice"),
        ("note: &a [*a]", 5, "note[0]", "leads back to itself"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line_and_its_key(refused, added, line, key, told):
    error, found_line, found_key = refused(SHORT + added + "\n")

    assert (found_line, found_key) == (line, key)
    assert told in str(error)


@pytest.mark.parametrize(
    ("before", "after", "line", "key"),
    [
        ("tableSpec:", "tabelSpec:", 2, "tabelSpec"),
        ("tableSpec: {tableName: trips}", "", 1, "tableSpec"),
        ("tableName", "tableNaem", 2, "tableSpec.tableNaem"),
        ("trips}\npinot", "a/b}\npinot", 2, "tableSpec.tableName"),
        ('pinotClusterSpecs: [{controllerURI: "http://127.0.0.1:9000"}]', "", 1, "pinotClusterSpecs"),
        ("controllerURI", "controllerUri", 3, "pinotClusterSpecs[0].controllerUri"),
        ("http://127.0.0.1:9000", "ftp://x", 3, "pinotClusterSpecs[0].controllerURI"),
        ("{table: lake/trips}", "{tabel: lake/trips}", 4, "source.tabel"),
        ("source: {table: lake/trips}", "inputDirURI: data", 1, "recordReaderSpec"),
    ],
)
def test_what_is_missing_or_misspelled_is_refused_with_its_line_and_its_key(
    refused, before, after, line, key
):
    assert before in SHORT

    _, found_line, found_key = refused(SHORT.replace(before, after))

    assert (found_line, found_key) == (line, key)


@pytest.mark.parametrize("text", ["", "- a\n", "{", "\tx: 1", "a: \x00", "just words"])
def test_what_is_no_job_at_all_is_refused_by_its_file(load, text):
    with pytest.raises(InvalidOption) as caught:
        load(text)

    assert str(caught.value.facts["file"]).endswith("job.yaml")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidOption, match="cannot be read"):
        load_push_job(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    "value", [[], {}, [[]], {"x": 1}, 5, -1, 1.5, True, "", " ", "x", "env:", "file:.", 10**30]
)
def test_a_value_of_any_kind_at_any_key_is_read_or_refused_by_its_key(value, tmp_path):
    document = read_document(PINOT_JOBS / "spark.yaml", names={})
    for place in document.lines:
        values = copy.deepcopy(document.values)
        inner = values
        for part in place[:-1]:
            inner = inner[part]
        inner[place[-1]] = value
        told = {"key": "it was read"}
        try:
            parse_push_job(values, str(tmp_path))
        except InvalidOption as error:
            told = error.facts
        assert told["key"], place
