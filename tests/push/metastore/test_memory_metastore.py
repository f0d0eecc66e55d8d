"""The metastore in memory."""

import pytest

from holdfast.errors import InvalidRequest
from holdfast.push.metastore.memory import MemoryMetastore
from holdfast.push.metastore.port import Create, Replace
from push.metastore.promises import MetastorePromises


@pytest.fixture
def connect():
    first = MemoryMetastore()
    connections = [first]

    def connect():
        connections.append(first.connect())
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


class TestMemoryMetastore(MetastorePromises):
    pass


def test_j9_a_record_that_is_too_large_leaves_the_old_one():
    store = MemoryMetastore(record_bytes_max=10)
    store.write([Create("/a", b"small")])

    with pytest.raises(InvalidRequest) as refusal:
        store.write([Replace("/a", b"x" * 11, store.read("/a").version)])

    assert refusal.value.facts["code"] == "RECORD_TOO_LARGE"
    assert (refusal.value.facts["size_bytes"], refusal.value.facts["limit_bytes"]) == (11, 10)
    assert store.read("/a").data == b"small"
