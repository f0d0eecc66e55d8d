"""The short form of `make chaos`, and that its checks find what they are there for."""

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from chaos.chaos import Chaos
from chaos.history import Call, History, Stop
from chaos.writer import Ended

SEED = 4
SECONDS = 12


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    chaos = Chaos(tmp_path_factory.mktemp("chaos"), seed=SEED, seconds=SECONDS)
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
    lost = _acknowledged(history)[-1].ended.instant

    found = History([e for e in history.entries if e.instant != lost], history.lives)

    assert any(lost in violation for violation in found.violations)


def test_a_batch_that_was_committed_although_its_writer_was_refused_is_found(ran):
    history = ran[0].history()
    call = _acknowledged(history)[0]
    instant, call.ended = call.ended.instant, Ended(error="Fenced", cause="made up")

    found = History(history.entries, history.lives)

    assert any(instant in violation for violation in found.violations)


def test_a_batch_that_was_committed_twice_is_found(ran):
    history = ran[0].history()
    life = next(life for life in history.lives if _acknowledged_of(life.calls))
    life.calls = _acknowledged_of(life.calls)
    begun = next(e for e in history.entries if e.owner is not None and e.owner.pid == life.started.pid)
    again = msgspec.structs.replace(begun, instant="20990101000000000")
    commit = next(e for e in history.entries if e.kind == "COMMIT")
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
    old, new = chaos.reads[0], chaos.reads[-1]

    history.check_reads([replace(old, shown=new.shown, decided=new.decided)])

    assert len(history.violations) == 1


def test_a_stopped_writer_that_was_not_told_is_found(ran):
    chaos, history = ran[0], ran[0].history()
    stop = chaos.stops[0]
    committed = _acknowledged(history)[0].ended.instant
    life = next(life for life in history.lives if life.name == stop.log)
    life.calls = [Call(call.batch) for call in life.calls]

    history.check_stop(stop)
    history.check_stop(Stop(committed, stop.log))

    assert len(history.violations) == 3


def _acknowledged(history):
    return _acknowledged_of(history.calls)


def _acknowledged_of(calls):
    return [call for call in calls if call.ended is not None and call.ended.instant is not None]
