"""Each engine reads what the other wrote: now, as of then, and what changed between."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa

from interop.engines import Engine
from interop.shapes import CUSTOM_BY_HOUR, KEYED, TRIPS, Shape, rich_rows, trips
from interop.talk import Talk, check, refusal


def _history(talk: Talk, by: Engine, shape: Shape) -> None:
    """Every kind of write by one engine; after each both read the same, and later still, as of each."""
    path, steps = talk.path(shape.name), []

    def step(operation: str, *rows: tuple[str, str, float], leaves: dict[str, float], ts: int) -> None:
        instant = by.write(path, shape, operation, trips(*rows, ts=ts))
        steps.append((instant, dict(leaves), {key for key, _, _ in rows}))
        talk.agree(path, leaves)

    fares = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    step(
        "bulk_insert", ("a", "paris", 1), ("b", "rome", 2), ("c", "paris", 3), ("d", "rome", 4),
        leaves=fares, ts=1,
    )  # fmt: skip
    fares |= {"e": 5.0, "f": 6.0}
    step("insert", ("e", "paris", 5), ("f", "oslo", 6), leaves=fares, ts=1)
    if shape.record_key == "id":
        fares |= {"a": 10.0, "g": 7.0}
        step("upsert", ("a", "paris", 10), ("g", "rome", 7), leaves=fares, ts=2)
    del fares["c"]
    steps.append((by.write(path, shape, "delete", _stored(talk, path, "c")), dict(fares), set()))
    talk.agree(path, fares)
    for instant, then, _ in steps:
        talk.agree(path, then, as_of=instant)
    for (since, _, _), (until, _, written) in pairwise(steps):
        talk.agree_on_changes(path, written, since=since, until=until)
    talk.agree_on_changes(path, set(fares), since="19700101000000000")
    talk.sound(path)


def _stored(talk: Talk, path: str, key: str) -> pa.Table:
    """The row with this id, as it is in the table."""
    rows = [row for row in talk.ours.snapshot(path).values() if row["id"] == key]
    return pa.Table.from_pylist(rows, trips().schema)


@check(short=True)
def hudi_reads_what_we_wrote(talk: Talk) -> None:
    _history(talk, talk.ours, TRIPS)


@check(short=True)
def we_read_what_hudi_wrote(talk: Talk) -> None:
    _history(talk, talk.hudi, TRIPS)


@check()
def hudi_reads_every_key_generator_of_ours(talk: Talk) -> None:
    for shape in KEYED:
        _history(talk, talk.ours, shape)


@check()
def we_read_every_key_generator_of_hudi(talk: Talk) -> None:
    for shape in KEYED:
        _history(talk, talk.hudi, shape)


@check(absent={"0.15": "it cannot read these tables, as the next check shows"})
def custom_keys_with_hours_are_read_alike(talk: Talk) -> None:
    for engine in talk.engines:
        _history(talk, engine, CUSTOM_BY_HOUR)


@check(absent={"1.x": "it reads these tables"})
def hudi_reads_no_custom_keys_with_hours_not_even_its_own(talk: Talk) -> None:
    for engine in talk.engines:
        path = talk.begun(engine, ("a", "paris", 1), shape=CUSTOM_BY_HOUR)
        talk.same([row["fare"] for row in talk.ours.snapshot(path).values()], [1])
        talk.same("ClassCastException" in refusal(lambda: talk.hudi.snapshot(path)), True)  # noqa: B023


@check()
def both_spell_keys_and_paths_alike(talk: Talk) -> None:
    """The same rows through each engine: keys and partition paths are the same text."""
    for shape in KEYED:
        # There a slash in a value makes more folders than columns, and Hudi reads an = as the end of a name.
        is_bare = shape.name in ("plain_paths", "complex_keys", "custom")
        odd = "a&b%d" if is_bare else "a=b/c%d"
        rows = trips(("a:b,c", "san françisco", 1), ("é中😀", odd, 2), ("x y", "rome", 3))
        meta = []
        for engine in talk.engines:
            path = talk.path(shape.name)
            engine.write(path, shape, "upsert", rows)
            meta.append(sorted(talk.agree(path)))
        talk.same(*meta)


@check(short=True)
def every_type_is_read_alike(talk: Talk) -> None:
    for engine in talk.engines:
        path = talk.path("rich")
        first = engine.write(path, TRIPS, "bulk_insert", rich_rows("a", "b", "c"))
        engine.write(path, TRIPS, "upsert", rich_rows("b", "d", fare="99.25"))
        talk.agree(path)
        talk.agree(path, as_of=first)
        talk.agree_on_changes(path, {"b", "d", "b-null"}, since=first)


@check()
def overwrites_are_read_alike_and_continued(talk: Talk) -> None:
    """Each partition that one replaced or deleted, the other writes to again."""
    for first, second in talk.both_ways:
        path = talk.begun(second, ("a", "paris", 1), ("b", "rome", 2), ("c", "oslo", 3))
        before = second.write(path, TRIPS, "upsert", trips(("a", "paris", 4), ts=2))
        part = first.write(path, TRIPS, "insert_overwrite", trips(("d", "paris", 5)))
        talk.agree(path, {"d": 5, "b": 2, "c": 3})
        second.write(path, TRIPS, "upsert", trips(("d", "paris", 6), ("a", "paris", 7), ts=2))
        gone = first.delete_partition(path, TRIPS, "city=rome")
        talk.agree(path, {"d": 6, "a": 7, "c": 3})
        second.write(path, TRIPS, "upsert", trips(("b", "rome", 8)))
        talk.agree(path, {"d": 6, "a": 7, "c": 3, "b": 8})
        first.write(path, TRIPS, "insert_overwrite_table", trips(("z", "lima", 9)))
        second.write(path, TRIPS, "upsert", trips(("z", "lima", 10), ("a", "paris", 11), ts=2))
        talk.agree(path, {"z": 10, "a": 11})
        talk.agree(path, {"a": 4, "b": 2, "c": 3}, as_of=before)
        talk.agree(path, {"d": 5, "b": 2, "c": 3}, as_of=part)
        talk.agree(path, {"d": 6, "a": 7, "c": 3}, as_of=gone)
        talk.agree_on_changes(path, {"z", "a"}, since=before)
        talk.sound(path)


@check()
def spark_sql_reads_and_changes_a_table_of_ours(talk: Talk) -> None:
    path = talk.begun(talk.ours, ("a", "paris", 1), ("b", "rome", 2), ("c", "rome", 3))
    name, sql = talk.hudi.named(path), talk.hudi.spark.sql
    sql(f"update {name} set fare = 20, ts = 2 where id = 'b'")
    talk.agree(path, {"a": 1, "b": 20, "c": 3})
    sql(f"delete from {name} where id = 'c'")
    talk.agree(path, {"a": 1, "b": 20})
    sql(
        f"merge into {name} as t using (select 'd' as id, 'oslo' as city, date'2024-01-01' as day,"
        " 0L as at, 3L as ts, cast(4 as double) as fare) as s on t.id = s.id"
        " when matched then update set * when not matched then insert *"
    )
    talk.agree(path, {"a": 1, "b": 20, "d": 4})
    talk.ours.write(path, TRIPS, "upsert", trips(("d", "oslo", 5), ts=4))
    talk.agree(path, {"a": 1, "b": 20, "d": 5})
    talk.sound(path)
