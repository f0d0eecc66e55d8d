"""Reading while the timeline changes, and a table that another program upgraded after we opened it."""

import pyarrow as pa
import pytest

import holdfast
from holdfast.errors import TableDamaged, UnsupportedTable
from holdfast.model.instant import Action, State
from holdfast.model.names import instant_file, instant_path
from holdfast.table.stable_read import read_stable

ROWS = pa.table({"id": ["a"], "city": ["paris"], "fare": [1.0]})
ACTS = {
    "read": lambda table: table.to_arrow(),
    "changes": lambda table: table.changes_to_arrow(since="20200101000000000"),
    "upsert": lambda table: table.upsert(ROWS),
    "delete_partitions": lambda table: table.delete_partitions(["city=paris"]),
    "clean": lambda table: table.clean(),
    "archive": lambda table: table.archive(),
    "savepoint": lambda table: table.savepoint(),
    "undo": lambda table: table.undo(),
    "roll back": lambda table: table.roll_back_failed_writes(),
    "verify": lambda table: table.verify(),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_table_that_was_upgraded_since_it_was_opened_is_refused_and_stays_as_it_is(tmp_path, act):
    """As Hudi does it: the instants move to a folder of their own, the version is raised last."""
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    table.insert(ROWS)
    meta = tmp_path / ".hoodie"
    (meta / "timeline").mkdir()
    for file in meta.glob("2*"):
        file.rename(meta / "timeline" / file.name)
    properties = meta / "hoodie.properties"
    text = properties.read_text().replace("table.version=6", "table.version=9")
    properties.write_text(text.replace("layout.version=1", "layout.version=2"))
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())

    with pytest.raises(UnsupportedTable, match="version: 9"):
        ACTS[act](table)

    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before


def test_a_reader_keeps_up_with_commits_that_leave_the_timeline_one_by_one(tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    newest = [table.insert(ROWS).instant for _ in range(12)][-1]
    store = table._opened.store

    def read(timeline):
        oldest, *others = timeline.completed_commits
        if not others:
            return oldest.time
        store.delete(instant_path(oldest))
        raise TableDamaged("a completed instant's file is missing")

    assert read_stable(store, read) == newest


def test_a_reader_looks_again_if_a_rollback_was_archived_meanwhile(tmp_path):
    table = holdfast.create_table(str(tmp_path), name="trips", record_key="id", partition_by="city")
    table.insert(ROWS)
    table.insert(ROWS)
    table.undo()
    store = table._opened.store

    def read(timeline):
        for instant in timeline.instants:
            if instant.action is Action.ROLLBACK:
                store.delete(instant_path(instant))
                raise TableDamaged("a completed instant's file is missing")
        return "read"

    rollback = next(i for i in table.timeline() if i.action is Action.ROLLBACK)
    for state in (State.REQUESTED, State.INFLIGHT):
        store.delete(instant_file(rollback.time, rollback.action, state))

    assert read_stable(store, read) == "read"
