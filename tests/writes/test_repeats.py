"""Numbered writes: each is committed once, however often and by how many it is tried."""

import subprocess
import sys

import pyarrow as pa
import pytest

import holdfast
from crashes.matrix import INSERT, NEW, OLD, Operation, Start, clean_table, crash_points
from harness.checker import check_at_rest, visible_rows
from harness.world import rows, table_of
from holdfast.config.choices import CleanPolicy
from holdfast.config.cleaning import CleanSettings
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption
from holdfast.services.archive.archive import archive_instants
from holdfast.services.restore.restore import restore
from holdfast.services.rollback.rollback import recover

ROWS = pa.table({"id": [1, 2], "city": ["paris", "rome"]})
PAIR = ("nightly", 7)
TWO_LEFT = WriteSettings(
    clean=CleanSettings(
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS,
        versions_retained=1,
        automatic=False,
        keep_min=2,
        keep_max=3,
    )
)


@pytest.fixture
def table(tmp_path):
    made = holdfast.create_table(str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city")
    made.insert(ROWS, idempotency=("first", 0))
    return made


def files(table, tmp_path):
    return {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


VERBS = {
    "bulk_insert": ROWS,
    "insert": ROWS,
    "upsert": ROWS,
    "delete": ROWS,
    "insert_overwrite": ROWS,
    "insert_overwrite_table": ROWS,
    "delete_partitions": ["city=rome"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_repeat_gives_the_first_commit_and_writes_nothing(table, tmp_path, verb):
    first = getattr(table, verb)(VERBS[verb], idempotency=PAIR)
    before = files(table, tmp_path)

    again = getattr(table, verb)(VERBS[verb], idempotency=PAIR)

    assert not first.repeated
    assert again.repeated
    for name in ("instant", "action", "operation", "partitions", "files_written", "bytes_written"):
        assert getattr(again, name) == getattr(first, name)
    for name in ("written", "inserted", "updated", "deleted"):
        assert getattr(again, f"records_{name}") == getattr(first, f"records_{name}")
    assert files(table, tmp_path) == before


def test_a_lower_number_is_a_repeat_and_a_greater_one_or_another_application_is_not(table):
    seventh = table.insert(ROWS, idempotency=PAIR)

    assert table.insert(ROWS, idempotency=("nightly", 3)).instant == seventh.instant
    assert not table.insert(ROWS, idempotency=("nightly", 8)).repeated
    assert not table.insert(ROWS, idempotency=("hourly", 7)).repeated
    assert table.insert(ROWS, idempotency=PAIR).instant == seventh.instant


def test_the_options_say_the_same(table):
    options = {"txnAppId": "Nightly Load", "txnVersion": "7"}
    first = table.insert(ROWS, options=options)

    assert table.insert(ROWS, idempotency=("Nightly Load", 7)).instant == first.instant
    assert holdfast.write(ROWS, table.path, options).repeated
    spelled = {"hoodie.datasource.write.streaming.checkpoint.identifier": "Nightly Load", "txnVersion": "7"}
    assert table.insert(ROWS, options=spelled).instant == first.instant


@pytest.mark.parametrize(
    "wrong",
    [("nightly",), ("nightly", -1), ("nightly", "7"), ("", 7), 7, ("nightly", True), ("nightly", 1.5)],
)
def test_what_is_no_number_of_an_application_is_refused(table, wrong):
    with pytest.raises(InvalidOption):
        table.insert(ROWS, idempotency=wrong)


@pytest.mark.parametrize(
    "options", [{"txnAppId": "a"}, {"txnVersion": "7"}, {"txnAppId": "a", "txnVersion": "x"}]
)
def test_half_a_number_is_refused(table, options):
    with pytest.raises(InvalidOption):
        table.insert(ROWS, options=options)


def test_options_that_say_another_number_are_refused(table):
    with pytest.raises(InvalidOption, match="another way"):
        table.insert(ROWS, options={"txnAppId": "nightly", "txnVersion": "8"}, idempotency=PAIR)


def test_a_commit_that_is_taken_back_forgets_its_number(table):
    table.insert(ROWS, idempotency=("nightly", 6))
    first = table.insert(ROWS, idempotency=PAIR)
    table.undo()

    assert table.insert(ROWS, idempotency=("nightly", 6)).repeated
    again = table.insert(ROWS, idempotency=PAIR)

    assert not again.repeated
    assert again.instant > first.instant


def numbered(world, number, *ids):
    settings = WriteSettings(application="nightly", batch_number=number)
    return world.write("bulk_insert", rows(*ids, city="paris"), settings)


def test_a_restore_forgets_the_numbers_of_what_it_takes():
    world = clean_table()
    commits = [numbered(world, number, f"a{number}") for number in range(4)]

    restore(world.open(), commits[1].instant)

    assert numbered(world, 1, "x").repeated
    assert not numbered(world, 2, "a2").repeated


def test_the_number_of_an_archived_commit_is_known_also_past_checkpoints():
    world = clean_table()
    world.checkpoint_after = 2
    first = numbered(world, 7, "a")
    for number in range(12):
        world.bulk_insert(f"b{number}")
    while first.instant in world.commit_times():
        assert archive_instants(world.open(), TWO_LEFT).archived
    for number in range(12):
        world.bulk_insert(f"c{number}")

    again = numbered(world, 7, "a")

    assert again.repeated
    assert (again.instant, again.records_written) == (first.instant, 1)


def test_what_the_ledger_knows_of_an_application_does_not_grow_with_archived_commits():
    world = clean_table()
    for number in range(20):
        numbered(world, number, f"a{number}")
        archive_instants(world.open(), TWO_LEFT)

    assert len(world.open().ledger.read().numbered["nightly"]) <= 6


def test_wherever_a_numbered_write_dies_the_same_write_again_leaves_its_rows_once():
    def run(world):
        return world.write(
            "insert", table_of(sorted(NEW)), WriteSettings(application="nightly", batch_number=7)
        )

    answers = set()
    for _, world in crash_points(Operation("numbered", run, Start(clean_table, OLD, OLD), OLD | NEW)):
        answers.add(run(world).repeated)
        recover(world.open())
        check_at_rest(world.open())
        assert visible_rows(world.open()) == INSERT.effect(OLD)
        assert len(world.commit_times()) == 2
    assert answers == {True, False}


_RACER = """
import sys, pyarrow as pa, holdfast
table = holdfast.open_table(sys.argv[1])
many = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.num.retries.on.conflict.failures": "20",
}
rows = pa.table({"id": [int(sys.argv[2])], "city": ["oslo"]})
print(sys.stdin.readline(), end="")
for number in range(5):
    print(table.bulk_insert(rows, options=many, idempotency=("race", number)).instant, flush=True)
"""


def test_processes_that_race_with_the_same_numbers_commit_each_once(table):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, table.path, str(100 + n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(2)
    ]
    answers = [racer.communicate("go\n", timeout=120)[0].split()[1:] for racer in racers]

    assert answers[0] == answers[1]
    assert len(set(answers[0])) == 5
    found = table.to_arrow().filter(pa.compute.field("city") == "oslo")
    assert found.num_rows == 5
