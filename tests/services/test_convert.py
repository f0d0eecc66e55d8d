"""Converting: a table of version 8 or 9 made anew in version 6, with its rows and its history."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import holdfast
from harness.hudi_fixtures import as_json
from harness.hudi_reader import hudi_snapshot
from harness.newer_fixtures import answers_of, fixture_names, unpack
from holdfast.cli.main import cli
from holdfast.errors import Refused, TableExists, UnsupportedTable, WriterActive
from holdfast.services.convert import convert as steps
from holdfast.services.convert.convert import ConvertReport, convert
from holdfast.table.opened import open_at

_LEFT_OUT = ("_hoodie_commit_seqno", "_hoodie_file_name")


def rows_of(rows: list[dict[str, object]]) -> list[str]:
    return sorted(
        json.dumps({k: as_json(v) for k, v in row.items() if k not in _LEFT_OUT}, sort_keys=True)
        for row in rows
    )


def convert_copy(name: str, folder: Path) -> ConvertReport:
    return convert(open_at(str(unpack(name, folder))), str(folder / "new"))


@pytest.mark.parametrize("name", fixture_names())
def test_the_new_table_has_the_rows_of_every_snapshot(name, tmp_path):
    report = convert_copy(name, tmp_path)
    table, said = holdfast.open_table(report.into), answers_of(name)

    assert table.settings.version == "6"
    assert rows_of(table.to_arrow(meta_columns=True).to_pylist()) == rows_of(said["snapshot"])
    assert rows_of(hudi_snapshot(Path(report.into)).to_pylist()) == rows_of(said["snapshot"])
    for moment, rows in said["as_of"].items():
        if not isinstance(rows, str):
            found = table.to_arrow(meta_columns=True, as_of=moment).to_pylist()
            assert rows_of(found) == rows_of(rows)
    assert report.rows_compared >= len(said["snapshot"])
    assert [f for f in table.verify().findings if f.severity != "info"] == []
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_the_new_table_is_written_and_the_old_one_stays(tmp_path):
    report = convert_copy("v9_cow_complex", tmp_path)
    old = holdfast.open_table(report.path)
    before = rows_of(old.to_arrow().to_pylist())
    table = holdfast.open_table(report.into)
    rows = table.to_arrow(filter=pa.compute.field("id") == "a")
    changed = rows.set_column(rows.schema.get_field_index("fare"), "fare", pa.array([77.0] * rows.num_rows))

    table.upsert(changed)

    assert set(table.to_arrow(filter=pa.compute.field("id") == "a")["fare"].to_pylist()) == {77.0}
    assert rows_of(old.to_arrow().to_pylist()) == before
    table.undo()
    assert rows_of(table.to_arrow().to_pylist()) == before


def test_a_merge_on_read_table_is_continued_and_compacted(tmp_path):
    table = holdfast.open_table(convert_copy("v9_mor_compaction_pending", tmp_path).into)
    row = table.to_arrow(filter=pa.compute.field("id") == "a")
    later = row.set_column(row.schema.get_field_index("ts"), "ts", pa.array([99], pa.int64()))

    table.upsert(later)
    table.compact()

    assert table.to_arrow(filter=pa.compute.field("id") == "a")["ts"].to_pylist() == [99]


def test_what_was_not_completed_stays_behind_and_is_said(tmp_path):
    report = convert_copy("v9_cow_failed", tmp_path)

    assert len(report.left) == 1
    assert "INFLIGHT" in report.left[0]
    assert all(i.is_completed for i in holdfast.open_table(report.into).timeline())


def test_the_archive_comes_along(tmp_path):
    report = convert_copy("v9_mor_archived_logs", tmp_path)
    old, new = (holdfast.open_table(path).timeline(archived=True) for path in (report.path, report.into))

    assert report.archived
    assert [(i.time, i.action) for i in new] == [(i.time, i.action) for i in old]


def test_completed_files_have_the_times_of_completion(tmp_path):
    """Hudi 1.x goes by them in tables of version 6."""
    report = convert_copy("v9_mor_event_time", tmp_path)

    old, new = (holdfast.open_table(path).timeline() for path in (report.path, report.into))

    assert [i.completed_at for i in new] == [i.completed_at for i in old]


def test_an_existing_target_is_refused(tmp_path):
    (tmp_path / "new").mkdir()

    with pytest.raises(TableExists):
        convert_copy("v9_cow_complex", tmp_path)


def test_one_table_in_the_other_is_refused(tmp_path):
    folder = unpack("v9_cow_complex", tmp_path)

    with pytest.raises(Refused, match="lie in the other"):
        convert(open_at(str(folder)), str(folder / "new"))


def test_what_version_six_has_no_words_for_is_refused(tmp_path):
    with pytest.raises(UnsupportedTable):
        convert_copy("v9_mor_custom", tmp_path)

    assert not (tmp_path / "new").exists()


_STEPS = (
    "_bring_files",
    "_bring_logs",
    "_make_timeline",
    "_make_settings",
    "_compare",
    "_flush",
)


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_at_any_step_leaves_no_table(step, when, tmp_path):
    """The child ends at once, without any clean-up, as if killed."""
    folder = unpack("v9_mor_event_time", tmp_path)
    child = os.fork()
    if child == 0:
        real = getattr(steps, step)

        def die(*given):
            if when == "after":
                real(*given)
            os._exit(9)

        setattr(steps, step, die)
        steps.convert(open_at(str(folder)), str(tmp_path / "new"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    assert not holdfast.table_exists(str(tmp_path / "new"))
    report = convert(open_at(str(folder)), str(tmp_path / "new"))

    assert rows_of(holdfast.open_table(report.into).to_arrow(meta_columns=True).to_pylist()) == rows_of(
        answers_of("v9_mor_event_time")["snapshot"]
    )


def test_two_at_once_are_refused(tmp_path):
    folder = unpack("v9_mor_event_time", tmp_path)

    with steps._draft_of(tmp_path / "new"), pytest.raises(WriterActive):
        convert(open_at(str(folder)), str(tmp_path / "new"))


def test_the_command_says_what_it_made(tmp_path):
    folder = unpack("v9_mor_event_time", tmp_path)

    ran = CliRunner().invoke(
        cli, ["convert", str(folder), "--to", "6", "--into", str(tmp_path / "new"), "--json"]
    )

    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.output)
    assert (said["version"], said["to"], said["into"]) == ("9", "6", str(tmp_path / "new"))
