"""Routing: one snapshot per query, never an older one, and no file that goes while it is read."""

import threading
import time

import pytest

from harness.serving import ORDERS, Tables, orders
from holdfast.model.lineage import EntryState
from holdfast.push.metastore.port import Replace
from holdfast.push.queries.failures import QueryError, QueryFailed
from holdfast.push.queries.routing import Router, RouterSettings, build_snapshot
from holdfast.push.state.records import BrokerEpochs, lineage_path

ITEMS = {**ORDERS, "schemaName": "items"}
BROKER = "Broker_localhost_8099"


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path)


@pytest.fixture
def router(tables):
    opened = Router(tables.catalog, broker=BROKER, settings=RouterSettings(coalesce_ms=5))
    yield opened
    opened.close()


def names(lease, table="orders_OFFLINE"):
    return [segment.name for segment in lease.snapshots[table].segments]


def until(condition, *, within_s=5.0):
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def announced(tables, table="orders_OFFLINE"):
    return tables.catalog.broker_epochs(table).get(BROKER)


def test_open_entries_hide_their_new_segments_and_completed_ones_their_old(tables):
    table = tables.create()
    tables.upload(table, {"a": orders([1])})
    entry = tables.start(table, ["a"], {"b": orders([2])})

    before = build_snapshot(tables.catalog, table)
    tables.turn((table, entry, EntryState.COMPLETED))
    after = build_snapshot(tables.catalog, table)
    tables.turn((table, entry, EntryState.REVERTED))
    again = build_snapshot(tables.catalog, table)

    assert [[segment.name for segment in one.segments] for one in (before, after, again)] == [
        ["a"],
        ["b"],
        ["a"],
    ]
    assert before.epoch < after.epoch < again.epoch


def test_a_switch_is_followed_without_being_told(tables, router):
    table = tables.create()
    router.start()
    tables.push(table, [], {"a": orders([1])})

    until(lambda: router.epochs().get(table) == 1)

    with router.lease([table]) as lease:
        assert names(lease) == ["a"]


def test_a_lost_notification_is_made_up_for_by_polling(tmp_path):
    class Deaf:
        def __init__(self, metastore):
            self._metastore = metastore

        def watch(self, path, changed):
            return lambda: None

        def __getattr__(self, name):
            return getattr(self._metastore, name)

    tables = Tables(tmp_path)
    table = tables.create()
    deaf = Tables(tmp_path, Deaf(tables.metastore.connect()))
    router = Router(deaf.catalog, broker=BROKER, settings=RouterSettings(coalesce_ms=1, poll_ms=100))
    router.start()
    try:
        tables.push(table, [], {"a": orders([1])})

        until(lambda: router.epochs()[table] == 1)
    finally:
        router.close()


def test_a_bug_met_while_following_does_not_end_it(tmp_path):
    """A broker that stopped following would answer from its old snapshots for ever."""

    class Failing:
        def __init__(self, metastore):
            self._metastore = metastore
            self.failures = []

        def children(self, path):
            if self.failures:
                raise self.failures.pop()
            return self._metastore.children(path)

        def __getattr__(self, name):
            return getattr(self._metastore, name)

    tables = Tables(tmp_path)
    table = tables.create()
    failing = Failing(tables.metastore.connect())
    router = Router(Tables(tmp_path, failing).catalog, broker=BROKER, settings=RouterSettings(coalesce_ms=1))
    router.start()
    try:
        failing.failures.append(RuntimeError("dictionary changed size during iteration"))
        tables.push(table, [], {"a": orders([1])})

        until(lambda: router.epochs()[table] == 1)
        assert failing.failures == []
    finally:
        router.close()


def test_a_query_keeps_its_snapshot_and_its_files_while_a_switch_happens(tables, router):
    """What is announced is the lowest epoch in use, which is what deletions wait for."""
    table = tables.create()
    tables.push(table, [], {"a": orders([1])})
    router.start()
    old = router.lease([table])

    tables.push(table, ["a"], {"b": orders([2])})
    until(lambda: router.epochs()[table] == 2)
    new = router.lease([table])

    assert (names(old), names(new)) == (["a"], ["b"])
    until(lambda: announced(tables) == BrokerEpochs(epoch=1, applied=2))
    old.release()
    until(lambda: announced(tables) == BrokerEpochs(epoch=2, applied=2))
    new.release()


def test_a_broker_announces_itself_before_it_reads_a_table_and_withdraws_when_it_ends(tables):
    seen = []
    table = tables.create()
    load = tables.catalog.load

    def watched(name):
        seen.append(announced(tables))
        return load(name)

    tables.catalog.load = watched
    router = Router(tables.catalog, broker=BROKER)

    router.start()

    assert seen == [BrokerEpochs(epoch=0, applied=0)]
    router.close()
    assert tables.catalog.broker_epochs(table) == {}


def test_an_epoch_that_was_asked_for_is_waited_for_and_then_refused(tables, router):
    table = tables.create()
    tables.push(table, [], {"a": orders([1])})
    router.start()
    threading.Timer(0.15, lambda: tables.push(table, ["a"], {"b": orders([2])})).start()

    with router.lease([table], at_least={table: 2}, deadline_s=time.monotonic() + 5) as lease:
        assert names(lease) == ["b"]

    with pytest.raises(QueryFailed) as failed:
        router.lease([table], at_least={table: 9}, deadline_s=time.monotonic() + 0.1)
    assert failed.value.code is QueryError.BROKER_TIMEOUT


def test_a_snapshot_never_gives_way_to_an_older_one(tables, router):
    """A lagging store shows an earlier state of the table."""
    table = tables.create()
    tables.push(table, [], {"a": orders([1])})
    earlier = tables.catalog.load(table)
    tables.push(table, ["a"], {"b": orders([2])})
    router.start()
    load = tables.catalog.load
    tables.catalog.load = lambda name: earlier
    state = load(table)
    path = f"/PROPERTYSTORE/PUSH_STATE/{table}"
    record = tables.metastore.read(path)
    tables.metastore.write([Replace(path, record.data, state.versions[path])])

    router.refresh()

    with router.lease([table]) as lease:
        assert names(lease) == ["b"]
        assert lease.snapshots[table].epoch == 2


def test_a_table_that_was_deleted_and_created_anew_is_followed_in_the_end(tables):
    table = tables.create()
    tables.push(table, [], {"a": orders([1])})
    tables.push(table, ["a"], {"b": orders([2])})
    router = Router(tables.catalog, broker=BROKER, settings=RouterSettings(recreated_after_ms=0))
    router.start()
    try:
        tables.catalog.begin_delete(table, now_ms=1)
        tables.catalog.finish_delete(table)
        router.refresh()
        with pytest.raises(QueryFailed) as failed:
            router.lease([table])
        assert failed.value.code is QueryError.TABLE_DOES_NOT_EXIST
        tables.catalog.delete_schema("orders")
        tables.create()
        tables.push(table, [], {"c": orders([3])})
        router.refresh()
        with router.lease([table]) as lease:
            assert names(lease) == ["c"]
    finally:
        router.close()


def test_tables_that_switch_together_are_seen_together(tables, router):
    """Takers look at both tables all the time; both carry the number of the switch they belong to."""
    first, second = tables.create(), tables.create(ITEMS)
    for table in (first, second):
        tables.push(table, [], {"v0": orders([1])})
    router.start()
    mixed, stop, taken = [], threading.Event(), [0]

    def look():
        while not stop.is_set():
            with router.lease([first, second]) as lease:
                seen = {names(lease, first)[0], names(lease, second)[0]}
                taken[0] += 1
            if len(seen) != 1:
                mixed.append(seen)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    for number in range(1, 40):
        entries = [
            (
                table,
                tables.start(table, [f"v{number - 1}"], {f"v{number}": orders([number])}),
                EntryState.COMPLETED,
            )
            for table in (first, second)
        ]
        tables.turn(*entries)
    until(lambda: router.epochs()[second] == 40, within_s=20)
    stop.set()
    for looker in lookers:
        looker.join()

    assert mixed == []
    assert taken[0] > 100


def test_a_broker_that_lost_its_connection_refuses_queries(tables, router):
    table = tables.create()
    router.start()
    tables.metastore.is_connected = lambda: False

    with pytest.raises(QueryFailed) as failed:
        router.lease([table])

    assert failed.value.code is QueryError.BROKER_RESOURCE_MISSING


def test_a_record_that_cannot_be_read_fails_its_table_only(tables, router):
    good, bad = tables.create(), tables.create(ITEMS)
    tables.push(bad, [], {"a": orders([1])})
    record = tables.metastore.read(lineage_path(bad))
    tables.metastore.write([Replace(lineage_path(bad), b"not a record", record.version)])

    router.start()

    with router.lease([good]) as lease:
        assert names(lease) == []
    with pytest.raises(QueryFailed) as failed:
        router.lease([bad])
    assert failed.value.code is QueryError.INTERNAL


def test_a_retained_snapshot_and_an_open_entry_can_be_read_without_switching(tables, router):
    table = tables.create()
    tables.push(table, [], {"a": orders([1])})
    first = tables.catalog.load(table).push.epoch
    second = tables.push(table, ["a"], {"b": orders([2])})
    opened = tables.start(table, ["b"], {"c": orders([3])})
    router.start()

    with router.take_as_of(table, entry_id=opened) as lease:
        assert names(lease) == ["c"]
    with router.take_as_of(table, entry_id=second) as lease:
        assert names(lease) == ["b"]
    with router.take_as_of(table, epoch=tables.catalog.load(table).push.epoch) as lease:
        assert names(lease) == ["b"]
    with router.lease([table]) as lease:
        assert names(lease) == ["b"]
    for wrong in ({"epoch": 77}, {"entry_id": "nobody"}):
        with pytest.raises(QueryFailed) as failed:
            router.take_as_of(table, **wrong)
        assert failed.value.code is QueryError.QUERY_VALIDATION
    until(lambda: announced(tables) == BrokerEpochs(epoch=2, applied=2))
    assert first == 1


def test_names_are_resolved_in_any_case_raw_or_typed(tables, router):
    tables.create()
    router.start()

    assert {router.resolve(name) for name in ("orders", "ORDERS", "Orders_offline")} == {"orders_OFFLINE"}
    assert router.resolve("order") is None
