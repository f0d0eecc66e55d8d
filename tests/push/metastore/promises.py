"""The promises of the metastore's port, as one suite that every implementation runs.

A subclass's module has a fixture `connect`, which gives a new connection to the
same records at every call, as another process would have.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import InvalidRequest, LineageChanged
from holdfast.push.metastore.port import Check, Create, Remove, Replace

SOON_S = 15
THREADS = 4
ROUNDS = 15


class Heard:
    """Counts calls, and waits for them."""

    def __init__(self):
        self.event = threading.Event()

    def __call__(self):
        self.event.set()

    def soon(self):
        heard = self.event.wait(SOON_S)
        self.event.clear()
        return heard


def eventually(condition):
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


class MetastorePromises:
    @pytest.fixture
    def store(self, connect):
        return connect()

    def test_a_record_that_was_created_is_read_with_its_version(self, store):
        store.write([Create("/a/b", b"one")])

        found = store.read("/a/b")

        assert found.data == b"one"
        assert isinstance(found.version, int)

    def test_an_absent_record_is_none(self, store):
        assert store.read("/a/b") is None
        assert store.read_all(["/a/b", "/c"]) == [None, None]

    def test_a_record_is_created_once(self, store):
        store.write([Create("/a", b"one")])

        with pytest.raises(LineageChanged, match="a record changed in the meantime"):
            store.write([Create("/a", b"two")])

        assert store.read("/a").data == b"one"

    def test_versions_grow_with_every_change(self, store):
        store.write([Create("/a", b"0")])
        versions = [store.read("/a").version]
        for number in range(5):
            store.write([Replace("/a", b"%d" % number, versions[-1])])
            versions.append(store.read("/a").version)

        assert versions == sorted(set(versions))

    def test_a_replacement_needs_the_exact_version(self, store):
        store.write([Create("/a", b"one")])
        first = store.read("/a").version
        store.write([Replace("/a", b"two", first)])

        for version in (first, first + 100, -1):
            with pytest.raises(LineageChanged):
                store.write([Replace("/a", b"three", version)])

        assert store.read("/a").data == b"two"

    def test_a_replacement_needs_the_record(self, store):
        with pytest.raises(LineageChanged):
            store.write([Replace("/a", b"one", 0)])

        assert store.read("/a") is None

    def test_a_removal_needs_the_exact_version(self, store):
        store.write([Create("/a", b"one")])
        version = store.read("/a").version

        for wrong in (version + 1, -1):
            with pytest.raises(LineageChanged):
                store.write([Remove("/a", wrong)])
        assert store.read("/a").data == b"one"
        store.write([Remove("/a", version)])

        assert store.read("/a") is None

    def test_a_removed_record_can_be_created_again(self, store):
        store.write([Create("/a/b", b"one")])
        store.write([Remove("/a/b", store.read("/a/b").version)])

        store.write([Create("/a/b", b"two")])

        assert store.read("/a/b").data == b"two"

    def test_all_changes_happen_together(self, store):
        store.write([Create("/a", b"a"), Create("/b", b"b"), Create("/c/d", b"d")])
        a, b = store.read("/a").version, store.read("/b").version

        store.write([Replace("/a", b"A", a), Remove("/b", b), Create("/e/f", b"f"), Check("/g", None)])

        found = store.read_all(["/a", "/b", "/c/d", "/e/f", "/g"])
        assert [record and record.data for record in found] == [b"A", None, b"d", b"f", None]

    @pytest.mark.parametrize(
        "broken",
        [
            Create("/b", b"x"),
            Replace("/b", b"x", 10**6),
            Replace("/absent", b"x", 0),
            Remove("/b", 10**6),
            Remove("/absent", 0),
            Check("/b", None),
            Check("/b", 10**6),
            Check("/absent", 0),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("is_first", [True, False])
    def test_one_version_that_does_not_match_stops_all_changes(self, store, broken, is_first):
        store.write([Create("/a", b"a"), Create("/b", b"b")])
        before = store.read_all(["/a", "/b"])
        good = [Replace("/a", b"A", before[0].version), Create("/new/one", b"n")]

        with pytest.raises(LineageChanged):
            store.write([broken, *good] if is_first else [*good, broken])

        assert store.read_all(["/a", "/b"]) == before
        assert store.read("/new/one") is None
        assert store.read("/absent") is None

    def test_a_check_changes_nothing(self, store):
        store.write([Create("/a", b"a")])
        before = store.read("/a")

        store.write([Check("/a", before.version), Check("/b", None)])

        assert store.read("/a") == before
        assert store.read("/b") is None

    def test_no_changes_are_no_change(self, store):
        store.write([])

    def test_children_are_sorted_names_directly_below(self, store):
        store.write([Create("/t/b", b"b"), Create("/t/a/x", b"x"), Create("/t/é", b"e"), Create("/tt", b"t")])

        assert store.children("/t") == ("a", "b", "é")
        assert store.children("/t/a") == ("x",)
        assert store.children("/absent") == ()

    def test_a_folder_is_not_a_record(self, store):
        store.write([Create("/t/a/x", b"x"), Create("/t/b", b"b")])

        assert store.read("/t/a") is None
        assert {name: record.data for name, record in store.read_children("/t").items()} == {"b": b"b"}

    def test_many_records_are_read_in_the_order_asked(self, store):
        paths = [f"/many/{number:04}" for number in range(500)]
        store.write([Create(path, path.encode()) for path in paths])
        asked = [*reversed(paths), "/many/absent", paths[0]]

        found = store.read_all(asked)

        assert [record and record.data.decode() for record in found] == [*reversed(paths), None, paths[0]]
        assert len(store.children("/many")) == 500
        assert store.read_children("/many")["0123"].data == b"/many/0123"

    def test_unusual_names_are_kept(self, store):
        names = ["a b", "a%2Fb", "ü-ß", "日本", "a~b", "x" * 180, "a'b;--", "100%_"]
        store.write([Create(f"/names/{name}", name.encode()) for name in names])

        assert store.children("/names") == tuple(sorted(names))
        assert {name: record.data.decode() for name, record in store.read_children("/names").items()} == {
            name: name for name in names
        }

    @pytest.mark.parametrize(
        "path", ["", "a", "/", "//a", "/a//b", "/a/", "/a/../b", "/.", "/a\0b", "/\ud800"]
    )
    def test_what_is_not_a_path_is_refused(self, store, path):
        with pytest.raises(InvalidRequest, match="not a path"):
            store.write([Create(path, b"x")])

    def test_an_empty_record_is_refused(self, store):
        with pytest.raises(InvalidRequest, match="empty"):
            store.write([Create("/a", b"")])

    def test_a_record_changed_twice_in_one_write_is_refused(self, store):
        with pytest.raises(InvalidRequest, match="twice"):
            store.write([Create("/a", b"1"), Create("/a", b"2")])

        assert store.read("/a") is None

    def test_j9_a_record_of_several_megabytes_is_kept_whole(self, store):
        content = b'{"names": "' + b"orders_OFFLINE_1732752000456_%d," * 100_000 + b'"}'

        store.write([Create("/large", content)])

        assert store.read("/large").data == content

    def test_what_one_connection_wrote_another_reads(self, connect):
        one, other = connect(), connect()
        one.write([Create("/a", b"one")])

        assert eventually(lambda: other.read("/a") is not None)
        other.write([Replace("/a", b"two", other.read("/a").version)])

        assert eventually(lambda: one.read("/a").data == b"two")

    def test_j34_of_two_that_create_the_same_record_one_wins(self, connect):
        stores = [connect() for _ in range(THREADS)]
        barrier = threading.Barrier(THREADS)

        def create(number):
            barrier.wait()
            try:
                stores[number].write([Create("/first", b"%d" % number)])
            except LineageChanged:
                return None
            return b"%d" % number

        with ThreadPoolExecutor(THREADS) as pool:
            winners = [data for data in pool.map(create, range(THREADS)) if data is not None]

        assert winners == [stores[0].read("/first").data]

    def test_l9_no_change_is_lost_among_several_writers(self, connect):
        stores = [connect() for _ in range(THREADS)]
        stores[0].write([Create("/counter", b"0"), Create("/twin", b"0")])

        def run(store):
            done = 0
            while done < ROUNDS:
                counter, twin = store.read_all(["/counter", "/twin"])
                if counter is None or twin is None:
                    continue
                after = b"%d" % (int(counter.data) + 1)
                try:
                    store.write(
                        [
                            Replace("/counter", after, counter.version),
                            Replace("/twin", after, twin.version),
                        ]
                    )
                except LineageChanged:
                    continue
                done += 1

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(run, stores))

        counter, twin = stores[0].read_all(["/counter", "/twin"])
        assert eventually(lambda: stores[0].read("/counter").data == b"%d" % (THREADS * ROUNDS))
        assert counter.data == twin.data

    def test_a_watch_tells_of_the_record_and_of_those_below(self, connect):
        one, other = connect(), connect()
        one.write([Create("/watched", b"1"), Create("/folder/a", b"1")])
        assert eventually(lambda: other.read("/folder/a") is not None)
        record, folder = Heard(), Heard()
        other.watch("/watched", record)
        other.watch("/folder", folder)

        one.write([Replace("/watched", b"2", one.read("/watched").version)])
        assert record.soon()
        assert other.read("/watched").data == b"2"

        one.write([Create("/folder/b", b"1")])
        assert folder.soon()
        assert other.read("/folder/b") is not None
        assert eventually(lambda: _changed(one, "/folder/b", folder))
        assert eventually(lambda: _changed(one, "/folder/a", folder))

    def test_a_watch_tells_of_every_change_in_a_row(self, connect):
        one, other = connect(), connect()
        one.write([Create("/watched", b"0")])
        heard = Heard()
        other.watch("/watched", heard)

        for number in range(1, 10):
            one.write([Replace("/watched", b"%d" % number, one.read("/watched").version)])
            assert eventually(lambda number=number: other.read("/watched").data == b"%d" % number)
            assert heard.soon()

    def test_a_watch_tells_of_creation_and_removal(self, connect):
        one, other = connect(), connect()
        heard = Heard()
        other.watch("/later", heard)

        one.write([Create("/later", b"1")])
        assert heard.soon()
        one.write([Remove("/later", one.read("/later").version)])

        assert heard.soon()
        assert eventually(lambda: other.read("/later") is None)

    def test_a_watch_tells_the_process_that_made_the_change(self, store):
        heard = Heard()
        store.watch("/own", heard)

        store.write([Create("/own", b"1")])

        assert heard.soon()

    def test_a_watch_that_ended_is_not_told(self, connect):
        one, other = connect(), connect()
        ended, open_ = Heard(), Heard()
        end = other.watch("/a", ended)
        other.watch("/a", open_)
        end()
        end()

        one.write([Create("/a", b"1")])

        assert open_.soon()
        assert not ended.event.is_set()

    def test_a_watcher_that_raises_does_not_silence_the_others(self, connect):
        one, other = connect(), connect()

        def fail():
            raise ValueError("broken watcher")

        heard = Heard()
        other.watch("/a", fail)
        other.watch("/a", heard)

        one.write([Create("/a", b"1")])
        assert heard.soon()
        one.write([Replace("/a", b"2", one.read("/a").version)])

        assert heard.soon()

    def test_an_announcement_lives_as_long_as_its_connection(self, connect):
        one, other = connect(), connect()
        heard = Heard()
        one.announce("/brokers/t/b1", b"17")
        assert eventually(lambda: other.read("/brokers/t/b1") is not None)
        other.watch("/brokers/t", heard)

        one.close()

        assert heard.soon()
        assert eventually(lambda: other.children("/brokers/t") == ())

    def test_an_announcement_is_overwritten_and_withdrawn(self, connect):
        one, other = connect(), connect()
        one.announce("/brokers/t/b1", b"17")
        one.announce("/brokers/t/b1", b"18")
        assert eventually(lambda: (found := other.read("/brokers/t/b1")) and found.data == b"18")

        one.withdraw("/brokers/t/b1")
        one.withdraw("/brokers/t/b1")

        assert eventually(lambda: other.read("/brokers/t/b1") is None)
        assert one.is_connected()

    def test_nobody_withdraws_the_announcement_of_another(self, connect):
        one, other = connect(), connect()
        one.announce("/brokers/t/b1", b"17")
        other.withdraw("/brokers/t/b1")

        assert one.read("/brokers/t/b1").data == b"17"

    def test_a_claim_has_one_owner(self, connect):
        one, other = connect(), connect()

        assert one.claim("retention", "controller-1")
        assert one.claim("retention", "controller-1")
        assert not other.claim("retention", "controller-2")
        assert not other.claim("retention", "controller-1")
        assert other.claim("else", "controller-2")

    def test_a_claim_passes_on_when_its_owner_is_gone(self, connect):
        one, other = connect(), connect()
        assert one.claim("retention", "controller-1")

        one.close()

        assert eventually(lambda: other.claim("retention", "controller-2"))

    def test_of_several_that_claim_at_once_one_wins(self, connect):
        stores = [connect() for _ in range(THREADS)]
        barrier = threading.Barrier(THREADS)

        def claim(number):
            barrier.wait()
            return stores[number].claim("leader", f"c{number}")

        with ThreadPoolExecutor(THREADS) as pool:
            assert sum(pool.map(claim, range(THREADS))) == 1

    def test_closing_twice_is_allowed(self, connect):
        store = connect()
        store.announce("/a", b"1")

        store.close()
        store.close()

        assert not store.is_connected()


def _changed(store, path, heard):
    """One change of the record, and whether the watch told of it.

    Asked until it did: changes in quick succession are merged into one call.
    """
    heard.event.clear()
    store.write([Replace(path, b"again", store.read(path).version)])
    return heard.event.wait(2)
