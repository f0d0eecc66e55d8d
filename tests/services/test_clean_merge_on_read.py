"""Cleaning merge-on-read tables of Hudi: slices with log files, and the services that will read them."""

import datetime as dt
import json
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from harness.cleaning import clean
from harness.merge_on_read import HudiTable
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.errors import SnapshotExpired, TableDamaged
from holdfast.format.cleans import decode_clean_metadata
from holdfast.format.replace_requests import encode_replace_request
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file, is_data_file
from holdfast.services.clean.execute import carry_out
from holdfast.services.clean.plan import explain_clean
from holdfast.services.leases import lease
from holdfast.timeline.timeline import load_timeline

ONE_COMMIT = CleanSettings(commits_retained=1)
A, B, C = ("p", "a-0"), ("p", "b-0"), ("", "c-0")


def versions(count):
    return CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=count)


IDLE = CleanSettings(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours_retained=1)
POLICIES = {"commits": ONE_COMMIT, "versions": versions(1), "hours": IDLE}


def files(table):
    return {path for path in table.world.store.paths("") if is_data_file(path.rpartition("/")[2])}


def reasons(table, settings):
    plan = explain_clean(table.world.open(), settings)
    return {file.path: file.reason for file in (*plan.doomed, *plan.kept)}


def cleaned(table, settings):
    """What a clean deletes; it must be what was planned, and what its record says."""
    table.world.clock.now += int(dt.timedelta(hours=2).total_seconds() * 1000) if settings is IDLE else 0
    before = files(table)
    plan = explain_clean(table.world.open(), settings)
    report = clean(table.world.open(), settings)

    gone = before - files(table)
    assert {file.path for file in plan.doomed} == gone
    assert {file.path for file in plan.kept} | gone <= before
    assert set(report.deleted if report else ()) == gone
    assert plan.bytes_freed == (report.bytes_freed if report else 0)
    if report is not None:
        record = table.world.store.read(instant_file(report.instant, Action.CLEAN, State.COMPLETED))
        assert decode_clean_metadata(record).deleted_count == len(gone)
    return gone


@pytest.fixture
def compacted():
    """A group of two slices with log files, and one that nobody changed since."""
    table = HudiTable()
    table.deltacommit(base=[A, B])
    table.deltacommit(logs=[A])
    table.deltacommit(logs=[A], cdc=True)
    table.finish(table.schedule_compaction([A]))
    table.deltacommit(logs=[A])
    return table


@pytest.mark.parametrize("policy", POLICIES)
def test_a_slice_goes_as_a_whole(compacted, policy):
    old = compacted.groups[A][0].files
    if policy == "commits":
        compacted.deltacommit(logs=[A])

    gone = cleaned(compacted, POLICIES[policy])

    assert gone == old
    assert sorted(path.rpartition(".")[2] for path in gone)[-1] == "parquet"
    assert any(path.endswith(".cdc") for path in gone)
    assert compacted.snapshot() <= files(compacted)


def test_a_slice_stays_as_a_whole_while_its_readers_may_run(compacted):
    """The compaction is the third commit retained, so queries of the one before it may run."""
    assert cleaned(compacted, CleanSettings(commits_retained=2)) == set()
    assert reasons(compacted, CleanSettings(commits_retained=2)) == {
        **dict.fromkeys(compacted.groups[A][0].files, "needed-at-window-start"),
        **dict.fromkeys(compacted.snapshot(), "latest"),
    }


def test_sizes_of_log_files_are_told(compacted):
    plan = explain_clean(compacted.world.open(), versions(1))

    stored = compacted.world.store
    assert {file.path: file.size for file in (*plan.doomed, *plan.kept)} == {
        path: stored.stat(path).size for path in files(compacted)
    }
    assert plan.bytes_freed == sum(stored.stat(path).size for path in compacted.groups[A][0].files)
    assert max(one.size_bytes for one in plan.forecast) == plan.bytes_freed


def test_a_log_file_that_grew_counts_as_it_is(compacted):
    log = next(path for path in compacted.groups[A][0].logs)
    compacted.world.store.put(log, b"x" * 5000)

    plan = explain_clean(compacted.world.open(), versions(1))

    assert {file.path: file.size for file in plan.doomed}[log] == 5000


def test_slices_without_base_file_are_versions_too():
    table = HudiTable()
    table.deltacommit(logs=[A])
    table.deltacommit(logs=[A])
    table.finish(table.schedule_compaction([A]))
    first = table.groups[A][0]
    assert (first.base, len(first.logs)) == (None, 2)

    assert cleaned(table, versions(2)) == set()
    assert cleaned(table, versions(1)) == first.files


@pytest.mark.parametrize("policy", POLICIES)
def test_the_only_slice_of_a_group_stays_though_it_has_no_base_file(policy):
    table = HudiTable()
    table.deltacommit(logs=[A])
    for _ in range(3):
        table.deltacommit(logs=[B])

    assert cleaned(table, POLICIES[policy]) == set()
    assert set(reasons(table, POLICIES[policy]).values()) == {"latest"}


def test_deltacommits_and_compactions_fill_the_window():
    table = HudiTable()
    table.deltacommit(base=[A])
    table.finish(table.schedule_compaction([A]))
    first = table.groups[A][0].files
    table.deltacommit(logs=[B])
    compaction = load_timeline(table.world.store).completed_commits[1]

    plan = explain_clean(table.world.open(), CleanSettings(commits_retained=2))
    assert (compaction.action, plan.earliest_commit_to_retain) == (Action.COMMIT, compaction.time)
    assert cleaned(table, CleanSettings(commits_retained=2)) == set()
    assert cleaned(table, ONE_COMMIT) == first


# Services that are not finished.


@pytest.mark.parametrize("of_logs", [False, True])
@pytest.mark.parametrize("writes", [0, 2])
def test_what_a_pending_compaction_is_to_merge_stays_and_counts_as_one_version(compacted, of_logs, writes):
    """New log files carry the compaction's instant: a slice that only continues the one before."""
    oldest = compacted.groups[A][0].files
    compacted.schedule_compaction([A], of_logs=of_logs)
    for _ in range(writes):
        compacted.deltacommit(logs=[A])
    slices = compacted.groups[A]
    assert len(slices) == 2 + (writes > 0 and not of_logs)

    assert cleaned(compacted, versions(2)) == set()
    assert cleaned(compacted, versions(1)) == oldest
    assert set(reasons(compacted, versions(1)).values()) == {"latest"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pending_compaction_keeps_its_slice_though_the_group_is_replaced(compacted, policy):
    compacted.schedule_compaction([A])
    compacted.deltacommit(logs=[A])
    oldest, *needed = compacted.groups[A]
    compacted.replace([A])
    for _ in range(3):
        compacted.deltacommit(logs=[B])

    assert cleaned(compacted, POLICIES[policy]) == oldest.files
    told = reasons(compacted, POLICIES[policy])
    # The window does not pass what is pending, so commits that are retained need it, too.
    expected = {"pending-service"} if policy == "versions" else {"needed-at-window-start", "window"}
    assert {told[path] for one in needed for path in one.files} == expected


def test_slices_from_the_one_to_be_merged_on_count_as_one_version():
    """No writer of ours or Hudi's makes a newer slice, but if one does, nothing is lost."""
    table = HudiTable()
    table.deltacommit(base=[A])
    for _ in range(2):
        table.finish(table.schedule_compaction([A]))
    table.schedule_compaction([A])
    table.pending.clear()
    table.finish(table.schedule_compaction([A]))
    oldest, middle, planned, newest = table.groups[A]

    told = reasons(table, versions(2))

    assert {told[path] for path in oldest.files} == {"superseded"}
    assert {told[path] for path in middle.files} == {"version-count"}
    assert {told[path] for path in planned.files} == {"pending-service"}
    assert {told[path] for path in newest.files} == {"latest"}
    assert cleaned(table, versions(1)) == oldest.files | middle.files


def test_inputs_of_a_pending_clustering_stay():
    table = HudiTable()
    table.deltacommit(base=[A, B], logs=[C])
    table.deltacommit(logs=[A])
    table.schedule_clustering([A, C])
    inputs = table.groups[A][0].files | table.groups[C][0].files
    table.replace([A, B, C])
    table.deltacommit(logs=[("p", "new-0")])
    other = {path for path in files(table) if "b-0" in path}

    assert {reasons(table, versions(1))[path] for path in inputs} == {"pending-service"}
    assert cleaned(table, versions(1)) == other


def test_a_finished_clustering_lets_its_inputs_go():
    table = HudiTable()
    table.deltacommit(base=[A], logs=[C])
    clustering = table.schedule_clustering([A, C])
    inputs = table.groups[A][0].files | table.groups[C][0].files
    table.finish(clustering)
    table.deltacommit(logs=[B])

    assert cleaned(table, versions(1)) == inputs


def test_a_plan_that_was_never_written_protects_what_there_was(compacted):
    """Whoever scheduled the compaction died over it; what it would have read is kept until it is settled."""
    torn = load_timeline(compacted.world.store).newest[:-3] + "999"
    compacted.world.clock.now += 5000
    compacted.world.store.create(instant_file(torn, Action.COMPACTION, State.REQUESTED), b"")
    compacted.finish(compacted.schedule_compaction([A]))

    told = reasons(compacted, versions(1))

    assert {told[path] for path in compacted.groups[A][1].files} == {"pending-service"}
    assert {told[path] for path in compacted.groups[A][0].files} == {"superseded"}


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.LOGCOMPACTION, Action.REPLACECOMMIT])
def test_a_plan_that_cannot_be_read_is_damage(compacted, action):
    table = compacted.world
    table.store.create(instant_file("20231114230000000", action, State.REQUESTED), b"Obj\x01 and so on")
    before = files(compacted)

    with pytest.raises(TableDamaged) as raised:
        clean(table.open(), versions(1))

    assert "20231114230000000" in str(raised.value.facts["file"])
    assert files(compacted) == before


def test_a_pending_overwrite_is_no_clustering(compacted):
    time = load_timeline(compacted.world.store).newest[:-3] + "999"
    compacted.world.store.create(
        instant_file(time, Action.REPLACECOMMIT, State.REQUESTED), encode_replace_request()
    )

    assert cleaned(compacted, versions(1)) == compacted.groups[A][0].files


# Failed writes, savepoints and leases.


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_write_is_left_to_the_program_that_began_it(compacted, policy):
    failed = compacted.deltacommit(logs=[A, ("q", "new-0")], base=[("q", "other-0")], finish=False)
    for _ in range(3):
        compacted.deltacommit(logs=[B])
    old = compacted.groups[A][0].files
    left = {path for path in files(compacted) if path.startswith("q/")}
    assert len(left) == 2

    assert cleaned(compacted, POLICIES[policy]) == old
    assert load_timeline(compacted.world.store).find(failed).state is State.INFLIGHT
    assert left <= files(compacted)
    assert not left & reasons(compacted, POLICIES[policy]).keys()


def test_a_savepoint_keeps_whole_slices(compacted):
    """Of a log file that is named, also the base file; and what was appended since."""
    old = compacted.groups[A][0]
    first = load_timeline(compacted.world.store).completed_commits[1].time
    compacted.savepoint(first, old.logs[:1])

    assert cleaned(compacted, versions(1)) == set()
    assert {reasons(compacted, versions(1))[path] for path in old.files} == {"savepoint"}


def test_a_savepoint_after_the_plan_keeps_whole_slices(compacted):
    """Another program's clean is pending; it did not know the savepoint."""
    table = compacted.world.open()
    old = compacted.groups[A][0]
    other = compacted.deltacommit(base=[("q", "x-0")])
    compacted.replace([("q", "x-0")])
    stray = {path for path in files(compacted) if "x-0" in path}
    copy = compacted.world.copy()
    report = clean(copy.open(), versions(1))
    assert set(report.deleted) == old.files | stray
    requested = instant_file(report.instant, Action.CLEAN, State.REQUESTED)
    compacted.world.store.create(requested, copy.store.read(requested))
    compacted.savepoint(other, old.logs[:1])

    report = carry_out(table, report.instant, parallelism=1)

    assert set(report.deleted) == stray
    assert old.files <= files(compacted)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_lease_holds_base_and_log_files(compacted, policy):
    commits = load_timeline(compacted.world.store).completed_commits
    old = compacted.groups[A][0].files

    with lease(compacted.world.open(), "reader", 10**6, as_of=commits[2].time):
        for _ in range(3):
            compacted.deltacommit(logs=[A])
        assert cleaned(compacted, POLICIES[policy]) == set()
        assert {reasons(compacted, POLICIES[policy])[path] for path in old} == {"lease"}

    assert cleaned(compacted, POLICIES[policy]) == old


def test_a_lease_holds_what_a_pending_compaction_will_supersede():
    table = HudiTable()
    table.deltacommit(base=[A])
    compaction = table.schedule_compaction([A])
    table.deltacommit(logs=[A])
    held = table.snapshot()

    with lease(table.world.open(), "reader", 10**6):
        table.finish(compaction)
        table.deltacommit(logs=[A])
        assert cleaned(table, versions(1)) == set()
        assert held <= files(table)


def test_a_lease_on_what_was_cleaned_is_refused(compacted):
    commits = load_timeline(compacted.world.store).completed_commits
    clean(compacted.world.open(), versions(1))

    with pytest.raises(SnapshotExpired), lease(compacted.world.open(), "late", 60, as_of=commits[1].time):
        pass


def test_partitions_left_by_a_pending_service_are_looked_at_again():
    table = HudiTable()
    table.deltacommit(base=[A])
    table.schedule_clustering([A])
    table.replace([A])
    table.deltacommit(base=[("q", "x-0")])
    report = clean(table.world.open(), versions(1))

    assert report is None, "there is nothing to delete, and versions have no checkpoint"
    table.deltacommit(base=[("q", "y-0")])
    table.replace([("q", "y-0")])
    report = clean(table.world.open(), versions(1))
    record = table.world.store.read(instant_file(report.instant, Action.CLEAN, State.COMPLETED))
    assert json.loads(decode_clean_metadata(record).extra["holdfast_revisit"]) == ["p"]


def test_log_files_alone_that_are_to_be_merged_stay_with_what_continues_them():
    table = HudiTable()
    table.deltacommit(logs=[A])
    table.schedule_compaction([A])
    table.deltacommit(logs=[A])
    assert [one.base for one in table.groups[A]] == [None, None]

    assert set(reasons(table, versions(1)).values()) == {"latest"}


@pytest.mark.parametrize("service", ["compaction", "clustering"])
@pytest.mark.parametrize("incremental", [True, False])
def test_readers_that_began_before_a_late_service_keep_their_slices(service, incremental):
    """It is older than commits that were shown before it, so by its instant alone it would leave at once."""
    settings = CleanSettings(commits_retained=1, incremental=incremental)
    table = HudiTable()
    table.deltacommit(base=[A])
    scheduled = table.schedule_compaction([A]) if service == "compaction" else table.schedule_clustering([A])
    first = table.groups[A][0].files
    for _ in range(3):
        table.deltacommit(logs=[C])
    reader = table.snapshot()
    table.finish(scheduled)

    assert cleaned(table, settings) == set()
    assert reader <= files(table)
    table.deltacommit(logs=[C])
    assert cleaned(table, settings) == first


# Histories.

GROUPS = [A, B, C]


@dataclass
class History:
    table: HudiTable = field(default_factory=HudiTable)
    readers: list[set[str]] = field(default_factory=list)
    """What queries read that began after each commit, in the order in which commits were shown."""
    alive: list[tuple[str, str]] = field(default_factory=lambda: list(GROUPS))

    def take(self, step):
        kind, chosen = step
        table = self.table
        groups = [group for group in GROUPS if group in chosen]
        live = [group for group in groups if group in table.groups and not table.is_claimed(group)]
        match kind:
            case "write":
                clustered = {
                    g for p in table.pending.values() if p.action is Action.REPLACECOMMIT for g in p.inputs
                }
                logs = [g for g in groups if g in table.groups and g not in clustered]
                base = [g for g in groups if g in self.alive and g not in table.groups]
                table.deltacommit(logs=logs, base=base)
            case "write logs":
                clustered = {
                    g for p in table.pending.values() if p.action is Action.REPLACECOMMIT for g in p.inputs
                }
                table.deltacommit(logs=[g for g in groups if g in self.alive and g not in clustered])
            case "compact" | "compact logs" if live:
                table.schedule_compaction(live, of_logs=kind == "compact logs")
                return
            case "cluster" if live:
                table.schedule_clustering(live)
                self.alive = [group for group in self.alive if group not in live]
                return
            case "replace" if live:
                table.replace(live)
                self.alive = [group for group in self.alive if group not in live]
            case "finish" if table.pending:
                table.finish(sorted(table.pending)[len(chosen) % len(table.pending)])
            case _:
                return
        self.readers.append(table.snapshot())


_CHOSEN = st.sets(st.sampled_from(GROUPS), min_size=1, max_size=2)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "write",
                "write",
                "write logs",
                "compact",
                "compact logs",
                "cluster",
                "replace",
                "finish",
                "clean",
            )
        ),
        _CHOSEN,
    ),
    min_size=6,
    max_size=24,
)
_SLOW = checks(max_examples=30, suppress_health_check=[HealthCheck.too_slow])


@_SLOW
@given(_STEPS, st.integers(1, 4))
def test_a_query_has_all_its_files_for_as_many_commits_as_are_retained(steps, retained):
    history = History()
    for step in steps:
        history.take(step)
        cleaned(history.table, CleanSettings(commits_retained=retained))
        there = files(history.table)
        for reader in history.readers[-retained - 1 :]:
            assert reader <= there


@_SLOW
@given(_STEPS, st.integers(1, 3))
def test_counting_versions_leaves_readers_of_now_and_services_what_they_need(steps, retained):
    history = History()
    for step in steps:
        history.take(step)
        cleaned(history.table, versions(retained))
        there = files(history.table)
        table = history.table
        assert table.snapshot() <= there
        assert all(
            one.files <= there for planned in table.pending.values() for one in planned.inputs.values()
        )
        for group, slices in table.groups.items():
            # What is yet to be merged, with what continues it, is one version.
            continued = slices[-1].instant == table.compacting(group) and len(slices) > 1
            for one in slices[-retained - continued :]:
                assert one.files <= there


@_SLOW
@given(_STEPS, st.integers(1, 3))
def test_looking_only_at_changed_partitions_ends_with_the_same_files(steps, retained):
    left = []
    for incremental in (True, False):
        history = History()
        for step in (*steps, ("clean", set())):
            history.take(step)
            if step[0] == "clean":
                settings = CleanSettings(commits_retained=retained, incremental=incremental)
                clean(history.table.world.open(), settings)
        left.append(named(history.table))

    assert left[0] == left[1]


def named(table):
    """The files, by how many commits were older than their instants: cleans take instants, too."""
    times = sorted(
        {i.time for i in load_timeline(table.world.store).instants if i.action not in (Action.CLEAN,)}
    )
    order = {time: f"#{number}" for number, time in enumerate(times)}
    found = []
    for path in files(table):
        for time, text in order.items():
            path = path.replace(time, text)
        found.append(path)
    return sorted(found)


def test_the_checks_above_can_fail():
    history = History()
    for step in [("write", {A}), ("compact", {A}), ("finish", {A}), ("write", {A}), ("write", {A})]:
        history.take(step)

    cleaned(history.table, ONE_COMMIT)

    assert not history.readers[0] <= files(history.table)
