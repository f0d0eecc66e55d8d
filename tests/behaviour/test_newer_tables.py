"""Tables of versions 8 and 9: we read what Apache Hudi says is in them, and change nothing in them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import holdfast
from harness.hudi_fixtures import as_json
from harness.newer_fixtures import answers_of, fixture_names, unpack, upgrade
from holdfast.cli.main import cli
from holdfast.errors import HoldfastError, SnapshotExpired, TableDamaged, UnsupportedTable
from holdfast.format.schemas import arrow_schema

_CHOSEN = fixture_names()
_LEFT_OUT = ("_hoodie_commit_seqno", "_hoodie_file_name")
_ALL = "19700101000000000"


def rows_of(table: pa.Table, name: str) -> list[str]:
    return sorted(_text(row, name) for row in table.to_pylist())


def theirs(rows: list[dict[str, object]], name: str) -> list[str]:
    return sorted(_text(row, name) for row in rows)


def _text(row: dict[str, object], name: str) -> str:
    # Of a column that a timestamp key generator made paths of, Hudi gives text.
    kept = {key: as_json(value) for key, value in row.items() if key not in _LEFT_OUT}
    return json.dumps({key: value for key, value in kept.items() if key != "at"}, sort_keys=True)


def files_of(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in sorted(folder.rglob("*"))}


@pytest.fixture
def opened(tmp_path):
    def open_it(name: str) -> holdfast.Table:
        return holdfast.open_table(str(unpack(name, tmp_path)))

    return open_it


@pytest.mark.parametrize("name", _CHOSEN)
def test_every_question_has_the_answer_of_hudi(name, opened):
    table, said = opened(name), answers_of(name)
    before = files_of(Path(table.path))

    assert rows_of(table.to_arrow(meta_columns=True), name) == theirs(said["snapshot"], name)
    base = table.to_arrow(meta_columns=True, read_optimized=True)
    assert rows_of(base, name) == theirs(said["read_optimized"], name)
    for asked in ("as_of", "as_of_completion"):
        for moment, rows in said[asked].items():
            if not isinstance(rows, str):  # Hudi reads nothing that is older than what a clean retained.
                assert rows_of(table.to_arrow(meta_columns=True, as_of=moment), name) == theirs(rows, name)
    for since, until, rows in said["changes"]:
        start = _ALL if since == "000" else since
        try:
            found = table.changes_to_arrow(since=start, until=until, meta_columns=True)
        except SnapshotExpired:
            continue  # Where a clean took files, Hudi gives a part of the rows.
        if since == "000" and len(table.timeline(archived=True)) > len(table.timeline()):
            # Of commits that were archived, Hudi leaves rows out without a word.
            assert set(theirs(rows, name)) <= set(rows_of(found, name)), until
        else:
            assert rows_of(found, name) == theirs(rows, name), (since, until)
    assert table.verify().is_clean or name == "v9_cow_failed"
    assert files_of(Path(table.path)) == before


@pytest.mark.parametrize("name", _CHOSEN)
def test_commits_are_shown_with_both_of_their_times(name, opened):
    table, said = opened(name), answers_of(name)

    commits = [i for i in table.timeline() if i.is_completed and "commit" in i.action]

    assert [[i.time, i.completion] for i in commits] == said["commits"]


def test_archived_instants_are_read_from_the_history(opened):
    table = opened("v9_mor_archived_logs")

    active = {instant.time for instant in table.timeline()}
    archived = [i for i in table.timeline(archived=True) if i.time not in active]

    assert archived
    assert all(i.completion is not None and i.completion > i.time for i in archived if i.is_completed)


def test_a_log_file_without_a_completion_time_stops_the_read(tmp_path):
    """Guessing would put it to the wrong slice, and lose its rows."""
    folder = unpack("v9_mor_archived_logs", tmp_path)
    history = folder / ".hoodie" / "timeline" / "history"
    (history / "_version_").write_text("7")
    (history / "manifest_7").write_text('{"files": []}')

    with pytest.raises(TableDamaged, match="nothing tells when the write of a log file was completed"):
        holdfast.open_table(str(folder)).to_arrow()


def test_a_completed_instant_without_its_time_stops_the_read(tmp_path):
    folder = unpack("v9_cow_complex", tmp_path)
    timeline = folder / ".hoodie" / "timeline"
    commit = min(timeline.glob("*.commit"))
    commit.rename(timeline / (commit.name.partition("_")[0] + ".commit"))

    with pytest.raises(TableDamaged, match="does not say when it was completed"):
        holdfast.open_table(str(folder)).to_arrow()


def test_a_history_without_its_manifest_is_damage(tmp_path):
    folder = unpack("v9_mor_archived_logs", tmp_path)
    history = folder / ".hoodie" / "timeline" / "history"
    (history / f"manifest_{(history / '_version_').read_text().strip()}").unlink()

    with pytest.raises(TableDamaged):
        holdfast.open_table(str(folder)).timeline(archived=True)


def test_changes_go_by_completion_and_take_instants_too(opened):
    table = opened("v9_cow_complex")
    first, second = table.timeline()[:2]

    found = table.changes_to_arrow(since=first, until=second)

    assert set(found["_hoodie_commit_time"].to_pylist()) == {second.time}
    assert table.changes_to_arrow(since=first, until=first).num_rows == 0


_ROWS = pa.table({"id": ["a"], "city": ["paris"], "ts": [9]})
_VERBS = {
    "upsert": lambda t: t.upsert(_ROWS),
    "insert": lambda t: t.insert(_ROWS),
    "bulk_insert": lambda t: t.bulk_insert(_ROWS),
    "delete": lambda t: t.delete(_ROWS),
    "insert_overwrite": lambda t: t.insert_overwrite(_ROWS),
    "insert_overwrite_table": lambda t: t.insert_overwrite_table(_ROWS),
    "delete_partitions": lambda t: t.delete_partitions(["city=paris"]),
    "roll_back_failed_writes": lambda t: t.roll_back_failed_writes(),
    "rollback": lambda t: t.rollback(t.timeline()[-1].time),
    "undo": lambda t: t.undo(),
    "savepoint": lambda t: t.savepoint(),
    "delete_savepoint": lambda t: t.delete_savepoint(t.timeline()[0].time),
    "plan_restore": lambda t: t.plan_restore(t.timeline()[0].time),
    "restore": lambda t: t.restore(t.timeline()[0].time),
    "lease": lambda t: t.lease("me", 5).__enter__(),
    "plan_clean": lambda t: t.plan_clean(),
    "clean": lambda t: t.clean(),
    "archive": lambda t: t.archive(),
    "schedule_compaction": lambda t: t.schedule_compaction(),
    "compact": lambda t: t.compact(),
    "unschedule_compaction": lambda t: t.unschedule_compaction(t.timeline()[0].time),
    "repair": lambda t: t.repair(t.verify()),
    "undo_repair": lambda t: t.undo_repair("x"),
    "plan_drop": lambda t: t.plan_drop(),
    "drop": lambda t: t.drop(),
    "write": lambda t: holdfast.write(_ROWS, t.path, {"hoodie.datasource.write.operation": "upsert"}),
}


@pytest.mark.parametrize("name", ["v9_cow_failed", "v9_mor_compaction_pending"])
def test_every_verb_that_writes_refuses_and_names_the_way(name, opened):
    table = opened(name)
    before = files_of(Path(table.path))

    for verb, act in _VERBS.items():
        with pytest.raises(UnsupportedTable, match="are read, and not written") as refusal:
            act(table)
        assert "holdfast convert" in str(refusal.value), verb

    assert files_of(Path(table.path)) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hoodie.table.version": "7"}, "version: 7"),
        ({"hoodie.table.version": "10"}, "version: 10"),
        ({"hoodie.timeline.layout.version": "3"}, "layout: 3"),
        ({"hoodie.table.base.file.format": "LANCE"}, "LANCE"),
        ({"hoodie.table.format": "iceberg"}, "iceberg"),
        ({"hoodie.table.multiple.base.file.formats.enable": "true"}, "multiple"),
    ],
)
def test_what_cannot_be_read_right_is_refused_by_name(change, named, tmp_path):
    with pytest.raises(UnsupportedTable, match=named):
        holdfast.open_table(str(_changed("v9_cow_complex", tmp_path, change)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": "x"}, "CUSTOM"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "partial updates"),
        ({"hoodie.record.merge.property.hoodie.payload.delete.field": "op"}, "delete.field"),
    ],
)
def test_merges_that_are_not_known_are_refused_and_base_files_are_read(change, named, tmp_path):
    table = holdfast.open_table(str(_changed("v9_mor_event_time", tmp_path, change)))

    with pytest.raises(UnsupportedTable, match=named):
        table.to_arrow()
    assert table.to_arrow(read_optimized=True).num_rows


def _changed(name: str, tmp_path: Path, change: dict[str, str]) -> Path:
    folder = unpack(name, tmp_path)
    file = folder / ".hoodie" / "hoodie.properties"
    kept = [
        line
        for line in file.read_text().splitlines()
        if line.partition("=")[0] not in {*change, "hoodie.table.checksum"}
    ]
    file.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in change.items())]) + "\n")
    return folder


def test_the_errors_of_reading_are_of_this_program(opened, tmp_path):
    """A torn commit is damage with the file's name, whatever form it had."""
    folder = unpack("v9_cow_complex", tmp_path)
    commit = max((folder / ".hoodie" / "timeline").glob("*.commit"))
    commit.write_bytes(commit.read_bytes()[:-40])

    with pytest.raises(HoldfastError):
        holdfast.open_table(str(folder)).to_arrow()


@pytest.mark.parametrize("kind", ["vector", "variant", "blob"])
def test_types_that_hudi_stores_in_forms_of_its_own_are_refused_by_name(kind):
    column = {"type": "fixed", "name": "x", "size": 8, "logicalType": kind}
    schema = {"type": "record", "name": "t", "fields": [{"name": "embedding", "type": ["null", column]}]}

    with pytest.raises(UnsupportedTable, match=kind.upper()):
        arrow_schema(json.dumps(schema))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["v9_cow_complex", "v9_mor_event_time", "v9_mor_log_only"])
def test_spark_reads_the_same_rows(name, opened, spark):
    table, said = opened(name), answers_of(name)
    since, until, changed = said["changes"][-1]

    rows = pa.Table.from_pylist([r.asDict() for r in table.read(spark, meta_columns=True).collect()])
    changes = table.changes(spark, since=since, until=until, meta_columns=True).collect()

    assert rows_of(rows, name) == theirs(said["snapshot"], name)
    assert len(changes) == len(changed)


def test_show_says_of_which_version_a_table_is_and_undo_refuses_before_it_plans(tmp_path):
    path = str(unpack("v8_cow_simple", tmp_path))

    shown = CliRunner().invoke(cli, ["show", path])
    undone = CliRunner().invoke(cli, ["undo", path, "--yes"])

    assert "table version 8, which is only read" in shown.output
    assert json.loads(CliRunner().invoke(cli, ["show", path, "--json"]).output)["version"] == 8
    assert undone.exit_code == 2
    assert "are read, and not written" in undone.stderr
    assert undone.stdout == ""


def test_a_table_of_ours_that_hudi_upgraded_is_read(tmp_path):
    table = holdfast.create_table(str(tmp_path / "trips"), name="trips", record_key="id", partition_by="city")
    for fare in (1.5, 2.5):
        table.upsert(pa.table({"id": ["a"], "city": ["oslo"], "fare": [fare]}))
    first, second = (instant for instant in table.timeline() if instant.action == "commit")

    upgrade(Path(table.path))

    upgraded = holdfast.open_table(table.path)
    assert upgraded.to_arrow(columns=["fare"])["fare"].to_pylist() == [2.5]
    assert upgraded.to_arrow(columns=["fare"], as_of=first.time)["fare"].to_pylist() == [1.5]
    assert upgraded.changes_to_arrow(since=_ALL).num_rows == 1
    assert [one.time for one in upgraded.timeline()] == [first.time, second.time]
    assert [one for one in upgraded.verify().findings if one.severity != "warning"] == []
    with pytest.raises(UnsupportedTable):
        upgraded.undo()
