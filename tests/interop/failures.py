"""Writes that died, and who takes them back: each engine rolls back the other's."""

from __future__ import annotations

from pathlib import Path

import holdfast
from interop.engines import Engine
from interop.shapes import TRIPS, trips
from interop.talk import Talk, as_if_killed, check, data_files, files_of, refusal

_BEFORE = {"a": 1.0, "b": 2.0}
_NEXT = trips(("d", "rome", 4), ts=2)
_MOMENTS = (".requested", ".inflight", ".parquet", "2:-.hoodie/.holdfast/ledger/")
"""What has been written last when our writer is killed: of its files none, none, some, all."""


def _table(talk: Talk) -> str:
    return talk.begun(talk.ours, ("a", "paris", 1), ("b", "rome", 2))


def _takes_back(talk: Talk, by: Engine, path: str, dead: str, **shown: object) -> str:
    """The next write of an engine takes back a dead one, as Hudi shows it; the instant of the rollback."""
    by.write(path, TRIPS, "upsert", _NEXT)
    talk.agree(path, _BEFORE | {"d": 4})
    talk.same(files_of(path, dead), set())
    shown["rollback_instant"] = dead
    rows = talk.hudi.call(path, "show_rollbacks", limit=5)
    talk.same([{name: row[name] for name in shown} for row in rows], [shown])
    return str(rows[0]["instant"])


def _goes_on(talk: Talk, by: Engine, path: str) -> None:
    """What was taken back does not come again with a later write."""
    by.write(path, TRIPS, "upsert", trips(("a", "paris", 5), ts=10))
    talk.agree(path, _BEFORE | {"a": 5, "d": 4})
    talk.sound(path)


@check(short=True)
def hudi_rolls_back_our_killed_write(talk: Talk) -> None:
    for at in _MOMENTS[-1:] if talk.is_short else _MOMENTS:
        for operation in ("upsert", "insert_overwrite"):
            path = _table(talk)
            rows = trips(("a", "paris", 9), ("c", "oslo", 9), ts=9)
            dead = talk.die(path, TRIPS, operation, rows, at=at)
            talk.agree(path, _BEFORE)
            _takes_back(talk, talk.hudi, path, dead)
            _goes_on(talk, talk.ours, path)


@check(short=True)
def we_roll_back_hudis_failed_write(talk: Talk) -> None:
    for kind in ("TIMELINE_SERVER_BASED", "DIRECT"):
        for operation in ("upsert", "insert_overwrite"):
            path = _table(talk)
            rows = trips(("a", "paris", 9), ("c", "oslo", 9), ts=9)
            dead = talk.hudi.fail(path, TRIPS, operation, rows, {"hoodie.write.markers.type": kind})
            talk.agree(path, _BEFORE)
            talk.same(len(files_of(path, dead)) > 1, True)
            rollback = _takes_back(talk, talk.ours, path, dead, total_files_deleted=2)
            detail = talk.hudi.call(path, "show_rollback_detail", instant_time=rollback)
            talk.same(len([row for row in detail if row["deleted_file"]]), 2)
            _goes_on(talk, talk.hudi, path)


@check()
def hudi_rolls_back_what_we_had_decided_and_not_shown(talk: Talk) -> None:
    """Hudi does not know the ledger; what it took back must not come again, not even in part."""
    path = _table(talk)
    dead = talk.die(path, TRIPS, "upsert", trips(("a", "paris", 9), ts=9), at="2:.hoodie/.holdfast/ledger/")
    talk.hudi.write(path, TRIPS, "upsert", _NEXT)
    talk.agree(path, _BEFORE | {"d": 4})
    talk.same(files_of(path, dead), set())
    talk.ours.write(path, TRIPS, "upsert", trips(("b", "rome", 6), ts=10))
    talk.agree(path, _BEFORE | {"b": 6, "d": 4})
    talk.sound(path)


@check()
def a_rollback_that_died_is_finished_by_the_other(talk: Talk) -> None:
    """Ours is killed in the middle of rolling back; Hudi finishes from our stored plan."""
    path = _table(talk)
    dead = talk.hudi.fail(path, TRIPS, "upsert", trips(("a", "paris", 9), ("c", "oslo", 9), ts=9))
    command = talk.die(path, TRIPS, "upsert", _NEXT, at=".rollback.inflight")
    talk.same(command > dead, True)
    _takes_back(talk, talk.hudi, path, dead)
    _goes_on(talk, talk.ours, path)


@check()
def we_finish_a_rollback_that_hudi_began(talk: Talk) -> None:
    path = _table(talk)
    dead = talk.hudi.fail(path, TRIPS, "upsert", trips(("a", "paris", 9), ("c", "oslo", 9), ts=9))
    endings = (".rollback.requested", ".rollback.inflight")
    as_if_killed(path, lambda: talk.hudi.write(path, TRIPS, "upsert", _NEXT), *endings)
    (begun,) = [i for i in holdfast.open_table(path).timeline() if i.action == "rollback"]
    talk.same((begun.is_completed, len(files_of(path, dead)) > 1), (False, True))
    _takes_back(talk, talk.ours, path, dead, instant=begun.time)
    _goes_on(talk, talk.hudi, path)


@check()
def we_finish_a_clean_that_hudi_began(talk: Talk) -> None:
    path = _table(talk)
    for n in range(3, 7):
        rows = trips(("a", "paris", n), ts=n)
        talk.hudi.write(path, TRIPS, "upsert", rows, {"hoodie.clean.automatic": "false"})
    endings = (".clean.requested", ".clean.inflight")
    left = as_if_killed(path, lambda: talk.hudi.call(path, "run_clean", retain_commits=1), *endings)
    (begun,) = [i for i in holdfast.open_table(path).timeline() if i.action == "clean"]
    talk.same((begun.is_completed, data_files(path) > left), (False, True))
    holdfast.open_table(path).clean({"hoodie.clean.commits.retained": "1"})
    talk.same(data_files(path), left)
    finished = [i for i in holdfast.open_table(path).timeline() if i.time == begun.time]
    talk.same([(i.action, i.is_completed) for i in finished], [("clean", True)])
    talk.agree(path, {"a": 6, "b": 2})
    talk.hudi.write(path, TRIPS, "upsert", trips(("a", "paris", 8), ts=8))
    talk.agree(path, {"a": 8, "b": 2})
    talk.sound(path)


@check()
def nobody_writes_while_a_restore_of_the_other_is_pending(talk: Talk) -> None:
    more = trips(("x", "oslo", 1), ts=9)
    begun = (".restore.requested", ".restore.inflight")
    for restorer, writer in talk.both_ways:
        path = talk.path()
        first, *_ = (
            engine.write(path, TRIPS, "upsert", trips(("a", "paris", n), ts=n))
            for n, engine in enumerate((talk.ours, talk.hudi, talk.ours), 1)
        )
        talk.hudi.call(path, "create_savepoint", commit_time=first)
        if restorer is talk.ours:
            talk.die_restoring(path, first, at=".restore.inflight")
        else:
            as_if_killed(path, lambda: _restore(talk, talk.hudi, path, first), *begun)  # noqa: B023
        before = data_files(path)
        said = refusal(lambda: writer.write(path, TRIPS, "upsert", more))  # noqa: B023
        talk.same(("restore" in said, data_files(path)), (True, before))
        _restore(talk, restorer, path, first)
        talk.agree(path, {"a": 1})
        for n, engine in enumerate((writer, restorer), 5):
            engine.write(path, TRIPS, "upsert", trips(("a", "paris", n), ts=n))
            talk.agree(path, {"a": n})
        talk.sound(path)


def _restore(talk: Talk, by: Engine, path: str, to: str) -> None:
    if by is talk.ours:
        holdfast.open_table(path).restore(to)
    else:
        talk.hudi.call(path, "rollback_to_savepoint", instant_time=to)


@check()
def a_clean_that_died_is_finished_by_the_other(talk: Talk) -> None:
    path = _table(talk)
    for n in range(3, 7):
        talk.ours.write(
            path, TRIPS, "upsert", trips(("a", "paris", n), ts=n), {"hoodie.clean.automatic": "false"}
        )
    options = {"hoodie.clean.commits.retained": "1", "hoodie.clean.automatic": "true"}
    talk.die(path, TRIPS, "upsert", trips(("a", "paris", 7), ts=7), at=".clean.inflight", options=options)
    talk.hudi.call(path, "run_clean", retain_commits=1)
    talk.agree(path, {"a": 7, "b": 2})
    cleans = [i for i in holdfast.open_table(path).timeline() if i.action == "clean"]
    talk.same([i.is_completed for i in cleans], [True] * len(cleans))
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 8), ts=8))
    talk.agree(path, {"a": 8, "b": 2})
    talk.sound(path)


@check()
def what_is_left_beside_files_goes_with_them(talk: Talk) -> None:
    """Hadoop writes a checksum beside each file of Hudi's; none may outlive its file, or contradict it."""
    path = talk.path()
    for n in range(1, 5):
        talk.hudi.write(
            path, TRIPS, "upsert", trips(("a", "paris", n), ts=n), {"hoodie.clean.automatic": "false"}
        )
    holdfast.open_table(path).clean({"hoodie.clean.commits.retained": "1"})
    talk.hudi.fail(path, TRIPS, "upsert", trips(("a", "paris", 9), ts=9))
    holdfast.open_table(path).roll_back_failed_writes()
    orphans = [
        str(crc)
        for crc in Path(path).rglob(".*.crc")
        if not (crc.parent / crc.name[1:].removesuffix(".crc")).exists()
    ]
    talk.same(orphans, [])
    talk.agree(path, {"a": 4})
