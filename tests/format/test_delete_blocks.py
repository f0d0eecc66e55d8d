"""Delete blocks, against fastavro as the second opinion on their bytes."""

import datetime as dt
import io
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from holdfast.errors import UnsupportedTable
from holdfast.format.avro_payloads import hudi_schema
from holdfast.format.delete_blocks import decode_deletes, encode_deletes
from holdfast.format.malformed import Malformed

KEYS = pa.array(["a", "ä" * 40, ""])
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)


def _written_by_fastavro(records: list[dict]) -> bytes:
    sink = io.BytesIO()
    schemaless_writer(
        sink, parse_schema(hudi_schema("HoodieDeleteRecordList")), {"deleteRecordList": records}
    )
    return struct.pack(">ii", 3, len(sink.getvalue())) + sink.getvalue()


def _record(key: str, partition: str, name: str, value: object) -> dict:
    wrapper = (f"org.apache.hudi.avro.model.{name}", {"value": value})
    return {"recordKey": key, "partitionPath": partition, "orderingVal": wrapper}


def test_deletes_without_order_are_the_bytes_that_hudi_writes():
    content = encode_deletes(pa.array(["e96c4396-3fad-413a-a942-4cb36106d721"]), "city=san_francisco")

    assert content == bytes.fromhex("00000003 0000003e") + (
        b"\x02\x02\x48e96c4396-3fad-413a-a942-4cb36106d721\x02\x24city=san_francisco\x04\x00\x00"
    )


@pytest.mark.parametrize(
    ("kind", "name", "values", "stored"),
    [
        (pa.int32(), "IntWrapper", [7, -1, 2**31 - 1], None),
        (pa.int64(), "LongWrapper", [0, -(2**63), 2**63 - 1], None),
        (pa.float32(), "FloatWrapper", [0.5, -1.0, 0.0], None),
        (pa.float64(), "DoubleWrapper", [0.5, -1.0, 1e300], None),
        (pa.bool_(), "BooleanWrapper", [True, False, True], None),
        (pa.string(), "StringWrapper", ["", "b", "ä"], None),
        (pa.binary(), "BytesWrapper", [b"", b"b", b"\xff"], None),
        (pa.decimal128(20, 2), "DecimalWrapper", [Decimal("1.25"), Decimal("-1.25"), Decimal("0.00")], None),
        (pa.date32(), "DateWrapper", [dt.date(1960, 1, 1)] * 3, [-3653] * 3),
        (pa.timestamp("us", "UTC"), "LongWrapper", [MOMENT] * 3, [1767323045000006] * 3),
    ],
)
def test_ordering_values_are_written_in_the_type_of_their_column(kind, name, values, stored):
    orderings = pa.array(values, kind)
    content = encode_deletes(KEYS, "p", orderings)

    by_fastavro = [
        _record(key, "p", name, value) for key, value in zip(KEYS.to_pylist(), stored or values, strict=True)
    ]
    assert content == _written_by_fastavro(by_fastavro)
    assert decode_deletes(content, kind).orderings.equals(orderings)
    assert decode_deletes(content, kind).keys.equals(KEYS)


def test_a_delete_without_order_or_with_another_type_wins_by_its_time():
    content = encode_deletes(KEYS, "", pa.array([5, None, 0], pa.int64()))

    assert decode_deletes(content, pa.int64()).orderings.to_pylist() == [5, None, 0]
    assert decode_deletes(content, pa.string()).orderings.to_pylist() == [None, None, None]
    assert decode_deletes(content, None).orderings is None


def test_no_deletes():
    assert len(decode_deletes(encode_deletes(pa.array([], pa.string()), "p"), None).keys) == 0


@pytest.mark.parametrize("version", [1, 2])
def test_what_only_java_reads_is_refused(version):
    with pytest.raises(UnsupportedTable, match="only Hudi reads"):
        decode_deletes(struct.pack(">ii", version, 3) + b"abc", None)


def test_a_block_that_is_not_whole_is_malformed():
    content = encode_deletes(KEYS, "p", pa.array([1, 2, 3], pa.int64()))

    for end in range(len(content)):
        with pytest.raises(Malformed):
            decode_deletes(content[:end], pa.int64())
    with pytest.raises(Malformed):
        decode_deletes(struct.pack(">ii", 3, len(content) - 7) + content[8:] + b"\x00", None)


def test_an_ordering_value_that_has_no_form_is_refused():
    with pytest.raises(UnsupportedTable, match="of this type"):
        encode_deletes(KEYS, "p", pa.array([[1], [2], [3]]))
    with pytest.raises(UnsupportedTable, match="no room"):
        encode_deletes(KEYS[:1], "p", pa.array([Decimal(10) ** 20], pa.decimal128(38, 2)))
