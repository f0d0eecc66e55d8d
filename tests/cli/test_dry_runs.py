"""A dry run lists exactly what the run removes, whatever the table has gathered."""

import json
import shutil
import subprocess
import sys

import pytest

import holdfast
from holdfast.model.names import clean_plan_path

WITHOUT_SERVICES = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
LEAVES_A_DRAFT = """
import os, sys
from dataclasses import replace
from holdfast.storage.disk import LOCAL_DISK
from holdfast.storage.local import LocalStore
store = LocalStore(sys.argv[1], disk=replace(LOCAL_DISK, has_nameless_files=False))
with store.upload("city=rome/half") as sink:
    sink.write(b"half")
    sink.flush()
    os._exit(1)
"""


@pytest.fixture
def rich(table, trips, failed_write):
    """What a table may hold beside its rows: of dead writers, of other programs, of services."""
    lake = holdfast.open_table(str(table))
    first, second = (instant.time for instant in lake.timeline()[:2])
    meta = table / ".hoodie"
    lake.savepoint(first)
    nested = meta / "metadata" / "files" / ".hoodie"
    nested.mkdir(parents=True)
    for place in (nested / "hoodie.properties", meta / "metadata" / "files" / "a.hfile"):
        place.write_text("x=1\n")
    with open(meta / "hoodie.properties", "a") as properties:
        properties.write("hoodie.table.metadata.partitions=files\n")
    # Hadoop's checksums; left-overs of a commit; a savepoint that was never decided, a plan nobody awaits.
    for file in [*table.glob("city=*/*.parquet"), *meta.glob("*.commit"), meta / "hoodie.properties"]:
        (file.parent / f".{file.name}.crc").write_bytes(b"crc")
    (meta / ".heartbeat").mkdir(exist_ok=True)
    (meta / ".heartbeat" / second).write_bytes(b"")
    late = f"0-0_9-9-9_{second}.parquet"
    (table / "city=rome" / late).write_bytes(b"of an attempt that does not count")
    marker = meta / ".temp" / second / "city=rome" / f"{late}.marker.CREATE"
    marker.parent.mkdir(parents=True)
    marker.write_bytes(b"")
    (meta / f"{int(first) + 1}.savepoint.inflight").write_bytes(b"")
    plan = table / clean_plan_path(first)
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_bytes(b"")
    subprocess.run([sys.executable, "-c", LEAVES_A_DRAFT, str(table)], check=False)
    assert list((table / ".hoodie/.holdfast/staging").iterdir()), "a draft of a dead process"
    return table


@pytest.fixture
def old(empty_table, trips):
    """Many versions, a partition whose rows are all gone, and a metadata table."""
    lake = holdfast.open_table(str(empty_table))
    lake.insert(trips(0, 6), options=WITHOUT_SERVICES)
    for _ in range(3):
        lake.upsert(trips(0, 6), options=WITHOUT_SERVICES)
    lake.delete_partitions(["city=rome"], options=WITHOUT_SERVICES)
    for _ in range(3):
        lake.upsert(trips(0, 1), options=WITHOUT_SERVICES)
    (empty_table / ".hoodie/metadata/files").mkdir(parents=True)
    (empty_table / ".hoodie/metadata/files/a.hfile").write_bytes(b"x")
    return empty_table


def tree(table):
    return {
        str(path.relative_to(table)): path.read_bytes()
        for path in table.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def check(run, table, *words, rest=(), yes=("--yes",), exit_codes=(0,)):
    """Compare what a dry run says with what the run does; the document of the run."""
    before = tree(table)
    dry = run(*words, table, *rest, "--dry-run", "--json")
    assert dry.exit_code in exit_codes, dry.output
    assert tree(table) == before, "a dry run changes nothing"
    planned = json.loads(dry.stdout)
    inner = planned.get("planned")
    listed = planned["vanishing"] if "vanishing" in planned else inner.get("vanishing", inner.get("files"))

    shown = run(*words, table, *rest, "--dry-run").output
    done = run(*words, table, *rest, *yes, "--json")
    assert done.exit_code in exit_codes, done.output

    assert not dry.stderr, "what did not happen is not told"
    assert sorted(before.keys() - tree(table).keys()) == sorted(listed)
    assert listed, "a run that removes nothing shows nothing"
    if words != ("drop",) and len(listed) <= 20:
        assert [path for path in listed if path not in shown] == []
    return json.loads(done.stdout)


RETAIN_ONE = ("--hoodie-conf", "hoodie.clean.commits.retained=1")
KEEP_FEW = [
    word
    for option in (
        "hoodie.keep.min.commits=2",
        "hoodie.keep.max.commits=3",
        "hoodie.clean.commits.retained=1",
    )
    for word in ("--hoodie-conf", option)
]


def test_rolling_back_failed_writes(run, rich):
    check(run, rich, "rollbacks", "run")


def test_an_undo(run, rich):
    check(run, rich, "undo")


def test_rolling_back_one_write(run, rich, failed_write):
    check(run, rich, "commit", "rollback", rest=("--commit", failed_write))


def test_a_restore(run, rich):
    first = holdfast.open_table(str(rich)).timeline()[0].time
    check(run, rich, "restore", rest=("--to", first))


def test_going_back_to_a_savepoint(run, rich):
    first = holdfast.open_table(str(rich)).timeline()[0].time
    check(run, rich, "savepoint", "rollback", rest=("--savepoint", first))


def test_deleting_a_savepoint(run, rich):
    first = holdfast.open_table(str(rich)).timeline()[0].time
    check(run, rich, "savepoint", "delete", rest=("--commit", first))


def test_a_clean_of_a_rich_table(run, rich):
    check(run, rich, "cleans", "run", rest=RETAIN_ONE)


def test_a_clean_of_old_versions(run, old):
    document = check(run, old, "cleans", "run", rest=RETAIN_ONE)

    assert document["cleaned"]["metadata_table"] == [".hoodie/metadata/files/a.hfile"]


def test_a_clean_that_is_not_due(run, old):
    rest = (*RETAIN_ONE, "--hoodie-conf", "hoodie.clean.max.commits=50")
    planned = json.loads(run("cleans", "run", old, *rest, "--dry-run", "--json").stdout)["planned"]

    assert (planned["doomed"], planned["vanishing"]) == ([], [])
    assert planned["why_nothing"] == "fewer than 50 commits since the last clean"


def test_a_clean_that_finishes_another(run, old, tmp_path):
    died = tmp_path / "died"
    shutil.copytree(old, died)
    run("cleans", "run", died, *RETAIN_ONE)
    finished = tree(died)
    # The state right after the decision: the plan is on the timeline, and every file is still there.
    for path, content in tree(old).items():
        place = died / path
        if path not in finished:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    (completed,) = (path for path in finished if path.endswith(".clean"))
    (died / completed).unlink()

    check(run, died, "cleans", "run", rest=RETAIN_ONE)


def test_archiving(run, old):
    run("cleans", "run", old, *RETAIN_ONE)
    check(run, old, "archive", "run", rest=KEEP_FEW, yes=())


def test_archiving_a_rich_table(run, rich):
    check(run, rich, "archive", "run", rest=KEEP_FEW, yes=())


def test_a_repair(run, rich):
    (rich / "city=rome" / "0-0_0-0-0_20200101000000000.parquet").write_bytes(b"nobody's")
    check(run, rich, "repair", exit_codes=(0, 5))


def test_undoing_a_repair(run, rich):
    (rich / "city=rome" / "0-0_0-0-0_20200101000000000.parquet").write_bytes(b"nobody's")
    quarantine = json.loads(run("repair", rich, "--yes", "--json").stdout)["quarantine"]
    check(run, rich, "repair", rest=("--undo", quarantine))


def test_dropping_a_table(run, rich):
    (rich / "notes.txt").write_text("mine")
    check(run, rich, "drop")

    assert sorted(tree(rich)) == ["notes.txt"]
