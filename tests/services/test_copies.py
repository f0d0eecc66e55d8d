"""Copies of a table in use: the ledger is of another moment than the rest, whichever was copied first.

`make test` takes a sample of the moments, `HOLDFAST_COPY_STRIDE=1` all of them.
"""

import random
import re
from dataclasses import replace
from functools import partial

import pytest

from harness.checker import visible_rows
from harness.cleaning import clean
from harness.copies import TWO_LEFT, history, newest_commit
from harness.planted import each_crash
from harness.tiers import by_tier
from harness.world import SimulatedHost, rows
from holdfast.config.write import HEARTBEAT_TIMEOUT_MS, WriteSettings
from holdfast.errors import HoldfastError, Refused, SnapshotExpired, TableDamaged, WriterActive
from holdfast.format.commits import decode_written_files
from holdfast.format.savepoints import encode_savepoint, savepoint_of
from holdfast.host import Liveness
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file
from holdfast.model.reports import FindingKind, Severity
from holdfast.read.snapshot import snapshot
from holdfast.services.archive import archive
from holdfast.services.archive.archive import archive_instants
from holdfast.services.repair import missing_commits as services_lacking
from holdfast.services.repair.repair import repair, undo_repair
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover
from holdfast.services.rollback.undo import roll_back_instant, undo
from holdfast.services.savepoints import delete_savepoint
from holdfast.services.verify.verify import verify
from holdfast.table import missing_commits, publish
from holdfast.timeline.timeline import load_timeline

STRIDE = by_tier("HOLDFAST_COPY_STRIDE", sample=60, full=12)
PARTS = 4
"""Each test takes one of so many parts, so that they can run at once."""
_Z = ("z", "paris", 1.0)
_COMMAND = re.compile(r"holdfast (repair|savepoint delete|restore) PATH(?: --(?:commit|to) (\d+))?")


@pytest.fixture(scope="module")
def past():
    return history()


@pytest.fixture(scope="module")
def archived_past():
    return history(archives_restores=True)


@pytest.fixture(params=["past", "archived_past"])
def either_past(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module", autouse=True)
def tally(request):
    counted = {"copies": 0, "repaired": 0}
    yield counted
    request.config.summary_lines.append(
        f"copies: {counted['copies']} of a table in use, {counted['repaired']} repaired, 0 wedged"
    )


def mend(world):
    return repair(world.open(), verify(world.open()))


def follow(world, error):
    """Do what the refusal says, or else what `verify` offers."""
    hint = error.hint
    if "holdfast verify PATH names" in hint:
        hint = " ".join(finding.remedy for finding in verify(world.open()).findings)
    found = _COMMAND.search(hint)
    command, instant = found.groups() if found else ("repair", None)
    match command:
        case "repair":
            mend(world)
        case "savepoint delete":
            delete_savepoint(world.open(), instant)
        case "restore":
            restore(world.open(), instant)


def insisting(world, act, *, unless=tuple):
    """Act; if that is refused, do what the refusal names and act again. How often that was.

    `unless`: which refusals are right; it is asked only after one.
    """
    for attempt in range(4):
        try:
            act()
        except unless():
            return attempt
        except HoldfastError as error:
            if attempt == 3:
                raise
            try:
                follow(world, error)
            except HoldfastError as another:
                follow(world, another)
        else:
            return attempt
    raise AssertionError("the last attempt returns or raises")


def go_back(world):
    """To the commit before the newest, if there is one."""
    if len(world.commit_times()) > 1:
        restore(world.open(), world.commit_times()[-2])


VERBS = {
    "write": lambda world: world.insert("z"),
    "undo": lambda world: undo(world.open()),
    "restore": go_back,
}


def refusals(past, moments, act):
    """How the table may refuse because it does so itself at one of the moments, or right before them.

    Right before, because the newest entry may not be shown yet. A clean that is planned refuses what
    one that is over has removed.
    """
    for moment in {max(0, at) for one in moments for at in (one, one - 1)}:
        try:
            insisting(whole := past.mixed(ledger=moment, table=moment), lambda: act(whole))
        except (Refused, SnapshotExpired):
            return Refused, SnapshotExpired
    return ()


def give_up_rollbacks(world):
    """As the remedy says for those that the original had begun, of commits that stand here."""
    for finding in verify(world.open()).findings:
        if "move it and its inflight file out of the table, and nothing was rolled back" in finding.remedy:
            world.store.delete(finding.path)
            world.store.delete(finding.path.replace(".requested", ".inflight"))


def check_usable(past, world, verb, *, unless=tuple):
    """Whatever comes first, after at most a repair, leads to the rows of the timeline's commits."""
    repairs = insisting(world, lambda: VERBS[verb](world), unless=unless)
    seen = sorted(visible_rows(world.open()))
    known = [time for time in world.commit_times() if time in past.rows]
    expected = past.rows[known[-1] if known else None]
    assert seen == sorted([*expected, *([_Z] if newest_commit(world) not in past.rows else [])])
    insisting(world, lambda: world.insert("after", city="oslo"))
    assert ("after", "oslo", 5.0) in visible_rows(world.open())
    mend(world)
    give_up_rollbacks(world)
    left = [f for f in verify(world.open()).findings if f.severity is not Severity.INFO]
    assert left == []
    return repairs


def check_copy(past, tally, *, ledger, table):
    for verb, act in VERBS.items():
        world = past.mixed(ledger=ledger, table=table)
        assert sorted(visible_rows(world.open())) == past.rows_of(world)
        taken_back = world.open().ledger.read_with_older_aborts().aborted

        repairs = check_usable(past, world, verb, unless=partial(refusals, past, (ledger, table), act))

        assert not taken_back.keys() & set(world.commit_times()), "what was taken back never commits"
        tally["copies"] += 1
        tally["repaired"] += repairs > 0


@pytest.mark.parametrize("part", range(PARTS))
def test_a_copy_whose_ledger_is_older_than_its_timeline_is_as_good_as_the_table(either_past, tally, part):
    for moment in range(part * STRIDE, either_past.last, PARTS * STRIDE):
        check_copy(either_past, tally, ledger=moment, table=either_past.last)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_copy_whose_ledger_is_newer_than_its_timeline_is_repaired(either_past, tally, part):
    for moment in range(part * STRIDE, either_past.last, PARTS * STRIDE):
        check_copy(either_past, tally, ledger=either_past.last, table=moment)


@pytest.mark.parametrize("part", range(PARTS))
def test_of_any_two_moments_a_copy_is_repaired(either_past, tally, part):
    """The timeline may be that of a restore, a clean or an archiving under way."""
    chance = random.Random(part)
    for _ in range(max(1, 60 // STRIDE)):
        ledger, table = chance.sample(range(either_past.last + 1), 2)
        check_copy(either_past, tally, ledger=ledger, table=table)


def copies_that_need_a_repair(past):
    """Ledgers that are newer: by a commit whose files were not copied, by a restore, by several commits."""
    uploads = [n for n, change in enumerate(past.changes) if change.startswith("upload ")]
    restored = next(n for n, change in enumerate(past.changes) if ".restore.requested" in change)
    for moment in (uploads[-1] - 1, restored, past.last - 40):
        yield past.mixed(ledger=past.last, table=moment)


def test_a_crash_in_the_middle_of_such_a_repair_is_carried_on(past):
    crashes = 0
    for copy in copies_that_need_a_repair(past):
        for world in each_crash(copy, mend):
            check_usable(past, world, "write")
            crashes += 1
    assert crashes > 30


def test_a_crash_while_the_ledger_catches_up_is_carried_on(past):
    commits = [n for n, change in enumerate(past.changes) if change.endswith((".commit", ".replacecommit"))]
    crashes = 0
    for moment in (commits[0] - 2, commits[-3] - 1, commits[-1] - 2):
        for world in each_crash(
            past.mixed(ledger=moment, table=past.last), lambda world: recover(world.open())
        ):
            check_usable(past, world, "undo")
            crashes += 1
    assert crashes > 3


def copied_without_a_file(past):
    """A copy that lacks the two newest commits; all their files are there but one of the first of them."""
    commits = past.mixed(ledger=past.last, table=past.last).commit_times()[-2:]
    begun = next(n for n, change in enumerate(past.changes) if f"{commits[0]}.commit.requested" in change)
    world = past.mixed(ledger=past.last, table=begun - 1, data=past.last)
    completed = past.states[past.last][instant_file(commits[0], Action.COMMIT, State.COMPLETED)]
    world.store.delete(decode_written_files(completed)[0].path)
    return world, commits


def test_what_a_repair_takes_back_is_put_back_byte_for_byte(past):
    world, commits = copied_without_a_file(past)
    files = {path: world.store.read(path) for time in commits for path in world.files_of(time)}

    report = mend(world)
    moved = {path for time in commits for path in world.files_of(time) if ".hoodie" not in path}
    undo_repair(world.open(), report.quarantine)

    assert files
    assert moved == set()
    assert {path: world.store.read(path) for time in commits for path in world.files_of(time)} == files


def test_a_number_that_only_the_copied_timeline_knows_is_not_written_twice(past):
    """The ledger was copied before the write of that number began, the timeline after it."""
    numbered = WriteSettings(application="loader", batch_number=1)
    final = past.states[past.last]
    shown = load_timeline(past.mixed(ledger=past.last, table=past.last).store).completed_commits
    commit = next(
        one.time
        for one in shown
        if b"holdfast.write.application" in final[instant_file(one.time, one.action, State.COMPLETED)]
    )
    begun = next(n for n, change in enumerate(past.changes) if commit in change)
    world = past.mixed(ledger=begun - 5, table=past.last)
    world.insert("another", city="oslo")

    repeated = world.write("upsert", rows("d", city="paris", fare=9.0), numbered)

    assert (repeated.repeated, repeated.instant) == (True, commit)


def begun_and_completed(past):
    """A copy whose newest commit is begun in the ledger, and that commit's file."""
    commit = max(n for n, change in enumerate(past.changes) if change.endswith(".commit"))
    world = past.mixed(ledger=commit - 2, table=commit)
    (begun,) = world.open().ledger.read().begun
    return world, instant_file(begun, Action.COMMIT, State.COMPLETED)


def test_a_commit_that_the_copied_ledger_has_not_decided_is_named_and_entered(past):
    world, path = begun_and_completed(past)

    found = verify(world.open()).findings
    report = mend(world)

    assert (FindingKind.UNDECIDED, path) in [(finding.kind, finding.path) for finding in found]
    assert not [finding for finding in found if finding.severity is Severity.DAMAGE]
    assert report.left == ()
    assert verify(world.open()).is_clean
    assert newest_commit(world) in world.open().ledger.read().committed


def test_readers_of_the_past_do_not_wait_for_a_commit_that_is_shown(past):
    world, _ = begun_and_completed(past)

    assert snapshot(world.open(), as_of=newest_commit(world)).paths


def test_a_living_process_that_writes_to_the_original_does_not_stop_the_copy(past):
    """Its commit is shown here, so it writes nothing here any more."""
    world, _ = begun_and_completed(past)

    replace(world, host=SimulatedHost(others=Liveness.ALIVE)).insert("z")

    assert _Z in visible_rows(world.open())


def test_a_write_that_a_living_process_makes_to_the_original_is_rolled_back_by_the_command_that_is_named(
    past,
):
    """Its heartbeat is copied, too, and beats no more."""
    upload = max(n for n, change in enumerate(past.changes) if change.startswith("upload "))
    world = replace(past.mixed(ledger=upload, table=upload), host=SimulatedHost(others=Liveness.ALIVE))
    with pytest.raises(WriterActive, match=r"holdfast commit rollback PATH --commit (\d+)") as refused:
        world.insert("z")
    with pytest.raises(WriterActive, match="its heartbeat has expired"):
        roll_back_instant(world.open(), refused.value.facts["instant"])
    world.clock.now += HEARTBEAT_TIMEOUT_MS + 1

    roll_back_instant(world.open(), refused.value.facts["instant"])

    check_usable(past, world, "write")


def test_a_file_that_was_copied_in_part_is_named_and_not_believed(past):
    world, path = begun_and_completed(past)
    world.store.put(path, world.store.read(path)[:-20])
    begun = world.open().ledger.read().begun

    with pytest.raises(TableDamaged, match="its file is not whole") as refused:
        recover(world.open())

    assert path in str(refused.value)
    assert world.open().ledger.read().begun == begun
    world.store.delete(path)  # As the hint says.
    world.insert("z")
    assert _Z in visible_rows(world.open())


def test_a_decided_commit_whose_files_were_not_copied_is_not_shown(past):
    upload = max(n for n, change in enumerate(past.changes) if change.startswith("upload "))
    world = past.mixed(ledger=past.last, table=upload - 1)
    shown = world.commit_times()

    with pytest.raises(TableDamaged, match=r"not here.*holdfast repair PATH"):
        world.insert("z")

    assert world.commit_times() == shown


def test_a_commit_that_was_copied_whole_is_shown_though_the_timeline_had_nothing_of_it(past):
    """The timeline was copied first, then the data files, then the ledger."""
    begun = max(n for n, change in enumerate(past.changes) if change.endswith(".commit.requested"))
    world = past.mixed(ledger=past.last, table=begun - 1, data=past.last)
    with pytest.raises(TableDamaged, match="shows nothing of it"):
        world.insert("z")

    mend(world)

    assert newest_commit(world) == newest_commit(past.mixed(ledger=past.last, table=past.last))
    check_usable(past, world, "write")


def test_what_came_after_a_commit_that_is_not_whole_is_taken_back_too(past):
    """It was built on it: alone it would show a part of it."""
    world, commits = copied_without_a_file(past)

    report = mend(world)

    assert report.taken_back == tuple(commits)
    check_usable(past, world, "write")


def decided_before_it_was_cleaned(past):
    """A copy whose ledger has decided to archive a replacement that is not cleaned here."""
    archived = next(n for n, change in enumerate(past.changes) if "/archived/.restores_" in change)
    cleans = (n for n, change in enumerate(past.changes) if re.search(r"create .*clean.requested", change))
    return past.mixed(ledger=archived - 1, table=max(cleans) - 1)


def test_what_a_copy_is_to_archive_waits_until_what_it_replaced_is_cleaned(archived_past):
    """The ledger was copied last: the clean before its newest decision did not come along."""
    world = decided_before_it_was_cleaned(archived_past)
    rows_before, until = visible_rows(world.open()), world.open().ledger.read().archive.until
    commits = load_timeline(world.store).completed_commits
    replacing = next(commit for commit in commits if commit.action is Action.REPLACECOMMIT)

    held_back = archive_instants(world.open(), WriteSettings())
    waiting = visible_rows(world.open())
    clean(world.open(), TWO_LEFT)
    archived = archive_instants(world.open(), WriteSettings())

    assert f", which {replacing.time} replaced, is not cleaned yet" in held_back.held_back
    assert held_back.archived == held_back.resumed == ()
    assert replacing in archived.resumed
    assert min(world.commit_times()) > until
    assert visible_rows(world.open()) == waiting == rows_before
    check_usable(archived_past, world, "write")


def test_a_copy_is_not_restored_to_what_waits_to_be_archived_and_the_way_is_named(archived_past):
    world = decided_before_it_was_cleaned(archived_past)
    target = world.open().ledger.read().archive.until
    saved = encode_savepoint(savepoint_of("somebody", world.clock.now, "", {}))
    for reached, content in ((State.INFLIGHT, b""), (State.COMPLETED, saved)):
        world.store.create(instant_file(target, Action.SAVEPOINT, reached), content)

    with pytest.raises(Refused, match=r"would be seen again.*holdfast cleans run PATH"):
        restore(world.open(), target)


def undone_meanwhile(past):
    """A copy in which an undo is under way that its ledger does not know, of a commit that is shown."""
    inflight = next(n for n, change in enumerate(past.changes) if change.endswith(".rollback.inflight"))
    undone = newest_commit(past.mixed(ledger=inflight, table=inflight))
    begun = next(n for n, change in enumerate(past.changes) if f"{undone}.commit.requested" in change)
    return past.mixed(ledger=begun - 2, table=inflight), undone


def test_an_undo_in_a_copy_carries_out_the_rollback_that_was_begun(past):
    world, undone = undone_meanwhile(past)
    (begun,) = load_timeline(world.store).pending_rollbacks

    report = undo(world.open())

    assert (report.rolled_back, report.instant) == (undone, begun.time)
    assert verify(world.open()).is_clean
    assert load_timeline(world.store).pending_rollbacks == ()


def test_a_crash_of_such_an_undo_is_carried_on(past):
    copy, undone = undone_meanwhile(past)
    for world in each_crash(copy, lambda world: undo(world.open())):
        is_decided = undone in world.open().ledger.read().aborted

        insisting(world, partial(world.insert, "z"))
        give_up_rollbacks(world)

        assert (undone in world.commit_times()) is not is_decided
        assert verify(world.open()).is_clean


def test_a_savepointed_commit_that_was_archived_since_the_ledger_was_copied_keeps_its_files(past):
    """Its savepoint, which has the same time, is all that the timeline shows of it."""
    released = next(
        n for n, change in enumerate(past.changes) if re.fullmatch(r"delete .*\.savepoint", change)
    )
    saved = past.changes[released].rpartition("/")[2].removesuffix(".savepoint")
    begun = next(n for n, change in enumerate(past.changes) if f"{saved}.commit.requested" in change)
    world = past.mixed(ledger=begun, table=released - 1)
    files = world.files_of(saved)

    insisting(world, lambda: world.insert("z"))

    assert saved not in world.open().ledger.read_with_older_aborts().aborted
    assert world.files_of(saved) == files != []
    assert not [f for f in verify(world.open()).findings if f.severity is not Severity.INFO]


@pytest.mark.parametrize("verb", VERBS)
def test_a_ledger_in_which_a_restore_is_pending_that_was_archived_since_stops_nobody(verb):
    """The ledger was copied while the restore went on, the timeline after that had left it."""
    past, copies = history(archives_restores=True), 0
    for moment in range(past.last):
        world = past.mixed(ledger=moment, table=past.last)
        restore_known = world.open().ledger.read().restore
        if restore_known is None or restore_known.is_over:
            continue
        copies += 1

        assert check_usable(past, world, verb) == 0

    assert copies > 10


def check_all(past, archived_past):
    """Some copies of every kind."""
    nowhere = {"copies": 0, "repaired": 0}
    check_usable(archived_past, decided_before_it_was_cleaned(archived_past), "write")
    test_what_came_after_a_commit_that_is_not_whole_is_taken_back_too(past)
    upload = max(n for n, change in enumerate(past.changes) if change.startswith("upload "))
    check_copy(past, nowhere, ledger=past.last, table=upload - 1)
    for moment in range(0, past.last, 7):
        check_copy(past, nowhere, ledger=moment, table=past.last)
        check_copy(past, nowhere, ledger=past.last, table=moment)


def enters_what_was_aborted(monkeypatch):
    monkeypatch.setattr(missing_commits, "_is_later", lambda state, time: time not in state.committed)


def does_not_look_into_the_archive(monkeypatch):
    monkeypatch.setattr(missing_commits, "_find_in_archive", lambda table, timeline, state: [])


def enters_nothing(monkeypatch):
    monkeypatch.setattr(missing_commits, "commits_to_enter", lambda table, timeline, state: [])


def shows_commits_without_files(monkeypatch):
    monkeypatch.setattr(publish, "refuse_if_incomplete", lambda table, time, payload: None)


def goes_on_without_vanished_commits(monkeypatch):
    monkeypatch.setattr(publish, "refuse_if_vanished", lambda table, unseen: None)


def takes_back_only_what_is_not_whole(monkeypatch):
    find = services_lacking.find_lacking

    def without_order(table, timeline, state):
        found = find(table, timeline, state)
        unseen = (*found.whole, *found.lost)
        whole = tuple(one for one in unseen if services_lacking._is_whole(table, one))
        return replace(found, whole=whole, lost=tuple(one for one in unseen if one not in whole))

    monkeypatch.setattr(services_lacking, "find_lacking", without_order)
    monkeypatch.setattr("holdfast.services.verify.verify.find_lacking", without_order)


def archives_what_is_not_cleaned(monkeypatch):
    monkeypatch.setattr(archive, "_find_uncleaned", lambda table, timeline, leaving: None)


@pytest.mark.parametrize(
    "defect",
    [
        enters_what_was_aborted,
        does_not_look_into_the_archive,
        enters_nothing,
        shows_commits_without_files,
        goes_on_without_vanished_commits,
        takes_back_only_what_is_not_whole,
        archives_what_is_not_cleaned,
    ],
    ids=lambda defect: defect.__name__,
)
def test_a_defect_that_is_planted_is_found(past, archived_past, monkeypatch, defect):
    defect(monkeypatch)

    with pytest.raises((AssertionError, HoldfastError)):
        check_all(past, archived_past)
