"""Which versions a clean deletes, by hand-made histories and by a reader's needs."""

import datetime as dt
import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.model.instant import Action, Instant, InstantTime, State, just_before, moment_of
from holdfast.services.clean.policy import (
    Window,
    decide_files,
    earliest_to_retain,
    select_partitions,
)
from holdfast.table.view import SLICES, without_logs

SIZE = 1000


def at(clock):
    """The instant of a time of day."""
    hour, minute = clock.split(":")
    return InstantTime(f"20240501{int(hour):02d}{minute}00000")


def ms(time):
    return round(moment_of(time, dt.UTC).timestamp() * 1000)


def commit(instant, completed=None):
    moment = None if completed is None else moment_of(completed, dt.UTC)
    return Instant(instant, Action.COMMIT, State.COMPLETED, moment)


def path_of(partition, group, instant):
    return f"{partition}/{group}_0-0-0_{instant}.parquet".lstrip("/")


def slices_of(versions):
    """Rows of a view from (partition, file group, instant), in the order of their paths."""
    rows = [
        (path_of(partition, group, instant), partition, group, instant, SIZE, None, ())
        for partition, group, instant in versions
    ]
    columns = zip(*sorted(rows), strict=True) if rows else [[]] * len(SLICES)
    return pa.table([pa.array(c, t) for c, t in zip(columns, SLICES.types, strict=True)], schema=SLICES)


COMMITS = ("8:30", "9:00", "9:30", "10:00", "10:30")
FG1, FG2, FG3, FG4 = ("8:30", "9:00", "10:30"), COMMITS, ("8:30", "9:30"), ("10:00", "10:30")
GROUPS = {"fg1": FG1, "fg2": FG2, "fg3": FG3, "fg4": FG4}
EXAMPLE = slices_of(("p", group, at(clock)) for group, clocks in GROUPS.items() for clock in clocks)


def plan(slices=EXAMPLE, commits=COMMITS, *, now="10:35", pending=None, previous=None, **kwargs):
    policy = {key: kwargs.pop(key) for key in tuple(kwargs) if key in CleanSettings.__dataclass_fields__}
    given = {
        "commits_retained": CleanPolicy.KEEP_LATEST_COMMITS,
        "hours_retained": CleanPolicy.KEEP_LATEST_BY_HOURS,
        "versions_retained": CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
    }
    chosen = next(given[key] for key in given if key in policy)
    settings = CleanSettings(policy=chosen, **policy)
    window = earliest_to_retain(
        [each if isinstance(each, Instant) else commit(at(each)) for each in commits],
        settings=settings,
        now_ms=ms(at(now)),
        zone=dt.UTC,
        first_pending=None if pending is None else at(pending),
        previous=None if previous is None else at(previous),
    )
    return decide_files(slices, window, settings=settings, **({"replaced": {}} | kwargs))


def cleaned(fates):
    """File group → the times of day of its doomed versions, newest first."""
    found = {}
    for group, instant in zip(
        fates.doomed["file_id"].to_pylist(), fates.doomed["instant"].to_pylist(), strict=True
    ):
        found.setdefault(group, []).append(f"{int(instant[8:10])}:{instant[10:12]}")
    return {group: sorted(clocks, key=at, reverse=True) for group, clocks in found.items()}


def reasons(fates):
    return dict(zip(fates.table["path"].to_pylist(), fates.table["reason"].to_pylist(), strict=True))


TWO_COMMITS = {"fg1": ["8:30"], "fg2": ["9:00", "8:30"], "fg3": ["8:30"]}
LATEST_ONLY = {
    "fg1": ["9:00", "8:30"], "fg2": ["10:00", "9:30", "9:00", "8:30"], "fg3": ["8:30"], "fg4": ["10:00"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "earliest", "expected"),
    [
        ({"commits_retained": 2}, "10:00", TWO_COMMITS),
        (
            {"commits_retained": 1},
            "10:30",
            {"fg1": ["8:30"], "fg2": ["9:30", "9:00", "8:30"], "fg3": ["8:30"]},
        ),
        ({"commits_retained": 3}, "9:30", {"fg1": ["8:30"], "fg2": ["8:30"]}),
        ({"commits_retained": 4}, "9:00", {}),
        ({"commits_retained": 5}, None, {}),
        ({"commits_retained": 10}, None, {}),
        ({"versions_retained": 1}, None, LATEST_ONLY),
        ({"versions_retained": 2}, None, {"fg1": ["8:30"], "fg2": ["9:30", "9:00", "8:30"]}),
        ({"versions_retained": 3}, None, {"fg2": ["9:00", "8:30"]}),
        ({"hours_retained": 1}, "10:00", TWO_COMMITS),
        ({"hours_retained": 2}, "9:00", {}),
        ({"hours_retained": 1, "now": "12:00", "cleans_idle_tables": False}, None, {}),
        ({"hours_retained": 1, "now": "12:00"}, "10:30", LATEST_ONLY),
    ],
    ids=str,
)
def test_the_worked_example_is_cleaned_exactly(policy, earliest, expected):
    fates = plan(**policy)

    assert cleaned(fates) == expected
    assert fates.earliest == (earliest and at(earliest))
    assert fates.kept.num_rows == EXAMPLE.num_rows - sum(map(len, expected.values()))
    assert fates.bytes_freed == SIZE * sum(map(len, expected.values()))
    assert bool(fates.blocked_by) == (not expected)


@pytest.mark.parametrize("policy", [{"commits_retained": 2}, {"hours_retained": 1}])
def test_a_query_that_began_before_the_window_keeps_its_files(policy):
    """One of 9:35 reads fg1@9:00, which by its own age would go; so did Hudi by hours, before 0.14.1."""
    assert "9:00" not in cleaned(plan(**policy))["fg1"]


def test_every_file_has_its_reason():
    given = reasons(plan(commits_retained=2, saved_files=pa.array([path_of("p", "fg2", at("8:30"))])))

    assert given == {
        path_of("p", group, at(clock)): reason
        for group, clock, reason in [
            ("fg1", "8:30", "superseded"),
            ("fg1", "9:00", "needed-at-window-start"),
            ("fg1", "10:30", "latest"),
            ("fg2", "8:30", "savepoint"),
            ("fg2", "9:00", "superseded"),
            ("fg2", "9:30", "needed-at-window-start"),
            ("fg2", "10:00", "window"),
            ("fg2", "10:30", "latest"),
            ("fg3", "8:30", "superseded"),
            ("fg3", "9:30", "latest"),
            ("fg4", "10:00", "window"),
            ("fg4", "10:30", "latest"),
        ]
    }


def test_files_of_a_savepoint_stay():
    saved = [("fg1", "9:00"), ("fg2", "9:00"), ("fg3", "8:30")]

    fates = plan(commits_retained=2, saved_files=pa.array([path_of("p", g, at(c)) for g, c in saved]))

    assert cleaned(fates) == {"fg1": ["8:30"], "fg2": ["8:30"]}


def test_files_that_a_pending_service_builds_on_stay():
    fates = plan(versions_retained=1, claimed=[just_before(at("9:15"))])

    pending = [path for path, reason in reasons(fates).items() if reason == "pending-service"]
    assert pending == [path_of("p", g, at(c)) for g, c in (("fg1", "9:00"), ("fg2", "9:00"), ("fg3", "8:30"))]


@pytest.mark.parametrize(
    "policy", [{"commits_retained": 2}, {"hours_retained": 1}, {"hours_retained": 1, "now": "12:00"}]
)
def test_the_window_does_not_pass_a_pending_instant(policy):
    fates = plan(pending="9:15", **policy)

    assert cleaned(fates) == {}
    assert fates.earliest == at("9:00")


def test_a_pending_instant_newer_than_the_window_hinders_nothing():
    assert cleaned(plan(commits_retained=2, pending="10:15")) == TWO_COMMITS
    assert cleaned(plan(hours_retained=1, now="12:00", pending="11:59")) == LATEST_ONLY


@pytest.mark.parametrize("policy", [{"commits_retained": 2}, {"hours_retained": 1}])
def test_a_pending_instant_older_than_all_commits_hinders_everything(policy):
    fates = plan(pending="8:00", **policy)

    assert fates.earliest is None
    assert fates.doomed.num_rows == 0
    assert at("8:00") in fates.blocked_by


def test_as_many_commits_as_are_retained_are_all_kept():
    assert "5 commits" in plan(commits_retained=5).blocked_by
    assert earliest_to_retain(
        [commit(at(clock)) for clock in (*COMMITS, "11:00")],
        settings=CleanSettings(commits_retained=5),
        now_ms=ms(at("11:00")),
        zone=dt.UTC,
    ) == Window(at("9:00"), at("9:00"))


def test_a_table_without_commits_has_nothing_to_clean():
    for policy in ({"commits_retained": 1}, {"versions_retained": 1}, {"hours_retained": 1}):
        fates = plan(slices_of([]), (), **policy)

        assert fates.blocked_by == "the table has no commit"
        assert fates.table.num_rows == 0


def test_the_window_advances_by_at_most_so_many_commits_at_once():
    commits = [commit(InstantTime(f"20240501000000{n:03d}")) for n in range(1000)]
    settings = CleanSettings(commits_retained=12, max_commits_to_clean=50)

    def earliest(previous):
        return earliest_to_retain(
            commits, settings=settings, now_ms=ms(at("10:00")), zone=dt.UTC, previous=previous
        ).earliest

    assert earliest(commits[0].time) == commits[50].time
    assert earliest(commits[50].time) == commits[100].time
    assert earliest(commits[970].time) == commits[988].time
    assert earliest(None) == commits[988].time


def test_a_capped_idle_table_is_cleaned_step_by_step():
    fates = plan(hours_retained=1, now="12:00", previous="9:00", max_commits_to_clean=2)

    assert fates.earliest == at("10:00")
    assert cleaned(fates) == TWO_COMMITS


def test_the_window_does_not_go_back_when_retention_grows():
    fates = plan(commits_retained=4, previous="10:00")

    assert (fates.earliest, fates.doomed.num_rows) == (None, 0)
    assert at("10:00") in fates.blocked_by


@pytest.mark.parametrize("previous", ["9:10", "11:00", "8:00"])
def test_a_commit_retained_once_that_is_gone_does_not_bind(previous):
    """A restore took it away, or it was archived."""
    assert cleaned(plan(commits_retained=2, previous=previous)) == TWO_COMMITS


def test_a_commit_that_was_completed_inside_the_window_counts_as_inside():
    """Until it was completed at 10:00, queries read what it superseded."""
    late = commit(at("9:00"), completed=at("10:00"))
    commits = [
        commit(at("8:30"), at("8:31")),
        late,
        commit(at("9:10"), at("9:11")),
        commit(at("10:30"), at("10:31")),
    ]
    slices = slices_of(
        [("p", "a", at("8:30")), ("p", "a", at("9:00")), ("p", "b", at("9:10")), ("p", "b", at("10:30"))]
    )

    fates = plan(slices, commits, hours_retained=1)

    assert fates.earliest == at("9:00")
    assert cleaned(fates) == {}


def test_instants_to_the_second_count_as_the_end_of_it():
    second, later = InstantTime("20240501100000"), InstantTime("20240501100000500")
    slices = slices_of([("p", "a", at("9:00")), ("p", "a", later), ("p", "a", second)])
    commits = [commit(at("9:00")), commit(later), commit(second)]

    fates = plan(slices, commits, commits_retained=1)

    assert fates.earliest == second
    assert cleaned(fates) == {"a": ["9:00"]}


REPLACED = (*COMMITS[:3], "9:45", *COMMITS[3:])


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        ({"commits_retained": 2}, ["9:30", "8:30"]),
        ({"commits_retained": 3}, ["8:30"]),
        ({"commits_retained": 4}, None),
        ({"hours_retained": 1}, ["8:30"]),
        ({"hours_retained": 2}, None),
        ({"versions_retained": 3}, ["9:30", "8:30"]),
    ],
    ids=str,
)
def test_a_replaced_group_goes_when_its_replacement_leaves_the_window(policy, gone):
    fates = plan(commits=REPLACED, replaced={"p/fg3": at("9:45")}, **policy)

    assert cleaned(fates).get("fg3") == gone


def test_replaced_groups_are_told_by_their_partition():
    slices = slices_of([("p", "a", at("8:30")), ("q", "a", at("8:30")), ("", "a", at("8:30"))])

    fates = plan(slices, commits_retained=1, replaced={"p/a": at("9:00")})

    assert fates.doomed["path"].to_pylist() == [path_of("p", "a", at("8:30"))]
    assert fates.doomed["reason"].to_pylist() == ["replaced"]


def test_partitions_all_of_whose_files_go_are_emptied_but_never_the_root():
    slices = slices_of(
        [("p", "a", at("8:30")), ("q", "a", at("8:30")), ("q", "b", at("8:30")), ("", "a", at("8:30"))]
    )
    replaced = {group: at("9:00") for group in ("p/a", "q/a", "a")}

    fates = plan(slices, commits_retained=1, replaced=replaced)

    assert fates.doomed.num_rows == 3
    assert fates.emptied == ("p",)


def test_two_files_of_one_instant_do_not_supersede_each_other():
    """Damage, which a clean must not make worse."""
    slices = slices_of([("p", "a", at("8:30")), ("p", "a", at("9:00"))])
    twin = slices.slice(1, 1).set_column(0, "base", pa.array([f"p/a_1-1-1_{at('9:00')}.parquet"]))

    fates = plan(pa.concat_tables([slices, twin]), versions_retained=1)

    assert cleaned(fates) == {"a": ["8:30"]}


def test_the_order_of_files_does_not_matter():
    shuffled = EXAMPLE.take(np.random.default_rng(7).permutation(EXAMPLE.num_rows))

    assert reasons(plan(shuffled, commits_retained=2)) == reasons(plan(commits_retained=2))


@pytest.mark.parametrize(
    "policy", [{"commits_retained": 1}, {"versions_retained": 1}, {"hours_retained": 1, "now": "12:00"}]
)
def test_a_leased_snapshot_stays_whole(policy):
    """At 9:10 the table was fg1@9:00, fg2@9:00, fg3@8:30; fg3 was replaced later."""
    replaced = {"p/fg3": at("9:45"), "p/fg1": at("9:05")}

    kept = cleaned(plan(commits=REPLACED, replaced=replaced, **policy))
    leased = plan(commits=REPLACED, replaced=replaced, leased=[at("9:10")], **policy)

    assert "9:00" in kept["fg2"]
    assert "8:30" in kept["fg3"]
    assert "9:00" not in cleaned(leased)["fg2"]
    assert "8:30" not in cleaned(leased)["fg3"]
    assert cleaned(leased)["fg1"] == kept["fg1"], "the group was not part of that snapshot"
    assert reasons(leased)[path_of("p", "fg3", at("8:30"))] == "lease"


def test_a_lease_holds_nothing_that_its_own_commit_superseded():
    fates = plan(versions_retained=1, leased=[at("9:00")])

    leased = [path for path, reason in reasons(fates).items() if reason == "lease"]
    assert leased == [path_of("p", g, at(c)) for g, c in (("fg1", "9:00"), ("fg2", "9:00"), ("fg3", "8:30"))]


def test_only_the_partitions_asked_for_are_looked_at():
    slices = slices_of((p, "a", at(clock)) for p in ("p", "q", "") for clock in COMMITS)

    fates = plan(slices, commits_retained=1, partitions=["q", ""])

    assert set(fates.table["partition"].to_pylist()) == {"q", ""}
    assert fates.doomed.num_rows == 6


def test_partitions_are_selected_by_name_or_by_pattern():
    partitions = ["day=1", "day=2", "day=12", ""]

    assert select_partitions(partitions, CleanSettings()) == partitions
    assert select_partitions(partitions, CleanSettings(partition_pattern="day=.")) == ["day=1", "day=2"]
    by_name = CleanSettings(partition_pattern="day=.", partitions_selected=("day=12", "other"))
    assert select_partitions(partitions, by_name) == ["day=12"]


# Histories, and what their readers need, by plain Python.


@dataclass
class History:
    """Commits 1, 2, …: what each wrote, and what it replaced, by (partition, file group)."""

    writes: list[set[tuple[str, str]]]
    replaces: dict[tuple[str, str], int]
    there: set[tuple[str, str, int]] = field(default_factory=set)
    """The files that no clean deleted."""

    def commit(self, number):
        self.there |= {(*group, number) for group in self.writes[number - 1]}

    def needed(self, snapshot):
        """The files a query pinned at a commit reads."""
        needed = set()
        for group in set().union(*self.writes[:snapshot]):
            if self.replaces.get(group, snapshot + 1) > snapshot:
                newest = max(n for n in range(1, snapshot + 1) if group in self.writes[n - 1])
                needed.add((*group, newest))
        return needed

    def touched(self, first, last):
        """Partitions written to, or replaced in, by commits from the first up to, not including, the last."""
        written = {partition for n in range(first, last) for partition, _ in self.writes[n - 1]}
        return written | {partition for (partition, _), n in self.replaces.items() if first <= n < last}

    def clean(self, newest, settings, *, since=None, saved=(), leased=(), now=None):
        """Clean all partitions, or those touched since; the number of the earliest commit retained."""
        window = earliest_to_retain(
            [commit(stamp(n)) for n in range(1, newest + 1)],
            settings=settings,
            now_ms=ms(now or stamp(newest)),
            zone=dt.UTC,
        )
        partitions = None
        if since is not None and window.start is not None:
            partitions = self.touched(since, min(number(window.start), newest + 1))
        replaced = {f"{p}/{g}".lstrip("/"): stamp(n) for (p, g), n in self.replaces.items() if n <= newest}
        fates = decide_files(
            slices_of((p, g, stamp(n)) for p, g, n in self.there),
            window,
            settings=settings,
            replaced=replaced,
            saved_files=pa.array([path_of(p, g, stamp(n)) for p, g, n in saved], pa.string()),
            leased=[stamp(n) for n in leased],
            partitions=partitions,
        )
        doomed = zip(
            *(fates.doomed[name].to_pylist() for name in ("partition", "file_id", "instant")), strict=True
        )
        self.there -= {(p, g, number(t)) for p, g, t in doomed}
        return None if window.earliest is None else number(window.earliest)


STEP_MINUTES = 360


def stamp(n, minutes=0):
    """The time of a commit, or so many minutes after it: one is made every six hours."""
    moment = dt.datetime(2024, 5, 1) + dt.timedelta(minutes=STEP_MINUTES * n + minutes)
    return InstantTime(f"{moment:%Y%m%d%H%M%S}000")


def number(instant):
    """The number of the commit at an instant; of the next one if it is between two."""
    since = moment_of(instant, dt.UTC).replace(tzinfo=None) - dt.datetime(2024, 5, 1)
    return -(-since // dt.timedelta(minutes=STEP_MINUTES))


MINUTES = st.integers(0, STEP_MINUTES - 1)
HOURS = st.integers(1, 30)


@st.composite
def histories(draw):
    groups = [(partition, group) for partition in ("", "p", "q", "r") for group in ("a", "b")]
    count = draw(st.integers(1, 14))
    writes = [draw(st.sets(st.sampled_from(groups), max_size=4)) for _ in range(count)]
    replaces = {}
    for n in range(2, count + 1):
        live = sorted(set().union(*writes[: n - 1]) - replaces.keys())
        if live and draw(st.integers(0, 3)) == 0:
            replaces[draw(st.sampled_from(live))] = n
    for n, written in enumerate(writes, 1):  # Nobody writes to a group that is replaced.
        written -= {group for group, at_commit in replaces.items() if n >= at_commit}
    return History(writes, replaces)


@checks(max_examples=100)
@given(histories(), st.integers(1, 5), st.booleans(), st.data())
def test_a_query_reads_all_its_files_for_as_many_commits_as_are_retained(
    history, retained, incremental, data
):
    """Pinned at commit k, it is safe through the clean after commit k + N."""
    settings = CleanSettings(commits_retained=retained)
    earliest = None

    for newest in range(1, len(history.writes) + 1):
        history.commit(newest)
        if data.draw(st.booleans()):
            reached = history.clean(newest, settings, since=earliest if incremental else None)
            earliest = reached or earliest
        for snapshot in range(max(1, newest - retained), newest + 1):
            assert history.needed(snapshot) <= history.there


@checks(max_examples=100)
@given(histories(), HOURS, st.data())
def test_a_query_reads_all_its_files_for_as_long_as_hours_say(history, hours, data):
    """What the table was at any moment of the last hours is there, and what it is now."""
    settings = CleanSettings(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours_retained=hours)

    for newest in range(1, len(history.writes) + 1):
        history.commit(newest)
        minutes = data.draw(MINUTES)
        history.clean(newest, settings, now=stamp(newest, minutes))
        oldest_query = newest * STEP_MINUTES + minutes - 60 * hours
        for snapshot in range(max(1, oldest_query // STEP_MINUTES), newest + 1):
            assert history.needed(snapshot) <= history.there


@checks(max_examples=100)
@given(histories(), st.integers(1, 4), st.data())
def test_savepoints_and_leases_keep_their_snapshots_under_every_policy(history, retained, data):
    settings = CleanSettings(
        policy=data.draw(st.sampled_from(CleanPolicy)),
        commits_retained=retained,
        hours_retained=retained,
        versions_retained=retained,
    )
    pinned, saved = {}, set()

    for newest in range(1, len(history.writes) + 1):
        history.commit(newest)
        how = data.draw(st.sampled_from(("lease", "savepoint", None)))
        if how:
            pinned[newest] = how
        saved = set().union(*(history.needed(n) for n, how in pinned.items() if how == "savepoint"))
        leased = [n for n, how in pinned.items() if how == "lease"]
        history.clean(newest, settings, saved=saved, leased=leased)
        for snapshot in (*pinned, newest):
            assert history.needed(snapshot) <= history.there


@checks(max_examples=100)
@given(histories(), st.integers(1, 4), HOURS, st.data())
def test_looking_only_at_changed_partitions_ends_with_the_same_files(history, retained, hours, data):
    policy = data.draw(st.sampled_from((CleanPolicy.KEEP_LATEST_COMMITS, CleanPolicy.KEEP_LATEST_BY_HOURS)))
    settings = CleanSettings(policy=policy, commits_retained=retained, hours_retained=hours)
    whole = History(history.writes, history.replaces)
    earliest = None

    for newest in range(1, len(history.writes) + 1):
        whole.commit(newest)
        history.commit(newest)
        if data.draw(st.booleans()):
            now = stamp(newest, data.draw(MINUTES))
            whole.clean(newest, settings, now=now)
            earliest = history.clean(newest, settings, since=earliest, now=now) or earliest
            assert history.there == whole.there


@checks(max_examples=100)
@given(histories(), st.integers(1, 4))
def test_versions_are_counted_in_each_group(history, retained):
    settings = CleanSettings(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions_retained=retained)
    newest = len(history.writes)
    for n in range(1, newest + 1):
        history.commit(n)

    history.clean(newest, settings)

    for group in set().union(*history.writes):
        written = [n for n in range(1, newest + 1) if group in history.writes[n - 1]]
        expected = [] if group in history.replaces else written[-retained:]
        assert sorted(n for *of, n in history.there if tuple(of) == group) == expected


@pytest.mark.timeout(60)
def test_a_million_files_are_decided_in_seconds():
    """Ten thousand file groups of a hundred versions: columns all the way, not an object for each."""
    groups, versions = 10_000, 100
    group, version = np.divmod(np.arange(groups * versions), versions)
    partition, file_id = (pa.array(column).cast(pa.string()) for column in (group // 10, group + 10**7))
    instant = pa.array(20240501000000000 + version).cast(pa.string())
    folder = pc.binary_join_element_wise(partition, file_id, "/")
    path = pc.binary_join_element_wise(folder, "0-0-0", instant, "_")
    size = pa.array(np.full(len(group), SIZE))
    previous = pa.nulls(len(group), pa.string())
    columns = [path, partition, file_id, instant, size, previous, without_logs(len(group))]
    slices = pa.table(columns, schema=SLICES)
    commits = [commit(InstantTime(f"20240501000000{n:03d}")) for n in range(versions)]
    saved = path[: 10 * versions]
    before = pa.total_allocated_bytes()
    began = time.perf_counter()

    fates = plan(slices, commits, commits_retained=10, leased=[commits[20].time], saved_files=saved)

    assert fates.doomed.num_rows == (groups - 10) * (versions - 10 - 1 - 1)
    assert time.perf_counter() - began < 10
    assert pa.total_allocated_bytes() - before < 300 * len(group)
