"""Input that cannot be written or read is refused with a typed error, and nothing changes."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest

import holdfast
from holdfast import errors


@pytest.fixture
def table(tmp_path):
    return holdfast.create_table(str(tmp_path / "table"), name="x", record_key="id", partition_by="p")


def rows(partition):
    return pa.table({"id": ["a", "b"], "p": partition})


@pytest.mark.parametrize(
    ("partition", "path"),
    [
        (pa.array([dt.date(2024, 1, 1)] * 2), "p=2024-01-01"),
        (pa.array([True, True]), "p=true"),
        (pa.array([decimal.Decimal("1.50")] * 2), "p=1.50"),
        (pa.array([dt.datetime(2024, 1, 1)] * 2, pa.timestamp("us", "UTC")), "p=1704067200000000"),
        (pa.array(["x", "x"]).dictionary_encode(), "p=x"),
        (pa.array(["x", "x"], pa.large_string()), "p=x"),
        (pa.array([None, None], pa.string()), "p=__HIVE_DEFAULT_PARTITION__"),
    ],
    ids=["date", "boolean", "decimal", "timestamp", "dictionary", "large string", "nulls"],
)
def test_partition_values_of_many_types_are_spelled_as_hudi_spells_them(table, partition, path):
    assert table.insert(rows(partition)).partitions == (path,)
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda: rows(pa.array([1.5, 2.5])), errors.InvalidRequest),
        (lambda: rows(pa.array([b"x", b"y"])), errors.InvalidRequest),
        (lambda: rows(pa.nulls(2)), errors.SchemaMismatch),
        (
            lambda: rows(["x", "y"]).append_column("t", pa.array([1, 2], pa.timestamp("ns"))),
            errors.SchemaMismatch,
        ),
        (lambda: rows(["x", "y"]).append_column("ID", pa.array([1, 2])), errors.SchemaMismatch),
        (
            lambda: rows(["x", "y"]).append_column("_hoodie_commit_time", pa.array(["1", "2"])),
            errors.SchemaMismatch,
        ),
        (lambda: rows(["x", "y"]).append_column("a b", pa.array([1, 2])), errors.SchemaMismatch),
        (lambda: rows(["x", ".."]).set_column(0, "id", pa.array(["a", None])), errors.InvalidRequest),
        (lambda: [1, 2], errors.InvalidRequest),
    ],
    ids=[
        "float",
        "bytes",
        "null type",
        "nanoseconds",
        "same name",
        "meta column",
        "odd name",
        "no key",
        "a list",
    ],
)
def test_rows_that_cannot_be_stored_change_nothing(table, tmp_path, bad, error):
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    with pytest.raises(error):
        table.insert(bad())

    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize("as_of", [5, dt.date(2024, 1, 1), "", None])
def test_only_moments_and_instants_name_a_snapshot(table, as_of):
    commit = table.insert(rows(["x", "y"]))

    if as_of is None:
        assert table.to_arrow(as_of=commit) == table.to_arrow(as_of=table.timeline()[0])
        return
    with pytest.raises(errors.UnknownInstant):
        table.to_arrow(as_of=as_of)


def test_columns_are_named_once_and_exist(table):
    table.insert(rows(["x", "y"]))

    assert table.to_arrow(columns="id").column_names == ["id"]
    for columns in ([], ["id", "id"], ["nope"]):
        with pytest.raises(errors.InvalidRequest):
            table.to_arrow(columns=columns)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", errors.InvalidRequest),
        ("ftp://host/x", errors.InvalidRequest),
        ("s3://bucket/x", errors.InvalidOption),
        ("{file}", errors.InvalidRequest),
        ("{file}/below", errors.StorageUnavailable),
        ("{table}", errors.TableExists),
    ],
)
def test_a_table_cannot_be_made_just_anywhere(table, tmp_path, path, error):
    (tmp_path / "file").touch()
    place = path.format(file=tmp_path / "file", table=tmp_path / "table")

    with pytest.raises(error):
        holdfast.create_table(place, name="x", record_key="id", storage_options={"nonsense": "1"})


def test_one_place_has_many_spellings(table, tmp_path):
    path = str(tmp_path / "table")
    for spelling in (path, f"{path}/", f"file://{path}", f"file:{path}", f"{tmp_path}/x/../table"):
        assert holdfast.open_table(spelling).path == path


def test_credentials_are_not_shown():
    from holdfast.storage.open import location_of

    assert "hunter2" not in repr(location_of("s3://bucket/x", {"secret_access_key": "hunter2"}))
