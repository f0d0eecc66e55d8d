"""What tables, commits and reports look like where somebody types."""

from pathlib import Path

import pyarrow as pa
import pytest

import holdfast
from holdfast.model.reports import Commit, VerifyReport
from holdfast.model.shown import Shown


@pytest.fixture
def table(tmp_path):
    table = holdfast.create_table(str(tmp_path / "t"), name="<t>", record_key="id", partition_by="city")
    table.insert(pa.table({"id": [1, 2], "city": ["oslo", "<b>"]}))
    return table


def test_a_commit_tells_what_it_did_and_leaves_out_what_is_as_usual(table):
    commit = table.upsert(pa.table({"id": [1], "city": ["oslo"]}))

    shown = repr(commit)

    assert shown.startswith(f"Commit(instant={commit.instant!r}, ")
    assert "records_updated=1" in shown
    assert "partitions=('city=oslo',)" in shown
    assert "action='commit'" in shown
    assert "repeated" not in shown
    assert "rolled_back" not in shown


def test_long_lists_are_cut_short(table):
    cities = [f"city {number}" for number in range(50)]
    commit = table.insert(pa.table({"id": range(50), "city": cities}))

    assert "and 47 more]" in repr(commit)
    assert len(repr(commit)) < 500
    assert "and 30 more" in commit._repr_html_()


def test_a_report_is_a_table_in_a_notebook(table):
    html = table.upsert(pa.table({"id": [2], "city": ["<b>"]}))._repr_html_()

    assert "<caption>Commit</caption>" in html
    assert "records updated" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def _spoilt(table):
    Path(table.files()[0]).unlink()
    return table.verify()


def test_reports_within_reports_are_shown(table):
    report = _spoilt(table)

    assert isinstance(report, VerifyReport)
    assert report.findings
    assert "<caption>Finding</caption>" in report._repr_html_()
    assert "Finding(kind=" in repr(report)


def test_every_report_is_shown_so():
    from holdfast.model import reports

    kinds = [
        kind
        for kind in vars(reports).values()
        if hasattr(kind, "__dataclass_fields__") and kind.__module__ == reports.__name__
    ]
    assert Commit in kinds
    assert [kind for kind in kinds if kind.__repr__ is not Shown.__repr__] == []


def test_a_table_is_shown_with_its_columns_and_newest_commits(table):
    for number in range(6):
        table.insert(pa.table({"id": [number], "city": ["oslo"]}))

    html = table._repr_html_()

    assert repr(table).startswith("Table('")
    for told in ("<caption>&lt;t&gt;</caption>", table.path, "id int64", "partitioned by", "and 2 older"):
        assert told in html, told
    assert table.timeline()[-1].time in html


def test_an_empty_table_and_one_that_is_damaged_are_shown_too(table, tmp_path):
    empty = holdfast.create_table(str(tmp_path / "e"), name="e", record_key="id")
    assert "none yet" in empty._repr_html_()
    newest = table.timeline()[-1]
    (tmp_path / "t" / ".hoodie" / f"{newest.time}.commit").write_bytes(b"{")

    assert "cannot be read" in table._repr_html_()
