"""Every storage step may be the last one that runs."""

import pytest

from crashes.matrix import (
    NEXT,
    OPERATIONS,
    THIRD,
    Tally,
    check_recovered,
    check_seen,
    crash_points,
    nested_crash_points,
    one_more_write,
    recover_and_check,
)
from harness.checker import Violation, visible_rows
from harness.exported import check_as_exported
from harness.hudi_reader import copy_to_disk, hudi_rows
from harness.tiers import by_tier

# A sample that, over all operations, meets every step of both writes; 1 takes every pair of steps.
NESTED_STRIDE = by_tier("HOLDFAST_NESTED_STRIDE", sample=90, full=15)


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
        seen_by_hudi = hudi_rows(copy_to_disk(world.store, tmp_path / str(number)))
        assert seen_by_hudi == visible_rows(world.open()), point
        check_as_exported(world.open(), tmp_path / str(number))
        tally.points += 1


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_a_crash_while_recovering_from_a_crash_leaves_the_old_table_or_the_new_one(operation, tally):
    """Deaths after a step only: those before the next one leave the same, as the other test shows."""
    for number, (point, crashed) in enumerate(crash_points(operation, moments=(True,))):
        for nested_point, world in nested_crash_points(crashed, point, every=NESTED_STRIDE, offset=number):
            try:
                check_seen(operation, world, NEXT)
                # The write that died while recovering may have been decided; then its rows are there.
                one_more_write(world, THIRD, "bulk_insert")
                check_recovered(operation, world, NEXT, THIRD)
            except Violation as violation:
                pytest.fail(f"{nested_point}: {violation}")
            tally.nested += 1
