import base64
import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from harness.hudi_reader import hudi_snapshot
from holdfast.files.chunk_file import ChunkFile, ParquetSource, copyable_columns
from holdfast.format.malformed import Malformed
from holdfast.storage.local import LocalStore
from holdfast.storage.memory import MemoryStore

ROW_GROUP = 40
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


def everything(count, *, seed=0):
    """Rows of every type, with nulls at every level and with dictionaries."""
    numbers = range(seed, seed + count)

    def column(kind, value):
        return pa.array([None if number % 7 == 3 else value(number) for number in numbers], kind)

    deep = pa.struct([("x", pa.int16()), ("words", pa.list_(pa.string()))])
    return pa.table(
        {
            "key": pa.array([f"key-{number:09d}" for number in numbers]),
            "a_bool": column(pa.bool_(), lambda n: n % 2 == 0),
            "a_byte": column(pa.int8(), lambda n: n % 100),
            "an_int": column(pa.int32(), lambda n: -n),
            "a_long": column(pa.int64(), lambda n: n * 10**12),
            "a_float": column(pa.float32(), lambda n: n / 4),
            "a_double": column(pa.float64(), lambda n: n / 3),
            "a_string": column(pa.string(), lambda n: "ü" * (n % 50)),
            "few": column(pa.dictionary(pa.int32(), pa.string()), lambda n: f"city-{n % 3}"),
            "a_binary": column(pa.binary(), lambda n: bytes([n % 256, 0, 255])),
            "a_fixed": column(pa.binary(4), lambda n: n.to_bytes(4, "big")),
            "a_small_decimal": column(pa.decimal128(9, 2), lambda n: Decimal(n) / 100),
            "a_large_decimal": column(pa.decimal128(38, 18), lambda n: Decimal(n)),
            "a_date": column(pa.date32(), lambda n: dt.date(2024, 1, 1) + dt.timedelta(days=n % 999)),
            "a_timestamp": column(
                pa.timestamp("us", "UTC"), lambda n: dt.datetime(2024, 1, 1, microsecond=n)
            ),
            "a_local_timestamp": column(pa.timestamp("us"), lambda n: dt.datetime(1960, 1, 1, microsecond=n)),
            "a_list": column(pa.list_(pa.int32()), lambda n: [n, None][: n % 3]),
            "a_map": column(
                pa.map_(pa.string(), pa.float64()), lambda n: [("k", n / 2), ("n", None)][: n % 3]
            ),
            "a_struct": column(deep, lambda n: {"x": n % 9, "words": ["w", None, "v"][: n % 4]}),
            "structs": column(pa.list_(deep), lambda n: [{"x": None, "words": [str(n)]}, None][: n % 3]),
        }
    )


def parquet(rows, **options):
    sink = io.BytesIO()
    options = {"row_group_size": ROW_GROUP, "write_page_checksum": True, "store_schema": False} | options
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def source_of(rows, **options):
    return ParquetSource(io.BytesIO(parquet(rows, **options)))


def read(content):
    return pq.read_table(pa.BufferReader(content), page_checksum_verification=True)


def spliced(old, new, columns, *, key_values=None):
    """The old file with some columns of every row group taken from the new one."""
    sink = io.BytesIO()
    file = ChunkFile(sink, template=old.footer)
    for number, group in enumerate(old.footer.row_groups):
        file.add_row_group(
            group.rows, [(new if leaf.path[0] in columns else old, number) for leaf in old.footer.leaves]
        )
    file.close(key_values or {})
    return sink.getvalue()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
def test_columns_of_two_files_read_back_as_one_table(codec, pages):
    old, new = everything(150), everything(150, seed=5000)
    changed = ["a_double", "few", "a_list", "a_struct"]
    new_names = [name for name in old.column_names if name in changed]

    content = spliced(
        source_of(old, compression=codec, data_page_version=pages), source_of(new.select(new_names)), changed
    )

    expected = old
    for name in changed:
        expected = expected.set_column(old.column_names.index(name), name, new[name])
    assert read(content).equals(read(parquet(expected)))
    assert pq.read_metadata(io.BytesIO(content)).num_row_groups == 4


def test_row_groups_of_two_files_stand_in_the_order_they_were_added():
    one, two = everything(100), everything(80, seed=100)
    first, second = source_of(one, compression="zstd"), source_of(two, use_dictionary=False)
    leaves = len(first.footer.leaves)
    sink = io.BytesIO()

    file = ChunkFile(sink, template=second.footer)
    for source in (first, second):
        for number, group in enumerate(source.footer.row_groups):
            file.add_row_group(group.rows, [(source, number)] * leaves)
    file.close({})

    assert read(sink.getvalue()).equals(read(parquet(pa.concat_tables([one, two]))))
    groups = pq.read_metadata(sink)
    assert [groups.row_group(number).num_rows for number in range(5)] == [40, 40, 20, 40, 40]


def test_columns_are_found_by_path_and_not_by_place():
    rows = everything(90)
    backwards = source_of(rows.select(rows.column_names[::-1]))

    assert read(spliced(source_of(rows), backwards, rows.column_names)).equals(read(parquet(rows)))


def test_columns_may_be_left_out_between_others():
    rows = everything(90)
    kept = rows.select(["key", "a_long", "a_list", "structs"])
    source, template = source_of(rows), source_of(kept).footer
    sink = io.BytesIO()

    file = ChunkFile(sink, template=template)
    for number, group in enumerate(source.footer.row_groups):
        file.add_row_group(group.rows, [(source, number)] * len(template.leaves))
    file.close({})

    assert read(sink.getvalue()).equals(read(parquet(kept)))


def test_files_with_the_same_layout_are_told_apart():
    """A chunk of one ends where the next one of the other starts."""
    old, new = (
        source_of(pa.table({name: [value] * 5 for name in "xyz"}), write_page_checksum=False)
        for value in (1, 2)
    )
    assert old.footer.row_groups[0].chunks[1].start == new.footer.row_groups[0].chunks[1].start

    content = spliced(old, new, ["y"])

    assert read(content).to_pydict() == {"x": [1] * 5, "y": [2] * 5, "z": [1] * 5}


def test_a_chunk_may_serve_many_row_groups():
    rows = pa.table({"key": [str(number) for number in range(120)], "name": ["old"] * 120})
    old = source_of(rows)
    name = source_of(pa.table({"name": ["new"] * ROW_GROUP}))
    sink = io.BytesIO()

    file = ChunkFile(sink, template=old.footer)
    for number in range(3):
        file.add_row_group(ROW_GROUP, [(old, number), (name, 0)])
    file.close({})

    assert read(sink.getvalue()).to_pydict() == {"key": rows["key"].to_pylist(), "name": ["new"] * 120}


def test_a_column_that_repeats_another_is_given_its_chunks():
    rows = everything(90)
    rows = rows.append_column("id", rows["key"])
    once = ParquetSource(io.BytesIO(parquet(rows.drop_columns(["id"]))), repeats={"id": "key"})

    content = spliced(source_of(rows), once, rows.column_names)

    assert read(content).equals(read(parquet(rows)))
    group = pq.read_metadata(io.BytesIO(content)).row_group(1)
    key, copy = group.column(0), group.column(group.num_columns - 1)
    assert (copy.path_in_schema, copy.statistics) == ("id", key.statistics)
    assert copy.data_page_offset > key.data_page_offset


def test_a_column_of_another_form_cannot_repeat_one():
    rows = pa.table({"key": ["a", "b"], "id": [1, 2]})
    once = ParquetSource(io.BytesIO(parquet(rows.select(["key"]))), repeats={"id": "key"})

    with pytest.raises(Malformed, match="'id'"):
        spliced(source_of(rows), once, rows.column_names)


def test_statistics_encodings_and_sizes_of_the_chunks_are_kept():
    rows = everything(100)
    content = parquet(rows, compression="gzip")
    copy = spliced(ParquetSource(io.BytesIO(content)), None, [])

    old, new = pq.read_metadata(io.BytesIO(content)), pq.read_metadata(io.BytesIO(copy))

    assert new.created_by == old.created_by
    for number in range(3):
        assert new.row_group(number).to_dict() == old.row_group(number).to_dict()
    assert new.row_group(1).column(0).statistics.min == "key-000000040"


def test_page_indexes_of_the_old_file_are_not_pointed_to():
    source = source_of(everything(100), write_page_index=True)

    column = pq.read_metadata(io.BytesIO(spliced(source, None, []))).row_group(1).column(2)

    assert not column.has_offset_index
    assert not column.has_column_index


def test_a_spliced_file_can_be_spliced_again():
    rows = everything(100)
    content = parquet(rows)

    for name in rows.column_names:
        content = spliced(ParquetSource(io.BytesIO(content)), source_of(rows.select([name])), [name])

    assert read(content).equals(read(parquet(rows)))


def test_key_values_are_the_ones_given():
    content = spliced(source_of(everything(10)), None, [], key_values={"a": "ä", "b": ""})

    assert pq.read_metadata(io.BytesIO(content)).metadata == {b"a": "ä".encode(), b"b": b""}
    assert ParquetSource(io.BytesIO(content)).footer.key_values == {"a": "ä", "b": ""}


def test_a_file_without_rows_can_be_template_and_source():
    empty = source_of(everything(0))

    content = spliced(empty, None, [])

    assert read(content).equals(read(parquet(everything(0))))
    assert pq.read_metadata(io.BytesIO(content)).num_row_groups == 0


@pytest.mark.parametrize("make_store", [lambda folder: LocalStore(folder), lambda _: MemoryStore()])
def test_a_file_goes_from_a_store_into_a_store(tmp_path, make_store):
    store = make_store(str(tmp_path))
    rows = everything(100)
    with store.upload("old.parquet") as sink:
        sink.write(parquet(rows))

    with store.open("old.parquet") as reader, store.upload("new.parquet") as sink:
        source = ParquetSource(reader)
        file = ChunkFile(sink, template=source.footer)
        for number, group in enumerate(source.footer.row_groups):
            file.add_row_group(group.rows, [(source, number)] * len(source.footer.leaves))
        file.close({})

    assert read(store.read("new.parquet")).equals(read(parquet(rows)))


class CountingReader(io.BytesIO):
    """A file in memory that writes down how it is read."""

    def __init__(self, content):
        super().__init__(content)
        self.reads = []

    def read(self, size=-1):
        self.reads.append((self.tell(), size))
        return super().read(size)


def test_neighbouring_chunks_are_read_in_one_go():
    rows = everything(100)
    reader = CountingReader(parquet(rows))
    old = ParquetSource(reader)
    reader.reads.clear()

    spliced(old, source_of(rows.select(["few"])), ["few"])

    groups = old.footer.row_groups
    few = [leaf.dotted for leaf in old.footer.leaves].index("few")
    assert reader.reads == [
        read
        for group in groups
        for read in (
            (group.chunks[0].start, group.chunks[few].start - group.chunks[0].start),
            (group.chunks[few].end, group.chunks[-1].end - group.chunks[few].end),
        )
    ]


def test_a_large_chunk_is_copied_piece_by_piece():
    rows = pa.table({"noise": [bytes(range(256)) * 4096] * 20})
    reader = CountingReader(parquet(rows, compression="none", use_dictionary=False))
    source = ParquetSource(reader)
    reader.reads.clear()

    content = spliced(source, None, [])

    assert source.footer.row_groups[0].chunks[0].size_bytes > 20_000_000
    assert len(reader.reads) == 3
    assert max(size for _, size in reader.reads) == 8 * 1024 * 1024
    assert read(content).equals(rows)


def base_files(table):
    return sorted(path for path in table.rglob("*.parquet") if not path.name.startswith("."))


def test_only_what_hudi_stores_otherwise_cannot_be_copied_from_its_files(hudi_table):
    """Spark's writer has decimals as integers, Avro's has lists of two levels; pyarrow writes neither."""
    for path in base_files(hudi_table):
        rows = pq.read_table(path, partitioning=None)
        old = ParquetSource(io.BytesIO(path.read_bytes()))

        copyable = copyable_columns(old.footer, source_of(rows).footer)

        assert set(rows.column_names) - copyable <= {"decimalField", "arrayField"}


def test_hudi_reads_its_file_with_a_column_replaced(hudi_fixture):
    """Each base file of the latest snapshot is rewritten in place, with new values in one column."""
    table = hudi_fixture("cow_v6_simplekeygen_nonhivestyle")
    before = hudi_snapshot(table)

    for path in base_files(table):
        old = ParquetSource(io.BytesIO(path.read_bytes()))
        ages = pc.add(pq.read_table(path, columns=["intField"], partitioning=None)["intField"], 1000)
        new = source_of(pa.table({"intField": ages.cast(pa.int32())}))
        path.write_bytes(spliced(old, new, ["intField"], key_values=old.footer.key_values))

    after = hudi_snapshot(table).sort_by("_hoodie_record_key")
    before = before.sort_by("_hoodie_record_key")
    assert after["intField"].to_pylist() == [age + 1000 for age in before["intField"].to_pylist()]
    assert after.drop_columns("intField").equals(before.drop_columns("intField"))


@pytest.mark.spark
def test_spark_reads_what_was_put_together(spark, tmp_path):
    """With its vectorised reader, with its other one, and with filters that go by statistics."""
    rows = everything(150).drop_columns(["a_fixed"])
    changed = ["a_double", "few", "structs"]
    new = everything(150, seed=5000).select(changed)
    whole, parts = str(tmp_path / "whole.parquet"), str(tmp_path / "parts.parquet")
    expected = rows
    for name in changed:
        expected = expected.set_column(rows.column_names.index(name), name, new[name])
    pq.write_table(expected, whole, store_schema=False)
    with open(parts, "wb") as file:
        file.write(spliced(source_of(rows, compression="gzip"), source_of(new), changed))

    for vectorised in ("true", "false"):
        spark.conf.set("spark.sql.parquet.enableVectorizedReader", vectorised)
        theirs, ours = spark.read.parquet(whole), spark.read.parquet(parts)
        assert ours.schema == theirs.schema
        assert sorted(ours.collect()) == sorted(theirs.collect())
        assert ours.where("key >= 'key-000000130'").count() == 20
        assert ours.where("few = 'city-1'").count() == theirs.where("few = 'city-1'").count() > 0
    spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_a_chunk_of_another_type_is_refused_before_a_byte_is_written():
    old = source_of(pa.table({"x": [1, 2], "y": ["a", "b"]}))
    new = source_of(pa.table({"x": [1.0, 2.0]}))
    sink = io.BytesIO()
    file = ChunkFile(sink, template=old.footer)

    with pytest.raises(Malformed, match="fits the column 'x'"):
        file.add_row_group(2, [(new, 0), (old, 0)])
    with pytest.raises(Malformed, match="fits the column 'y'"):
        file.add_row_group(2, [(old, 0), (new, 0)])

    assert sink.getvalue() == b"PAR1"


def test_a_chunk_of_another_length_is_refused():
    old = source_of(pa.table({"x": [1, 2], "y": ["a", "b"]}))
    new = source_of(pa.table({"y": ["a", "b", "c"]}))

    with pytest.raises(Malformed, match="'y' has 3 rows in a row group of 2"):
        ChunkFile(io.BytesIO(), template=old.footer).add_row_group(2, [(old, 0), (new, 0)])


def test_a_source_that_shrinks_while_it_is_copied_is_malformed():
    reader = io.BytesIO(parquet(everything(10)))
    source = ParquetSource(reader)
    reader.truncate(100)

    with pytest.raises(Malformed, match="inside a column chunk"):
        spliced(source, None, [])


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1PAR1", b"PAR1\xff\x00\x00\x00PAR1", b"PAR1\x00\x00\x00\x00PAR1", bytes(100)],
    ids=["empty", "too small", "footer too long", "footer of nothing", "zeros"],
)
def test_a_file_that_is_not_parquet_is_malformed(content):
    with pytest.raises(Malformed):
        ParquetSource(io.BytesIO(content))


class OpenSafe(pe.KmsClient):
    """Keeps keys by not hiding them."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key_bytes, _):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, _):
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize(
    ("plaintext_footer", "reason"),
    [(True, "28 bytes follow"), (False, "encrypted")],
    ids=["signed footer", "encrypted footer"],
)
def test_encrypted_files_are_refused(plaintext_footer, reason):
    configuration = pe.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["y"]}, plaintext_footer=plaintext_footer
    )
    properties = pe.CryptoFactory(OpenSafe).file_encryption_properties(
        pe.KmsConnectionConfig(), configuration
    )
    rows = pa.table({"x": [1, 2], "y": ["a", "b"]})

    with pytest.raises(Malformed, match=reason):
        source_of(rows, encryption_properties=properties)
