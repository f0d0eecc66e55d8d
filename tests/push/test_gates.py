"""Gates: what must hold of a new snapshot before queries see it, asked of a real engine."""

import duckdb
import pyarrow as pa
import pytest

from harness.push_world import ANN, TABLE, PushWorld, config
from holdfast.config.gates import parse_gates
from holdfast.errors import InvalidOption, InvalidRequest, Refused
from holdfast.push.controller import Controller
from holdfast.push.replacement.gates import evaluate

ROWS = {
    "old": pa.table({"id": [1, 2, 3, 4], "city": ["Oslo", "Oslo", "Bergen", "Bergen"]}),
    "new": pa.table({"id": [1, 2, 3], "city": ["Oslo", "Bergen", "Oslo"]}),
    "bad": pa.table({"id": [1, 1, 2], "city": ["Oslo", None, "Oslo"]}),
}


def ask(sql, segments):
    with duckdb.connect() as connection:
        connection.register("snapshot", pa.concat_tables(ROWS[name] for name in sorted(segments)))
        try:
            return connection.execute(sql).fetchone()[0]
        except duckdb.Error as error:
            raise InvalidRequest("the query failed", cause=str(error)) from error


def with_answers(world, answer):
    """A controller of this world whose gates are answered so."""
    return Controller(
        world.catalog, world.deep_store, world.clock, ask=lambda _table: answer, wait=lambda _: None
    )


def outcomes(specs, hidden="new", live="old"):
    gates = parse_gates(specs)
    return evaluate(gates, hidden=frozenset({hidden}), live=frozenset({live} if live else ()), ask=ask)


@pytest.mark.parametrize(
    ("spec", "hidden", "passed"),
    [
        ({"min_rows": 3}, "new", True),
        ({"min_rows": 4}, "new", False),
        ({"max_rows": 3}, "new", True),
        ({"max_rows": 2}, "new", False),
        ({"row_change": {"min_percent": -25, "max_percent": 0}}, "new", True),
        ({"row_change": {"min_percent": -20}}, "new", False),
        ({"row_change": {"max_percent": -30}}, "new", False),
        ({"not_null": "city"}, "new", True),
        ({"not_null": "city"}, "bad", False),
        ({"unique": "id"}, "new", True),
        ({"unique": ["id"]}, "bad", False),
        ({"unique": ["id", "city"]}, "bad", True),
        ({"sql": "SELECT min(id) > 0 FROM snapshot"}, "new", True),
        ({"sql": {"name": "positive", "query": "SELECT min(id) > 5 FROM snapshot"}}, "new", False),
        ({"sql": "SELECT 1"}, "new", False),
        ({"sql": "SELECT nonsense FROM snapshot"}, "new", False),
        ({"not_null": "nobody"}, "new", False),
    ],
)
def test_a_gate_passes_or_fails(spec, hidden, passed):
    (outcome,) = outcomes([spec], hidden)

    assert outcome.passed is passed, outcome


def test_an_outcome_says_what_was_found_and_what_was_expected():
    (outcome,) = outcomes([{"row_change": {"min_percent": -10, "max_percent": 50}}])

    assert outcome.name == "row_change"
    assert outcome.found == "-25.00 % (4 to 3 rows)"
    assert outcome.expected == "-10 % to +50 %"


def test_without_a_live_snapshot_any_change_is_allowed():
    (outcome,) = outcomes([{"row_change": {"min_percent": -10}}], live="")

    assert outcome.passed


@pytest.mark.parametrize(
    "specs",
    [
        "min_rows",
        {"min_rows": 1},
        [{"min_rows": -1}],
        [{"min_rows": True}],
        [{"min_rows": "3"}],
        [{"min_rows": 1, "max_rows": 2}],
        [{"row_change": {}}],
        [{"row_change": {"min_percent": 5, "max_percent": 1}}],
        [{"row_change": {"least": 5}}],
        [{"not_null": 'a" IS NULL OR "b'}],
        [{"not_null": 5}],
        [{"unique": []}],
        [{"unique": [5]}],
        [{"sql": ""}],
        [{"sql": {"query": 5}}],
        [{"nobody": 1}],
        [5],
    ],
)
def test_a_gate_that_means_nothing_is_refused(specs):
    with pytest.raises(InvalidOption) as caught:
        parse_gates(specs)

    assert caught.value.facts["code"] == "INVALID_GATE"


def test_a_push_is_ended_only_when_its_gates_have_passed():
    world = PushWorld().create()

    controller = with_answers(world, lambda _sql, segments: 2 * len(segments))
    entry = world.start([], ["a", "b"], gates_required=True)
    world.upload("a")
    world.upload("b")

    failed = controller.validate(TABLE, entry, parse_gates([{"min_rows": 5}]), by=ANN)
    assert not failed.passed
    with pytest.raises(Refused) as caught:
        controller.end_replace(TABLE, entry, by=ANN)
    assert caught.value.facts["code"] == "GATE_FAILED"
    passed = controller.validate(TABLE, entry, parse_gates([{"min_rows": 4}]), by=ANN)
    controller.end_replace(TABLE, entry, by=ANN)

    assert passed.passed
    assert world.seen() == {"a", "b"}
    operations = [record.operation for record in controller.views.audit(TABLE)]
    assert operations[:3] == ["end", "validate", "validate"]


def test_an_upload_after_the_gates_makes_them_run_again():
    world = PushWorld().create()
    controller = with_answers(world, lambda _sql, _of: 2)
    entry = world.start([], ["a"], gates_required=True)
    world.upload("a", 1)
    controller.validate(TABLE, entry, parse_gates([{"min_rows": 1}]), by=ANN)

    world.upload("a", 2)

    with pytest.raises(Refused) as caught:
        world.end(entry)
    assert caught.value.facts["code"] == "GATE_FAILED"


@pytest.mark.parametrize(
    ("min_rows", "operation"),
    [pytest.param(1, "end", id="passed"), pytest.param(3, "end with gates overridden", id="failed")],
)
def test_the_audit_says_that_gates_were_overridden_only_if_they_stood_in_the_way(min_rows, operation):
    world = PushWorld().create()
    controller = with_answers(world, lambda _sql, _of: 2)
    entry = world.start([], ["a"], gates_required=True)
    world.upload("a")
    controller.validate(TABLE, entry, parse_gates([{"min_rows": min_rows}]), by=ANN)

    controller.end_replace(TABLE, entry, override_gates=True, by=ANN)

    assert world.seen() == {"a"}
    assert controller.views.audit(TABLE)[0].operation == operation


@pytest.fixture
def gated():
    """A table whose gate wants two segments, each of which answers for two rows."""
    return PushWorld().create(gates=[{"min_rows": 4}])


def counting(world):
    return with_answers(world, lambda _sql, segments: 2 * len(segments))


def test_the_gates_of_a_table_hold_for_a_push_that_asks_for_none(gated):
    controller = counting(gated)
    entry = gated.start([], ["a"])
    gated.upload("a")

    with pytest.raises(Refused, match="gates failed"):
        controller.end_replace(TABLE, entry, by=ANN)

    assert gated.seen() == frozenset()


def test_gates_of_ones_own_do_not_take_the_place_of_the_tables(gated):
    controller = counting(gated)
    entry = gated.start([], ["a"], gates_required=True)
    gated.upload("a")

    report = controller.validate(TABLE, entry, parse_gates([{"min_rows": 1}]), by=ANN)

    assert [(one.name, one.passed) for one in report.outcomes] == [("min_rows", False), ("min_rows", True)]
    with pytest.raises(Refused, match="gates failed"):
        controller.end_replace(TABLE, entry, by=ANN)


def test_a_push_to_a_table_with_gates_is_judged_by_its_end(gated):
    """Pinot's own clients know of no gates: they start, upload and end."""
    controller = counting(gated)
    entry = gated.start([], ["a", "b"])
    gated.upload("a")
    gated.upload("b")

    controller.end_replace(TABLE, entry, by=ANN)

    assert gated.seen() == {"a", "b"}


def test_gates_that_the_table_gets_after_the_look_are_asked_too(gated):
    controller = counting(gated)
    entry = gated.start([], ["a", "b"])
    gated.upload("a")
    gated.upload("b")
    controller.validate(TABLE, entry, by=ANN)

    controller.tables.update(config(gates=[{"min_rows": 5}]), by=ANN)

    with pytest.raises(Refused, match="gates failed"):
        controller.end_replace(TABLE, entry, by=ANN)


def test_nothing_is_shown_past_the_gates_by_an_upload_without_a_push(gated):
    with pytest.raises(Refused) as caught:
        gated.upload("a")

    assert caught.value.facts["code"] == "GATED"


def test_a_group_is_judged_table_by_table(gated):
    controller = counting(gated)
    entry = gated.start([], ["a"])
    gated.upload("a")

    with pytest.raises(Refused, match="gates failed"):
        controller.end_group({TABLE: entry}, by=ANN)
