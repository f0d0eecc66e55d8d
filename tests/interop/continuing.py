"""Each engine goes on with the other's table: the same file groups, the same winners, one row for a key."""

from __future__ import annotations

import pyarrow as pa

from interop.engines import Engine
from interop.shapes import KEYED, TRIPS, Shape, rich_rows, trips
from interop.talk import Talk, check, data_files

_INDEX = "hoodie.index.type"


def _turns(talk: Talk, first: Engine, second: Engine, options: dict[str, str], shape: Shape = TRIPS) -> None:
    """Updates, additions and deletes by turns; updates must find the file group the other wrote."""
    path = talk.path(shape.name)
    keys = [f"k{n}" for n in range(20)]
    cities = {key: ("paris", "rome")[n % 2] for n, key in enumerate(keys)}
    fares = dict.fromkeys(keys, 1.0)
    first.write(path, shape, "upsert", trips(*((k, cities[k], 1.0) for k in keys)), options)
    groups = _file_groups(talk, path)
    for turn, engine in enumerate((second, first, second), 2):
        changed = keys[turn::4]
        fares |= dict.fromkeys(changed, float(turn))
        engine.write(path, shape, "upsert", trips(*((k, cities[k], turn) for k in changed), ts=turn), options)
        talk.agree(path, fares)
        talk.same(_file_groups(talk, path) <= groups, True)
        key = f"n{turn}"
        cities[key], fares[key] = "paris", 0.5
        engine.write(path, shape, "upsert", trips((key, "paris", 0.5), ts=turn), options)
        talk.agree(path, fares)
        gone = keys.pop(0)
        del fares[gone]
        engine.write(path, shape, "delete", trips((gone, cities[gone], 0), ts=turn), options)
        talk.agree(path, fares)
        groups = _file_groups(talk, path)
    talk.sound(path)


def _file_groups(talk: Talk, path: str) -> set[str]:
    return {row["_hoodie_file_name"].partition("_")[0] for row in talk.ours.snapshot(path).values()}


@check()
def turns_with_the_simple_index(talk: Talk) -> None:
    for first, second in talk.both_ways:
        _turns(talk, first, second, {_INDEX: "SIMPLE"})


@check(short=True)
def turns_with_the_bloom_index(talk: Talk) -> None:
    """Each uses the footers of the other's files."""
    for first, second in talk.both_ways:
        _turns(talk, first, second, {_INDEX: "BLOOM"})


@check(short=True)
def turns_with_the_bucket_index(talk: Talk) -> None:
    """Each finds a key by the number in the file ids of the other."""
    for first, second in talk.both_ways:
        _turns(talk, first, second, {_INDEX: "BUCKET", "hoodie.bucket.index.num.buckets": "4"})


@check()
def turns_with_global_indexes(talk: Talk) -> None:
    for index in ("GLOBAL_SIMPLE", "GLOBAL_BLOOM"):
        for first, second in talk.both_ways:
            path = talk.path()
            first.write(path, TRIPS, "upsert", trips(("a", "paris", 1), ("b", "rome", 2)), {_INDEX: index})
            second.write(path, TRIPS, "upsert", trips(("a", "rome", 3), ts=2), {_INDEX: index})
            talk.agree(path, {"a": 3, "b": 2})
            first.write(
                path, TRIPS, "upsert", trips(("a", "oslo", 4), ("c", "rome", 5), ts=3), {_INDEX: index}
            )
            talk.agree(path, {"a": 4, "b": 2, "c": 5})
            talk.sound(path)


@check()
def buckets_of_complex_keys_and_of_some_columns_agree(talk: Talk) -> None:
    options = {_INDEX: "BUCKET", "hoodie.bucket.index.num.buckets": "8"}
    (shape,) = [shape for shape in KEYED if shape.name == "complex_keys"]
    rows = trips(*((f"k{n}é", "paris", n) for n in range(12)))
    for hashed in ({}, {"hoodie.bucket.index.hash.field": "id"}):
        for first, second in talk.both_ways:
            path = talk.path(shape.name)
            first.write(path, shape, "upsert", rows, options | hashed)
            groups = _file_groups(talk, path)
            second.write(path, shape, "upsert", rows, options | hashed)
            talk.agree(path, {f"k{n}é": float(n) for n in range(12)})
            talk.same(_file_groups(talk, path), groups)


@check()
def turns_with_every_key_generator(talk: Talk) -> None:
    for shape in KEYED:
        for first, second in talk.both_ways:
            path = talk.path(shape.name)
            rows = trips(("a", "paris", 1), ("b", "rome", 2), ("c", "oslo", 3))
            first.write(path, shape, "upsert", rows)
            again = rows.set_column(rows.schema.get_field_index("fare"), "fare", pa.array([10.0, 20.0, 30.0]))
            second.write(path, shape, "upsert", again)
            talk.agree(path, {"a": 10, "b": 20, "c": 30})
            first.write(path, shape, "delete", rows.slice(0, 1))
            talk.agree(path, {"b": 20, "c": 30})
            second.write(path, shape, "insert_overwrite_table", rows)
            talk.agree(path, {"a": 1, "b": 2, "c": 3})
            talk.sound(path)


@check()
def rows_that_say_they_are_deleted_remove_their_key(talk: Talk) -> None:
    for first, second in talk.both_ways:
        path = talk.path()
        flag = "_hoodie_is_deleted"
        rows = trips(("a", "paris", 1), ("b", "paris", 2), ("c", "rome", 3), **{flag: False})
        first.write(path, TRIPS, "upsert", rows)
        second.write(path, TRIPS, "upsert", trips(("a", "paris", 0), ts=2, **{flag: True}))
        talk.agree(path, {"b": 2, "c": 3})
        first.write(path, TRIPS, "upsert", trips(("c", "rome", 0), ts=2, **{flag: True}))
        talk.agree(path, {"b": 2})
        second.write(path, TRIPS, "upsert", trips(("b", "paris", 7), ts=2, **{flag: False}))
        talk.agree(path, {"b": 7})


@check()
def the_same_of_two_rows_wins(talk: Talk) -> None:
    """By event time or by the later write, whichever engine brings the second row."""
    payload = "hoodie.datasource.write.payload.class"
    model = "org.apache.hudi.common.model."
    for name, late_loses in (("DefaultHoodieRecordPayload", True), ("OverwriteWithLatestAvroPayload", False)):
        shape = Shape(name="ordered", others={payload: model + name})
        for first, second in talk.both_ways:
            path = talk.path()
            first.write(path, shape, "upsert", trips(("a", "paris", 5), ts=5))
            second.write(path, shape, "upsert", trips(("a", "paris", 3), ts=3))
            talk.agree(path, {"a": 5 if late_loses else 3})
            second.write(path, shape, "upsert", trips(("a", "paris", 8), ("a", "paris", 9), ts=9))
            first.write(path, shape, "upsert", trips(("a", "paris", 10), ts=9))
            talk.agree(path, {"a": 10})


@check(short=True)
def columns_that_one_adds_the_other_keeps(talk: Talk) -> None:
    for first, second in talk.both_ways:
        path = talk.begun(first, ("a", "paris", 1), ("b", "rome", 2))
        second.write(path, TRIPS, "upsert", trips(("a", "paris", 3), ts=2, tip=1.5))
        talk.agree(path, {"a": 3, "b": 2})
        first.write(path, TRIPS, "upsert", trips(("b", "rome", 4), ts=3, tip=2.5, note="x"))
        rows = talk.agree(path, {"a": 3, "b": 4})
        talk.same(
            {r["id"]: (r["tip"], r["note"]) for r in rows.values()}, {"a": (1.5, None), "b": (2.5, "x")}
        )
        second.write(path, TRIPS, "upsert", trips(("c", "rome", 5), ts=4, tip=3.5, note="y"))
        rows = talk.agree(path, {"a": 3, "b": 4, "c": 5})
        talk.same(sorted(str(r["note"]) for r in rows.values()), ["None", "x", "y"])


@check()
def numbers_that_one_widens_the_other_reads(talk: Talk) -> None:
    for first, second in talk.both_ways:
        path = talk.path()
        first.write(
            path, TRIPS, "insert", trips(("a", "paris", 1), ("b", "rome", 1), n=1).cast(_with(pa.int32()))
        )
        second.write(path, TRIPS, "upsert", trips(("a", "paris", 2), ts=2, n=1 << 40))
        rows = talk.agree(path, {"a": 2, "b": 1})
        talk.same({row["id"]: row["n"] for row in rows.values()}, {"a": 1 << 40, "b": 1})
        first.write(path, TRIPS, "upsert", trips(("b", "rome", 3), ts=3, n=2))
        talk.agree(path, {"a": 2, "b": 3})


def _with(kind: pa.DataType) -> pa.Schema:
    """The schema of trips, with a column n of this type."""
    schema = trips(n=1).schema
    return schema.set(schema.get_field_index("n"), pa.field("n", kind))


@check()
def nested_columns_are_continued(talk: Talk) -> None:
    for first, second in talk.both_ways:
        path = talk.path("rich")
        first.write(path, TRIPS, "bulk_insert", rich_rows("a", "b", "c"))
        second.write(path, TRIPS, "upsert", rich_rows("b", "d", fare="7.25"))
        talk.agree(path)
        first.write(path, TRIPS, "upsert", rich_rows("d", "e", "a", fare="8.75"))
        talk.agree(path)
        talk.sound(path)


@check(short=True)
def the_metadata_table_of_hudi_is_switched_off_and_built_anew(talk: Talk) -> None:
    on = {"hoodie.metadata.enable": "true"}
    path = talk.path()
    talk.hudi.write(path, TRIPS, "insert", trips(("a", "paris", 1), ("b", "rome", 2)), on)
    talk.agree(path, {"a": 1, "b": 2})
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 3), ("c", "oslo", 4), ts=2))
    talk.agree(path, {"a": 3, "b": 2, "c": 4})
    talk.hudi.write(path, TRIPS, "upsert", trips(("c", "oslo", 5), ("d", "lima", 6), ts=3), on)
    talk.agree(path, {"a": 3, "b": 2, "c": 5, "d": 6})
    talk.ours.write(path, TRIPS, "delete", trips(("b", "rome", 0), ts=4))
    talk.hudi.write(path, TRIPS, "upsert", trips(("a", "paris", 7), ts=5), on)
    talk.agree(path, {"a": 7, "c": 5, "d": 6})
    talk.sound(path)


@check(short=True)
def hudi_finds_its_metadata_table_in_order_beside_our_files(talk: Talk) -> None:
    """Its own validation, file by file, and its look for Parquet files that are none."""
    on = {"hoodie.metadata.enable": "true"}
    path = talk.begun(talk.ours, ("a", "paris", 1), ("b", "rome", 2))
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 3), ts=2))
    talk.ours.write(path, TRIPS, "insert_overwrite", trips(("c", "rome", 4)))
    talk.hudi.write(path, TRIPS, "upsert", trips(("d", "oslo", 5)), on)
    rows = talk.hudi.call(path, "validate_metadata_table_files", verbose=True)
    found = [row for row in rows if row["file_name"].endswith(".parquet")]
    talk.same({row["file_name"] for row in found}, {file.rpartition("/")[2] for file in data_files(path)})
    for row in found:
        talk.same((row["is_present_in_fs"], row["is_present_in_metadata"]), (True, True))
        talk.same(row["fs_size"], row["metadata_size"])
    invalid = talk.hudi.spark.sql(f"call show_invalid_parquet(path => '{path}')").collect()
    talk.same(invalid, [])
    talk.agree(path, {"a": 3, "c": 4, "d": 5})
