"""Merge-on-read tables: log files of each engine, merged, compacted, taken back and cleaned by the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

import holdfast
from harness.hudi_reader import hudi_snapshot
from interop.engines import Engine, Holdfast, newest_commit
from interop.shapes import Shape, rich_rows, trips
from interop.talk import Check, Talk, as_if_killed, check, data_files, log_files

_MODEL = "org.apache.hudi.common.model."
_BLOCKS = "hoodie.logfile.data.block.format"
_AT_ONCE = "hoodie.compact.inline.max.delta.commits=1"
_NO_CLEAN = {"hoodie.clean.automatic": "false"}


def _merged(name: str, payload: str) -> Shape:
    others = {
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.payload.class": _MODEL + payload,
    }
    return Shape(name=name, others=others)


BY_EVENT = _merged("by_event", "DefaultHoodieRecordPayload")
BY_COMMIT = _merged("by_commit", "OverwriteWithLatestAvroPayload")
_OLD_ORDER = {
    "0.15": "of several log files it takes the row with the greatest ordering value, by commit or not"
}
_LOGS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
"""So that ours appends to groups as small as these, as Hudi does."""
_BEFORE = {f"k{n}": float(n) for n in range(10)}
_CITY = {key: ("paris", "rome")[n % 2] for n, key in enumerate(_BEFORE)}


def _merge_check(*, short: bool = False, absent: Mapping[str, str] | None = None) -> Callable[[Check], Check]:
    """A check in the time zone of its tables: elsewhere Hudi 1.x misreads log files."""

    def register(function: Check) -> Check:
        @wraps(function)
        def within(talk: Talk) -> None:
            with talk.in_zone("UTC", "UTC") if talk.line.timeline_zone == "UTC" else nullcontext():
                function(talk)

        return check(short=short, absent=absent)(within)

    return register


def _rows(fares: Mapping[str, float], *, ts: int, **more: object) -> pa.Table:
    return trips(*((key, _CITY.get(key, "paris"), fare) for key, fare in fares.items()), ts=ts, **more)


def _write(
    by: Engine, path: str, shape: Shape, operation: str, rows: pa.Table,
    options: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    given = (_LOGS if isinstance(by, Holdfast) else {}) | _NO_CLEAN | dict(options or {})
    return by.write(path, shape, operation, rows, given)


def _begun(by: Engine, talk: Talk, shape: Shape) -> str:
    path = talk.path(shape.name)
    _write(by, path, shape, "insert", _rows(_BEFORE, ts=1))
    return path


def _agree(talk: Talk, path: str, fares: Mapping[str, float]) -> None:
    """Both, and hudi-rs, read the same merged rows; and both the same base files."""
    talk.agree(path, fares)
    talk.same(*(engine.snapshot(path, read_optimized=True) for engine in talk.engines))
    found = hudi_snapshot(Path(path)).select(["id", "fare"]).to_pylist()
    talk.same({row["id"]: row["fare"] for row in found}, dict(fares))
    talk.same(len(found), len(fares))


def _history(talk: Talk, by: Engine, shape: Shape, options: Mapping[str, str] | None = None) -> None:
    """Changes in log files by one engine; after each all read the same, and later still, as of each."""
    path = _begun(by, talk, shape)
    fares, steps = dict(_BEFORE), [(str(newest_commit(path)), dict(_BEFORE), set(_BEFORE))]
    _agree(talk, path, fares)

    def step(operation: str, changed: Mapping[str, float], **more: object) -> None:
        rows = _rows(changed, ts=len(steps) + 1, **more)
        instant = _write(by, path, shape, operation, rows, options)
        if operation == "delete":
            for key in changed:
                del fares[key]
        else:
            fares.update(changed)
        steps.append((instant, dict(fares), set() if operation == "delete" else set(changed)))
        _agree(talk, path, fares)

    step("upsert", {"k0": 10, "k1": 11, "k2": 12})
    talk.same(bool(log_files(path)), True)
    step("delete", {"k1": 0, "k3": 0})
    step("upsert", {"k1": 21})
    step("upsert", {"k0": 30, "n0": 31})
    step("delete", {"n0": 0, "k2": 0})
    for instant, then, _ in steps:
        talk.agree(path, then, as_of=instant)
    for (since, _, _), (until, _, written) in pairwise(steps):
        talk.agree_on_changes(path, written, since=since, until=until)
    talk.agree_on_changes(path, set(fares), since="19700101000000000")
    step("upsert", {"k4": 50}, tip=1.5)
    for instant, then, _ in steps[-2:]:
        talk.agree(path, then, as_of=instant)
    talk.agree_on_changes(path, {"k4"}, since=steps[-2][0])
    talk.sound(path)


@_merge_check(short=True)
def hudi_merges_the_log_files_that_we_wrote(talk: Talk) -> None:
    for shape in (BY_EVENT, BY_COMMIT)[: 1 if talk.is_short else 2]:
        _history(talk, talk.ours, shape)


@_merge_check(short=True)
def we_merge_the_log_files_that_hudi_wrote(talk: Talk) -> None:
    for blocks in ("avro", "parquet")[: 1 if talk.is_short else 2]:
        for shape in (BY_EVENT, BY_COMMIT)[: 1 if talk.is_short else 2]:
            _history(talk, talk.hudi, shape, {_BLOCKS: blocks})


@_merge_check()
def hudi_merges_our_avro_blocks(talk: Talk) -> None:
    _history(talk, talk.ours, BY_EVENT, {_BLOCKS: "avro"})


@_merge_check()
def log_files_of_every_type_are_merged_alike(talk: Talk) -> None:
    for blocks in ("avro", "parquet"):
        for engine in talk.engines:
            path = talk.path("rich_merged")
            first = _write(engine, path, BY_EVENT, "insert", rich_rows("a", "b", "c"))
            again = rich_rows("b", "c", fare="99.25")
            later = pa.array([5, 6, 7], pa.int64())
            again = again.set_column(again.schema.get_field_index("ts"), "ts", later)
            _write(engine, path, BY_EVENT, "upsert", again, {_BLOCKS: blocks})
            talk.agree(path)
            talk.agree(path, as_of=first)
            talk.sound(path)


@_merge_check()
def log_files_by_turns(talk: Talk) -> None:
    """Updates, deletes and keys that come back, in the same slices."""
    for shape in (BY_EVENT, BY_COMMIT)[: 1 if talk.is_short else 2]:
        for first, second in talk.both_ways:
            _turns(talk, first, second, shape, {})


@_merge_check()
def log_files_by_turns_with_the_bucket_index(talk: Talk) -> None:
    """There Hudi writes new keys to log files, also where there is no base file."""
    options = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
    for first, second in talk.both_ways:
        _turns(talk, first, second, replace(BY_EVENT, others=dict(BY_EVENT.others) | options), {})


def _turns(talk: Talk, first: Engine, second: Engine, shape: Shape, options: Mapping[str, str]) -> None:
    path, fares = _begun(first, talk, shape), dict(_BEFORE)
    for turn, engine in enumerate((second, first, second, first), 2):
        changed = {f"k{turn}": float(turn * 10), "k0": float(turn), f"n{turn}": 0.5}
        _write(engine, path, shape, "upsert", _rows(changed, ts=turn), options)
        fares |= changed
        _agree(talk, path, fares)
        gone = (f"k{turn + 4}", f"n{turn}")
        _write(engine, path, shape, "delete", _rows(dict.fromkeys(gone, 0.0), ts=turn), options)
        for key in gone:
            del fares[key]
        _agree(talk, path, fares)
        if turn > 2:
            back = {f"k{turn + 3}": float(turn)}
            _write(engine, path, shape, "upsert", _rows(back, ts=turn), options)
            fares |= back
            _agree(talk, path, fares)
    talk.sound(path)


@_merge_check()
def the_same_of_two_rows_wins_in_log_files(talk: Talk) -> None:
    for first, second in talk.both_ways:
        _contest(talk, first, second, BY_EVENT, late_loses=True)
    _contest(talk, talk.hudi, talk.ours, BY_COMMIT, late_loses=False)


@_merge_check(absent=_OLD_ORDER)
def the_later_row_of_hudi_wins_in_log_files(talk: Talk) -> None:
    _contest(talk, talk.ours, talk.hudi, BY_COMMIT, late_loses=False)


def _contest(talk: Talk, first: Engine, second: Engine, shape: Shape, *, late_loses: bool) -> None:
    path = _begun(first, talk, shape)
    _write(first, path, shape, "upsert", _rows({"k0": 5}, ts=5))
    _write(second, path, shape, "upsert", _rows({"k0": 3, "k2": 4}, ts=3))
    _agree(talk, path, _BEFORE | {"k0": 5 if late_loses else 3, "k2": 4})
    _write(first, path, shape, "upsert", _rows({"k0": 9}, ts=5))
    _agree(talk, path, _BEFORE | {"k0": 9, "k2": 4})
    talk.sound(path)


@check(absent={"0.15": "it goes by the instants in the names alone"})
def hudi_reads_old_log_files_again_in_another_time_zone(talk: Talk) -> None:
    """It takes modification times in the zone of its JVM for instants, also in a table of UTC."""
    for engine in talk.engines:
        with talk.in_zone("Asia/Kolkata", "UTC"):
            path = _begun(engine, talk, BY_COMMIT)
            _write(engine, path, BY_COMMIT, "upsert", _rows({"k0": 10}, ts=2))
            rewritten = {"holdfast.mor.max.log.ratio": "0"}
            _write(talk.ours, path, BY_COMMIT, "upsert", _rows({"k0": 20}, ts=3), rewritten)
            fares = [{row["id"]: row["fare"] for row in e.snapshot(path).values()} for e in talk.engines]
            talk.same(fares, [_BEFORE | {"k0": 20}, _BEFORE | {"k0": 10}])
        with talk.in_zone("UTC", "UTC"):
            _agree(talk, path, _BEFORE | {"k0": 20})


def _compact(talk: Talk, by: Engine, path: str, *, plan: bool = True, run: bool = True) -> None:
    if by is talk.ours:
        table = holdfast.open_table(path)
        if plan:
            talk.same(table.schedule_compaction() is not None, True)
        if run:
            talk.same(table.compact() is not None, True)
        return
    for name, is_asked in (("schedule", plan), ("run", run)):
        if is_asked:
            talk.same(len(talk.hudi.call(path, "run_compaction", op=name, options=_AT_ONCE)), 1)


@_merge_check(short=True)
def each_compacts_the_log_files_of_the_other(talk: Talk) -> None:
    for writer, compactor in talk.both_ways:
        for shape in (BY_EVENT, BY_COMMIT)[: 1 if talk.is_short else 2]:
            path = _begun(writer, talk, shape)
            _write(writer, path, shape, "upsert", _rows({"k0": 10, "k1": 11}, ts=2))
            _write(writer, path, shape, "delete", _rows({"k2": 0}, ts=3))
            fares = {key: fare for key, fare in _BEFORE.items() if key != "k2"} | {"k0": 10, "k1": 11}
            _agree(talk, path, fares)
            _compact(talk, compactor, path)
            _agree(talk, path, fares)
            merged = (talk.ours.snapshot(path, read_optimized=each) for each in (True, False))
            talk.same(*merged)
            for ts, engine in enumerate((writer, compactor), 4):
                _write(engine, path, shape, "upsert", _rows({"k0": ts, "k3": ts}, ts=ts))
                fares |= {"k0": ts, "k3": ts}
                _agree(talk, path, fares)
            _compact(talk, writer, path)
            _agree(talk, path, fares)
            talk.sound(path)


@_merge_check()
def each_carries_out_the_compaction_that_the_other_planned(talk: Talk) -> None:
    """Both write to the planned slices meanwhile: Hudi adds to the next ones, Holdfast rewrites."""
    for planner, runner in talk.both_ways:
        path = _begun(talk.ours, talk, BY_EVENT)
        _write(runner, path, BY_EVENT, "upsert", _rows({"k0": 10, "k1": 11}, ts=2))
        _write(planner, path, BY_EVENT, "upsert", _rows({"k0": 20, "k2": 12}, ts=3))
        fares = _BEFORE | {"k0": 20, "k1": 11, "k2": 12}
        _compact(talk, planner, path, run=False)
        talk.agree(path, fares)
        _write(talk.hudi, path, BY_EVENT, "upsert", _rows({"k4": 34}, ts=4))
        fares |= {"k4": 34}
        talk.agree(path, fares)
        _compact(talk, runner, path, plan=False)
        _agree(talk, path, fares)
        for ts, engine in enumerate((planner, runner), 5):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts, "k3": ts}, ts=ts))
            fares |= {"k0": ts, "k3": ts}
            _agree(talk, path, fares)
        talk.sound(path)


_MOMENTS = (".requested", ".inflight", ".log.", "2:-.hoodie/.holdfast/ledger/")
"""What has been written last when our writer is killed: of its log files none, none, some, all."""


@_merge_check(short=True)
def hudi_rolls_back_our_killed_log_files(talk: Talk) -> None:
    for at in _MOMENTS[-1:] if talk.is_short else _MOMENTS:
        path = _begun(talk.ours, talk, BY_EVENT)
        _write(talk.ours, path, BY_EVENT, "upsert", _rows({"k0": 10, "k1": 11}, ts=2))
        fares = _BEFORE | {"k0": 10, "k1": 11}
        dead = talk.die(path, BY_EVENT, "upsert", _rows({"k0": 99, "k1": 99}, ts=9), at=at, options=_LOGS)
        talk.agree(path, fares)
        _write(talk.hudi, path, BY_EVENT, "upsert", trips(("x", "oslo", 4), ts=2))
        _agree(talk, path, fares | {"x": 4})
        (row,) = talk.hudi.call(path, "show_rollbacks", limit=5)
        talk.same(row["rollback_instant"], dead)
        for ts, engine in enumerate(talk.engines, 3):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts}, ts=ts))
            _agree(talk, path, fares | {"x": 4, "k0": ts})
        talk.sound(path)


@_merge_check(short=True)
def we_roll_back_hudis_failed_log_files(talk: Talk) -> None:
    for kind in ("TIMELINE_SERVER_BASED", "DIRECT")[: 1 if talk.is_short else 2]:
        path = _begun(talk.hudi, talk, BY_EVENT)
        _write(talk.hudi, path, BY_EVENT, "upsert", _rows({"k0": 10, "k1": 11}, ts=2))
        fares, before = _BEFORE | {"k0": 10, "k1": 11}, log_files(path)
        rows = _rows({"k0": 99, "k1": 99, "n9": 9}, ts=9)
        dead = talk.hudi.fail(path, BY_EVENT, "upsert", rows, {"hoodie.write.markers.type": kind})
        talk.same(log_files(path) > before, True)
        talk.agree(path, fares)
        _write(talk.ours, path, BY_EVENT, "upsert", _rows({"k3": 4}, ts=3))
        _agree(talk, path, fares | {"k3": 4})
        (row,) = talk.hudi.call(path, "show_rollbacks", limit=5)
        talk.same(row["rollback_instant"], dead)
        for ts, engine in enumerate((talk.hudi, talk.ours), 4):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts}, ts=ts))
            _agree(talk, path, fares | {"k3": 4, "k0": ts})
        talk.sound(path)


@_merge_check()
def a_compaction_that_hudi_began_is_carried_out_by_us(talk: Talk) -> None:
    path = _begun(talk.hudi, talk, BY_EVENT)
    _write(talk.hudi, path, BY_EVENT, "upsert", _rows({"k0": 10, "k1": 11}, ts=2))
    fares = _BEFORE | {"k0": 10, "k1": 11}
    _compact(talk, talk.hudi, path, run=False)
    as_if_killed(path, lambda: _compact(talk, talk.hudi, path, plan=False), ".compaction.inflight")
    talk.agree(path, fares)
    _compact(talk, talk.ours, path, plan=False)
    _agree(talk, path, fares)
    _write(talk.hudi, path, BY_EVENT, "upsert", _rows({"k0": 12}, ts=3))
    _agree(talk, path, fares | {"k0": 12})
    talk.sound(path)


@_merge_check()
def what_one_undoes_or_restores_in_log_files_is_gone_for_both(talk: Talk) -> None:
    for first, second in talk.both_ways:
        path = _begun(first, talk, BY_EVENT)
        kept = _write(second, path, BY_EVENT, "upsert", _rows({"k0": 10, "k1": 11}, ts=2))
        fares = _BEFORE | {"k0": 10, "k1": 11}
        _write(second, path, BY_EVENT, "upsert", _rows({"k0": 20}, ts=3))
        holdfast.open_table(path).undo()
        _agree(talk, path, fares)
        holdfast.open_table(path).savepoint(kept)
        for ts, engine in enumerate((first, second, first), 4):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts, "k2": ts}, ts=ts))
        _agree(talk, path, fares | {"k0": 6, "k2": 6})
        if first is talk.ours:
            holdfast.open_table(path).restore(kept)
        else:
            talk.hudi.call(path, "rollback_to_savepoint", instant_time=kept)
        _agree(talk, path, fares)
        for ts, engine in enumerate((second, first), 7):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts, "k2": ts}, ts=ts))
            _agree(talk, path, fares | {"k0": ts, "k2": ts})
        talk.sound(path)


@_merge_check()
def each_cleans_slices_with_the_log_files_of_the_other(talk: Talk) -> None:
    left = []
    for cleaner in talk.engines:
        path, fares = _begun(talk.ours, talk, BY_EVENT), dict(_BEFORE)
        for ts, engine in enumerate((talk.ours, talk.hudi, talk.ours, talk.hudi), 2):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts, "k1": ts}, ts=ts))
            fares |= {"k0": ts, "k1": ts}
            _compact(talk, engine, path)
        before = log_files(path)
        if cleaner is talk.hudi:
            talk.hudi.call(path, "run_clean", retain_commits=1)
        else:
            holdfast.open_table(path).clean({"hoodie.clean.commits.retained": "1"})
        talk.same(log_files(path) < before, True)
        left.append((len(data_files(path)), len(log_files(path))))
        _agree(talk, path, fares)
        for ts, engine in enumerate(talk.engines, 9):
            _write(engine, path, BY_EVENT, "upsert", _rows({"k0": ts}, ts=ts))
            _agree(talk, path, fares | {"k0": ts})
        talk.sound(path)
    talk.same(*left)
