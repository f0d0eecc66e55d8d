"""Storage quota: a push needs room for the old and the new snapshot."""

from dataclasses import replace

import pytest

from harness.push_rules import REFRESH, PureTable
from holdfast.errors import Refused
from holdfast.model.segment import Segment
from holdfast.push.replacement.quota import byte_limit, check_preflight, check_upload_quota, preflight

QUOTA = replace(REFRESH, storage_quota_bytes=1000)


def table_with_snapshots(*names, config=QUOTA):
    table = PureTable(config=config)
    for name in names:
        table.push(name, force=False)
    return table


@pytest.mark.parametrize(
    ("config", "allowed"),
    [
        (REFRESH, None),
        (QUOTA, 2000),
        (replace(QUOTA, replication=3), 6000),
        (replace(QUOTA, snapshot_quota_bytes=1500), 1500),
    ],
)
def test_a_table_may_hold_twice_its_quota(config, allowed):
    assert byte_limit(config) == allowed


@pytest.mark.parametrize(("incoming", "fits"), [(1000, True), (1001, False)])
def test_one_snapshot_must_fit_into_the_quota(incoming, fits):
    table = table_with_snapshots()

    report = preflight(table.state, table.files, incoming_bytes=incoming)

    assert report.fits is fits


def test_everything_that_is_kept_counts_and_what_goes_does_not():
    table = table_with_snapshots("v1", "v2", config=replace(QUOTA, snapshot_quota_bytes=250))

    full = preflight(table.state, table.files, incoming_bytes=100)
    freed = preflight(table.state, table.files, incoming_bytes=100, freed=("v1",))

    assert (full.fits, full.used_bytes, full.incoming_bytes) == (False, 200, 100)
    assert (freed.fits, freed.freed_bytes) == (True, 100)


def test_a_refusal_has_the_figures_and_says_what_could_go():
    table = table_with_snapshots("v1", "v2", config=replace(QUOTA, snapshot_quota_bytes=250))
    report = preflight(table.state, table.files, incoming_bytes=100)

    with pytest.raises(Refused) as caught:
        check_preflight(report)

    facts = caught.value.facts
    assert (facts["allowed_bytes"], facts["used_bytes"], facts["incoming_bytes"]) == (250, 200, 100)
    assert facts["code"] == "QUOTA_EXCEEDED"
    assert "100 bytes are hidden" in caught.value.hint


def test_a_smaller_segment_always_takes_the_place_of_a_larger_one():
    table = table_with_snapshots("v1", config=replace(QUOTA, storage_quota_bytes=10))
    smaller = Segment(name="v1", crc=2, docs=1, size_bytes=99, uri="v1__9")
    larger = replace(smaller, size_bytes=101)

    check_upload_quota(table.state, table.files, {"v1": smaller})
    with pytest.raises(Refused):
        check_upload_quota(table.state, table.files, {"v1": larger})
