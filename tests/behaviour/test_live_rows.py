"""Rows that are not the same when Spark computes them again: no key is stored twice, by whichever route."""

import collections
import contextlib
import random
import secrets

import pyarrow as pa
import pytest

import holdfast
from harness.checker import check_at_rest
from holdfast.engines.spark import routing, writer
from holdfast.errors import RowsChanged

pytestmark = pytest.mark.spark

INDEX = "hoodie.index.type"
SMALL_FILES = {"hoodie.parquet.max.file.size": "2048"}
"""So small that every partition is too large for one task."""
ROUTES = {
    "to the tasks of partitions": {INDEX: "SIMPLE"},
    "to file groups": {INDEX: "SIMPLE", **SMALL_FILES},
    "to file groups by their footers": {INDEX: "BLOOM", **SMALL_FILES},
    "to buckets": {INDEX: "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
    "anywhere": {INDEX: "GLOBAL_SIMPLE"},
    "anywhere by footers": {INDEX: "GLOBAL_BLOOM"},
    "anywhere, staying": {INDEX: "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": "false"},
}
COMPARED = [name for name in ROUTES if name not in ("to the tasks of partitions", "to buckets")]
"""Those where Spark looks for the keys before the rows go to their tasks."""
SCHEMA = "id string, city string, ts long, fare double"
CITIES = ("lima", "oslo")
STORED, DRAWN, SPACE = 120, 60, 200
"""As many keys are stored, as many rows come, as many keys are possible."""


def live(spark, *, leaves_home=False):
    """Rows with other keys each time they are computed; of one key several may come."""
    cities, space = CITIES, SPACE  # Workers cannot import this module.

    def draw(batches):
        for batch in batches:
            numbers = [secrets.randbelow(space) for _ in range(batch.num_rows)]
            homes = [cities[secrets.randbelow(2) if leaves_home else number % 2] for number in numbers]
            columns = {"id": [f"k{n:03}" for n in numbers], "city": homes, "ts": numbers}
            yield pa.RecordBatch.from_pydict(columns | {"fare": [2.0] * len(numbers)})

    return spark.range(0, DRAWN, 1, 2).mapInArrow(draw, SCHEMA)


@pytest.fixture
def make_table(tmp_path):
    """A table of several file groups in each of two cities."""

    def make(options):
        table = holdfast.create_table(
            str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city", ordering="ts"
        )
        numbers = list(range(STORED))
        random.Random(1).shuffle(numbers)
        layout = options if options[INDEX] == "BUCKET" else {}
        for some in (numbers[0::3], numbers[1::3], numbers[2::3]):
            rows = {"id": [f"k{n:03}" for n in some], "city": [CITIES[n % 2] for n in some]}
            table.bulk_insert(pa.table(rows | {"ts": some, "fare": [1.0] * len(some)}), options=layout)
        return table

    return make


def keys_of(table):
    """The stored keys, none twice."""
    keys = collections.Counter(table.to_arrow().column("id").to_pylist())
    assert not [key for key, count in keys.items() if count > 1]
    check_at_rest(table._opened)
    return set(keys)


@pytest.fixture
def kept(monkeypatch):
    """The rows that were kept because they had changed."""
    found = []
    keep = writer._rows_in_cache
    monkeypatch.setattr(writer, "_rows_in_cache", lambda rows: found.append(rows) or keep(rows))
    return found


@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_an_upsert_of_live_rows_stores_no_key_twice(spark, make_table, kept, options):
    table = make_table(options)
    is_compared = options in [ROUTES[name] for name in COMPARED]

    commit = table.upsert(live(spark, leaves_home="GLOBAL" in options[INDEX]), options=options)

    assert len(keys_of(table)) == STORED + commit.records_inserted - commit.records_deleted
    assert len(kept) == is_compared
    assert not spark.sparkContext._jsc.getPersistentRDDs(), "all that was cached is let go"


@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_a_delete_of_live_rows_takes_away_as_many_as_it_says(spark, make_table, options):
    table = make_table(options)

    commit = table.delete(live(spark).select("id", "city"), options=options)

    assert commit.records_deleted > 0
    assert len(keys_of(table)) == STORED - commit.records_deleted


def test_an_insert_that_combines_live_rows_of_several_partitions_stores_no_key_twice(spark, tmp_path, kept):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    options = {INDEX: "GLOBAL_SIMPLE", "hoodie.combine.before.insert": "true"}

    commit = table.insert(live(spark, leaves_home=True), options=options)

    assert len(keys_of(table)) == commit.records_inserted > 0
    assert len(kept) == 1


def test_keys_that_are_too_many_for_every_task_are_compared_too(spark, make_table, kept, monkeypatch):
    monkeypatch.setattr(routing, "_BROADCAST_SHARE", 0)
    options = ROUTES["to file groups"]
    table = make_table(options)

    table.upsert(live(spark), options=options)

    keys_of(table)
    assert len(kept) == 1


def test_rows_that_come_for_other_partitions_than_were_counted_are_kept(spark, tmp_path, kept):
    """Found by the tasks: with such an index they look for the keys."""
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")

    def draw(batches):
        list(batches)
        yield pa.RecordBatch.from_pydict({"id": ["a"], "city": [secrets.token_hex(8)]})

    table.upsert(spark.range(0, 1, 1, 1).mapInArrow(draw, "id string, city string"))

    assert keys_of(table) == {"a"}
    assert len(kept) == 1


@pytest.mark.parametrize("name", ["to file groups", "anywhere by footers"])
def test_rows_that_change_even_so_are_refused_by_name_and_nothing_is_changed(
    spark, make_table, monkeypatch, name
):
    table = make_table(ROUTES[name])
    before = sorted(map(repr, table.to_arrow().to_pylist()))
    monkeypatch.setattr(writer, "_rows_in_cache", contextlib.nullcontext)

    with pytest.raises(RowsChanged, match=r"not the same when they were read again.*write it to files"):
        table.upsert(live(spark), options=ROUTES[name])

    assert sorted(map(repr, table.to_arrow().to_pylist())) == before
    check_at_rest(table._opened)
