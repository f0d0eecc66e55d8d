"""SQLite agrees with memory, whatever is written."""

import uuid

from hypothesis import HealthCheck, given, settings

from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.sqlite import SqliteMetastore
from push.metastore.agreement import HISTORIES, assert_agreement


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORIES)
def test_j12_sqlite_and_memory_agree_on_every_history(tmp_path, history):
    store = SqliteMetastore(tmp_path / "push.db", uuid.uuid4().hex)

    assert_agreement(store, MemoryMetastore(), history)

    store.close()
