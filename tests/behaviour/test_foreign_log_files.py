"""Writes to file groups with log files as other programs leave them: with keys that no base file has."""

import pytest

from harness.hudi_reader import hudi_snapshot
from harness.log_writer import EVENT_TIME, LATEST, LoggedTable, data_block, delete_block, rows_of, table_of

APPENDS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "100"}
REWRITES = {"holdfast.mor.max.logs": "0"}
BASE = [("a", 5, "base"), ("b", 5, "base"), ("c", 5, "base")]
INDEXES = ["SIMPLE", "BLOOM", "GLOBAL_SIMPLE", "GLOBAL_BLOOM"]


def seen(table):
    ours, theirs = rows_of(table.opened.to_arrow()), rows_of(hudi_snapshot(table.folder))
    assert ours == theirs
    return ours


def logs_of(table):
    return len(list(table.folder.glob(".*.log.*")))


@pytest.fixture
def table(tmp_path):
    """Row `x` is in a log file alone, `b` is older there, `a` newer, and `c` is gone."""
    table = LoggedTable(tmp_path / "table", BASE)
    time = table.time(1)
    rows = [("a", 7, "log"), ("b", 3, "late"), ("x", 6, "log")]
    table.log(data_block(time, rows), delete_block(time, {"c": 6}))
    return table


@pytest.mark.parametrize("options", [APPENDS, REWRITES], ids=["appends", "rewrites"])
@pytest.mark.parametrize("index", INDEXES)
def test_keys_that_only_log_files_have_are_found(table, index, options):
    options = {**options, "hoodie.index.type": index}

    commit = table.opened.upsert(
        table_of([("x", 8, "new"), ("a", 6, "late"), ("b", 4, "late")]), options=options
    )

    assert (commit.records_updated, commit.records_inserted) == (1, 0)
    assert logs_of(table) == (2 if options["holdfast.mor.max.logs"] == "100" else 1)
    assert seen(table) == {("a", 7, "log"), ("b", 5, "base"), ("x", 8, "new")}
    removed = table.opened.delete(
        table_of([("x", 8, ""), ("b", 9, ""), ("c", 9, "")]).select(["id"]), options=options
    )
    assert removed.records_deleted == 2
    assert seen(table) == {("a", 7, "log")}


@pytest.mark.parametrize("options", [APPENDS, REWRITES], ids=["appends", "rewrites"])
def test_what_a_foreign_log_file_took_away_comes_back(table, options):
    commit = table.opened.upsert(table_of([("c", 1, "back")]), options=options)

    assert (commit.records_updated, commit.records_inserted) == (0, 1)
    assert seen(table) == {("a", 7, "log"), ("b", 5, "base"), ("c", 1, "back"), ("x", 6, "log")}


def test_the_last_write_wins_over_foreign_log_files_where_that_is_the_rule(tmp_path):
    table = LoggedTable(tmp_path / "table", BASE, payload=LATEST)
    table.log(data_block(table.time(1), [("a", 7, "log"), ("x", 6, "log")]))

    commit = table.opened.upsert(table_of([("a", 8, "new"), ("x", 8, "new")]), options=APPENDS)

    assert commit.records_updated == 2
    assert logs_of(table) == 2
    assert seen(table) == {("a", 8, "new"), ("b", 5, "base"), ("c", 5, "base"), ("x", 8, "new")}


@pytest.mark.parametrize("payload", [EVENT_TIME, LATEST])
@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM"])
def test_a_file_group_of_log_files_alone_gets_a_base_file(tmp_path, index, payload):
    table = LoggedTable(tmp_path / "table", BASE, payload=payload)
    time = table.time(1)
    alone = [("x", 5, "log"), ("y", 5, "log"), ("z", 5, "log")]
    table.log(data_block(time, alone, file_id="g"), slice_=time, file_id="g")
    assert seen(table) == {*BASE, *alone}

    rows = table_of([("y", 6, "new"), ("a", 6, "new")])
    commit = table.opened.upsert(rows, options={**APPENDS, "hoodie.index.type": index})

    assert (commit.records_updated, commit.records_inserted) == (2, 0)
    assert seen(table) == {("a", 6, "new"), *BASE[1:], ("x", 5, "log"), ("y", 6, "new"), ("z", 5, "log")}
    assert len(list(table.folder.glob(f"g_*_{commit.instant}.parquet"))) == 1
    table.opened.delete(table_of([("x", 9, "")]).select(["id"]), options=APPENDS)
    assert seen(table) == {("a", 6, "new"), *BASE[1:], ("y", 6, "new"), ("z", 5, "log")}


def test_a_file_group_of_log_files_alone_is_compacted(tmp_path):
    table = LoggedTable(tmp_path / "table", BASE)
    time = table.time(1)
    table.log(data_block(time, [("x", 5, "log"), ("y", 5, "log")], file_id="g"), slice_=time, file_id="g")

    commit = table.opened.compact()

    assert commit is not None
    assert len(list(table.folder.glob(f"g_*_{commit.instant}.parquet"))) == 1
    assert seen(table) == {*BASE, ("x", 5, "log"), ("y", 5, "log")}


def test_blocks_of_writes_that_failed_are_not_written_on(table):
    """An instant that is not completed, and not rolled back by anybody who is still there."""
    table.log(data_block(table.time(2), [("a", 99, "failed")]), state="inflight")

    table.opened.upsert(table_of([("a", 8, "new")]), options=REWRITES)

    assert seen(table) == {("a", 8, "new"), ("b", 5, "base"), ("x", 6, "log")}
