"""`create` and `show`."""

import json

import pytest

import holdfast
from holdfast.format.commits import CommitMetadata, encode_commit
from holdfast.format.ledger_entries import EntryKind
from holdfast.model.instant import Action
from holdfast.table.opened import open_at
from holdfast.timeline.ledger import Decision


def test_create_makes_a_table_with_the_settings_given(run, tmp_path):
    path = tmp_path / "new"

    result = run(
        "create", path, "--name", "new", "--record-key", "a,b", "--record-key", "c",
        "--partition-by", "day", "--ordering", "ts", "--property", "hoodie.database.name=sales",
    )  # fmt: skip

    settings = holdfast.open_table(str(path)).settings
    assert result.stdout == f"created COPY_ON_WRITE table new at {path}\n"
    assert (settings.record_key, settings.partition_by, settings.ordering) == (
        ("a", "b", "c"),
        ("day",),
        "ts",
    )
    assert settings.properties["hoodie.database.name"] == "sales"


def test_create_answers_with_a_document(run, tmp_path):
    path = tmp_path / "new"

    result = run("create", path, "--name", "n", "--record-key", "k", "--type", "merge_on_read", "--json")

    assert json.loads(result.stdout) == {
        "path": str(path),
        "name": "n",
        "type": "MERGE_ON_READ",
        "record_key": ["k"],
        "partition_by": [],
        "ordering": None,
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--name", "t"], "Missing option '--record-key'"),
        (["--name", "t", "--record-key", ""], "at least one record key column"),
        (["--name", "t", "--record-key", "k", "--type", "heap"], "'heap' is not one of"),
        (
            ["--name", "t", "--record-key", "k", "--property", "hoodie.table.version=8"],
            "tables are of version 6",
        ),
    ],
)
def test_create_refuses_what_makes_no_table(run, tmp_path, arguments, text):
    result = run("create", tmp_path / "new", *arguments)

    assert result.exit_code == 2
    assert text in result.stderr
    assert not (tmp_path / "new").exists()


def test_create_does_not_touch_an_existing_table(run, table):
    result = run("create", table, "--name", "other", "--record-key", "k")

    assert result.exit_code == 2
    assert "there is already a table here" in result.stderr
    assert holdfast.open_table(str(table)).settings.name == "trips"


def test_show_says_what_the_table_is_and_holds(run, table, times):
    document = json.loads(run("show", table, "--json").stdout)

    files = list(table.glob("*/*.parquet"))
    assert document == {
        "name": "trips",
        "type": "COPY_ON_WRITE",
        "path": str(table),
        "version": 6,
        "record_key": ["trip_id"],
        "partition_by": ["city"],
        "ordering": "ts",
        "columns": [
            {"name": "trip_id", "type": "int64"},
            {"name": "city", "type": "string"},
            {"name": "ts", "type": "int64"},
            {"name": "fare", "type": "double"},
        ],
        "latest_commit": {
            "instant": times[1],
            "action": "commit",
            "completed_at": document["latest_commit"]["completed_at"],
        },
        "commits": 2,
        "snapshot": {"files": 4, "bytes": sum(file.stat().st_size for file in files), "partitions": 2},
        "pending": [],
        "leases": [],
        "leftovers": {"files": 0, "bytes": 0},
        "served": [],
        "warnings": [],
    }
    assert document["latest_commit"]["completed_at"].endswith("Z")


def test_show_is_readable_by_people(run, table, times):
    lines = run("show", table).stdout.splitlines()

    facts = dict(line.split("  ", 1) for line in lines)
    assert {name: value.strip() for name, value in facts.items()} | {"size": "", "completed (UTC)": ""} == {
        "name": "trips",
        "type": "COPY_ON_WRITE, table version 6",
        "path": str(table),
        "record key": "trip_id",
        "partitioned by": "city",
        "ordering": "ts",
        "columns": "trip_id int64, city string, ts int64, fare double",
        "latest commit": times[1],
        "completed (UTC)": "",
        "commits": "2",
        "files": "4",
        "size": "",
        "partitions": "2",
    }


def test_show_of_a_table_without_commits(run, empty_table):
    document = json.loads(run("show", empty_table, "--json").stdout)

    assert (document["latest_commit"], document["commits"], document["columns"]) == (None, 0, [])
    assert run("show", empty_table).exit_code == 0


def test_show_tells_a_dead_writer_from_a_live_one(run, table, failed_write, running_write):
    document = json.loads(run("show", table, "--json").stdout)

    pending = {one["instant"]: one for one in document["pending"]}
    assert pending[failed_write]["state"] == "INFLIGHT"
    assert pending[failed_write]["liveness"] == "gone"
    assert pending[failed_write]["fate"] == "rolled back at the next write"
    assert pending[running_write]["state"] is None
    assert pending[running_write]["liveness"] == "alive"
    assert pending[running_write]["owner"].startswith("process ")
    assert len(document["warnings"]) == 2
    assert document["snapshot"]["files"] == 4


def test_show_warns_in_words(run, table, failed_write):
    result = run("show", table)

    assert "warning: 1 pending instant without a live writer" in result.stdout
    assert failed_write in result.stdout


def test_show_names_a_commit_that_is_decided_and_not_yet_visible(run, table, failed_write):
    payload = encode_commit(CommitMetadata({}, operation_type="INSERT"))
    decision = Decision(kind=EntryKind.COMMIT, instant=failed_write, action=Action.COMMIT, payload=payload)
    open_at(str(table), {}).ledger.append(lambda _state: decision)

    document = json.loads(run("show", table, "--json").stdout)

    assert [one["fate"] for one in document["pending"]] == ["committed, not shown yet"]
    assert document["warnings"] == ["1 commit decided but not shown yet: `rollbacks run` shows it"]


def test_show_counts_half_written_files(run, table):
    staging = table / ".hoodie" / ".holdfast" / "staging"
    staging.mkdir(parents=True, exist_ok=True)
    (staging / "half").write_bytes(b"12345")

    document = json.loads(run("show", table, "--json").stdout)

    assert document["leftovers"] == {"files": 1, "bytes": 5}
    assert document["warnings"] == ["1 half-written file left behind; the next write removes them"]


def test_every_table_of_apache_hudi_can_be_looked_at(run, hudi_table):
    for words in (["show"], ["timeline", "show"], ["commits", "show"], ["fsview"], ["rollbacks", "show"]):
        result = run(*words, hudi_table, "--json")

        assert result.exit_code == 0, result.stderr
        assert isinstance(json.loads(result.stdout), dict)


def test_show_lists_who_holds_which_snapshot(run, table, times):
    with holdfast.open_table(str(table)).lease("nightly report", 60, as_of=times[0]) as held:
        [shown] = json.loads(run("show", table, "--json").stdout)["leases"]
        text = run("show", table).stdout

    assert (shown["id"], shown["instant"], shown["owner"], shown["state"]) == (
        held.id,
        times[0],
        "nightly report",
        "held",
    )
    assert shown["began_at"] < shown["expires_at"]
    assert [line for line in text.splitlines() if times[0] in line and "nightly report" in line]
    assert "nightly report" not in run("show", table).stdout
