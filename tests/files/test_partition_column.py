import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.config.table import new_table_settings
from holdfast.errors import InvalidRequest
from holdfast.files.partition_column import partition_column

CLASS = "hoodie.table.keygenerator.class"
PREFIX = "hoodie.keygen.timebased."
HIVE_STYLE = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
HOURS = {PREFIX + "timestamp.type": "EPOCHMILLISECONDS", PREFIX + "output.dateformat": "yyyy/MM/dd/HH"}
NOON_MS = 1_680_350_460_123  # 2023-04-01T12:01:00.123Z
HOUR_MS = 3_600_000


def settings(*partition_by, **properties):
    return new_table_settings(
        name="trips",
        record_key=("id",),
        partition_by=partition_by,
        ordering=None,
        table_type="COPY_ON_WRITE",
        properties=properties,
    )


def paths(rows, how):
    return partition_column(rows, how).to_pylist()


def test_paths_are_exactly_those_of_a_table_that_hudi_wrote(hudi_fixture):
    folder = hudi_fixture("cow_v6_timebasedkeygen_nonhivestyle")
    how = holdfast.open_table(str(folder)).settings
    how.check_writable()
    files = sorted(folder.rglob("*_*.parquet"))
    assert len(files) == 5

    for file in files:
        rows = pq.read_table(file)
        stored = rows["_hoodie_partition_path"].to_pylist()

        assert paths(rows, how) == stored
        assert {str(file.parent.relative_to(folder))} == set(stored)


def test_a_table_that_hudi_wrote_with_timestamps_is_continued(hudi_fixture):
    folder = hudi_fixture("cow_v6_timebasedkeygen_nonhivestyle")
    table = holdfast.open_table(str(folder))
    before = table.to_arrow()
    more = before.slice(0, 2).set_column(0, before.schema.field(0), pa.array([1001, 1002], pa.int32()))
    times = pa.array(["2024-02-29T23:59:59.999Z", "2023-04-01T12:30:00.5+02:00"])
    more = more.set_column(more.schema.get_field_index("ts_str"), "ts_str", times)

    table.bulk_insert(more)

    theirs = hudi_snapshot(folder)
    assert sorted(theirs["id"].to_pylist()) == sorted([*before["id"].to_pylist(), 1001, 1002])
    found = dict(zip(theirs["id"].to_pylist(), theirs["_hoodie_partition_path"].to_pylist(), strict=True))
    # Without a zone of the table's the hour is the text's own.
    hour = "10" if "timezone=UTC" in (folder / ".hoodie" / "hoodie.properties").read_text() else "12"
    assert (found[1001], found[1002]) == ("2024/02/29/23", f"2023/04/01/{hour}")


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ({HIVE_STYLE: "false"}, "2023/04/01/12"),
        ({HIVE_STYLE: "true"}, "ts=2023/04/01/12"),
        ({HIVE_STYLE: "true", URL_ENCODE: "true"}, "ts=2023%2F04%2F01%2F12"),
        ({HIVE_STYLE: "false", URL_ENCODE: "true"}, "2023%2F04%2F01%2F12"),
    ],
)
def test_dates_are_prefixed_and_escaped_like_any_value(style, expected):
    rows = pa.record_batch({"id": [1], "ts": [NOON_MS]})

    assert paths(rows, settings("ts", **{CLASS: "TIMESTAMP"}, **HOURS, **style)) == [expected]


def test_a_custom_generator_joins_values_and_dates():
    rows = pa.record_batch({"id": [1, 2, 3], "city": ["a/b", None, ""], "ts": [NOON_MS, None, 0]})
    how = settings("city:SIMPLE", "ts:TIMESTAMP", **{CLASS: "CUSTOM", URL_ENCODE: "true"}, **HOURS)

    assert paths(rows, how) == [
        "city=a%2Fb/ts=2023%2F04%2F01%2F12",
        "city=__HIVE_DEFAULT_PARTITION__/ts=1970%2F01%2F01%2F00",
        "city=__HIVE_DEFAULT_PARTITION__/ts=1970%2F01%2F01%2F00",
    ]


def test_each_path_stands_once_in_the_dictionary():
    """Null and empty text, or two moments of an hour, are one partition."""
    rows = pa.record_batch({"id": [1, 2, 3], "city": [None, "", "x"], "ts": [0, 1, NOON_MS]})

    for how in (settings("city"), settings("ts", **{CLASS: "TIMESTAMP"}, **HOURS)):
        assert len(partition_column(rows, how).dictionary) == 2


def test_many_columns_of_many_values_do_not_run_into_each_other():
    count = 70_000
    names = ["a", "b", "c", "d"]
    rows = pa.record_batch({name: pa.array(range(count)) for name in names})

    found = partition_column(rows, settings(*names, **{HIVE_STYLE: "false"}))

    assert len(found.dictionary) == count
    assert found[69_999].as_py() == "69999/69999/69999/69999"


def test_the_chunks_of_a_table_share_one_dictionary():
    table = pa.table({"id": [1, 2, 3, 4], "city": pa.chunked_array([["x", "y"], ["y"], ["z"]])})

    found = partition_column(table, settings("city"))

    assert isinstance(found, pa.DictionaryArray)
    assert found.to_pylist() == ["city=x", "city=y", "city=y", "city=z"]
    assert found.dictionary.to_pylist() == ["city=x", "city=y", "city=z"]


@pytest.mark.parametrize(
    "how", [settings(), settings("city"), settings("ts", **{CLASS: "TIMESTAMP"}, **HOURS)]
)
def test_no_rows_have_no_paths(how):
    schema = pa.schema({"id": pa.int64(), "city": pa.string(), "ts": pa.int64()})

    assert paths(schema.empty_table(), how) == []
    assert paths(pa.RecordBatch.from_pylist([], schema=schema), how) == []


def test_a_table_without_partition_columns_has_one_path():
    rows = pa.table({"id": [1, 2]})

    assert paths(rows, settings()) == ["", ""]


@pytest.mark.parametrize("kind", [pa.float64(), pa.string()])
def test_a_type_that_makes_no_path_is_refused_without_rows(kind):
    schema = pa.schema({"id": pa.int64(), "ts": kind})

    with pytest.raises(InvalidRequest) as refused:
        partition_column(schema.empty_table(), settings("ts", **{CLASS: "TIMESTAMP"}, **HOURS))

    assert refused.value.facts["column"] == "ts"


def test_a_date_pattern_that_makes_no_folder_is_refused():
    rows = pa.record_batch({"id": [1], "ts": [NOON_MS]})
    dotted = HOURS | {PREFIX + "output.dateformat": "yyyy/.MM"}

    with pytest.raises(InvalidRequest, match="begins with a dot"):
        partition_column(rows, settings("ts", **{CLASS: "TIMESTAMP"}, **dotted))


def trips(count):
    start = dt.datetime(2024, 2, 28, 20, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": [f"k{number}" for number in range(count)],
            "city": [("paris", "oslo", None)[number % 3] for number in range(count)],
            "ts": pa.array(
                [start + dt.timedelta(minutes=25 * number) for number in range(count)],
                pa.timestamp("us", tz="UTC"),
            ),
        }
    )


def expected_day(number):
    return f"{dt.datetime(2024, 2, 28, 21) + dt.timedelta(minutes=25 * number):%Y/%m/%d}"


DAYS_IN_BERLIN = {
    PREFIX + "timestamp.type": "EPOCHMICROSECONDS",
    PREFIX + "output.dateformat": "yyyy/MM/dd",
    PREFIX + "timezone": "Europe/Berlin",
}


@pytest.mark.parametrize("hive_style", ["true", "false"])
@pytest.mark.parametrize("url_encode", ["true", "false"])
@pytest.mark.parametrize("generator", ["TIMESTAMP", "CUSTOM"])
def test_hudi_reads_every_row_of_a_table_partitioned_by_time(tmp_path, generator, hive_style, url_encode):
    table = holdfast.create_table(
        str(tmp_path / "trips"),
        name="trips",
        record_key="id",
        partition_by="ts" if generator == "TIMESTAMP" else ["city:SIMPLE", "ts:TIMESTAMP"],
        properties={CLASS: generator, HIVE_STYLE: hive_style, URL_ENCODE: url_encode, **DAYS_IN_BERLIN},
    )
    rows = trips(200)

    table.bulk_insert(rows)
    holdfast.open_table(table.path).bulk_insert(rows.slice(0, 1).set_column(0, "id", pa.array(["late"])))

    compared = ["_hoodie_record_key", "_hoodie_partition_path", "id", "city", "ts"]
    theirs = hudi_snapshot(tmp_path / "trips").select(compared).sort_by("id")
    ours = table.to_arrow(meta_columns=True).select(compared).sort_by("id")
    assert theirs.num_rows == 201
    assert theirs.to_pylist() == ours.to_pylist()
    found = dict(zip(theirs["id"].to_pylist(), theirs["_hoodie_partition_path"].to_pylist(), strict=True))
    for number in range(200):
        day = expected_day(number).replace("/", "%2F") if url_encode == "true" else expected_day(number)
        city = ("paris", "oslo", "__HIVE_DEFAULT_PARTITION__")[number % 3]
        parts = [("ts", day)] if generator == "TIMESTAMP" else [("city", city), ("ts", day)]
        path = "/".join(f"{name}={value}" if hive_style == "true" else value for name, value in parts)
        assert found[f"k{number}"] == path
        assert (tmp_path / "trips" / path / ".hoodie_partition_metadata").exists()
