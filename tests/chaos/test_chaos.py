"""The short form of `make chaos`, and that its checks find what they are there for."""

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from chaos.chaos import Chaos
from chaos.history import Call, History, Stop
from chaos.writer import Ended
from holdfast.config.choices import TableType
from holdfast.format.ledger_entries import EntryKind

SEED = 4
SECONDS = 12


@pytest.fixture(scope="module", params=TableType)
def ran(request, tmp_path_factory):
    chaos = Chaos(tmp_path_factory.mktemp("chaos"), seed=SEED, seconds=SECONDS, table_type=request.param)
    return chaos, chaos.run()


def test_no_batch_is_lost_or_torn_while_writers_are_killed_and_stopped(ran, request):
    _, report = ran

    request.config.summary_lines.append(str(report))
    assert report.violations == []
    assert report.acknowledged > 0
    assert report.kills > 0
    assert report.reads > 0


def test_a_writer_that_slept_through_its_rollback_is_fenced(ran):
    chaos, report = ran

    assert len(chaos.stops) > 0
    assert report.fenced > 0


def test_an_acknowledged_batch_that_nobody_committed_is_found(ran):
    history = ran[0].history()
    lost = max(_busy(history).acknowledged)

    found = History([e for e in history.entries if e.instant != lost], history.lives)

    assert any(lost in violation for violation in found.violations)


def test_a_batch_that_was_committed_although_its_writer_was_refused_is_found(ran):
    history = ran[0].history()
    instant, call = max(_busy(history).acknowledged.items())
    call.ended = Ended(error="Fenced", cause="made up")

    found = History(history.entries, history.lives)

    assert any(instant in violation for violation in found.violations)


def test_a_batch_that_was_committed_twice_is_found(ran):
    history = ran[0].history()
    pid = _busy(history).started.pid
    begun = next(e for e in history.entries if e.owner is not None and e.owner.pid == pid)
    again = msgspec.structs.replace(begun, instant="20990101000000000")
    commit = next(e for e in history.entries if e.kind is EntryKind.COMMIT)
    twice = msgspec.structs.replace(commit, instant=again.instant)

    found = History([*history.entries, again, twice], history.lives)

    assert any(again.instant in violation for violation in found.violations)


def test_a_read_that_shows_a_batch_in_part_is_found(ran):
    chaos, history = ran[0], ran[0].history()
    whole = chaos.reads[-1]

    history.check_reads([whole])
    assert history.violations == []
    history.check_reads([replace(whole, rows=whole.rows.slice(1))])
    assert len(history.violations) == 1
    history.check_reads([replace(whole, rows=pa.concat_tables([whole.rows, whole.rows.slice(0, 1)]))])
    assert len(history.violations) == 2


def test_a_read_of_what_was_there_before_is_found(ran):
    chaos, history = ran[0], ran[0].history()
    newest = chaos.reads[-1]

    history.check_reads([replace(newest, rows=newest.rows.slice(0, 0))])

    assert len(history.violations) == 1


def test_a_stopped_writer_that_was_not_told_is_found(ran):
    chaos, history = ran[0], ran[0].history()
    stop = chaos.stops[0]
    committed = max(_busy(history).acknowledged)
    life = next(life for life in history.lives if life.name == stop.log)
    life.calls = [Call(call.batch) for call in life.calls]

    history.check_stop(stop)
    history.check_stop(Stop(committed, stop.log))

    assert len(history.violations) == 3


def _busy(history):
    """A process that had batches acknowledged, without its other calls."""
    life = next(life for life in history.lives if life.acknowledged)
    life.calls = list(life.acknowledged.values())
    return life
