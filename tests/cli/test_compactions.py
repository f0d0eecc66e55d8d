"""`compactions` and `compaction`: planned, shown, carried out, taken away."""

import json

import pytest

import holdfast

LOGS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}


@pytest.fixture
def table(tmp_path, trips):
    """A merge-on-read table of two file groups, each with a log file."""
    path = tmp_path / "trips"
    made = holdfast.create_table(
        str(path), name="trips", record_key="trip_id", partition_by="city", ordering="ts",
        table_type="MERGE_ON_READ",
    )  # fmt: skip
    made.bulk_insert(trips(0, 100))
    made.upsert(trips(0, 4), options=LOGS)
    return path


def rows(table):
    return sorted(map(str, holdfast.open_table(str(table)).to_arrow().to_pylist()))


def test_there_are_none(run, table):
    assert run("compactions", "show", table).stdout == "no compactions\n"
    assert json.loads(run("compactions", "show", table, "--json").stdout) == {"compactions": []}


def test_a_compaction_is_planned_shown_and_carried_out(run, table):
    before = rows(table)
    result = run("compaction", "schedule", table)
    assert result.exit_code == 0
    time = result.stdout.removeprefix("planned compaction ").strip()

    header, _, line = run("compactions", "show", table).stdout.splitlines()
    assert header.split("  ")[0] == "Compaction Instant Time"
    assert line.split()[:4] == [time, "REQUESTED", "2", "2"]
    [document] = json.loads(run("compactions", "show", table, "--json").stdout)["compactions"]
    assert (document["instant"], document["state"], document["file_groups"]) == (time, "REQUESTED", 2)
    assert document["log_bytes"] > 0

    shown = run("compaction", "show", table, "--instant", time).stdout.splitlines()
    assert shown[0].startswith("Partition Path")
    assert len(shown) == 4
    operations = json.loads(run("compaction", "show", table, "--instant", time, "--json").stdout)[
        "operations"
    ]
    assert [len(one["log_files"]) for one in operations] == [1, 1]

    result = run("compaction", "run", table)
    assert result.exit_code == 0, result.stderr
    assert time in result.stdout
    assert "COMPLETED" in run("compactions", "show", table).stdout
    assert rows(table) == before


def test_a_compaction_is_done_at_once(run, table):
    before = rows(table)
    document = json.loads(run("compaction", "run", table, "--json").stdout)

    assert document["commit"]["operation"] == "COMPACT"
    assert document["commit"]["files_written"] == 2
    assert rows(table) == before
    assert run("compaction", "run", table).stdout == "no file slice has log files to compact\n"
    assert run("compaction", "schedule", table).stdout == "no file slice has log files to compact\n"


def test_a_plan_is_taken_away(run, table):
    time = json.loads(run("compaction", "schedule", table, "--json").stdout)["instant"]
    dry = run("compaction", "unschedule", table, "--instant", time, "--dry-run")
    assert dry.stdout == f"compaction {time} of 2 file groups\n"
    assert len(json.loads(run("compactions", "show", table, "--json").stdout)["compactions"]) == 1

    assert run("compaction", "unschedule", table, "--instant", time, "--yes").exit_code == 0

    assert run("compactions", "show", table).stdout == "no compactions\n"


def test_a_compaction_that_is_not_there_is_named(run, table):
    for command in (("show",), ("unschedule", "--yes"), ("run",)):
        result = run("compaction", command[0], table, "--instant", "20200101000000000", *command[1:])
        assert result.exit_code == 2
        assert "compaction" in result.stderr
        assert "20200101000000000" in result.stderr


def test_an_option_of_compaction_has_its_effect(run, table):
    options = ("--hoodie-conf", "hoodie.compaction.logfile.size.threshold=1000000000")
    assert run("compaction", "schedule", table, *options).stdout == "no file slice has log files to compact\n"
    refused = run("compaction", "schedule", table, "--hoodie-conf", "hoodie.compaction.strategy=my.Own")
    assert refused.exit_code == 2
    assert "hoodie.compaction.strategy" in refused.stderr


@pytest.mark.parametrize("option", ["hoodie.compact.inline", "hoodie.compact.schedule.inline"])
def test_a_write_compacts_when_that_is_due(table, trips, option):
    made = holdfast.open_table(str(table))
    options = {**LOGS, option: "true", "hoodie.compact.inline.max.delta.commits": "3"}
    made.upsert(trips(0, 2), options={**LOGS, option: "true", "hoodie.compact.inline.max.delta.commits": "9"})
    assert made.compactions() == []

    made.upsert(trips(0, 2), options=options)

    [found] = made.compactions()
    assert found.state == ("COMPLETED" if option == "hoodie.compact.inline" else "REQUESTED")
    made.upsert(trips(0, 2), options=options)
    assert len(made.compactions()) == 1


def test_a_write_does_not_both_compact_and_plan(table, trips):
    both = {"hoodie.compact.inline": "true", "hoodie.compact.schedule.inline": "true"}
    with pytest.raises(holdfast.errors.InvalidOption, match="not both"):
        holdfast.open_table(str(table)).upsert(trips(0, 2), options=both)
