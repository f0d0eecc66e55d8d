"""`heartbeats show`."""

import json
import os

import holdfast
from holdfast.model.instant import InstantTime
from holdfast.model.names import heartbeat_path


def test_no_heartbeats_are_said_in_words(run, table):
    assert run("heartbeats", "show", table).stdout == "no heartbeats\n"
    assert json.loads(run("heartbeats", "show", table, "--json").stdout) == {"heartbeats": []}


def test_a_write_without_a_heartbeat_is_missing_it(run, table, running_write):
    result = run("heartbeats", "show", table)

    header, _, row = result.stdout.splitlines()
    assert result.exit_code == 0
    assert header.split() == ["Instant", "Owner", "Age", "in", "seconds", "State"]
    assert row.split()[0] == running_write
    assert f"process {os.getpid()} on " in row
    assert row.split()[-2:] == ["-", "missing"]


def test_the_heartbeat_of_a_dead_writer_is_expired_at_once(run, table, failed_write):
    [shown] = json.loads(run("heartbeats", "show", table, "--json").stdout)["heartbeats"]

    assert (shown["instant"], shown["state"], shown["sequence"]) == (failed_write, "expired", 0)
    assert shown["owner"].startswith(f"process {os.getpid()} on ")
    assert 0 <= shown["age_ms"] < 60_000


def test_a_heartbeat_of_another_program_has_an_age_and_no_owner(run, table):
    file = table / heartbeat_path(InstantTime("20990101000000000"))
    file.write_bytes(b"")
    now = file.stat().st_mtime
    os.utime(file, (now - 30, now - 30))
    young = run("heartbeats", "show", table).stdout.splitlines()[-1].split()
    os.utime(file, (now - 3600, now - 3600))
    old = run("heartbeats", "show", table).stdout.splitlines()[-1].split()

    assert (young[0], young[1], young[-1]) == ("20990101000000000", "-", "alive")
    assert 30 <= float(young[2]) < 90
    assert old[-1] == "expired"


def test_showing_changes_nothing(run, table, failed_write, running_write):
    before = sorted((str(file), file.stat().st_mtime_ns) for file in table.rglob("*"))

    assert len(json.loads(run("heartbeats", "show", table, "--json").stdout)["heartbeats"]) == 2

    assert sorted((str(file), file.stat().st_mtime_ns) for file in table.rglob("*")) == before


def test_a_heartbeat_that_is_swept_is_not_shown(run, table, failed_write):
    holdfast.open_table(str(table)).roll_back_failed_writes()

    assert run("heartbeats", "show", table).stdout == "no heartbeats\n"


def test_where_there_is_no_table_there_is_code_2(run, tmp_path):
    assert run("heartbeats", "show", tmp_path / "nowhere").exit_code == 2
