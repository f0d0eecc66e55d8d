"""`read`."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.engines.arrow.rows import ArrowRows
from holdfast.table.opened import open_at
from holdfast.writes import operations
from holdfast.writes.origin import Origin


@pytest.fixture
def many_kinds(tmp_path):
    """One row of every kind of value, and one of nulls."""
    path = str(tmp_path / "kinds")
    lake = holdfast.create_table(path, name="kinds", record_key="k")
    schema = pa.schema(
        {
            "k": pa.string(),
            "flag": pa.bool_(),
            "day": pa.date32(),
            "moment": pa.timestamp("us", "UTC"),
            "price": pa.decimal128(10, 2),
            "raw": pa.binary(),
            "ratio": pa.float64(),
            "numbers": pa.list_(pa.int64()),
            "place": pa.struct([("x", pa.int64()), ("at", pa.date32())]),
            "tags": pa.map_(pa.string(), pa.decimal128(4, 1)),
        }
    )
    full = {
        "k": "a\x1b[31m",
        "flag": True,
        "day": dt.date(2024, 2, 29),
        "moment": dt.datetime(2024, 2, 29, 12, 30, 0, 250_000, tzinfo=dt.UTC),
        "price": Decimal("12.50"),
        "raw": b"\x00\xff",
        "ratio": float("inf"),
        "numbers": [1, 2],
        "place": {"x": 1, "at": dt.date(2024, 1, 1)},
        "tags": [("t", Decimal("1.5"))],
    }
    lake.insert(pa.Table.from_pylist([full, {"k": "b"}], schema=schema))
    return path


def test_rows_are_printed_for_people_and_the_rest_is_counted(run, empty_table, trips):
    holdfast.open_table(str(empty_table)).insert(trips(0, 50))

    lines = run("read", empty_table).stdout.splitlines()

    assert lines[0].split() == ["trip_id", "city", "ts", "fare"]
    assert len(lines) == 2 + 20 + 1
    assert lines[2].split() == ["0", "paris", "0", "0.0"]
    assert lines[-1] == "30 more rows; --limit shows more"


def test_a_limit_is_for_people_and_programs(run, table):
    document = json.loads(run("read", table, "--limit", 3, "--json").stdout)
    lines = run("read", table, "--limit", 3).stdout.splitlines()

    assert len(document["rows"]) == 3
    assert lines[-1] == "13 more rows; --limit shows more"


def test_a_limit_of_zero_shows_the_columns_alone(run, table):
    document = json.loads(run("read", table, "--limit", 0, "--json").stdout)

    assert document == {"columns": ["trip_id", "city", "ts", "fare"], "rows": []}


def test_programs_get_all_rows(run, table):
    document = json.loads(run("read", table, "--json").stdout)

    assert document["columns"] == ["trip_id", "city", "ts", "fare"]
    assert sorted(row["trip_id"] for row in document["rows"]) == list(range(16))
    assert {"trip_id": 3, "city": "rome", "ts": 3, "fare": 0.75} in document["rows"]


def test_columns_come_in_the_order_asked_for(run, table):
    document = json.loads(
        run("read", table, "--columns", "fare,city", "--columns", "_hoodie_commit_time", "--json").stdout
    )

    assert document["columns"] == ["fare", "city", "_hoodie_commit_time"]
    assert list(document["rows"][0]) == ["fare", "city", "_hoodie_commit_time"]


def test_the_table_is_read_as_of_an_instant(run, table, times):
    document = json.loads(run("read", table, "--as-of", times[0], "--json").stdout)

    assert sorted(row["trip_id"] for row in document["rows"]) == list(range(10))


def test_rows_of_a_failed_write_are_not_read(run, table, failed_write):
    document = json.loads(run("read", table, "--json").stdout)

    assert max(row["trip_id"] for row in document["rows"]) == 15


def test_every_kind_of_value_has_a_form_in_json(run, many_kinds):
    full, empty = json.loads(run("read", many_kinds, "--json").stdout)["rows"]

    assert full == {
        "k": "a\x1b[31m",
        "flag": True,
        "day": "2024-02-29",
        "moment": "2024-02-29T12:30:00.250000+00:00",
        "price": "12.50",
        "raw": "00ff",
        "ratio": "Infinity",
        "numbers": [1, 2],
        "place": {"x": 1, "at": "2024-01-01"},
        "tags": {"t": "1.5"},
    }
    assert empty == dict.fromkeys(full) | {"k": "b"}


def test_values_cannot_steer_the_terminal(run, many_kinds):
    text = run("read", many_kinds).stdout

    assert "\x1b" not in text
    assert "a\\x1b[31m" in text


def test_a_table_without_rows_is_read(run, empty_table):
    assert run("read", empty_table).stdout == "0 rows\n"
    assert json.loads(run("read", empty_table, "--json").stdout) == {"columns": [], "rows": []}


def test_an_unknown_column_is_refused(run, table):
    result = run("read", table, "--columns", "nope")

    assert result.exit_code == 2
    assert "the table has no such column (column: nope" in result.stderr


def test_rows_go_into_a_parquet_file(run, table, tmp_path, trips):
    target = tmp_path / "rows.parquet"

    result = run("read", table, "--to", target)

    assert result.stdout == f"wrote 16 rows to {target}\n"
    assert pq.read_table(target).sort_by("trip_id").equals(trips(0, 16))


def test_rows_go_into_a_csv_file(run, table, tmp_path, trips):
    target = tmp_path / "rows.csv"

    document = json.loads(run("read", table, "--to", target, "--json").stdout)

    assert document == {"file": str(target), "rows": 16, "bytes": target.stat().st_size}
    assert pa_csv.read_csv(target).sort_by("trip_id").equals(trips(0, 16))


def test_rows_go_into_a_json_file_one_object_per_line(run, many_kinds, tmp_path):
    target = tmp_path / "rows.json"

    run("read", many_kinds, "--to", target, "--limit", 1)

    [line] = target.read_text().splitlines()
    assert json.loads(line) == json.loads(run("read", many_kinds, "--json").stdout)["rows"][0]


def test_bytes_and_moments_in_csv_are_spelled_as_in_json(run, many_kinds, tmp_path):
    target = tmp_path / "rows.csv"

    run("read", many_kinds, "--to", target, "--columns", "raw,moment,price")

    assert target.read_text().splitlines() == [
        '"raw","moment","price"',
        '"00ff","2024-02-29T12:30:00.250000+00:00",12.50',
        ",,",
    ]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("rows.xls", "the file's suffix names no format"),
        ("nowhere/rows.csv", "the file cannot be written there"),
        ("rows.csv", "CSV holds no nested values (column: numbers)"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_and_does_not_appear(
    run, many_kinds, tmp_path, target, text
):
    result = run("read", many_kinds, "--to", tmp_path / target)

    assert result.exit_code == 2
    assert text in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["kinds"]


def test_a_failing_read_leaves_the_old_file_alone(run, table, truncated, tmp_path):
    target = tmp_path / "rows.parquet"
    target.write_bytes(b"precious")
    truncated(next(table.glob("city=rome/*.parquet")))

    result = run("read", table, "--to", target)

    assert result.exit_code == 5
    assert target.read_bytes() == b"precious"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.parquet", "trips"]


def test_a_merge_on_read_table_is_read_with_its_log_files_or_by_its_base_files_alone(run, hudi_fixture):
    path = hudi_fixture("mor_parquet_v6_nonpartitioned")

    merged = json.loads(run("read", path, "--json").stdout)
    optimized = json.loads(run("read", path, "--json", "--read-optimized").stdout)

    expected = {row["id"]: row["isActive"] for row in hudi_fixture.expected(path.name)["snapshot"]}
    assert {row["id"]: row["isActive"] for row in merged["rows"]} == expected
    assert len(optimized["rows"]) == len(expected)
    assert optimized["rows"] != merged["rows"]
    shown = json.loads(run("fsview", path, "--json").stdout)["file_slices"]
    (logged,) = [one for one in shown if one["delta_files"]]
    (log,) = logged["delta_files"]
    assert logged["total_delta_size"] == (path / log).stat().st_size
    assert log in run("fsview", path).stdout.replace("\n", "")


def test_rows_that_changed_since_an_instant_come_with_their_commit(run, table, times):
    document = json.loads(run("read", table, "--since", times[0], "--json").stdout)

    assert document["columns"] == ["_hoodie_commit_time", "trip_id", "city", "ts", "fare"]
    assert sorted(row["trip_id"] for row in document["rows"]) == list(range(10, 16))
    assert {row["_hoodie_commit_time"] for row in document["rows"]} == {times[1]}


def test_changes_end_with_an_instant(run, table, times):
    document = json.loads(run("read", table, "--since", "2000-01-01", "--until", times[0], "--json").stdout)

    assert sorted(row["trip_id"] for row in document["rows"]) == list(range(10))


def test_changed_rows_are_counted_for_people(run, table, times):
    lines = run("read", table, "--since", times[0], "--columns", "trip_id", "--limit", 2).stdout.splitlines()

    assert lines[0].split() == ["_hoodie_commit_time", "trip_id"]
    assert len(lines) == 2 + 2 + 1
    assert lines[-1] == "4 more rows; --limit shows more"
    assert run("read", table, "--since", times[1]).stdout == "0 rows\n"


def test_changed_rows_go_into_a_file(run, table, times, tmp_path, trips):
    target = tmp_path / "changes.parquet"

    result = run("read", table, "--since", times[0], "--to", target)

    assert result.stdout == f"wrote 6 rows to {target}\n"
    written = pq.read_table(target).sort_by("trip_id")
    assert written.drop_columns(["_hoodie_commit_time"]).equals(trips(10, 6))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--until", "2024-01-01"], "--until needs --since"),
        (["--since", "2024-01-01", "--as-of", "2024-01-01"], "--since goes with neither"),
        (["--since", "2024-01-01", "--read-optimized"], "--since goes with neither"),
        (["--since", "2024-01-02", "--until", "2024-01-01"], "the range ends before it begins"),
        (["--since", "yesterday"], "not an instant"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(run, table, arguments, text):
    result = run("read", table, *arguments)

    assert result.exit_code == 2
    assert text in result.stderr
    assert result.stdout == ""


def test_a_file_gets_the_newest_commit_that_no_older_write_can_change_any_more(run, tmp_path):
    """Rows that are shown are those of now; those of a file are kept, and must have a name that holds."""
    path = str(tmp_path / "shared")
    table = holdfast.create_table(path, name="shared", record_key="k")
    sharing = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
    }
    table.bulk_insert(pa.table({"k": ["a"]}), options=sharing)
    target = tmp_path / "out.json"

    def export_while_it_writes() -> None:
        holdfast.open_table(path).bulk_insert(pa.table({"k": ["c"]}), options=sharing)
        shown = json.loads(run("read", path, "--json").stdout)["rows"]
        assert sorted(row["k"] for row in shown) == ["a", "c"]
        assert run("read", path, "--to", target).exit_code == 0

    origin = Origin(check=export_while_it_writes)
    settings = WriteSettings.from_options(sharing)
    operations.write(
        open_at(path), Operation.BULK_INSERT, ArrowRows(pa.table({"k": ["b"]})), settings, origin=origin
    )

    assert [json.loads(line)["k"] for line in target.read_text().splitlines()] == ["a"]
    run("read", path, "--to", target)
    assert sorted(json.loads(line)["k"] for line in target.read_text().splitlines()) == ["a", "b", "c"]


def test_a_file_of_a_table_without_a_commit_is_empty(run, tmp_path):
    path = str(tmp_path / "empty")
    schema = pa.schema({"k": pa.string()})
    holdfast.create_table(path, name="empty", record_key="k").bulk_insert(schema.empty_table())
    target = tmp_path / "out.json"

    assert run("read", path, "--to", target).exit_code == 0
    assert target.read_text() == ""
