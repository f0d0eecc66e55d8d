"""Numbered writes: an application that numbers its writes gets each of them committed once.

The ledger knows, of every application, the numbers of the commits that stand. A
write whose number is not greater than the newest of them is a repeat, and its
answer is the commit that is there. That is asked before the write begins, once
it has begun, and in the slot of its COMMIT.
"""

from holdfast.config.write import WriteSettings
from holdfast.errors import TableDamaged
from holdfast.format.commits import decode_commit
from holdfast.format.malformed import report_damage
from holdfast.model.instant import State
from holdfast.model.names import instant_file
from holdfast.model.reports import Commit
from holdfast.storage.store import read_or_none
from holdfast.table.archive import read_archive
from holdfast.table.opened import OpenTable
from holdfast.table.publish import load_published_timeline
from holdfast.timeline.ledger import LedgerState, Numbered
from holdfast.writes.outcome import commit_report


class Repeat(Exception):  # not an error: the write has its answer
    """Ends a write whose number is committed already."""


def refuse_repeat(state: LedgerState, settings: WriteSettings) -> None:
    """`Repeat` if a write of this number, or of a greater one, is committed."""
    if _find_repeated(state, settings) is not None:
        raise Repeat


def find_repeated_commit(table: OpenTable, settings: WriteSettings) -> Commit | None:
    """The commit that a write with these settings repeats; None if it is none."""
    if not settings.application:
        return None
    state = table.ledger.read()
    numbered = _find_repeated(state, settings)
    if numbered is None:
        return None
    # Its writer may have died before it could be shown.
    load_published_timeline(table, state)
    return _report(table, numbered)


def _find_repeated(state: LedgerState, settings: WriteSettings) -> Numbered | None:
    if not settings.application:
        return None
    return state.find_numbered(settings.application, settings.batch_number)


def _report(table: OpenTable, numbered: Numbered) -> Commit:
    """The commit as it was reported to its writer, as far as its metadata tells."""
    content = read_or_none(table.store, instant_file(numbered.instant, numbered.action, State.COMPLETED))
    if content is None:
        content = read_archive(table.store, table.settings).content(numbered.instant, numbered.action)
    if content is None:
        raise TableDamaged("the metadata of a commit is gone", instant=numbered.instant)
    with report_damage("commit metadata cannot be read", instant=numbered.instant):
        metadata = decode_commit(content)
    stats = [stat for stats in metadata.partition_to_write_stats.values() for stat in stats]
    replaced = metadata.partition_to_replace_file_ids or {}
    return commit_report(
        numbered.instant, numbered.action, metadata.operation_type or "", stats, replaced, repeated=True
    )
