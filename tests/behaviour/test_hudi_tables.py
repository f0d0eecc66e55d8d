"""Tables that Apache Hudi wrote: we read exactly their rows, and hudi-rs reads what we add."""

import json
import shutil

import pyarrow as pa
import pytest

import holdfast
from harness.hudi_fixtures import as_json
from harness.hudi_reader import hudi_snapshot
from holdfast.errors import UnsupportedTable

COPY_ON_WRITE = (
    "cow_v6_empty",
    "cow_v6_nonpartitioned",
    "cow_v6_simplekeygen_hivestyle_no_metafields",
    "cow_v6_simplekeygen_nonhivestyle",
    "cow_v6_simplekeygen_nonhivestyle_overwritetable",
    "cow_v6_timebasedkeygen_nonhivestyle",
)
MERGE_ON_READ = (
    "mor_avro_v6_trips_8i1u",
    "mor_parquet_v6_complexkeygen_hivestyle",
    "mor_parquet_v6_empty",
    "mor_parquet_v6_nonpartitioned",
    "mor_parquet_v6_simplekeygen_hivestyle_no_metafields",
    "mor_parquet_v6_simplekeygen_nonhivestyle",
    "mor_parquet_v6_simplekeygen_nonhivestyle_overwritetable",
)
ALL = COPY_ON_WRITE + MERGE_ON_READ
CONTINUED = ("cow_v6_nonpartitioned", "cow_v6_simplekeygen_nonhivestyle", "cow_v6_empty")


@pytest.fixture
def expected(hudi_fixture):
    return hudi_fixture.expected


def rows_of(table):
    return sorted(json.dumps(as_json(row), sort_keys=True) for row in table.to_pylist())


@pytest.mark.parametrize("name", ALL)
def test_the_snapshot_has_exactly_the_expected_rows(name, hudi_fixture, expected):
    table = holdfast.open_table(str(hudi_fixture(name)))
    wanted = expected(name)

    # hudi-rs leaves the meta columns out where Hudi did not fill them.
    read = table.to_arrow(meta_columns="no_metafields" not in name)

    assert rows_of(read) == sorted(json.dumps(row, sort_keys=True) for row in wanted["snapshot"])


@pytest.mark.parametrize("name", ALL)
def test_every_instant_can_be_read_as_it_was(name, hudi_fixture, expected):
    table = holdfast.open_table(str(hudi_fixture(name)))
    wanted = expected(name)

    assert [[i.time, i.action] for i in table.timeline()] == wanted["completed_instants"]
    assert {time: table.to_arrow(as_of=time).num_rows for time in wanted["as_of"]} == wanted["as_of"]


@pytest.mark.spark
@pytest.mark.parametrize("name", ALL)
def test_spark_reads_the_same_rows(name, hudi_fixture, expected, spark):
    table = holdfast.open_table(str(hudi_fixture(name)))

    rows = [row.asDict(recursive=True) for row in table.read(spark).collect()]

    plain = ("id", "name", "longField", "doubleField", "arrayField", "structField")
    if "trips" in name:
        plain = ("uuid", "rider", "driver", "fare", "city", "ts")
    assert sorted(json.dumps({c: row[c] for c in plain}) for row in rows) == sorted(
        json.dumps({c: row[c] for c in plain}) for row in expected(name)["snapshot"]
    )


@pytest.mark.parametrize("name", CONTINUED)
def test_hudi_reads_the_union_of_its_rows_and_ours(name, hudi_fixture, expected, tmp_path):
    source = hudi_fixture(name)
    shutil.copytree(source, tmp_path / "table")
    table = holdfast.open_table(str(tmp_path / "table"))
    before = table.to_arrow(meta_columns=False)
    template = holdfast.open_table(str(hudi_fixture("cow_v6_nonpartitioned"))).to_arrow()
    more = template.select(before.column_names).slice(0, 2)
    more = more.set_column(0, more.schema.field(0), pa.array([1001, 1002], pa.int32()))

    commit = table.bulk_insert(more)

    assert commit.records_written == 2
    theirs = hudi_snapshot(tmp_path / "table")
    assert sorted(theirs["id"].to_pylist()) == sorted([*before["id"].to_pylist(), 1001, 1002])
    assert rows_of(theirs) == rows_of(table.to_arrow(meta_columns=True))


@pytest.mark.parametrize(
    "name",
    [
        "cow_v6_simplekeygen_hivestyle_no_metafields",
        "mor_parquet_v6_simplekeygen_hivestyle_no_metafields",
    ],
)
def test_a_table_whose_features_we_would_break_is_not_written_to(name, hudi_fixture):
    folder = hudi_fixture(name)
    table = holdfast.open_table(str(folder))
    before = sorted(folder.rglob("*"))

    with pytest.raises(UnsupportedTable, match="not supported"):
        table.insert(holdfast.open_table(str(folder)).to_arrow(read_optimized=True))

    assert sorted(folder.rglob("*")) == before
