"""The contest of peers, as far as it goes without fetching any: the processes, the tasks, the refusals."""

import datetime as dt
import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bench.framework import Usage, run_workload
from bench.peers import workloads
from bench.peers.__main__ import bytes_below
from bench.peers.contest import Contest, Rounds, Size, UnknownWorkload
from bench.peers.engine import Load, Setting
from bench.peers.remote import Answer, Peer, PeerFailed, ReportedMeter
from bench.peers.results import keep
from bench.peers.rows import PERCENTS, Rows
from bench.plots import Numbers, plot_bars
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def started(tmp_path):
    peers = []

    def start(name, engine):
        setting = Setting(workspace=str(tmp_path / "workspace"), cores=2, memory="1g")
        peers.append(Peer(name, engine, setting, log=tmp_path / f"{engine}.log"))
        return peers[-1]

    yield start
    for peer in peers:
        peer.end()


def trips(path, *keys, ts, city="oslo"):
    count = len(keys)
    columns = {
        "trip_id": list(keys),
        "ts": [ts] * count,
        "city": [city] * count,
        "duration": [10] * count,
        "seats": [2] * count,
        "distance": [1.5] * count,
        "latitude": [59.9] * count,
        "longitude": [10.7] * count,
    }
    pq.write_table(pa.table(columns), path)
    return Load(path=str(path))


def test_a_peer_does_what_it_is_asked_for_and_says_what_it_took(started, tmp_path):
    peer = started("deltalake", "deltalake")
    table = str(tmp_path / "table")
    peer.ask("load", table=table, rows=trips(tmp_path / "old.parquet", "a", "b", ts=1))

    written = peer.ask("upsert", table=table, rows=trips(tmp_path / "new.parquet", "b", "c", ts=5))

    assert peer.ask("read", table=table).value == [["oslo", 3, 11, 30, 6, 1.5, 59.9, 10.7, "a"]]
    assert written.usage.seconds > 0
    assert written.usage.driver_peak_bytes > 0
    assert written.usage.jvm_peak_bytes == 0


def test_what_a_peer_cannot_do_names_it_and_its_log(started, tmp_path):
    peer = started("deltalake", "deltalake")

    with pytest.raises(PeerFailed, match=r"deltalake: TableNotFoundError: .*deltalake\.log"):
        peer.ask("read", table=str(tmp_path / "nothing"))


def test_a_peer_that_does_not_start_names_its_log(started):
    with pytest.raises(PeerFailed, match=r"ended with 1; see .*nobody\.log"):
        started("nobody", "nobody").ask("read", table="")


def test_another_spark_is_refused_in_one_sentence(tmp_path):
    command = [sys.executable, "-m", "bench.peers", "--quick", "--data", str(tmp_path)]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 1
    assert ran.stderr.startswith("holdfast: the peers need Spark 3.5.x and this environment has ")
    assert ran.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_every_quantity_of_a_workload_is_drawn(tmp_path):
    path = tmp_path / "bars.png"

    variants = [Numbers("one", {"seconds": 1.0, "files": 3}), Numbers("two", {"seconds": 2.5})]
    plot_bars(path, "upsert", variants)

    assert path.read_bytes().startswith(b"\x89PNG")


def write_rows(folder):
    """Few rows of two cities in every form that the tasks ask for."""

    def part(name, *keys, ts, city="oslo"):
        return trips(folder / f"{name}.parquet", *keys, ts=ts, city=city).path

    return Rows(
        count=4,
        all=part("all", "a", "b", "c", "d", ts=1),
        more="",
        incoming=dict.fromkeys(PERCENTS, part("incoming", "b", "e", ts=5)),
        keys=part("keys", "a", ts=5),
        one_city=part("one_city", "x", "y", ts=5),
        parts=[part(f"part-{number}", f"p{number}", ts=number) for number in range(4)],
        groups=part("groups", "a", "b", ts=1),
        tenth=part("tenth", "a", ts=5),
        scattered=[part(f"scattered-{number}", "a", "c", ts=10 + number) for number in range(3)],
    )


def test_every_task_is_run_and_its_answers_are_compared(started, tmp_path):
    rows = write_rows(tmp_path)
    peers = [started(workloads.OURS, "deltalake"), started(workloads.DELTALAKE, "deltalake")]
    arena = workloads.Arena(peers, tmp_path / "data", tmp_path / "workspace")
    wanted = {
        workloads.bulk_load(arena, rows.all, rows.count): 1,
        workloads.upsert(arena, rows, 10): 1,
        workloads.delete(arena, rows): 1,
        workloads.overwrite(arena, rows): 1,
        workloads.snapshot_read(arena, rows): 0,
        workloads.change_read(arena, rows): 0,
        workloads.time_travel(arena, rows): 0,
        workloads.undo(arena, rows): 0,
        workloads.reclaim(arena, rows, groups=1, versions=3): 0,
        workloads.recovery(arena, rows, tasks=1): 0,
    }

    for workload, files_written in wanted.items():
        result = measured(workload, arena)

        for run in result.counted[0].values():
            assert run.usage.seconds > 0
            assert run.written.files == files_written, workload.name


def test_those_that_write_beside_data_files_have_tasks_of_their_own(started, tmp_path):
    rows = write_rows(tmp_path)
    names = (workloads.OURS, workloads.HUDI, workloads.OURS_MERGING, workloads.DELTA_VECTORS)
    arena = workloads.Arena(
        [started(name, "deltalake") for name in names], tmp_path / "data", tmp_path / "workspace"
    )
    merging = [workloads.OURS, workloads.OURS_MERGING, workloads.DELTA_VECTORS]

    for workload in (
        workloads.merging_upsert(arena, rows),
        workloads.merging_rounds(arena, rows),
        workloads.merging_read(arena, rows),
    ):
        result = measured(workload, arena)

        assert sorted(result.counted[0]) == sorted(merging)
        assert [peer.name for peer in workloads.peers_of(workload.name, arena)] == merging
        assert all(goal.variant == workloads.OURS_MERGING for goal in workload.goals)
    copying = workloads.peers_of("upsert 1 %", arena)
    assert [peer.name for peer in copying] == [workloads.OURS, workloads.HUDI]


def test_things_done_in_turn_take_their_time_together_and_the_memory_of_the_greatest():
    usage = Usage(
        seconds=1.0,
        cpu_seconds=2.0,
        foreign_cpu_seconds=0.5,
        driver_peak_bytes=10,
        jvm_peak_bytes=20,
        workers_peak_bytes=30,
    )

    both = workloads.in_turn([Answer("first", usage), Answer("last", replace(usage, jvm_peak_bytes=5))])

    assert both.value == "last"
    assert (both.usage.seconds, both.usage.cpu_seconds, both.usage.jvm_peak_bytes) == (2.0, 4.0, 20)


def test_peers_that_come_to_different_rows_are_not_compared(started, tmp_path):
    rows = write_rows(tmp_path)
    ours, other = started(workloads.OURS, "deltalake"), started(workloads.DELTALAKE, "deltalake")
    arena = workloads.Arena([ours, other], tmp_path / "data", tmp_path / "workspace")
    act = other.ask
    other.ask = lambda verb, **needs: act(
        verb, **needs | ({"rows": Load(path=rows.keys)} if "rows" in needs else {})
    )

    with pytest.raises(ValueError, match=r"'Holdfast' gave .* 'deltalake' gave"):
        measured(workloads.bulk_load(arena, rows.all, rows.count), arena)


def contest_of(peers, tmp_path):
    rows = write_rows(tmp_path)
    arena = workloads.Arena(peers, tmp_path / "data", tmp_path / "workspace")
    size = Size(rows=rows.count, has_more=False, groups=1, versions=3, killed_tasks=1)
    return Contest(Console(quiet=True), arena, rows, size)


def test_a_peer_that_fails_is_left_out_and_the_others_are_measured(started, tmp_path):
    peers = [started(workloads.OURS, "deltalake"), started(workloads.HUDI, "nobody")]
    contest = contest_of([*peers, started(workloads.DELTALAKE, "deltalake")], tmp_path)
    results = []

    ended = contest.run("upsert 10 %", lambda workload: results.append(measured(workload, contest.arena)))

    assert not ended
    assert list(results[0].rounds[0]) == [workloads.OURS, workloads.DELTALAKE]


def test_what_was_prepared_is_there_for_the_run_that_measures(started, tmp_path):
    peer = started(workloads.OURS, "deltalake")
    contest = contest_of([peer], tmp_path)
    assert contest.run("upsert 10 %", contest.prepare)
    asked = []
    act = peer.ask
    peer.ask = lambda verb, **needs: (asked.append(verb), act(verb, **needs))[1]

    contest.run("upsert 10 %", lambda workload: measured(workload, contest.arena))

    assert "load" not in asked


def test_only_the_last_version_to_reclaim_is_written_as_if_none_follows(started, tmp_path):
    peer = started(workloads.OURS, "deltalake")
    contest = contest_of([peer], tmp_path)
    written = []
    act = peer.ask
    peer.ask = lambda verb, **needs: (written.append(needs.get("rows")), act(verb, **needs))[1]

    assert contest.run("reclaim old versions", contest.prepare)

    assert [rows.more_follow for rows in written if rows] == [True, True, False]


def starts_of(peer):
    """A list that grows whenever the peer's process is started."""
    starts = []
    start = peer.start
    peer.start = lambda: starts.append(peer.name) or start()
    return starts


def test_every_workload_begins_with_new_processes(started, tmp_path):
    peer = started(workloads.OURS, "deltalake")
    contest = contest_of([peer], tmp_path)
    starts = starts_of(peer)

    for name in ("upsert 10 %", "delete 1 %"):
        assert contest.run(name, lambda workload: measured(workload, contest.arena))

    assert len(starts) == 2


def test_short_tasks_are_begun_anew_with_new_processes_until_they_have_their_rounds(started, tmp_path):
    peer = started(workloads.OURS, "deltalake")
    contest = contest_of([peer], tmp_path)
    starts = starts_of(peer)
    measure = partial(contest.measure, Rounds(all=1, short=6, sittings=3), tmp_path / "results", {"cores": 2})

    for name in ("snapshot read", "upsert 10 %"):
        assert contest.run(name, measure)

    kept = json.loads((tmp_path / "results" / "peers.json").read_text())
    assert [(one["sittings"], len(one["rounds"])) for one in kept.values()] == [(3, 6), (1, 1)]
    assert len(starts) == 4


def test_files_with_several_names_take_their_place_once(tmp_path):
    (tmp_path / "one").write_bytes(b"x" * 1_000_000)
    alone = bytes_below(tmp_path)

    (tmp_path / "two").hardlink_to(tmp_path / "one")

    assert alone >= 1_000_000
    assert bytes_below(tmp_path) == alone


def test_a_workload_that_there_is_not_is_refused_with_those_there_are(started, tmp_path):
    contest = contest_of([started(workloads.OURS, "nobody")], tmp_path)

    with pytest.raises(UnknownWorkload, match=r"'upsort'; there are: bulk load .*, upsert 1 %"):
        contest.names(("upsort",))


def test_a_peer_that_leaves_what_it_was_to_remove_is_refused(started, tmp_path):
    peer = started(workloads.OURS, "deltalake")
    contest = contest_of([peer], tmp_path)
    act = peer.ask
    peer.ask = lambda verb, **needs: act("ready" if verb == "recover" else verb, **needs)

    with pytest.raises(PeerFailed, match="Holdfast left 2 data files, of at most 1"):
        measured(workloads.recovery(contest.arena, contest.rows, tasks=1), contest.arena)


def test_a_later_run_replaces_only_what_it_measured_and_puts_it_last(started, tmp_path):
    contest = contest_of([started(workloads.OURS, "deltalake")], tmp_path)
    result = measured(workloads.upsert(contest.arena, contest.rows, 10), contest.arena)
    folder = tmp_path / "results"
    first, later = (dt.datetime(2024, 2, day, tzinfo=dt.UTC) for day in (28, 29))
    keep(folder, result, machine={"cores": 2}, moment=first)
    keep(folder, replace(result, workload="delete 1 %"), machine={"cores": 2}, moment=first)

    overview = keep(folder, result, machine={"cores": 2}, moment=later)

    kept = json.loads((folder / "peers.json").read_text())
    assert [(name, one["measured_at"][:10]) for name, one in kept.items()] == [
        ("delete 1 %", "2024-02-28"),
        ("upsert 10 %", "2024-02-29"),
    ]
    assert "| upsert 10 % (4 rows; 1 counted) |" in overview.read_text()
    assert {path.name for path in folder.glob("*.png")} == {
        "peers-delete-1.png",
        "peers-upsert-10.png",
        "peers.png",
    }


def test_only_goals_that_name_a_peer_of_the_run_are_set(started, tmp_path):
    peers = [started(name, "nobody") for name in (workloads.OURS, workloads.HUDI, workloads.DELTA)]
    arena = workloads.Arena(peers, tmp_path / "data", tmp_path / "workspace")

    goals = workloads.upsert(arena, write_rows(tmp_path), 10).goals

    assert [(goal.compared_with, round(goal.at_most, 2)) for goal in goals] == [
        (workloads.HUDI, 0.33),
        (workloads.DELTA, 1.0),
    ]


def measured(workload, arena):
    return run_workload(
        workload,
        ReportedMeter(),
        rounds=1,
        workspace=arena.workspace,
        settle=lambda: None,
        announce=lambda _step: None,
    )
