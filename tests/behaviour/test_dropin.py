"""Hudi's datasource options: the same job, written here."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.errors import (
    InvalidOption,
    InvalidRequest,
    OptionsIgnored,
    TableExists,
    TableNotFound,
    UnsupportedTable,
)
from holdfast.format.properties import decode_table_properties, encode_table_properties
from holdfast.table.properties_file import change_settings

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}
OPERATION = "hoodie.datasource.write.operation"
PAYLOAD = "hoodie.datasource.write.payload.class"


def trips(*rows):
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    return pa.table(
        {
            "id": pa.array(columns[0], pa.string()),
            "city": pa.array(columns[1], pa.string()),
            "ts": pa.array(columns[2], pa.int64()),
            "fare": pa.array(columns[3], pa.float64()),
        }
    )


FIRST = trips(("a", "rome", 1, 1.0), ("b", "oslo", 1, 2.0))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "trips")


def options(operation=None, **more):
    return OPTIONS | ({OPERATION: operation} if operation else {}) | more


def fares(path):
    rows = holdfast.open_table(path).to_arrow(columns=["id", "fare"]).to_pylist()
    return {row["id"]: row["fare"] for row in rows}


def test_an_absent_table_is_made_as_the_options_say_and_as_hudi_lays_it_out(path):
    commit = holdfast.write(FIRST, path, OPTIONS)

    settings = holdfast.open_table(path).settings
    assert (settings.name, settings.record_key, settings.partition_by) == ("trips", ("id",), ("city",))
    assert (settings.ordering, settings.table_type) == ("ts", "COPY_ON_WRITE")
    assert commit.operation == "UPSERT"
    assert commit.partitions == ("oslo", "rome")
    assert sorted(hudi_snapshot(path).column("id").to_pylist()) == ["a", "b"]


def test_a_second_write_upserts_by_default(path):
    holdfast.write(FIRST, path, OPTIONS)
    commit = holdfast.write(trips(("a", "rome", 2, 9.0), ("c", "rome", 2, 3.0)), path, OPTIONS)

    assert (commit.records_updated, commit.records_inserted) == (1, 1)
    assert fares(path) == {"a": 9.0, "b": 2.0, "c": 3.0}


def test_the_ordering_field_decides_under_each_of_its_names(path):
    for name in ("hoodie.table.ordering.fields", "hoodie.table.precombine.field"):
        given = {k: v for k, v in OPTIONS.items() if not k.endswith("precombine.field")} | {name: "ts"}
        holdfast.write(trips(("a", "rome", 5, 5.0)), path, given)
        holdfast.write(trips(("a", "rome", 4, 4.0)), path, given)

        assert fares(path) == {"a": 5.0}


@pytest.mark.parametrize(
    ("operation", "rows", "expected"),
    [
        ("insert", trips(("c", "rome", 1, 3.0)), {"a": 1.0, "b": 2.0, "c": 3.0}),
        ("bulk_insert", trips(("c", "rome", 1, 3.0)), {"a": 1.0, "b": 2.0, "c": 3.0}),
        ("UPSERT", trips(("a", "rome", 1, 3.0)), {"a": 3.0, "b": 2.0}),
        ("delete", FIRST.slice(0, 1), {"b": 2.0}),
        ("insert_overwrite", trips(("c", "rome", 1, 3.0)), {"b": 2.0, "c": 3.0}),
        ("insert_overwrite_table", trips(("c", "rome", 1, 3.0)), {"c": 3.0}),
    ],
)
def test_every_operation_of_hudi_does_here_what_it_does_there(path, operation, rows, expected):
    holdfast.write(FIRST, path, OPTIONS)

    commit = holdfast.write(rows, path, options(operation))

    assert commit.operation == operation.upper()
    assert fares(path) == expected
    assert sorted(hudi_snapshot(path).column("id").to_pylist()) == sorted(expected)


def test_partitions_to_delete_are_named_in_an_option(path):
    holdfast.write(FIRST, path, OPTIONS)
    named = {"hoodie.datasource.write.partitions.to.delete": "rome"}

    commit = holdfast.write(FIRST.slice(0, 0), path, options("delete_partition", **named))

    assert commit.action == "replacecommit"
    assert fares(path) == {"b": 2.0}


def test_no_partition_to_delete_is_an_error(path):
    holdfast.write(FIRST, path, OPTIONS)

    with pytest.raises(InvalidOption, match=r"partitions\.to\.delete"):
        holdfast.write(FIRST, path, options("delete_partition"))


def test_overwrite_replaces_every_row_in_a_commit_that_can_be_taken_back(path):
    before = holdfast.write(FIRST, path, OPTIONS)

    after = holdfast.write(trips(("z", "rome", 1, 1.0), ("z", "rome", 2, 2.0)), path, OPTIONS, "overwrite")

    table = holdfast.open_table(path)
    assert after.action == "replacecommit"
    assert fares(path) == {"z": 2.0}, "an upsert keeps one row per key, also into a table it replaces"
    assert sorted(table.to_arrow(as_of=before).column("id").to_pylist()) == ["a", "b"]


def test_overwrite_of_nothing_makes_the_table(path):
    assert holdfast.write(FIRST, path, OPTIONS, mode="overwrite").operation == "UPSERT"
    assert fares(path) == {"a": 1.0, "b": 2.0}


def test_the_other_modes_do_not_touch_a_table_that_is_there(path):
    assert holdfast.write(FIRST, path, OPTIONS, mode="ErrorIfExists") is not None
    more = trips(("c", "rome", 1, 3.0))

    assert holdfast.write(more, path, OPTIONS, mode="ignore") is None
    with pytest.raises(TableExists):
        holdfast.write(more, path, OPTIONS, mode="error")

    assert len(holdfast.open_table(path).timeline()) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("option", "value", "stored"),
    [
        ("hoodie.table.name", "rides", "trips"),
        ("hoodie.datasource.write.recordkey.field", "fare", "id"),
        ("hoodie.datasource.write.partitionpath.field", "", "city"),
        ("hoodie.datasource.write.precombine.field", "fare", "ts"),
        ("hoodie.datasource.write.table.type", "MERGE_ON_READ", "COPY_ON_WRITE"),
        ("hoodie.datasource.write.hive_style_partitioning", True, "false"),
        (
            "hoodie.datasource.write.keygenerator.class",
            "org.apache.hudi.keygen.ComplexKeyGenerator",
            "org.apache.hudi.keygen.SimpleKeyGenerator",
        ),
    ],
)
def test_an_option_that_contradicts_the_table_is_refused_with_both_values(path, option, value, stored, mode):
    holdfast.write(FIRST, path, OPTIONS)

    with pytest.raises(InvalidOption, match="contradicts the table") as caught:
        holdfast.write(FIRST, path, OPTIONS | {option: value}, mode)

    shown = str(value).lower() if isinstance(value, bool) else value or "nothing"
    assert (caught.value.facts["given"], caught.value.facts["table"]) == (shown, stored)
    assert len(holdfast.open_table(path).timeline()) == 1


def test_options_that_only_repeat_what_the_table_is_are_welcome(path):
    said = {
        "hoodie.datasource.write.table.type": "copy_on_write",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": False,
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
        "hoodie.upsert.shuffle.parallelism": 2,
    }
    for _ in range(2):
        holdfast.write(FIRST, path, OPTIONS | said)

    assert fares(path) == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize("prefix", ["hoodie.keygen.", "hoodie.deltastreamer.keygen."])
def test_partitions_made_from_moments_are_spelled_by_hudis_options(path, prefix):
    moments = {
        "hoodie.datasource.write.partitionpath.field": "ts",
        "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
        prefix + "timebased.timestamp.type": "EPOCHMILLISECONDS",
        prefix + "timebased.output.dateformat": "yyyy/MM",
    }
    for _ in range(2):
        commit = holdfast.write(trips(("a", "rome", 1_700_000_000_000, 1.0)), path, OPTIONS | moments)

    assert commit.partitions == ("2023/11",)
    with pytest.raises(InvalidOption, match="contradicts the table"):
        holdfast.write(FIRST, path, OPTIONS | moments | {prefix + "timebased.output.dateformat": "yyyy"})


def test_a_custom_key_generator_takes_typed_partition_fields(path):
    typed = {
        "hoodie.datasource.write.partitionpath.field": "city:SIMPLE,ts:TIMESTAMP",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
    }
    for _ in range(2):
        commit = holdfast.write(trips(("a", "rome", 1_700_000_000_000, 1.0)), path, OPTIONS | typed)

    assert commit.partitions == ("rome/2023",)


def make_it_forget(path, *parts, told=None):
    """Leave out of the table's properties what Hudi 0.15 does not store of a table that it makes.

    `told` is what it says instead.
    """
    file = Path(path) / ".hoodie" / "hoodie.properties"
    stored = decode_table_properties(file.read_bytes())
    kept = {name: text for name, text in stored.items() if not any(part in name for part in parts)}
    assert kept != stored
    file.write_bytes(encode_table_properties(kept | (told or {}), moment=dt.datetime.now(dt.UTC)))


def test_the_payload_class_counts_in_each_write_to_a_table_that_does_not_tell_it(path):
    event_time = {PAYLOAD: "org.apache.hudi.common.model.DefaultHoodieRecordPayload"}
    holdfast.write(trips(("a", "rome", 5, 5.0)), path, OPTIONS)
    make_it_forget(path, "payload")
    late = trips(("a", "rome", 3, 3.0))

    holdfast.write(late, path, OPTIONS | event_time)
    assert fares(path) == {"a": 5.0}
    holdfast.write(late, path, OPTIONS)
    assert fares(path) == {"a": 3.0}


@pytest.mark.parametrize("forgotten", [["timestamp.type"], ["timebased"]])
@pytest.mark.parametrize("partition_by", ["ts", "city:SIMPLE,ts:TIMESTAMP"])
def test_what_a_table_does_not_tell_about_its_moments_is_told_by_each_write(path, partition_by, forgotten):
    is_custom = "," in partition_by
    moments = {
        "hoodie.datasource.write.partitionpath.field": partition_by,
        "hoodie.datasource.write.keygenerator.type": "CUSTOM" if is_custom else "TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy",
    }
    rows = trips(("a", "rome", 1_700_000_000_000, 1.0))
    holdfast.write(rows, path, OPTIONS | moments)
    make_it_forget(path, *forgotten, "write.partitionpath.field" if is_custom else "payload")

    with pytest.raises(UnsupportedTable, match=r"does not tell the types|timestamp\.type|output\.dateformat"):
        holdfast.open_table(path).upsert(rows)
    commit = holdfast.write(rows, path, OPTIONS | moments)
    assert commit.partitions == ("rome/2023" if is_custom else "2023",)
    assert holdfast.open_table(path).undo().rolled_back == commit.instant


def custom(**more):
    """Options of a table with moments in its paths. What they name `types` are its partition columns."""
    prefix = "hoodie.keygen.timebased."
    spelled = {"types": "hoodie.datasource.write.partitionpath.field", "payload": PAYLOAD}
    given = {"types": "city:SIMPLE,ts:TIMESTAMP", "timestamp.type": "EPOCHMILLISECONDS"}
    given |= {"output.dateformat": "yyyy"} | more
    named = {spelled.get(name, prefix + name): text for name, text in given.items()}
    return OPTIONS | {"hoodie.datasource.write.keygenerator.type": "CUSTOM"} | named


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ({"payload": "com.example.Own"}, "hoodie.datasource.write.payload.class"),
        ({"types": "city:SIMPLE,ts:DUMMY"}, "hoodie.datasource.write.partitionpath.field"),
        ({"types": "city:SIMPLE,ts"}, "hoodie.datasource.write.partitionpath.field"),
        ({"timestamp.type": "SUNDIAL"}, "hoodie.keygen.timebased.timestamp.type"),
        ({"output.dateformat": "EEE"}, "hoodie.keygen.timebased.output.dateformat"),
        ({"output.timezone": "Mars/Olympus"}, "hoodie.keygen.timebased.output.timezone"),
        ({"timestamp.type": "DATE_STRING"}, "hoodie.keygen.timebased.input.dateformat"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_named_where_the_table_does_not_tell_it(path, more, option):
    rows = trips(("a", "rome", 1_700_000_000_000, 1.0))
    holdfast.write(rows, path, custom())
    make_it_forget(path, "payload", "timebased", "write.partitionpath.field")

    with pytest.raises(InvalidOption) as refused:
        holdfast.write(rows, path, custom(**more))

    assert option in (refused.value.facts.get("option"), refused.value.facts.get("property"))
    assert holdfast.write(rows, path, custom()).partitions == ("rome/2023",)


def test_a_setting_of_moments_that_is_wrong_in_the_table_itself_is_not_blamed_on_an_option(path):
    rows = trips(("a", "rome", 1_700_000_000_000, 1.0))
    holdfast.write(rows, path, custom())
    zone = "hoodie.keygen.timebased.output.timezone"
    make_it_forget(path, "timestamp.type", told={zone: "Mars/Olympus"})

    with pytest.raises(UnsupportedTable, match="Mars/Olympus"):
        holdfast.write(rows, path, custom())


@pytest.mark.parametrize("is_beside_names", [True, False])
def test_types_of_partition_columns_that_the_table_tells_are_not_overruled_by_a_write(path, is_beside_names):
    rows = trips(("a", "rome", 1_700_000_000_000, 1.0))
    holdfast.write(rows, path, custom())
    if is_beside_names:
        told = {"hoodie.table.partition.fields": "city:SIMPLE,ts:TIMESTAMP"}
        make_it_forget(path, "write.partitionpath.field", told=told)

    with pytest.raises(InvalidOption, match="given: city:SIMPLE,ts:SIMPLE, table: city:SIMPLE,ts:TIMESTAMP"):
        holdfast.write(rows, path, custom(types="city:SIMPLE,ts:SIMPLE"))
    for spelled in ("city:simple,ts:timestamp", "city,ts", "city,ts:TIMESTAMP"):
        assert holdfast.write(rows, path, custom(types=spelled)).partitions == ("rome/2023",)


def test_settings_of_moments_contradict_a_table_that_has_none(path):
    holdfast.write(FIRST, path, OPTIONS)

    with pytest.raises(InvalidOption, match="contradicts the table"):
        holdfast.write(FIRST, path, OPTIONS | {"hoodie.keygen.timebased.timestamp.type": "SCALAR"})


def test_a_table_needs_no_options_once_it_is_there(path):
    holdfast.write(FIRST, path, OPTIONS)
    holdfast.write(trips(("c", "rome", 1, 3.0)), path, {})

    assert sorted(fares(path)) == ["a", "b", "c"]


TUNED = {
    "hoodie.parquet.block.size": 64 << 20,
    "hoodie.datasource.write.row.writer.enable": "false",
    "hoodie.bulkinsert.shuffle.parallelism": 200,
}


def test_a_job_for_both_engines_keeps_its_options_and_is_warned_once(path):
    described = {
        "hoodie.datasource.hive_sync.enable": False,
        "hoodie.datasource.hive_sync.database": "lake",
        "hoodie.write.table.version": 6,
        "hoodie.write.auto.upgrade": "false",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.combine.before.upsert": True,
    }

    with pytest.warns(OptionsIgnored) as caught:
        holdfast.write(FIRST, path, OPTIONS | described | TUNED | {"holdfast.ignore.tuning.options": True})

    ignored = "hoodie.bulkinsert.shuffle.parallelism, hoodie.datasource.write.row.writer.enable"
    assert [str(one.message) for one in caught] == [
        f"options that only tune Apache Hudi are ignored: {ignored}, hoodie.parquet.block.size"
    ]
    assert fares(path) == {"a": 1.0, "b": 2.0}
    with pytest.raises(InvalidOption, match=r"hoodie\.parquet\.block\.size.*only tune Apache Hudi"):
        holdfast.write(FIRST, path, OPTIONS | described | TUNED)


def test_a_verb_takes_the_options_of_a_job_that_say_what_happens_anyway(path):
    holdfast.write(FIRST, path, OPTIONS)
    table = holdfast.open_table(path)
    anyway = {"hoodie.combine.before.upsert": "true", "hoodie.metadata.enable": "false"}

    table.upsert(trips(("a", "rome", 2, 5.0)), options=anyway)
    table.clean(options=anyway)

    assert fares(path) == {"a": 5.0, "b": 2.0}
    with pytest.warns(OptionsIgnored, match=r"page\.size"):
        table.clean(options={"hoodie.parquet.page.size": "1", "holdfast.ignore.tuning.options": "true"})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"hoodie.datasource.write.recordkey.fields": "id"},
            "did you mean hoodie.datasource.write.recordkey",
        ),
        ({"hoodie.datasource.write.partition.to.delete": "x"}, "partitions.to.delete"),
        ({"hoodie.parquet.max.filesize": "1"}, "did you mean hoodie.parquet.max.file.size"),
        ({"hoodie.datasource.write.row.writer.enable": "false"}, "only tunes Apache Hudi"),
        ({"hoodie.datasource.hive_sync.enable": "true"}, "synced to no catalog"),
        ({OPERATION: "upsrt"}, "insert_overwrite_table"),
        ({"hoodie.datasource.write.table.type": "COPY"}, "unknown table type"),
        ({"hoodie.datasource.write.recordkey.field": "uuid"}, "column: uuid"),
        ({"hoodie.datasource.write.precombine.field": "at"}, "column: at"),
        ({"hoodie.table.name": ""}, "name"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_before_a_table_is_made(path, more, said):
    with pytest.raises(InvalidOption, match=said):
        holdfast.write(FIRST, path, OPTIONS | more)

    assert not holdfast.table_exists(path)


@pytest.mark.parametrize(
    ("rows", "operation", "mode", "error"),
    [
        (FIRST, "upsert", "replace", InvalidOption),
        (FIRST, "delete", "overwrite", InvalidOption),
        (FIRST, "delete", "append", TableNotFound),
        ([1, 2], "insert", "append", InvalidRequest),
    ],
)
def test_a_call_that_makes_no_sense_leaves_nothing(path, rows, operation, mode, error):
    with pytest.raises(error):
        holdfast.write(rows, path, options(operation), mode)

    assert not holdfast.table_exists(path)


def test_functions_that_name_the_package_can_be_shipped_to_workers():
    shipped = cloudpickle.loads(cloudpickle.dumps(lambda path: holdfast.table_exists(path)))

    assert not shipped("/nowhere")


def test_columns_have_names_with_letters_of_any_script(path):
    rows = FIRST.append_column("größe", pa.array([1, 2])).append_column("名前", pa.array(["x", "y"]))

    holdfast.write(rows, path, options())
    holdfast.write(rows.slice(0, 1).set_column(3, "fare", pa.array([9.0])), path, options())

    found = holdfast.open_table(path).to_arrow(columns=["id", "fare", "größe", "名前"])
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == [
        ("a", 9.0, 1, "x"),
        ("b", 2.0, 2, "y"),
    ]


@pytest.mark.parametrize("value", [".", "..", ".hidden"])
def test_a_partition_value_of_dots_is_refused_with_a_way_that_works(path, value):
    escaped = options(**{"hoodie.datasource.write.partitionpath.urlencode": "true"})
    rows = trips(("a", value, 1, 1.0))

    with pytest.raises(InvalidRequest) as refused:
        holdfast.write(rows, path, escaped)

    hive_style = "hoodie.datasource.write.hive_style_partitioning"
    assert hive_style in refused.value.hint
    holdfast.write(rows, path, escaped | {hive_style: "true"})
    holdfast.write(trips(("a", value, 2, 3.0)), path, escaped | {hive_style: "true"})
    assert holdfast.open_table(path).to_arrow(columns=["id", "city", "fare"]).to_pylist() == [
        {"id": "a", "city": value, "fare": 3.0}
    ]


def test_a_key_inside_of_a_struct_is_refused_by_name(path):
    nested = options(**{"hoodie.datasource.write.recordkey.field": "trip.id"})

    with pytest.raises(InvalidOption, match="inside of a struct") as refused:
        holdfast.write(FIRST, path, nested)

    assert "column of its own" in refused.value.hint


def test_the_log_says_of_which_table_the_metadata_table_was_dropped_and_why(path, caplog):
    holdfast.write(FIRST, path, options())
    opened = holdfast.open_table(path)._opened
    change_settings(opened.store, {"hoodie.table.metadata.partitions": "files"}, now_ms=1)

    holdfast.write(FIRST, path, options())

    [line] = [record for record in caplog.records if record.message == "metadata_table.dropped"]
    assert path in line.table
    assert "readers would miss" in line.cause


def test_log_lines_of_a_table_name_it(path, caplog):
    caplog.set_level("INFO", logger="holdfast")
    holdfast.write(FIRST, path, options())
    table = holdfast.open_table(path)
    first = table.savepoint().instant
    holdfast.write(FIRST, path, options())
    table.undo()
    holdfast.write(FIRST, path, options())
    table.restore(to=first)
    table.delete_savepoint(first)

    said = [record for record in caplog.records if record.name.startswith("holdfast.services")]

    assert {"savepoint.created", "rollback.completed", "restore.completed", "savepoint.deleted"} <= {
        record.message for record in said
    }
    assert all(path in record.table for record in said)
