"""Push jobs on tables that are added to: adding, overwriting by name, and backfills of a part."""

import pyarrow as pa
import pytest

from harness.push_client import make_events
from harness.push_jobs import job_of, stored_files
from holdfast.config.push_job import Backfill, SegmentNaming, SegmentSizing
from holdfast.errors import InvalidRequest, Refused
from holdfast.jobs.push.run import run_push_job

DAY_MS = 86_400_000
FIRST = 20_000 * DAY_MS


@pytest.fixture
def events(client):
    """A table with a time column to which pushes add."""
    return make_events(client)


def _rows(run, *days, city="oslo", per_day=2):
    at = [FIRST + day * DAY_MS + number for day in days for number in range(per_day)]
    return pa.table(
        {
            "at": pa.array(at, pa.int64()),
            "city": [city] * len(at),
            "run": pa.array([run] * len(at), pa.int32()),
        }
    )


def _push(running, events, rows, **options):
    return run_push_job(
        job_of(running.controller_url, events.name, sizing=SegmentSizing(rows=2), **options), frame=rows
    )


def _part(first, end, partition=None):
    return Backfill(start_ms=FIRST + first * DAY_MS, end_ms=FIRST + end * DAY_MS, partition=partition)


def _seen(events):
    # Of a push that only adds, nobody waits until the broker has noticed.
    epoch = events.client.running.service.controller.views.state(events.typed).push.epoch
    statement = f"SELECT at, run FROM {events.name} ORDER BY at, run LIMIT 1000"
    answer = events.client.sql(statement, queryOptions=f"minSnapshotEpoch={epoch}")
    assert not answer["exceptions"], answer["exceptions"]
    return [((at - FIRST) // DAY_MS, run) for at, run in answer["resultTable"]["rows"]]


def test_a_push_adds_and_the_same_push_again_overwrites(running, events):
    _push(running, events, _rows(1, 0, 1))
    _push(running, events, _rows(1, 2))
    again = _push(running, events, _rows(2, 2))

    assert _seen(events) == [(0, 1)] * 2 + [(1, 1)] * 2 + [(2, 2)] * 2
    assert again.entry_id == ""
    assert events.states() == []


def test_a_backfill_replaces_the_segments_of_its_time_and_no_others(running, events):
    _push(running, events, _rows(1, 0, 1, 2))

    report = _push(running, events, _rows(2, 1), backfill=_part(1, 2), gates=[{"min_rows": 2}])

    assert _seen(events) == [(0, 1)] * 2 + [(1, 2)] * 2 + [(2, 1)] * 2
    assert len(report.replaced) == 1
    assert events.states() == ["COMPLETED"]


def test_a_backfill_that_would_leave_old_rows_beside_new_ones_is_refused(running, events):
    run_push_job(
        job_of(running.controller_url, events.name, sizing=SegmentSizing(rows=4)), frame=_rows(1, 0, 1)
    )

    with pytest.raises(Refused, match="and others"):
        _push(running, events, _rows(2, 1), backfill=_part(1, 2))

    assert {run for _, run in _seen(events)} == {1}


def test_rows_outside_of_a_backfill_are_refused_before_anything_is_registered(running, events):
    _push(running, events, _rows(1, 0, 1))

    with pytest.raises(InvalidRequest, match="outside"):
        _push(running, events, _rows(2, 1, 2), backfill=_part(1, 2))

    assert {run for _, run in _seen(events)} == {1}
    assert len(stored_files(events)) == 2


def test_a_backfill_of_a_partition_leaves_the_others_alone(running, events):
    _push(running, events, _rows(1, 0))
    naming = SegmentNaming(prefix="bergen")
    _push(running, events, _rows(2, 0, city="bergen"), naming=naming)

    _push(running, events, _rows(3, 0, city="bergen"), backfill=_part(0, 1, ("city", "bergen")))

    assert sorted(run for _, run in _seen(events)) == [1, 1, 3, 3]
    with pytest.raises(InvalidRequest, match="partition"):
        _push(running, events, _rows(4, 0), backfill=_part(0, 1, ("city", "bergen")))


def test_backfills_of_different_days_go_on_at_once(running, events, proxy):
    _push(running, events, _rows(1, 0, 1))

    def during(call):
        if (call.name, call.moment) == ("endReplaceSegments", "before"):
            proxy.watch = lambda _: None
            _push(running, events, _rows(3, 1), backfill=_part(1, 2))

    proxy.watch = during
    job = job_of(proxy.url, events.name, backfill=_part(0, 1))
    run_push_job(job, frame=_rows(2, 0))

    assert _seen(events) == [(0, 2)] * 2 + [(1, 3)] * 2


def test_a_segment_that_is_deleted_while_a_backfill_looks_for_its_part_does_not_stop_it(
    running, events, proxy
):
    first = _push(running, events, _rows(1, 0, 1))

    def during(call):
        if (call.name, call.moment) == ("zkmetadata", "before"):
            proxy.watch = lambda _: None
            assert events.delete(first.segments[0]).status_code == 200

    proxy.watch = during
    run_push_job(job_of(proxy.url, events.name, backfill=_part(1, 2)), frame=_rows(2, 1))

    assert _seen(events) == [(1, 2)] * 2


def test_a_backfill_of_a_table_that_is_replaced_as_a_whole_is_refused(running, table):
    with pytest.raises(InvalidRequest, match="backfill"):
        run_push_job(
            job_of(running.controller_url, table.name, backfill=_part(0, 1)), frame=pa.table({"id": [1]})
        )


def test_gates_of_a_push_that_only_adds_are_refused(running, events):
    with pytest.raises(InvalidRequest, match="gates"):
        _push(running, events, _rows(1, 0), gates=[{"min_rows": 1}])
