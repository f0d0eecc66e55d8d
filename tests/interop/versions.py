"""Table version 6 is kept; a table that Hudi has moved to a newer one is refused, until it is moved back."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast.errors import UnsupportedTable
from interop.shapes import TRIPS, trips
from interop.talk import Talk, check


def _version(path: str) -> str:
    lines = (Path(path) / ".hoodie" / "hoodie.properties").read_text().splitlines()
    (version,) = [line.partition("=")[2] for line in lines if line.startswith("hoodie.table.version=")]
    return version


@check(short=True)
def a_table_stays_at_version_six(talk: Talk) -> None:
    for first, second in talk.both_ways:
        path = talk.begun(first, ("a", "paris", 1))
        second.write(path, TRIPS, "upsert", trips(("a", "paris", 2), ts=2))
        first.write(path, TRIPS, "upsert", trips(("a", "paris", 3), ts=3))
        talk.agree(path, {"a": 3})
        talk.same(_version(path), "6")


@check(short=True, absent={"0.15": "it knows no newer version"})
def a_table_that_hudi_upgraded_is_only_read_until_it_is_downgraded(talk: Talk) -> None:
    path = talk.begun(talk.ours, ("a", "paris", 1), ("b", "rome", 2))
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 2), ts=2))
    upgrading = {"hoodie.write.table.version": "9", "hoodie.write.auto.upgrade": "true"}
    before = _files(path)
    table = holdfast.open_table(path)
    frame = talk.hudi.frame(trips(("a", "paris", 3), ts=3))
    talk.hudi.save(frame, path, TRIPS, "upsert", upgrading)
    talk.same(_version(path) > "6", True)
    talk.same({r["id"]: r["fare"] for r in talk.hudi.snapshot(path).values()}, {"a": 3, "b": 2})
    upgraded = _files(path)
    talk.same(upgraded != before, True)
    opened = holdfast.open_table(path)
    rows = opened.to_arrow(columns=["id", "fare"]).to_pylist()
    talk.same({row["id"]: row["fare"] for row in rows}, {"a": 3, "b": 2})
    for act in (
        lambda: opened.upsert(trips(("a", "paris", 4), ts=4)),
        lambda: table.upsert(trips(("a", "paris", 4), ts=4)),
        lambda: table.clean(),
        lambda: table.to_arrow(),
    ):
        talk.same(_refusal(act), True)
        talk.same(_files(path), upgraded)
    talk.hudi.call(path, "downgrade_table", to_version="SIX")
    talk.same(_version(path), "6")
    talk.agree(path, {"a": 3, "b": 2})
    talk.ours.write(path, TRIPS, "upsert", trips(("b", "rome", 5), ts=5))
    talk.agree(path, {"a": 3, "b": 5})
    talk.hudi.write(path, TRIPS, "upsert", trips(("b", "rome", 6), ts=6))
    talk.agree(path, {"a": 3, "b": 6})


def _refusal(act) -> bool:
    """Whether the act is refused in a sentence that says what to do."""
    try:
        act()
    except UnsupportedTable as error:
        return any(way in str(error) for way in ("hoodie.write.auto.upgrade", "open it again"))
    return False


def _files(path: str) -> set[str]:
    return {str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()}
