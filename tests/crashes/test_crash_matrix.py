"""Every storage step may be the last one that runs."""

import os

import pytest

from crashes.matrix import (
    NEXT,
    OPERATIONS,
    Tally,
    crash_points,
    nested_crash_points,
    one_more_write,
    recover_and_check,
)
from harness.checker import Violation, check_at_rest, visible_ids
from harness.hudi_reader import copy_to_disk, hudi_ids
from harness.world import World

# A sample that still meets every step of both writes; `make test-deep` takes them all.
NESTED_STRIDE = 1 if os.environ.get("HOLDFAST_NESTED") == "all" else 7


@pytest.fixture(scope="module")
def tally(request):
    tally = Tally()
    yield tally
    request.config.summary_lines.append(str(tally))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_crash_at_any_step_leaves_the_old_table_or_the_new_one(operation, tally, tmp_path):
    tally.operations += 1
    for number, (point, world) in enumerate(crash_points(operation)):
        try:
            recover_and_check(operation, world)
        except Violation as violation:
            pytest.fail(f"{point}: {violation}")
        seen_by_hudi = hudi_ids(copy_to_disk(world.store, tmp_path / str(number)))
        assert seen_by_hudi == visible_ids(world.open()), point
        tally.points += 1


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_crash_while_recovering_from_a_crash_leaves_the_old_table_or_the_new_one(operation, tally):
    for number, (point, crashed) in enumerate(crash_points(operation)):
        for nested_point, world in nested_crash_points(crashed, point, every=NESTED_STRIDE, offset=number):
            try:
                _recover_again_and_check(operation, world)
            except Violation as violation:
                pytest.fail(f"{nested_point}: {violation}")
            tally.nested += 1


def _recover_again_and_check(operation, world: World) -> None:
    # The write that died while recovering may have been decided; then its rows are there.
    one_more_write(world, "third")
    table = world.open()
    check_at_rest(table)
    seen = visible_ids(table) - {"third"} - frozenset(NEXT)
    if seen not in (operation.before, operation.after):
        raise Violation(f"I1: a reader sees {sorted(seen)}")
