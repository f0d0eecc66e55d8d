"""The short form of `make push-chaos`, and that its checks find what they are there for."""

from dataclasses import replace

import pytest

from chaos.push_actors import GROUP
from chaos.push_history import Switch, TableHistory, gone_back, mixed
from chaos.push_load import PushLoad
from holdfast.model.lineage import Lineage

SEED = 6
SECONDS = 12


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    load = PushLoad(tmp_path_factory.mktemp("push"), seed=SEED, seconds=SECONDS)
    return load, load.run()


@pytest.fixture
def history(ran):
    """Of the table whose answers and switches the tests make up."""
    return ran[0].histories()["prices"]


def switches_of(load, table):
    return [switch for switch in load.switches if switch.table == table]


def answers_of(load, *tables):
    return [answer for answer in load.answers if tuple(answer.epochs) == tables]


def test_every_answer_is_one_whole_snapshot_while_processes_are_stopped_and_killed(ran, request):
    _, report = ran

    request.config.summary_lines.append(str(report))
    assert report.violations == []
    assert report.restarts > 0
    assert report.kills > 0
    assert report.reverts > 0
    assert report.groups > 0
    assert report.survivor > 0


def test_an_answer_from_two_snapshots_or_from_a_part_of_one_is_found(ran):
    answer = answers_of(ran[0], "prices")[-1]
    joined = next(one for one in ran[0].answers if set(one.epochs) == set(GROUP))

    assert mixed([answer, joined]) == []
    for wrong in (
        replace(answer, greatest=answer.greatest + 1),
        replace(answer, rows=answer.rows - 1),
        replace(answer, rows=2 * answer.rows, total=2 * answer.total),
        replace(answer, total=answer.total + 1),
        replace(joined, least=joined.least - 1),
    ):
        assert len(mixed([wrong])) == 1


def test_an_answer_that_goes_back_is_found(ran):
    answer = answers_of(ran[0], "prices")[-1]
    older = replace(answer, epochs={"prices": answer.epochs["prices"] - 1}, asked={})

    assert gone_back([older, answer]) == []
    assert len(gone_back([answer, older])) == 1
    assert gone_back([answer, replace(older, client=answer.client + 1)]) == []
    assert len(gone_back([replace(older, asked=answer.epochs)])) == 1


def test_an_answer_that_its_epoch_does_not_show_is_found(ran, history):
    answer = answers_of(ran[0], "prices")[-1]

    history.check_epoch(answer, "prices")
    assert history.violations == []
    history.check_epoch(replace(answer, least=answer.least + 1), "prices")
    history.check_epoch(replace(answer, epochs={"prices": max(history.shown) + 1}), "prices")
    assert len(history.violations) == 2


def test_a_switch_that_was_acknowledged_and_lost_is_found(ran, history):
    switch = switches_of(ran[0], "prices")[-1]
    never = Switch(table="prices", entry="nobody", state="COMPLETED", epoch=switch.epoch, is_repeat=False)

    history.check_switch(switch)
    assert history.violations == []
    history.check_switch(never)
    history.check_switch(replace(never, is_repeat=True))
    history.check_switch(replace(switch, epoch=switch.epoch + 1, is_repeat=False))
    assert len(history.violations) == 3


def test_a_record_that_the_audit_lacks_is_found(history):
    middle = len(history.audit) // 2

    found = TableHistory((*history.audit[:middle], *history.audit[middle + 1 :]), history.lineage)

    assert any("is missing" in violation for violation in found.violations)


def test_an_entry_that_the_lineage_lost_is_found(ran):
    history = next(one for one in ran[0].histories().values() if one.lineage.entries)

    found = TableHistory(history.audit, Lineage(history.lineage.entries[1:]))

    assert len(found.violations) == 1


def test_a_file_that_belongs_to_no_retained_snapshot_is_found(ran):
    load, _ = ran
    assert not any(load.surplus().values())
    kept = next((load.folder / "data" / "segments" / "prices").glob("*.parquet"))
    stray = kept.with_name(f"stray__{'0' * 32}.parquet")

    stray.write_bytes(kept.read_bytes())
    try:
        assert load.surplus()["prices"] == [f"prices/{stray.name}"]
    finally:
        stray.unlink()
