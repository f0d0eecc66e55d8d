"""Tables with log files that Hudi wrote, compacted and undone; hudi-rs reads the same."""

import pytest

import holdfast
from harness.hudi_reader import hudi_snapshot
from holdfast.model.instant import Action, State
from holdfast.table.opened import open_at
from holdfast.table.view import has_logs, load_view
from holdfast.timeline.timeline import load_timeline

FIXTURES = (
    "mor_parquet_v6_complexkeygen_hivestyle",
    "mor_parquet_v6_nonpartitioned",
    "mor_parquet_v6_simplekeygen_nonhivestyle",
    "mor_parquet_v6_simplekeygen_nonhivestyle_overwritetable",
    "mor_avro_v6_trips_8i1u",
)


def rows(table):
    return sorted(map(str, holdfast.open_table(str(table)).to_arrow(meta_columns=False).to_pylist()))


def theirs(table):
    found = hudi_snapshot(table)
    names = [name for name in found.column_names if not name.startswith("_hoodie")]
    return sorted(map(str, found.select(names).to_pylist()))


def has_log_files(path):
    """Whether one of the slices that readers see has a log file."""
    table = open_at(str(path), {})
    return has_logs(load_view(table.store, load_timeline(table.store)).latest())


@pytest.fixture(params=FIXTURES)
def path(request, hudi_fixture):
    return hudi_fixture(request.param)


def test_a_table_of_hudi_is_compacted(path):
    before = rows(path)
    table = holdfast.open_table(str(path))
    is_merged = has_log_files(path)

    commit = table.compact()

    assert (commit is not None) == is_merged
    assert rows(path) == before
    assert len(theirs(path)) == len(before)
    assert table.verify().is_clean
    optimized = sorted(map(str, table.to_arrow(read_optimized=True).to_pylist()))
    assert optimized == before
    if commit is not None:
        assert [(one.instant, one.state) for one in table.compactions()] == [
            (commit.instant, State.COMPLETED)
        ]
        table.undo()
        assert rows(path) == before
        assert table.compactions() == []


def test_commits_of_hudi_are_undone_one_after_the_other(path):
    table = holdfast.open_table(str(path))
    times = [one.time for one in table.timeline() if one.is_completed and one.action is not Action.CLEAN]
    if len(times) < 2:
        pytest.skip("it has one commit")
    expected = [sorted(map(str, table.to_arrow(as_of=time).to_pylist())) for time in times[:-1]]

    for before in reversed(expected):
        table.undo()
        assert rows(path) == before
        assert len(theirs(path)) == len(before)
        assert table.verify().is_clean
