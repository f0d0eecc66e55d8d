"""The benchmark suite's arithmetic, its meter, and a small run of the control plane."""

import datetime as dt
import io
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench.framework import (
    Disturbance,
    Goal,
    Scene,
    Unit,
    Usage,
    Variant,
    Workload,
    disturbance_of,
    narrowed,
    rotated,
    run_workload,
    summaries,
)
from bench.processes import ProcessMeter
from bench.report import print_result, write_results
from bench.workloads.control_plane import Size, control_plane
from rich.console import Console

BURNING = "import time; any(time.process_time() > 0.4 for _ in iter(int, 1))"

SPARK_LIKE = f"""
import os, signal, subprocess, sys, time
with open("/proc/self/comm", "w") as name:
    name.write("java")
DAEMON = '''
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    {BURNING}
    time.sleep(0.5)
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    time.sleep(0.3)
'''
subprocess.run([sys.executable, "-c", DAEMON], check=True)
"""
"""A process called java with a daemon whose worker ends without being waited for."""


class FakeMachine:
    """Time that passes only when a variant says so."""

    def __init__(self):
        self.now = 0.0
        self.rates = (0.0, 0.0)
        self.order = []
        self.settled_before = []

    def takes(self, name, *seconds, cpu=2.0, foreign=0.0, disturbed=()):
        """A variant that takes so long in each round, and CPU per second, its own and that of others.

        Others may take theirs in each round, or only in those of so many seconds.
        """
        left = list(seconds)

        def run(_output):
            self.order.append(name)
            took = left.pop(0)
            self.now += took
            self.rates = (cpu, foreign if not disturbed or took in disturbed else 0.0)

        return Variant(name, run)

    def settle(self):
        self.settled_before.append(len(self.order))

    def measure(self, act):
        began = self.now
        act()
        seconds = self.now - began
        return Usage(
            seconds=seconds,
            cpu_seconds=self.rates[0] * seconds,
            foreign_cpu_seconds=self.rates[1] * seconds,
            driver_peak_bytes=100,
            jvm_peak_bytes=200,
            workers_peak_bytes=300,
        )


@pytest.fixture
def machine():
    return FakeMachine()


def run(machine, tmp_path, *variants, rounds, limit="limit", goals=(), discarded=1, spare_rounds=0):
    workload = Workload(
        name="fake", limit=limit, goals=goals, set_up=lambda _folder: Scene(variants), discarded=discarded
    )
    return run_workload(
        workload,
        machine,
        rounds=rounds,
        spare_rounds=spare_rounds,
        cores=2,
        workspace=tmp_path / "workspace",
        settle=machine.settle,
        announce=lambda _step: None,
    )


def summary_of(result, variant):
    return next(summary for summary in summaries(result) if summary.variant == variant)


def test_the_first_round_is_kept_but_does_not_count(machine, tmp_path):
    limit = machine.takes("limit", 1000.0, 4.0, 4.0, 4.0)
    ours = machine.takes("ours", 1.0, 2.0, 3.0, 2.0)

    result = run(machine, tmp_path, limit, ours, rounds=3)

    assert result.rounds[0]["limit"].usage.seconds == 1000.0
    assert len(result.counted) == 3
    assert summary_of(result, "limit").median.usage.seconds == 4.0
    assert summary_of(result, "ours").median.usage.seconds == 2.0


def test_every_round_counts_where_none_is_discarded(machine, tmp_path):
    limit = machine.takes("limit", 8.0, 4.0)
    ours = machine.takes("ours", 2.0, 2.0)

    result = run(machine, tmp_path, limit, ours, rounds=2, discarded=0)

    assert len(result.counted) == 2
    assert summary_of(result, "limit").median.usage.seconds == 6.0


def test_a_ratio_is_the_median_of_the_ratios_within_rounds(machine, tmp_path):
    """The ratio of the medians would be 6 / 10, and no round was like that."""
    limit = machine.takes("limit", 1.0, 2.0, 10.0, 20.0)
    ours = machine.takes("ours", 1.0, 6.0, 5.0, 8.0)

    result = run(machine, tmp_path, limit, ours, rounds=3)

    summary = summary_of(result, "ours")
    assert (summary.least_ratio, summary.ratio, summary.greatest_ratio) == (0.4, 0.5, 3.0)
    assert summary.median.usage.seconds == 6.0
    assert summary_of(result, "limit").ratio == 1.0


def test_every_variant_runs_once_per_round_and_the_order_rotates(machine, tmp_path):
    variants = [machine.takes(name, *[1.0] * 4) for name in "abc"]

    run(machine, tmp_path, *variants, rounds=3, limit="b")

    assert "".join(machine.order) == "abc" + "bca" + "cab" + "abc"


def test_the_disk_settles_before_every_run(machine, tmp_path):
    variants = [machine.takes(name, 1.0, 1.0) for name in "ab"]

    run(machine, tmp_path, *variants, rounds=1, limit="a")

    assert machine.settled_before == [0, 1, 2, 3]


def test_rotating_by_whole_turns_changes_nothing(machine):
    variants = tuple(machine.takes(name) for name in "abc")

    assert rotated(variants, 3) == variants


@pytest.mark.parametrize(
    ("goal", "is_met"),
    [
        (Goal("ours", 0.5), True),
        (Goal("ours", 0.49), False),
        (Goal("ours", 2.0, Unit.SECONDS), True),
        (Goal("ours", 1.9, Unit.SECONDS), False),
    ],
)
def test_a_goal_is_met_up_to_and_including_its_bound(machine, tmp_path, goal, is_met):
    limit, ours = machine.takes("limit", 4.0, 4.0), machine.takes("ours", 2.0, 2.0)

    result = run(machine, tmp_path, limit, ours, rounds=1, goals=(goal,))

    (verdict,) = summary_of(result, "ours").verdicts
    assert verdict.is_met is is_met
    assert summary_of(result, "limit").verdicts == ()


def test_a_run_counts_the_data_files_it_wrote_and_leaves_none(machine, tmp_path):
    seen = []

    def write(output):
        seen.append(list(output.iterdir()))
        (output / "city=a").mkdir()
        (output / "city=a" / "one.parquet").write_bytes(b"12345")
        (output / "two.parquet").write_bytes(b"123")
        (output / "_SUCCESS").write_bytes(b"")
        (output / ".two.parquet.crc").write_bytes(b"1234")
        machine.now += 1.0

    result = run(machine, tmp_path, Variant("limit", write), rounds=2)

    written = summary_of(result, "limit").median.written
    assert (written.files, written.size_bytes) == (2, 8)
    assert seen == [[], [], []]
    assert not (tmp_path / "workspace").exists()


def test_what_a_run_begins_with_is_neither_timed_nor_counted_as_written(machine, tmp_path):
    def prepare(output):
        (output / "old.parquet").write_bytes(b"12345")
        machine.now += 100.0

    def write(output):
        assert (output / "old.parquet").exists()
        (output / "new.parquet").write_bytes(b"123")
        machine.now += 1.0

    result = run(machine, tmp_path, Variant("limit", write, prepare=prepare), rounds=1)

    median = summary_of(result, "limit").median
    assert median.usage.seconds == 1.0
    assert (median.written.files, median.written.size_bytes) == (1, 3)


def test_what_came_out_is_looked_at_once_and_before_it_is_removed(machine, tmp_path):
    seen = []

    def write(output):
        (output / "new.parquet").write_bytes(b"123")
        machine.now += 1.0

    def check(output):
        seen.append((output / "new.parquet").read_bytes())

    run(machine, tmp_path, Variant("limit", write, check=check), rounds=2)

    assert seen == [b"123"]


def test_a_run_gives_back_what_it_holds_after_every_round(machine, tmp_path):
    given_back = []
    variant = replace(machine.takes("limit", 1.0, 1.0, 1.0), finish=given_back.append)

    run(machine, tmp_path, variant, rounds=2)

    assert len(given_back) == 3


def test_variants_that_come_to_different_answers_are_not_compared_further(machine, tmp_path):
    limit = replace(machine.takes("limit", 1.0, 1.0), check=lambda _: (10, 7))
    ours = replace(machine.takes("ours", 1.0, 1.0), check=lambda _: (10, 8))

    with pytest.raises(ValueError, match=r"'limit' gave \(10, 7\), 'ours' gave \(10, 8\)"):
        run(machine, tmp_path, limit, ours, rounds=1)

    assert machine.order == ["limit", "ours"]


def test_answers_to_different_tasks_may_differ(machine, tmp_path):
    limit = replace(machine.takes("limit", 1.0, 1.0), check=lambda _: 64, task="all")
    ours = replace(machine.takes("ours", 1.0, 1.0), check=lambda _: 1, task="one")

    result = run(machine, tmp_path, limit, ours, rounds=1)

    assert len(result.counted) == 1


def test_a_goal_may_be_set_against_another_variant_than_the_limit(machine, tmp_path):
    limit = machine.takes("limit", 1.0, 10.0, 10.0, 10.0)
    other, ours = machine.takes("other", 1.0, 4.0, 2.0, 4.0), machine.takes("ours", 1.0, 3.0, 3.0, 3.0)
    goals = (Goal("ours", 0.4), Goal("ours", 0.7, compared_with="other"))

    result = run(machine, tmp_path, limit, other, ours, rounds=3, goals=goals)

    verdicts = summary_of(result, "ours").verdicts
    assert [(verdict.reached, verdict.is_met) for verdict in verdicts] == [(0.3, True), (0.75, False)]


def test_a_narrowed_workload_keeps_the_limit_and_the_goals_that_can_be_judged(machine, tmp_path):
    names = ("limit", "ours, a", "ours, b", "other")
    workload = Workload(
        name="fake",
        limit="limit",
        goals=(Goal("ours, a", 1.0), Goal("ours, a", 1.0, compared_with="other"), Goal("other", 1.0)),
        set_up=lambda _folder: Scene(tuple(machine.takes(name, 1.0, 1.0) for name in names)),
    )

    narrow = narrowed(workload, ["ours"])

    assert [variant.name for variant in narrow.set_up(tmp_path).variants] == ["limit", "ours, a", "ours, b"]
    assert narrow.goals == (Goal("ours, a", 1.0),)


def test_a_failing_variant_ends_the_run_and_leaves_no_files(machine, tmp_path):
    def fail(output):
        (output / "part.parquet").write_bytes(b"1")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        run(machine, tmp_path, Variant("limit", fail), rounds=1)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "goals", "told"),
    [
        (["ours"], (), "no variant 'limit'"),
        (["limit"], (Goal("other", 1.0),), "no variant 'other'"),
        (["limit", "ours"], (Goal("ours", 1.0, compared_with="gone"),), "no variant 'gone'"),
        (["limit", "limit"], (), "two variants have one name"),
    ],
)
def test_a_workload_that_contradicts_itself_is_refused(machine, tmp_path, names, goals, told):
    variants = [machine.takes(name, 1.0, 1.0) for name in names]

    with pytest.raises(ValueError, match=told):
        run(machine, tmp_path, *variants, rounds=1, goals=goals)

    assert machine.order == []


def test_a_run_without_a_round_that_counts_is_refused(machine, tmp_path):
    with pytest.raises(ValueError, match="at least one round"):
        run(machine, tmp_path, machine.takes("limit", 1.0), rounds=0)


def test_a_ratio_of_cpu_seconds_is_taken_within_rounds_too(machine, tmp_path):
    limit = machine.takes("limit", 1.0, 2.0, 10.0, 20.0, cpu=1.0)
    ours = machine.takes("ours", 1.0, 6.0, 5.0, 8.0, cpu=2.0)

    result = run(machine, tmp_path, limit, ours, rounds=3)

    assert summary_of(result, "ours").cpu_ratio == 1.0
    assert summary_of(result, "ours").median.usage.cpu_seconds == 12.0


def test_there_is_no_cpu_ratio_to_a_limit_too_short_to_show(machine, tmp_path):
    limit, ours = machine.takes("limit", 1.0, 1.0, cpu=0.0), machine.takes("ours", 1.0, 1.0)

    result = run(machine, tmp_path, limit, ours, rounds=1)

    assert summary_of(result, "ours").cpu_ratio is None


def test_one_disturbed_run_is_told_although_the_rest_of_its_round_was_quiet(machine, tmp_path):
    quiet = machine.takes("limit", 1.0, 90.0)
    short = machine.takes("short", 0.01, 0.01, foreign=2.0)
    hit = machine.takes("hit", 1.0, 4.0, foreign=0.5)

    result = run(machine, tmp_path, quiet, short, hit, rounds=1)

    assert disturbance_of(result.counted[0], cores=2) == Disturbance("hit", 0.25)


def test_a_disturbed_round_is_run_again_and_does_not_count_however_fast_it_was(machine, tmp_path):
    limit = machine.takes("limit", 1.0, 1.0, 1.0, 1.0, 1.0)
    hit = machine.takes("hit", 1.0, 2.0, 0.5, 8.0, 3.0, foreign=0.5, disturbed=(0.5, 8.0))

    result = run(machine, tmp_path, limit, hit, rounds=2, spare_rounds=3)

    assert [one["hit"].usage.seconds for one in result.counted] == [2.0, 3.0]
    assert [one["hit"].usage.seconds for one in result.replaced] == [0.5, 8.0]
    assert [one["hit"].usage.seconds for one in result.rounds[: result.discarded]] == [1.0]


def test_on_a_machine_that_is_never_quiet_the_least_disturbed_rounds_count(machine, tmp_path):
    limit = machine.takes("limit", *[1.0] * 4)
    worse = machine.takes("worse", *[1.0] * 4, foreign=1.0, disturbed=(1.0,))
    hit = machine.takes("hit", 1.0, 2.0, 4.0, 3.0, foreign=2.0, disturbed=(2.0,))
    shown = io.StringIO()

    result = run(machine, tmp_path, limit, worse, hit, rounds=2, spare_rounds=1)
    print_result(Console(file=shown, width=120), result, cores=2)

    assert [one["hit"].usage.seconds for one in result.counted] == [4.0, 3.0]
    assert "50% during worse, round 1; 50% during worse, round 2" in shown.getvalue()
    assert "disturbed rounds that others replace: 1" in shown.getvalue()


def test_the_table_shows_ratios_goals_and_their_verdicts(machine, tmp_path):
    limit, good = machine.takes("limit", 4.0, 4.0), machine.takes("good", 3.0, 3.0)
    bad = machine.takes("bad", 8.0, 8.0, foreign=0.5)
    goals = (
        Goal("good", 1.0),
        Goal("good", 0.3, compared_with="bad"),
        Goal("bad", 7.5, Unit.SECONDS),
    )
    result = run(machine, tmp_path, bad, limit, good, rounds=1, goals=goals)
    shown = io.StringIO()

    print_result(Console(file=shown, width=120), result, cores=2)

    lines = shown.getvalue().splitlines()
    rows = {line.split()[0]: line for line in lines if line.strip()}
    assert [name for name in rows if name in ("limit", "bad", "good")] == ["limit", "bad", "good"]
    assert "≤ 0.3 × bad: 0.38 not met" in shown.getvalue()
    assert "1.00 limit" in rows["limit"]
    assert "0.75 (0.75–0.75)  ≤ 1 met" in rows["good"]
    assert "2.00 (2.00–2.00)  ≤ 7.5 s not met" in rows["bad"]
    assert "25% during bad, round 1" in rows["other"]


def test_the_file_of_a_run_has_every_round_and_the_machine(machine, tmp_path):
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, tzinfo=dt.UTC)
    result = run(machine, tmp_path, machine.takes("limit", 9.0, 1.0, 3.0), rounds=2)

    path = write_results(tmp_path / "results", [result], machine={"cores": 2}, moment=moment)

    document = json.loads(path.read_text())
    workload = document["workloads"][0]
    assert path.name == "2024-02-29T123015-fake.json"
    assert document["machine"] == {"cores": 2}
    assert workload["discarded_rounds"][0]["limit"]["usage"]["seconds"] == 9.0
    assert [one["limit"]["usage"]["seconds"] for one in workload["rounds"]] == [1.0, 3.0]
    assert workload["summaries"][0]["median"]["usage"]["seconds"] == 2.0


def test_the_file_of_many_workloads_is_named_by_what_they_do(machine, tmp_path):
    moment = dt.datetime(2024, 2, 29, 12, 30, 15, tzinfo=dt.UTC)
    result = run(machine, tmp_path, machine.takes("limit", 1.0, 1.0), rounds=1)
    names = [f"upsert {percent} % in 64 groups" for percent in range(40)] + ["change read"]

    path = write_results(
        tmp_path, [replace(result, workload=name) for name in names], machine={}, moment=moment
    )

    assert path.name == "2024-02-29T123015-upsert+change.json"


def test_the_meter_counts_the_cpu_time_of_a_child_that_ended():
    usage = ProcessMeter().measure(lambda: subprocess.run([sys.executable, "-c", BURNING], check=True))

    assert usage.cpu_seconds >= 0.3
    assert usage.seconds >= 0.3


def test_the_meter_remembers_a_worker_that_nobody_waited_for():
    usage = ProcessMeter().measure(lambda: subprocess.run([sys.executable, "-c", SPARK_LIKE], check=True))

    assert usage.cpu_seconds >= 0.3
    assert usage.jvm_peak_bytes > 0
    assert usage.workers_peak_bytes > 0


def test_the_meter_counts_a_process_beside_spark_as_driver():
    filling = "content = b'x' * 200_000_000; import time; time.sleep(0.5)"
    before = ProcessMeter().measure(lambda: None)

    usage = ProcessMeter().measure(lambda: subprocess.run([sys.executable, "-c", filling], check=True))

    assert usage.driver_peak_bytes >= before.driver_peak_bytes + 180_000_000
    assert usage.workers_peak_bytes == before.workers_peak_bytes


def test_the_meter_takes_no_cpu_time_for_waiting():
    usage = ProcessMeter().measure(lambda: time.sleep(0.3))

    assert usage.seconds >= 0.3
    assert usage.cpu_seconds < 0.2


def test_the_meter_sees_memory_that_was_free_again_at_the_end():
    size = 200_000_000
    before = ProcessMeter().measure(lambda: None).driver_peak_bytes

    def fill():
        content = b"x" * size
        time.sleep(0.3)
        return len(content)

    usage = ProcessMeter().measure(fill)

    assert usage.driver_peak_bytes >= before + size * 0.9


def test_the_control_plane_runs_on_a_small_table(tmp_path: Path):
    size = Size(partitions=5, commits=4, files_per_commit=10)

    result = run_workload(
        control_plane(size),
        ProcessMeter(),
        rounds=1,
        workspace=tmp_path / "workspace",
        settle=lambda: None,
        announce=lambda _step: None,
    )

    found = {summary.variant: summary for summary in summaries(result)}
    assert result.facts == {"files": 40, "partitions": 5, "commits": 4}
    assert len(result.rounds) == 2
    assert found["open_table, files()"].median.usage.seconds > 0
    assert found["holdfast timeline show"].median.usage.cpu_seconds > 0.05
    assert len(found["open_table, files()"].verdicts) == 1
