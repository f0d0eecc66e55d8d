"""Reads of a table whose schema changed: old files in the new schema, by us, by Spark and by hudi-rs."""

import decimal
from dataclasses import replace

import pyarrow as pa
import pytest

import holdfast
from harness.evolutions import widened
from harness.hudi_reader import check_alike, hudi_changes, hudi_snapshot
from holdfast.errors import SchemaMismatch
from holdfast.format.evolution import schema_in_file
from holdfast.read.scans import scans
from holdfast.read.snapshot import snapshot

FILL = {"hoodie.write.set.null.for.missing.columns": "true"}


def lists(kind):
    return pa.list_(pa.field("element", kind))


def maps(kind):
    return pa.map_(pa.string(), kind)


def structs(**fields):
    return pa.struct(fields.items())


X, X_LONG = structs(x=pa.int32()), structs(x=pa.int64())
XY = structs(x=pa.int32(), y=pa.string())
XY_LONG = structs(x=pa.int64(), y=pa.string())
NO_X = [{"x": 7}, None, {"x": None}]

# Column → type and values of three old rows, type and values of two new rows.
EVOLVED = {
    "int_to_long": (pa.int32(), [1, None, -3], pa.int64(), [2**40, None]),
    "int_to_float": (pa.int32(), [16777217, None, -3], pa.float32(), [1.5, None]),
    "int_to_double": (pa.int32(), [2**31 - 1, None, -3], pa.float64(), [1.5, None]),
    "long_to_float": (pa.int64(), [2**40 + 1, None, -3], pa.float32(), [1.5, None]),
    "long_to_double": (pa.int64(), [2**53 + 1, None, -3], pa.float64(), [1.5, None]),
    "float_to_double": (pa.float32(), [1.1, None, -0.3], pa.float64(), [1.1, None]),
    "kept_wide": (pa.float64(), [1.1, None, 0.5], pa.int32(), [1, None]),
    "struct_gains": (X, NO_X, XY, [{"x": 1, "y": "a"}, None]),
    "struct_widens": (X, NO_X, X_LONG, [{"x": 2**40}, None]),
    "struct_reordered": (XY, [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
                         structs(y=pa.string(), z=pa.date32(), x=pa.int64()),
                         [{"y": "b", "z": None, "x": 2**40}, None]),
    "nested_gains": (structs(s=X), [{"s": {"x": 1}}, None, {"s": None}],
                     structs(s=XY_LONG), [{"s": {"x": 1, "y": "a"}}, None]),
    "list_widens": (lists(pa.int32()), [[1, None], None, []], lists(pa.float64()), [[1.5], None]),
    "list_gains": (lists(X), [[{"x": 1}, None], None, []], lists(XY_LONG), [[{"x": 1, "y": "a"}], None]),
    "map_widens": (maps(pa.float32()), [[("a", 1.1)], None, []], maps(pa.float64()), [[("b", 1.1)], None]),
    "map_gains": (maps(X), [[("a", {"x": 1}), ("b", None)], None, []],
                  maps(XY_LONG), [[("b", {"x": 1, "y": "a"})], None]),
}  # fmt: skip
ADDED = {
    "new_int": (pa.int32(), [1, None]),
    "new_decimal": (pa.decimal128(9, 2), [decimal.Decimal("1.50"), None]),
    "new_struct": (XY, [{"x": 1, "y": "a"}, None]),
    "new_list": (lists(XY), [[{"x": 1, "y": "a"}], None]),
    "new_map": (maps(pa.int64()), [[("a", 1)], None]),
}


def old_rows():
    columns = {name: pa.array(values, kind) for name, (kind, values, _, _) in EVOLVED.items()}
    return pa.table({"id": ["1", "2", "3"], "city": ["a", "b", "a"], **columns})


def new_rows():
    """The columns in another order than the table has them."""
    columns = {name: pa.array(values, kind) for name, (_, _, kind, values) in reversed(EVOLVED.items())}
    added = {name: pa.array(values, kind) for name, (kind, values) in ADDED.items()}
    return pa.table({**added, **columns, "city": ["b", "c"], "id": ["4", "5"]})


def expected(schema):
    found = []
    for rows in (old_rows(), new_rows()):
        kind = pa.struct(list(rows.schema))
        found += [widened(row, kind, pa.struct(list(schema))) for row in rows.to_pylist()]
    return found


@pytest.fixture
def evolved(tmp_path):
    """A table of three old rows and two new ones, in five files."""
    table = holdfast.create_table(str(tmp_path / "t"), name="t", record_key="id", partition_by="city")
    table.bulk_insert(old_rows())
    table.bulk_insert(new_rows())
    return table


def by_id(table):
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_old_rows_are_read_in_the_new_schema(evolved):
    rows = evolved.to_arrow()

    assert rows.schema == evolved.schema()
    assert rows.schema.names == [*old_rows().schema.names, *ADDED]
    assert by_id(rows) == expected(rows.schema)


def test_hudi_reads_the_same_of_every_snapshot_and_of_the_changes(evolved):
    first, second = evolved.timeline()

    check_alike(evolved.to_arrow(meta_columns=True), hudi_snapshot(evolved.path))
    check_alike(evolved.to_arrow(as_of=first), hudi_snapshot(evolved.path, as_of=first.time))
    changed = evolved.to_arrow().filter(pa.compute.is_in(evolved.to_arrow()["id"], pa.array(["4", "5"])))
    check_alike(changed, hudi_changes(evolved.path, since=first.time, until=second.time))


@pytest.mark.parametrize("column", [*EVOLVED, *ADDED])
def test_each_column_can_be_read_alone(evolved, column):
    rows = evolved.to_arrow(columns=[column])

    everything = evolved.to_arrow().select([column])
    assert rows == everything
    assert rows.num_rows == 5


def test_an_older_snapshot_keeps_its_schema(evolved):
    first = evolved.timeline()[0]

    rows = evolved.to_arrow(as_of=first)

    assert rows.schema == old_rows().schema
    assert by_id(rows) == old_rows().to_pylist()


def test_missing_columns_are_filled_only_when_asked_for(evolved):
    before = evolved.files()
    rows = pa.table({"id": ["6"], "city": ["a"], "struct_gains": pa.array([{"x": 1}], X)})

    with pytest.raises(SchemaMismatch) as refused:
        evolved.bulk_insert(rows)
    assert refused.value.facts["found"] == "missing"
    assert evolved.files() == before

    evolved.bulk_insert(rows, options=FILL)

    found = by_id(evolved.to_arrow())[-1]
    assert found.pop("id") == "6"
    assert found.pop("city") == "a"
    assert found.pop("struct_gains") == {"x": 1, "y": None}
    assert set(found.values()) == {None}
    check_alike(evolved.to_arrow(), hudi_snapshot(evolved.path))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("column", ["id", "part"])
def test_keys_and_partitions_do_not_become_fractions(tmp_path, column, kind):
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="part")
    table.bulk_insert(pa.table({"id": pa.array([1], pa.int32()), "part": pa.array([1], pa.int32())}))
    wider = pa.table({"id": pa.array([2**40]), "part": pa.array([2**41])})
    index = wider.column_names.index(column)

    with pytest.raises(SchemaMismatch, match="fraction") as refused:
        table.bulk_insert(wider.set_column(index, column, pa.array([2.0], kind)))
    table.bulk_insert(wider)

    assert refused.value.facts == {"column": column, "found": str(kind), "expected": "int32"}
    assert sorted(table.to_arrow(meta_columns=True)["_hoodie_record_key"].to_pylist()) == ["1", str(2**40)]


def test_a_table_that_never_changed_is_one_scan_and_no_footer(tmp_path):
    table = holdfast.create_table(str(tmp_path), name="t", record_key="id", partition_by="city")
    for _ in range(3):
        table.bulk_insert(old_rows())
    found = snapshot(table._opened)

    (scan,) = scans(None, found, found.schema)  # There is no store to read a footer from.

    assert scan.form == found.schema
    assert scan.paths == found.paths


def test_columns_that_did_not_change_are_one_scan(evolved):
    found = snapshot(evolved._opened)
    wanted = pa.schema([found.schema.field(name) for name in ("id", "new_struct", "kept_wide")])

    (scan,) = scans(None, found, wanted)

    assert scan.form == wanted


def test_files_are_scanned_by_how_they_are_stored(evolved):
    evolved.bulk_insert(new_rows())
    found = snapshot(evolved._opened)

    older, newer = sorted(scans(None, found, found.schema), key=lambda scan: len(scan.paths))

    assert older.form == schema_in_file(found.schema, old_rows().schema)
    assert newer.form == found.schema
    assert [len(older.paths), len(newer.paths)] == [2, 4]
    assert sorted([*older.paths, *newer.paths]) == found.paths


def test_the_footer_of_one_file_tells_what_an_archived_commit_wrote(evolved):
    found = snapshot(evolved._opened)
    opened = []

    class Watched:
        def open(self, path):
            opened.append(path)
            return evolved._opened.store.open(path)

    by_footers = scans(Watched(), replace(found, written_with={}), found.schema)

    by_commits = scans(None, found, found.schema)
    assert sorted(by_footers, key=str) == sorted(by_commits, key=str)
    assert len(opened) == 2


@pytest.mark.spark
def test_spark_reads_the_same_rows(evolved, spark):
    frame = evolved.read(spark)

    assert frame.columns == evolved.schema().names
    rows = [row.asDict(recursive=True) for row in frame.sort("id").collect()]
    assert rows == evolved.to_arrow().sort_by("id").to_pylist(maps_as_pydicts="strict")


@pytest.mark.spark
def test_a_query_of_new_fields_alone_keeps_structs_and_elements_apart_from_nulls(evolved, spark):
    evolved.read(spark).createOrReplaceTempView("evolved")

    def answer(query):
        return sorted((tuple(row) for row in spark.sql(query).collect()), key=str)

    assert answer("SELECT id, struct_gains.y FROM evolved WHERE struct_gains IS NOT NULL") == [
        ("1", None),
        ("3", None),
        ("4", "a"),
    ]
    assert answer("SELECT id, e.y FROM (SELECT id, explode(list_gains) e FROM evolved)") == [
        ("1", None),
        ("1", None),
        ("4", "a"),
    ]
    assert answer("SELECT id, list_gains.y FROM evolved WHERE id IN ('1', '3')") == [
        ("1", [None, None]),
        ("3", []),
    ]
    assert answer("SELECT id FROM evolved WHERE int_to_double > 2147483646.5") == [("1",)]


@pytest.mark.spark
def test_spark_reads_an_unchanged_table_with_one_scan(evolved, spark, capsys):
    evolved.read(spark, columns=["id", "kept_wide", "new_list"]).explain()
    one = capsys.readouterr().out
    evolved.read(spark).explain()
    two = capsys.readouterr().out

    assert one.count("FileScan") == 1
    assert "Union" not in one
    assert two.count("FileScan") == 2
