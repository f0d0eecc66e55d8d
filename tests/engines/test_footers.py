"""Asking footers on Spark: a file group is ruled out only if it holds none of the keys."""

import pyarrow as pa
import pytest

import holdfast
from holdfast.engines.spark.footers import check_footers, index_report
from holdfast.files.key_footer import Verdict
from holdfast.model.reports import IndexReport
from holdfast.table.view import load_view
from holdfast.timeline.timeline import load_timeline
from holdfast.writes.layout import file_groups

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three file groups, each with keys of its own."""
    path = tmp_path_factory.mktemp("table")
    table = holdfast.create_table(str(path), name="t", record_key="id", partition_by="part")
    for part in ("a", "b", "c"):
        table.bulk_insert(pa.table({"id": [f"{part}{n:03}" for n in range(0, 100, 2)], "part": [part] * 50}))
    return table._opened


def asked(table, keys):
    groups = file_groups(load_view(table.store, load_timeline(table.store)).latest())
    members = [group for path in sorted(groups) for group in groups[path]]
    return list(check_footers(keys, members, table.location).values())


def test_a_key_is_found_among_however_many_that_are_not_there(spark, table):
    """One of the last of thousands, in one of several tasks."""
    unknown = spark.range(0, 5000, 1, 1).selectExpr("concat('b', lpad(2 * id + 1, 8, '0'))")
    known = spark.range(0, 1, 1, 1).selectExpr("'b098'")

    verdicts = asked(table, unknown.union(known).coalesce(1))

    assert verdicts == [Verdict.OUT_OF_RANGE, Verdict.MAYBE, Verdict.OUT_OF_RANGE]
    assert asked(table, unknown.union(known)) == verdicts


def test_what_one_task_rules_out_another_may_find(spark, table):
    keys = spark.range(0, 3, 1, 3).selectExpr("element_at(array('a001', 'b098', 'c001'), int(id) + 1)")

    verdicts = asked(table, keys)

    assert verdicts == [Verdict.NOT_IN_BLOOM, Verdict.MAYBE, Verdict.NOT_IN_BLOOM]
    assert index_report(verdicts) == IndexReport(file_groups=3, pruned_by_bloom=2)


def test_no_keys_rule_out_every_file(spark, table):
    assert asked(table, spark.range(0).selectExpr("'a000'")) == [Verdict.OUT_OF_RANGE] * 3
