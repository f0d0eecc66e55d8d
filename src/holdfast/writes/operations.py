"""The writes of a lake table: planned, then carried out in a transaction."""

from collections.abc import Sequence

from holdfast.config.choices import Operation
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidRequest
from holdfast.model.reports import Commit
from holdfast.table.opened import OpenTable
from holdfast.writes.compaction import compact_if_due
from holdfast.writes.origin import NO_ORIGIN, Origin
from holdfast.writes.plan import check_write_settings, plan_partition_delete, plan_write
from holdfast.writes.repeats import find_repeated_commit
from holdfast.writes.rows import Rows
from holdfast.writes.transaction import run_write


def write(
    table: OpenTable,
    operation: Operation,
    rows: Rows,
    settings: WriteSettings,
    *,
    origin: Origin = NO_ORIGIN,
    refuses_twins: bool = False,
) -> Commit:
    """Write rows, or remove the rows of their keys; the operation says which.

    With `refuses_twins`, `Refused` if two rows to be merged have one key, instead of taking the newest.
    """
    check_write_settings(table, settings)
    repeated = find_repeated_commit(table, settings)
    if repeated is not None:
        return repeated
    plan = plan_write(table, operation, rows, settings, origin, refuses_twins=refuses_twins)
    commit = run_write(table, plan)
    return compact_if_due(table, commit, settings, rows.compactor)


def delete_partitions(
    table: OpenTable, partitions: Sequence[str], settings: WriteSettings, *, origin: Origin = NO_ORIGIN
) -> Commit:
    """Remove whole partitions, named by their paths."""
    check_write_settings(table, settings)
    if isinstance(partitions, str) or not partitions:
        raise InvalidRequest("name the partitions to delete", given=repr(partitions))
    repeated = find_repeated_commit(table, settings)
    return repeated or run_write(table, plan_partition_delete(table, partitions, settings, origin))
