"""Tables that Apache Hudi began and Holdfast continues: updated, deleted from and overwritten, read by both.

The fixtures have what Hudi's users have: nested columns, decimals, a partition
column at the end of the schema or none, paths made of moments, and a table
that was overwritten once before.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import holdfast
from harness.hudi_reader import hudi_changes, hudi_snapshot
from holdfast.errors import InvalidOption

FILLED = (
    "cow_v6_nonpartitioned",
    "cow_v6_simplekeygen_nonhivestyle",
    "cow_v6_simplekeygen_nonhivestyle_overwritetable",
    "cow_v6_timebasedkeygen_nonhivestyle",
)
PARTITIONED = FILLED[1:]
LOOKING = ("SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM")


@pytest.fixture
def continued(hudi_fixture):
    """Opens a copy that may be written to."""
    return lambda name: holdfast.open_table(str(hudi_fixture(name)))


def by_key(table):
    """Key → row, as plain values."""
    rows = {row["_hoodie_record_key"]: row for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a key is there twice"
    return rows


def read_alike(table, *, as_of=None):
    """The rows by key, after both readers gave the same."""
    ours = by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    assert ours == by_key(hudi_snapshot(table.path, as_of=as_of))
    return ours


def without_meta(row):
    return {name: value for name, value in row.items() if not name.startswith("_hoodie_")}


def changed(rows, **columns):
    """The rows with other values in some columns."""
    for name, values in columns.items():
        number = rows.schema.get_field_index(name)
        field = rows.schema.field(number)
        rows = rows.set_column(number, field, pa.array(values, field.type))
    return rows


@pytest.mark.parametrize("index", LOOKING)
@pytest.mark.parametrize("name", FILLED)
def test_an_upsert_changes_the_row_it_names_and_adds_the_one_it_does_not_find(name, index, continued):
    table = continued(name)
    before = read_alike(table)
    first = table.to_arrow().slice(0, 1)
    update = changed(first, name=["Zoë"], decimalField=[None])
    addition = changed(first, id=[1001], structField=[None], arrayField=[[]])

    commit = table.upsert(pa.concat_tables([update, addition]), options={"hoodie.index.type": index})

    assert (commit.records_updated, commit.records_inserted, commit.records_deleted) == (1, 1, 0)
    after = read_alike(table)
    key = str(first["id"][0].as_py())
    assert without_meta(after.pop(key)) == update.to_pylist()[0]
    assert without_meta(after.pop("1001")) == addition.to_pylist()[0]
    del before[key]
    renamed = {"_hoodie_file_name": ""}
    assert {k: row | renamed for k, row in after.items()} == {k: row | renamed for k, row in before.items()}


@pytest.mark.parametrize("index", LOOKING)
@pytest.mark.parametrize("name", FILLED)
def test_a_delete_removes_the_rows_it_names_and_no_others(name, index, continued):
    table = continued(name)
    before = read_alike(table)
    first = table.to_arrow().slice(0, 1)
    naming = [c for c in ("id", *table.settings.partition_by) if c in first.column_names]
    absent = changed(first, id=[1001])

    commit = table.delete(
        pa.concat_tables([first, absent]).select(naming), options={"hoodie.index.type": index}
    )

    assert (commit.records_updated, commit.records_inserted, commit.records_deleted) == (0, 0, 1)
    after = read_alike(table)
    assert after.keys() == before.keys() - {str(first["id"][0].as_py())}


@pytest.mark.parametrize("name", PARTITIONED)
def test_overwriting_a_partition_leaves_the_others(name, continued):
    table = continued(name)
    before = read_alike(table)
    first = table.to_arrow(meta_columns=True).slice(0, 1)
    partition = first["_hoodie_partition_path"][0].as_py()
    new = changed(table.to_arrow().slice(0, 1), id=[1001])

    commit = table.insert_overwrite(new)

    assert (commit.action, commit.partitions, commit.records_inserted) == ("replacecommit", (partition,), 1)
    after = read_alike(table)
    stays = {k: row for k, row in before.items() if row["_hoodie_partition_path"] != partition}
    assert without_meta(after.pop("1001")) == new.to_pylist()[0]
    assert after == stays


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_partition_of_hudi_can_be_deleted(name, continued):
    table = continued(name)
    before = read_alike(table)
    partition = next(iter(before.values()))["_hoodie_partition_path"]

    table.delete_partitions([partition])

    stays = {k: row for k, row in before.items() if row["_hoodie_partition_path"] != partition}
    assert read_alike(table) == stays


@pytest.mark.parametrize("name", FILLED)
def test_what_hudi_committed_can_still_be_read_as_it_was(name, continued):
    table = continued(name)
    old = [instant.time for instant in table.timeline()]
    before = {time: read_alike(table, as_of=time) for time in old}

    update = changed(table.to_arrow().slice(0, 1), name=["Zoë"])
    commit = table.upsert(update)
    table.delete(update.select(["id", *table.settings.partition_by]))

    assert {time: read_alike(table, as_of=time) for time in old} == before
    ours = table.changes_to_arrow(since=old[-1], until=commit.instant, meta_columns=True)
    theirs = hudi_changes(table.path, since=old[-1], until=commit.instant)
    assert by_key(ours) == by_key(theirs)
    assert ours["name"].to_pylist() == ["Zoë"]


def test_an_empty_table_of_hudi_is_filled_and_emptied(continued):
    table = continued("cow_v6_empty")
    template = continued("cow_v6_nonpartitioned").to_arrow()
    rows = template.select(table.to_arrow().column_names or template.column_names)

    filled = table.upsert(rows)
    assert read_alike(table).keys() == {str(key) for key in rows["id"].to_pylist()}
    emptied = table.delete(rows.select(["id"]))

    assert (filled.records_inserted, emptied.records_deleted) == (rows.num_rows, rows.num_rows)
    assert read_alike(table) == {}


def test_nested_columns_and_numbers_grow_while_old_files_stay(continued):
    """A table of several files, of which only one is written anew."""
    table = continued("cow_v6_simplekeygen_nonhivestyle")
    before = read_alike(table)
    row = table.to_arrow().slice(0, 1)
    child = row["structField"].combine_chunks()
    grown = pa.StructArray.from_arrays(
        [*child.flatten(), pa.array(["more"])], names=[*child.type.names, "field3"]
    )
    number = row.schema.get_field_index("structField")
    row = row.set_column(number, "structField", grown)
    number = row.schema.get_field_index("intField")
    row = row.set_column(number, "intField", pc.cast(row["intField"], pa.int64()))

    table.upsert(row)

    after = read_alike(table)
    key = str(row["id"][0].as_py())
    assert after[key]["structField"]["field3"] == "more"
    assert table.schema().field("intField").type == pa.int64()
    assert all(after[k]["structField"]["field3"] is None for k in before.keys() - {key})


def test_a_table_that_is_not_bucketed_does_not_take_the_bucket_index(continued):
    table = continued("cow_v6_nonpartitioned")

    with pytest.raises(InvalidOption, match="buckets"):
        table.upsert(table.to_arrow(), options={"hoodie.index.type": "BUCKET"})
