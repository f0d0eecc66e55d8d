"""Tables and rows that both engines are given, in the options that both understand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa


@dataclass(frozen=True)
class Shape:
    """What a table is, as options of Hudi's datasource."""

    name: str = "trips"
    record_key: str = "id"
    partition_by: str = "city"
    ordering: str = "ts"
    hive_style: bool = True
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, str]:
        given = {
            "hoodie.table.name": self.name,
            "hoodie.datasource.write.recordkey.field": self.record_key,
            "hoodie.datasource.write.partitionpath.field": self.partition_by,
            "hoodie.datasource.write.precombine.field": self.ordering,
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
        }
        return given | dict(self.others)


_GENERATOR = "hoodie.datasource.write.keygenerator.class"
_GENERATORS = "org.apache.hudi.keygen."

TRIPS = Shape()
PLAIN_PATHS = Shape(name="plain_paths", hive_style=False)
UNPARTITIONED = Shape(
    name="unpartitioned", partition_by="", others={_GENERATOR: _GENERATORS + "NonpartitionedKeyGenerator"}
)
COMPLEX = Shape(
    name="complex_keys",
    record_key="id,ts",
    partition_by="city,day",
    others={_GENERATOR: _GENERATORS + "ComplexKeyGenerator"},
)
ENCODED = Shape(name="encoded", others={"hoodie.datasource.write.partitionpath.urlencode": "true"})
BY_HOUR = Shape(
    name="by_hour",
    partition_by="at",
    others={
        _GENERATOR: _GENERATORS + "TimestampBasedKeyGenerator",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd/HH",
        "hoodie.keygen.timebased.timezone": "UTC",
    },
)
CUSTOM = Shape(
    name="custom",
    partition_by="city:SIMPLE,day:SIMPLE",
    others={_GENERATOR: _GENERATORS + "CustomKeyGenerator"},
)
CUSTOM_BY_HOUR = Shape(
    name="custom_by_hour",
    partition_by="city:SIMPLE,at:TIMESTAMP",
    others=dict(BY_HOUR.others) | dict(CUSTOM.others),
)
KEYED = (PLAIN_PATHS, UNPARTITIONED, COMPLEX, ENCODED, BY_HOUR, CUSTOM)
"""One of each key generator and each style of path."""

_HOUR_MS = 3_600_000
_EPOCH_MS = 1_705_311_000_000


def trips(*given: tuple[str, str, float], ts: int = 1, **more: object) -> pa.Table:
    """Rows of id, city and fare; `more` is a column that is the same in all of them."""
    ids, cities, fares = zip(*given, strict=True) if given else ((), (), ())
    numbers = range(len(ids))
    columns = {
        "id": pa.array(ids, pa.string()),
        "city": pa.array(cities, pa.string()),
        "day": pa.array([dt.date(2024, 1, 1 + n % 2) for n in numbers], pa.date32()),
        "at": pa.array([_EPOCH_MS + n % 2 * _HOUR_MS for n in numbers], pa.int64()),
        "ts": pa.array([ts] * len(ids), pa.int64()),
        "fare": pa.array(fares, pa.float64()),
    }
    return pa.table(columns | {name: pa.array([value] * len(ids)) for name, value in more.items()})


def rich_rows(*ids: str, fare: str = "1.50") -> pa.Table:
    """Rows with a column of every type that both engines have, nulls among them.

    No element of a list is null: Hudi, as it comes, cannot write that.
    """
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=dt.UTC)
    rows = [
        {
            "id": key,
            "city": "paris" if n % 2 else "rome",
            "ts": n,
            "flag": n % 2 == 0,
            "small": n,
            "real": n + 0.5,
            "amount": Decimal(fare) + n,
            "large": Decimal("12345678901234567890.123456789") + n,
            "day": dt.date(2024, 2, 29),
            "moment": moment + dt.timedelta(days=n),
            "raw": bytes([n, 255]),
            "tags": [f"t{n}", "é中😀"],
            "inner": {"name": f"n{n}", "point": {"x": n, "y": None}},
            "items": [{"sku": f"s{n}", "count": n}, {"sku": None, "count": None}],
            "labels": [("a", n), ("b", None)],
        }
        for n, key in enumerate(ids)
    ]
    rows.append({"id": f"{ids[0]}-null", "city": "oslo", "ts": 0})
    return pa.Table.from_pylist(rows, RICH)


RICH = pa.schema(
    {
        "id": pa.string(),
        "city": pa.string(),
        "ts": pa.int64(),
        "flag": pa.bool_(),
        "small": pa.int32(),
        "real": pa.float32(),
        "amount": pa.decimal128(10, 2),
        "large": pa.decimal128(38, 9),
        "day": pa.date32(),
        "moment": pa.timestamp("us", "UTC"),
        "raw": pa.binary(),
        "tags": pa.list_(pa.string()),
        "inner": pa.struct(
            {"name": pa.string(), "point": pa.struct({"x": pa.int64(), "y": pa.float64()})}
        ),
        "items": pa.list_(pa.struct({"sku": pa.string(), "count": pa.int32()})),
        "labels": pa.map_(pa.string(), pa.int64()),
    }
)  # fmt: skip
