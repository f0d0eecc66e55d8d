"""Savepoints, restores, cleans and archives of one engine, as the other sees them and goes on from them."""

from __future__ import annotations

from pathlib import Path

import holdfast
from interop.engines import Engine
from interop.shapes import TRIPS, trips
from interop.talk import Talk, check, data_files, refusal, states

_NO_CLEAN = {"hoodie.clean.automatic": "false"}
_KEEP_FEW = {
    "hoodie.keep.min.commits": "3", "hoodie.keep.max.commits": "4", "hoodie.clean.commits.retained": "2",
    "hoodie.commits.archival.batch": "1",
}  # fmt: skip
"""So that there is something to archive soon."""


def _commits(talk: Talk, path: str, *engines: Engine, options: dict[str, str] | None = None) -> list[str]:
    """One commit by each, every one of which changes a and adds a row; the first has fare 1."""
    return [
        engine.write(
            path, TRIPS, "upsert", trips(("a", "paris", n), (f"n{n}", "rome", n), ts=n), options or _NO_CLEAN
        )
        for n, engine in enumerate(engines, 1)
    ]


def _fares(count: int) -> dict[str, float]:
    """What `_commits` with so many engines leaves."""
    return {"a": float(count)} | {f"n{n}": float(n) for n in range(1, count + 1)}


@check(short=True)
def hudi_lists_our_savepoint_and_restores_to_it(talk: Talk) -> None:
    path = talk.path()
    first, second, *_ = _commits(talk, path, talk.ours, talk.ours, talk.ours, talk.hudi)
    holdfast.open_table(path).savepoint(second, user="ann", comment="before the load")
    talk.same([row["savepoint_time"] for row in talk.hudi.call(path, "show_savepoints")], [second])
    talk.hudi.call(path, "rollback_to_savepoint", instant_time=second)
    talk.agree(path, _fares(2))
    talk.agree(path, _fares(1), as_of=first)
    talk.sound(path)
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 30), ts=30))
    talk.agree(path, _fares(2) | {"a": 30})
    talk.hudi.call(path, "delete_savepoint", instant_time=second)
    talk.same(holdfast.open_table(path).savepoints(), [])
    talk.hudi.write(path, TRIPS, "upsert", trips(("a", "paris", 31), ts=31))
    talk.agree(path, _fares(2) | {"a": 31})
    talk.sound(path)


@check(short=True)
def we_list_hudis_savepoint_and_restore_to_it(talk: Talk) -> None:
    path = talk.path()
    first, second, *_ = _commits(talk, path, talk.hudi, talk.hudi, talk.hudi, talk.ours)
    talk.hudi.call(path, "create_savepoint", commit_time=second, user="ann", comments="before the load")
    (savepoint,) = holdfast.open_table(path).savepoints()
    talk.same((savepoint.instant, savepoint.user, savepoint.comment), (second, "ann", "before the load"))
    holdfast.open_table(path).restore(second)
    talk.agree(path, _fares(2))
    talk.agree(path, _fares(1), as_of=first)
    talk.hudi.write(path, TRIPS, "upsert", trips(("a", "paris", 30), ts=30))
    talk.agree(path, _fares(2) | {"a": 30})
    holdfast.open_table(path).delete_savepoint(second)
    talk.same(talk.hudi.call(path, "show_savepoints"), [])
    talk.sound(path)


@check()
def neither_cleans_what_the_others_savepoint_keeps(talk: Talk) -> None:
    for saver, cleaner in talk.both_ways:
        path = talk.path()
        first, *_ = _commits(talk, path, talk.ours, talk.hudi, talk.ours, talk.hudi)
        if saver is talk.ours:
            holdfast.open_table(path).savepoint(first)
        else:
            talk.hudi.call(path, "create_savepoint", commit_time=first)
        _clean(talk, cleaner, path, retained=1)
        talk.agree(path, _fares(4))
        # Hudi reads nothing as of before its last clean, savepoint or not; a restore to it does.
        kept = talk.ours.snapshot(path, as_of=first)
        talk.same({row["id"]: row["fare"] for row in kept.values()}, _fares(1))
        talk.sound(path)
        talk.hudi.call(path, "rollback_to_savepoint", instant_time=first)
        talk.agree(path, _fares(1))


def _clean(talk: Talk, cleaner: Engine, path: str, *, retained: int) -> None:
    if cleaner is talk.hudi:
        talk.hudi.call(path, "run_clean", retain_commits=retained)
    else:
        holdfast.open_table(path).clean({"hoodie.clean.commits.retained": str(retained)})


@check(short=True)
def cleans_by_turns_leave_the_same_files(talk: Talk) -> None:
    """Each plans on from the other's clean; what is left is what one engine alone leaves."""
    left = []
    for cleaners in ((talk.ours, talk.hudi), (talk.hudi, talk.ours), (talk.hudi, talk.hudi)):
        path = talk.path()
        _commits(talk, path, talk.ours, talk.hudi, talk.ours, talk.hudi)
        before = data_files(path)
        _clean(talk, cleaners[0], path, retained=2)
        talk.same(len(data_files(path)) < len(before), True)
        talk.agree(path, _fares(4))
        for n, engine in ((5, talk.hudi), (6, talk.ours), (7, talk.hudi)):
            rows = trips(("a", "paris", n), (f"n{n}", "rome", n), ts=n)
            engine.write(path, TRIPS, "upsert", rows, _NO_CLEAN)
        _clean(talk, cleaners[1], path, retained=2)
        talk.agree(path, _fares(7))
        talk.sound(path)
        left.append(len(data_files(path)))
        cleans = [i.time for i in holdfast.open_table(path).timeline() if i.action == "clean"]
        talk.same(len(cleans), 2)
    talk.same(len(set(left)), 1)


@check()
def cleans_by_versions_and_of_replaced_file_groups(talk: Talk) -> None:
    by_versions = {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "1",
    }
    for cleaner in talk.engines:
        path = talk.path()
        _commits(talk, path, talk.hudi, talk.ours, talk.hudi)
        talk.ours.write(path, TRIPS, "insert_overwrite", trips(("p", "paris", 5)))
        talk.hudi.write(path, TRIPS, "insert_overwrite", trips(("r", "rome", 6)), _NO_CLEAN)
        if cleaner is talk.hudi:
            policy = "KEEP_LATEST_FILE_VERSIONS"
            talk.hudi.call(path, "run_clean", clean_policy=policy, file_versions_retained=1)
        else:
            holdfast.open_table(path).clean(by_versions)
        talk.agree(path, {"p": 5, "r": 6})
        talk.same(len(data_files(path)), 2)
        talk.sound(path)
        for engine in talk.engines:
            engine.write(path, TRIPS, "upsert", trips(("p", "paris", 7), ts=9), _NO_CLEAN)
            talk.agree(path, {"p": 7, "r": 6})


@check(short=True)
def hudi_shows_our_instants_as_its_own(talk: Talk) -> None:
    path = talk.path()
    commits = _commits(talk, path, talk.ours, talk.ours, talk.ours)
    shown = talk.hudi.call(path, "show_commits", limit=10)
    talk.same([row["commit_time"] for row in shown], sorted(commits, reverse=True))
    newest = shown[0].asDict()
    talk.same((newest["total_records_written"], newest["total_update_records_written"]), (4, 1))
    talk.same((newest["total_partitions_written"], newest["total_errors"]), (2, 0))
    files = talk.hudi.call(path, "show_commit_files", instant_time=commits[1])
    talk.same({row["partition_path"] for row in files}, {"city=paris", "city=rome"})
    partitions = talk.hudi.call(path, "show_commit_partitions", instant_time=commits[1])
    talk.same(len(partitions), 2)
    stats = talk.hudi.call(path, "show_commit_write_stats", instant_time=commits[1])
    talk.same(len(stats), 1)
    (latest,) = talk.hudi.call(path, "show_fsview_latest", partition_path="city=paris")
    talk.same(latest["base_instant"], commits[2])


@check(absent={"0.15": "it has no show_cleans"})
def hudi_shows_our_cleans(talk: Talk) -> None:
    path = talk.path()
    commits = _commits(talk, path, *[talk.ours] * 4)
    before = data_files(path)
    report = holdfast.open_table(path).clean({"hoodie.clean.commits.retained": "2"})
    gone = before - data_files(path)
    (shown,) = talk.hudi.call(path, "show_cleans")
    talk.same((shown["clean_time"], shown["action"]), (report.instant, "clean"))
    talk.same((shown["total_files_deleted"], len(gone) > 0), (len(gone), True))
    retained = (shown["earliest_commit_to_retain"], shown["last_completed_commit_timestamp"])
    talk.same(retained, (commits[2], commits[3]))
    (plan,) = talk.hudi.call(path, "show_clean_plans")
    talk.same((plan["plan_time"], plan["total_partitions_to_clean"]), (report.instant, 2))
    partitions = talk.hudi.call(path, "show_cleans_metadata")
    deleted = {row["partition_path"]: row["success_delete_files"] for row in partitions}
    talk.same(deleted, {"city=paris": 1, "city=rome": 1})


@check(absent={"0.15": "it has no show_timeline"})
def hudi_shows_our_timeline(talk: Talk) -> None:
    """Every action and state of ours, by its name."""
    path = talk.path()
    first, *_ = _commits(talk, path, *[talk.ours] * 4)
    table = holdfast.open_table(path)
    table.savepoint(first)
    table.undo()
    table.clean({"hoodie.clean.commits.retained": "1"})
    talk.die(path, TRIPS, "upsert", trips(("x", "oslo", 1)), at=".inflight", options=_NO_CLEAN)
    shown = talk.hudi.call(path, "show_timeline", limit=100)
    ours = {(i.time, str(i.action), str(i.state).upper()) for i in table.timeline()}
    talk.same({(row["instant_time"], row["action"], row["state"]) for row in shown}, ours)
    talk.same({action for _, action, _ in ours}, {"commit", "savepoint", "rollback", "clean"})


def _archived_commits(talk: Talk, path: str) -> set[str]:
    """The commits that Hudi finds in the archived timeline; as it comes it leaves out the newest."""
    always = {"start_ts": "20000101000000000", "end_ts": "29991231000000000"}
    shown = talk.hudi.call(path, "show_archived_commits", limit=1000, **always)
    return {row["commit_time"] for row in shown}


@check(short=True)
def hudi_reads_our_archived_timeline_and_goes_on(talk: Talk) -> None:
    """Archived by us, shown by Hudi, archived on by Hudi, read by us."""
    path = talk.path()
    commits = _commits(talk, path, *[talk.ours] * 7, options=_KEEP_FEW)
    table = holdfast.open_table(path)
    active = {i.time for i in table.timeline()}
    archived = [time for time in commits if time not in active]
    talk.same(len(archived) >= 3, True)
    talk.same(set(archived) - _archived_commits(talk, path), set())
    talk.agree(path, _fares(7))
    theirs = {**_KEEP_FEW, "hoodie.archive.merge.enable": "false"}
    for n in range(8, 12):
        rows = trips(("a", "paris", n), (f"n{n}", "rome", n), ts=n)
        commits.append(talk.hudi.write(path, TRIPS, "upsert", rows, theirs))
    talk.agree(path, _fares(11))
    active = {i.time for i in table.timeline()}
    archived_now = [time for time in commits if time not in active]
    talk.same(len(archived_now) > len(archived), True)
    everything = {i.time for i in table.timeline(archived=True)}
    talk.same(set(commits) <= everything, True)
    talk.ours.write(path, TRIPS, "upsert", trips(("a", "paris", 12), ("n12", "rome", 12), ts=12), _KEEP_FEW)
    talk.agree(path, _fares(12))
    talk.sound(path)


@check()
def archives_with_rollbacks_cleans_and_overwrites_are_read(talk: Talk) -> None:
    """Every kind of instant goes to the archive, of both engines, and both read all of it."""
    path = talk.path()
    _commits(talk, path, talk.ours, talk.hudi, talk.ours)
    talk.die(
        path, TRIPS, "upsert", trips(("x", "oslo", 1)), at="2:-.hoodie/.holdfast/ledger/", options=_NO_CLEAN
    )
    talk.hudi.fail(path, TRIPS, "upsert", trips(("y", "oslo", 1)), _NO_CLEAN)
    holdfast.open_table(path).roll_back_failed_writes()
    talk.ours.write(path, TRIPS, "insert_overwrite", trips(("o", "oslo", 1)), _KEEP_FEW)
    talk.hudi.write(path, TRIPS, "insert_overwrite", trips(("o", "oslo", 2)), _KEEP_FEW)
    for n in range(4, 16):
        engine = talk.engines[n % 2]
        engine.write(path, TRIPS, "upsert", trips(("a", "paris", n), (f"n{n}", "rome", n), ts=n), _KEEP_FEW)
    talk.agree(path, _fares(15) | {"o": 2.0})
    table = holdfast.open_table(path)
    # Hudi has archived until now, after each of its writes, and left the rollbacks; now it is our turn.
    for n in (16, 17):
        talk.ours.write(
            path, TRIPS, "upsert", trips(("a", "paris", n), (f"n{n}", "rome", n), ts=n), _KEEP_FEW
        )
    active, known = {i.time for i in table.timeline()}, table.timeline(archived=True)
    archived = [i for i in known if i.time not in active]
    talk.same({"commit", "replacecommit", "clean", "rollback"} - {i.action for i in archived}, set())
    commits = {i.time for i in archived if i.action in ("commit", "replacecommit")}
    talk.same(commits - _archived_commits(talk, path), set())
    talk.hudi.write(path, TRIPS, "upsert", trips(("a", "paris", 18), ("n18", "rome", 18), ts=18), _KEEP_FEW)
    talk.agree(path, _fares(18) | {"o": 2.0})
    talk.sound(path)


@check()
def we_undo_a_commit_of_hudi(talk: Talk) -> None:
    path = talk.path()
    *_, last = _commits(talk, path, talk.hudi, talk.ours, talk.hudi)
    talk.same(holdfast.open_table(path).undo().rolled_back, last)
    _goes_on_without(talk, path, last)


@check(absent={"1.x": "it cannot, as the next check shows"})
def hudi_undoes_a_commit_of_ours(talk: Talk) -> None:
    path = talk.path()
    *_, last = _commits(talk, path, talk.hudi, talk.ours, talk.ours)
    talk.hudi.call(path, "rollback_to_instant", instant_time=last)
    _goes_on_without(talk, path, last)


def _goes_on_without(talk: Talk, path: str, undone: str) -> None:
    """The third commit has been undone; both write on."""
    talk.agree(path, _fares(2))
    talk.sound(path)
    shown = talk.hudi.call(path, "show_rollbacks", limit=5)
    talk.same([row["rollback_instant"] for row in shown], [undone])
    for n, engine in enumerate(talk.engines, 3):
        engine.write(path, TRIPS, "upsert", trips(("a", "paris", n), (f"n{n}", "rome", n), ts=n))
        talk.agree(path, _fares(n))
    talk.sound(path)


@check(absent={"0.15": "it can"})
def hudi_undoes_nothing_in_tables_of_version_six(talk: Talk) -> None:
    """It looks for the timeline of newer tables, also in tables that it made itself; nothing is harmed."""
    for engine in talk.engines:
        path = talk.path()
        *_, last = _commits(talk, path, engine, engine)
        before = states(path)
        said = refusal(lambda: talk.hudi.call(path, "rollback_to_instant", instant_time=last))  # noqa: B023
        talk.same((".hoodie/timeline" in said, states(path)), (True, before))
        talk.agree(path, _fares(2))


@check()
def partitions_are_found_by_their_metafiles(talk: Talk) -> None:
    """Hudi lists folders that have one; ours are made with the commit."""
    path = talk.begun(talk.ours, ("a", "paris", 1))
    talk.hudi.write(path, TRIPS, "upsert", trips(("b", "rome", 2)))
    talk.ours.write(path, TRIPS, "upsert", trips(("c", "oslo", 3)))
    for city in ("paris", "rome", "oslo"):
        text = (Path(path) / f"city={city}" / ".hoodie_partition_metadata").read_text()
        talk.same("partitionDepth=1" in text, True)
    talk.agree(path, {"a": 1, "b": 2, "c": 3})
    talk.same([text for text in states(path) if "completed" not in text.lower()], [])
