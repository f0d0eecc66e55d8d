"""Files of pipelines."""

import pytest

from holdfast.config.pipeline import (
    Destination,
    Pipeline,
    Publication,
    Rejects,
    Source,
    load_pipeline,
)
from holdfast.errors import InvalidOption, OptionsIgnored

TRIPS = """
name: trips
source: {format: csv, path: data/trips/*.csv, options: {header: true}}
transform: SELECT trip_id, city, ts, fare FROM source WHERE fare >= 0
table: {path: lake/trips, record_key: trip_id, partition_by: city, ordering: ts, operation: upsert,
  options: {hoodie.cleaner.policy: KEEP_LATEST_COMMITS, hoodie.cleaner.commits.retained: 10}}
push: {table: trips, controller: http://127.0.0.1:9000, gates: [{min_rows: 1}]}
"""
SHORT = """
source: {format: parquet, path: data}
table: {path: lake, record_key: id}
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        (tmp_path / "nightly.yaml").write_text(text)
        return load_pipeline(tmp_path / "nightly.yaml")

    return load


def test_a_pipeline_is_read_with_paths_relative_to_its_file(load, tmp_path):
    assert load(TRIPS) == Pipeline(
        name="trips",
        source=Source(format="csv", path=f"{tmp_path}/data/trips/*.csv", options={"header": "true"}),
        destination=Destination(
            path=f"{tmp_path}/lake/trips",
            name="trips",
            record_key=("trip_id",),
            partition_by=("city",),
            ordering="ts",
            options={
                "hoodie.cleaner.policy": "KEEP_LATEST_COMMITS",
                "hoodie.cleaner.commits.retained": "10",
            },
        ),
        transform="SELECT trip_id, city, ts, fare FROM source WHERE fare >= 0",
        transform_line=4,
        push=Publication(table="trips", controller="http://127.0.0.1:9000", gates=({"min_rows": 1},)),
    )


def test_the_short_form_is_called_like_its_file(load, tmp_path):
    pipeline = load(SHORT)

    assert (pipeline.name, pipeline.destination.name) == ("nightly", "nightly")
    assert pipeline.destination.operation == "upsert"
    assert (pipeline.transform, pipeline.transform_line, pipeline.clean, pipeline.push) == (
        "",
        0,
        False,
        None,
    )


def test_every_other_key_is_read(load, tmp_path, monkeypatch):
    monkeypatch.setenv("DB_PASSWORD", "canary")
    monkeypatch.setenv("PUSH_TOKEN", "abc")
    pipeline = load("""
source:
  format: org.acme.Source
  path: s3://bucket/in/*.json
  options: {password: "${DB_PASSWORD}"}
  schema: id STRING, n INT
  stream: true
  files_per_run: 5
  changed: ignore
  checkpoint: progress
  storage_options: {region: eu}
transform: |
  SELECT *
  FROM source
table:
  path: lake
  name: things
  record_key: [a, b]
  partition_by: [c, d]
  type: copy_on_write
  operation: insert_overwrite
  storage_options: {region: us}
clean: true
push:
  table: things_OFFLINE
  controller: https://push.example/
  columns: [a]
  segments: {rows: 1000}
  create: true
  token: env:PUSH_TOKEN
""")

    source, table = pipeline.source, pipeline.destination
    assert (source.format, source.path) == ("org.acme.Source", "s3://bucket/in/*.json")
    assert source.options == {"password": "canary"}
    assert (source.schema, source.stream, source.files_per_run) == ("id STRING, n INT", True, 5)
    assert (source.changed, source.checkpoint) == ("ignore", f"{tmp_path}/progress")
    assert (source.storage_options, table.storage_options) == ({"region": "eu"}, {"region": "us"})
    assert (pipeline.transform_line, pipeline.clean) == (13, True)
    assert (table.name, table.record_key, table.partition_by) == ("things", ("a", "b"), ("c", "d"))
    assert (table.table_type, table.operation) == ("COPY_ON_WRITE", "insert_overwrite")
    push = pipeline.push
    assert push is not None
    assert (push.table, push.controller, push.columns) == ("things_OFFLINE", "https://push.example", ("a",))
    assert (push.segment_rows, push.create, push.token) == (1000, True, "abc")
    assert "abc" not in repr(push)


@pytest.mark.parametrize(
    ("before", "after", "line", "key", "told"),
    [
        ("source:", "sauce:", 3, "sauce", "did you mean source?"),
        ("transform:", "transfrom:", 4, "transfrom", "did you mean transform?"),
        ("table: {path", "tabel: {path", 5, "tabel", "did you mean table?"),
        ("record_key: trip_id, ", "", 5, "table.record_key", "a key is missing"),
        ("record_key", "recordkey", 5, "table.recordkey", "did you mean record_key?"),
        ("record_key: trip_id", "record_key: []", 5, "table.record_key", "not a list"),
        ("operation: upsert", "operation: upsrt", 5, "table.operation", "none of upsert"),
        ("operation: upsert", "operation: delete_partition", 5, "table.operation", "none of upsert"),
        (
            "commits.retained",
            "commits.retaind",
            6,
            "table.options.hoodie.cleaner.commits.retaind",
            "did you mean hoodie.cleaner.commits.retained?",
        ),
        ("retained: 10", "retained: ten", 6, "table.options", "a whole number"),
        ("min_rows", "min_row", 7, "push.gates[0]", "did you mean min_rows?"),
        ("http://127.0.0.1:9000", "127.0.0.1:9000", 7, "push.controller", "http://"),
        ("{table: trips,", "{table: a/b,", 7, "push.table", "not a table name"),
        ("format: csv, ", "", 3, "source.format", "a key is missing"),
        ("{header: true}", "[header]", 3, "source.options", "not a mapping"),
        ("{header: true}", "{header: [x]}", 3, "source.options", "not a text"),
        ("format: csv,", "format: csv, changed: maybe,", 3, "source.changed", "refuse, ignore, ingest"),
        ("format: csv,", "format: csv, checkpoint: x,", 3, "source.checkpoint", "only a stream"),
        ("format: csv,", "format: csv, stream: 1,", 3, "source.stream", "neither true nor false"),
        ("format: csv,", "format: csv, files_per_run: 0,", 3, "source.files_per_run", "whole number"),
        ("name: trips", "name: [trips]", 2, "name", "not a text"),
        ("name: trips", "name: ${NOBODY_GIVES_THIS}", 2, "name", "nothing is given"),
        ("name: trips", "name: trips\nname: trips", 3, "name", "stands twice"),
        ("name: trips", "name: &a {b: *a}", 2, "name.b", "leads back to itself"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line_and_its_key(refused, before, after, line, key, told):
    assert before in TRIPS

    error, found_line, found_key = refused(TRIPS.replace(before, after, 1))

    assert (found_line, found_key) == (line, key)
    assert told in str(error)


def test_files_can_only_be_counted_where_there_are_files(refused):
    _, _, key = refused(SHORT.replace("parquet, path: data", "jdbc, files_per_run: 3"))

    assert key == "source.files_per_run"


def test_rejects_are_read_with_a_folder_relative_to_the_file(load, tmp_path):
    assert load(TRIPS + "rejects: {path: bad, max_rows: 7}\n").rejects == Rejects(
        path=f"{tmp_path}/bad", max_rows=7
    )
    assert load(TRIPS + "rejects: {path: bad}\n").rejects.max_rows == 1000


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SHORT + "rejects: {path: bad}\n", "only files of CSV and JSON have rows to reject"),
        (
            TRIPS.replace("format: csv", "format: csv, stream: true") + "rejects: {path: bad}\n",
            "only files of CSV and JSON have rows to reject",
        ),
        (TRIPS.replace("header: true", "mode: PERMISSIVE") + "rejects: {path: bad}\n", "option: mode"),
        (TRIPS + "rejects: {path: lake/trips/bad}\n", "where the pipeline reads or writes"),
        (TRIPS + "rejects: {path: data/trips}\n", "where the pipeline reads or writes"),
        (TRIPS + "rejects: {max_rows: 3}\n", "a key is missing"),
        (TRIPS + "rejects: {path: bad, rows: 3}\n", "unknown key"),
    ],
)  # fmt: skip
def test_rejects_that_could_not_be_told_are_refused(load, text, told):
    with pytest.raises(InvalidOption) as caught:
        load(text)

    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n", "{", "\tx: 1", "a: \x00", "just words"])
def test_what_is_no_pipeline_at_all_is_refused_by_its_file(load, text):
    with pytest.raises(InvalidOption) as caught:
        load(text)

    assert str(caught.value.facts["file"]).endswith("nightly.yaml")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidOption, match="cannot be read"):
        load_pipeline(tmp_path / "absent.yaml")


def test_options_of_a_pipelines_table_are_answered_as_everywhere(load):
    options = "{hoodie.metadata.enable: false, hoodie.parquet.page.size: 1%s}"
    table = f"{{path: lake, record_key: id, options: {options}}}"
    text = f"source: {{format: parquet, path: data}}\ntable: {table}\n"

    with pytest.raises(InvalidOption, match=r"hoodie\.parquet\.page\.size"):
        load(text % "")
    with pytest.warns(OptionsIgnored, match=r"hoodie\.parquet\.page\.size"):
        load(text % ", holdfast.ignore.tuning.options: true")
