"""Which lock a table gets: from Hudi's options, at one place, and always the same."""

import subprocess
import sys

import pytest

import holdfast
from harness.world import LOCATION, World, memory_world, rows
from holdfast.clock import SystemClock
from holdfast.concurrency.locks.identity import IDENTITY_FILE, RELEASED, read_identity
from holdfast.concurrency.locks.lock import NO_LOCK
from holdfast.concurrency.locks.open import open_lock
from holdfast.concurrency.locks.xxhash import xxhash64
from holdfast.concurrency.locks.zookeeper_place import hosts_of, path_of
from holdfast.config.choices import LockProvider
from holdfast.config.locks import LockSettings
from holdfast.config.option import Area
from holdfast.config.option_table import options_of
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption, LockTimeout, TableDamaged
from holdfast.host import SystemHost
from holdfast.model.reports import Severity
from holdfast.services.rollback.undo import undo
from holdfast.services.verify.verify import verify
from holdfast.storage.local import LocalStore
from holdfast.storage.open import location_of
from holdfast.table.opened import open_at, open_existing

PROVIDER = "hoodie.write.lock.provider"
ZOOKEEPER = {
    PROVIDER: "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.url": "zk1,ZK2:2182",
    "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
}
FILE = LockSettings(provider=LockProvider.FILE, wait_ms=0, client_retries=0)


@pytest.fixture
def world() -> World:
    world = memory_world()
    world.create()
    return world


@pytest.mark.parametrize("provider", LockProvider)
@pytest.mark.parametrize("prefix", ["", "org.apache.hudi.client.transaction.lock."])
def test_a_provider_is_known_by_hudis_class_name_or_its_last_part(provider, prefix):
    settings = LockSettings.from_options({**ZOOKEEPER, PROVIDER: prefix + provider})

    assert settings.provider is provider


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
        "file",
    ],
)
def test_a_provider_that_is_not_there_is_refused_with_those_that_are(name):
    with pytest.raises(InvalidOption, match=r"not supported.*use one of InProcessLockProvider, File"):
        LockSettings.from_options({PROVIDER: name})


def test_no_options_of_a_lock_mean_no_lock():
    assert LockSettings.from_options({"hoodie.table.name": "trips"}) is None
    assert LockSettings.from_options(None) is None


def test_options_of_a_lock_without_a_provider_are_refused():
    with pytest.raises(InvalidOption, match=r"no lock provider.*zookeeper\.url"):
        LockSettings.from_options({"hoodie.write.lock.zookeeper.url": "zk1"})


def test_every_option_reaches_its_setting():
    numbers = {
        option.names[-1]: str(1000 + index)
        for index, (setting, option) in enumerate(options_of(Area.LOCK).items())
        if isinstance(getattr(FILE, setting), int)
    }
    numbers["hoodie.write.lock.storage.validity.timeout.secs"] = "50000"
    texts = {
        "hoodie.write.lock.filesystem.path": "/locks",
        "hoodie.write.lock.zookeeper.url": "zk",
        "hoodie.write.lock.zookeeper.base_path": "/base",
        "hoodie.write.lock.zookeeper.lock_key": "key",
    }
    settings = LockSettings.from_options({PROVIDER: "InProcessLockProvider", **numbers, **texts})

    given = {PROVIDER: "InProcessLockProvider", **numbers, **texts}
    found = {each.names[-1]: str(getattr(settings, each.setting)) for each in options_of(Area.LOCK).values()}
    assert found == given


def test_the_newer_name_of_an_option_wins():
    options = {
        PROVIDER: "StorageBasedLockProvider",
        "hoodie.write.lock.storage.heartbeat.poll.secs": "7",
        "hoodie.write.lock.storage.renew.interval.secs": "5",
    }

    assert LockSettings.from_options(options).storage_renewal_s == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("storage.validity.timeout.secs", "299"),
        ("storage.validity.timeout.secs", "soon"),
        ("storage.renew.interval.secs", "31"),
        ("storage.renew.interval.secs", "0"),
        ("filesystem.expire", "-1"),
        ("wait_time_ms_between_retry", "0"),
        ("max_wait_time_ms_between_retry", "999"),
        ("zookeeper.base_path", "relative"),
        ("zookeeper.base_path", ""),
        ("zookeeper.url", ""),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_the_name_of_its_option(name, value):
    with pytest.raises(InvalidOption, match=r"hoodie\.write\.lock"):
        LockSettings.from_options({**ZOOKEEPER, f"hoodie.write.lock.{name}": value})


def test_a_lock_object_must_be_valid_for_ten_renewals_and_ten_seconds():
    def settings(validity: int, renewal: int) -> LockSettings:
        return LockSettings(
            provider=LockProvider.STORAGE, storage_validity_s=validity, storage_renewal_s=renewal
        )

    settings(10, 1)
    settings(300, 30)
    for validity, renewal in ((9, 1), (299, 30), (300, 31)):
        with pytest.raises(InvalidOption):
            settings(validity, renewal)


def test_patience_is_the_sum_of_all_waits_that_hudi_would_make():
    assert LockSettings(provider=LockProvider.FILE).patience_ms == 51 * 60_000 + 50 * 5_000


# Identity


def test_the_first_lock_is_recorded_and_the_same_one_is_accepted(world):
    open_lock(world.open(), FILE)
    open_lock(world.open(), FILE)

    recorded = read_identity(world.store)
    assert str(recorded) == "FileSystemBasedLockProvider at .hoodie/lock"
    assert recorded.settings == FILE


def test_k5_83_another_lock_than_the_tables_is_refused_and_both_are_named(world):
    open_lock(world.open(), FILE)

    with pytest.raises(InvalidOption) as refusal:
        open_lock(world.open(), LockSettings(provider=LockProvider.STORAGE))

    assert "FileSystemBasedLockProvider at .hoodie/lock" in str(refusal.value)
    assert "StorageBasedLockProvider at .hoodie/.locks/table_lock.json" in str(refusal.value)
    assert f"write null into {IDENTITY_FILE}" in str(refusal.value)


def test_k5_83_another_place_of_the_same_provider_is_refused(tmp_path):
    world = World(LocalStore(str(tmp_path / "table")))
    table = world.create()
    open_lock(table, FILE)
    elsewhere = LockSettings(provider=LockProvider.FILE, file_folder=str(tmp_path / "locks"))

    with pytest.raises(InvalidOption, match=r"\.hoodie/lock.*given: .*/locks/lock"):
        open_lock(table, elsewhere)


def test_k5_83_writing_without_a_lock_is_refused_where_there_was_one(world):
    assert open_lock(world.open(), None) is NO_LOCK
    open_lock(world.open(), FILE)

    with pytest.raises(InvalidOption, match=r"no lock provider is set.*set hoodie\.write\.lock\.provider"):
        open_lock(world.open(), None)


STORAGE = LockSettings(provider=LockProvider.STORAGE)
LOCKED = WriteSettings(lock=FILE)


def test_a_lock_whose_record_is_gone_is_missed(world):
    world.write("insert", rows("a"), LOCKED)
    world.store.delete(IDENTITY_FILE)

    with pytest.raises(TableDamaged, match=r"the record of it is missing.*FileSystemBasedLockProvider"):
        world.insert("b")
    with pytest.raises(TableDamaged, match=IDENTITY_FILE):
        undo(world.open())
    with pytest.raises(InvalidOption, match="under another lock"):
        open_lock(world.open(), STORAGE)
    [finding] = verify(world.open()).findings
    assert (finding.path, finding.severity) == (IDENTITY_FILE, Severity.WARNING)
    assert len(world.commit_times()) == 1

    world.write("insert", rows("c"), LOCKED)  # Records it anew.

    assert verify(world.open()).is_clean
    with pytest.raises(InvalidOption, match="no lock provider is set"):
        world.insert("b")


def test_a_lock_is_missed_after_a_checkpoint_too(world):
    world.checkpoint_after = 3
    for key in "abcdef":
        world.write("insert", rows(key), LOCKED)
    world.store.delete(IDENTITY_FILE)

    with pytest.raises(TableDamaged, match="the record of it is missing"):
        world.insert("g")


@pytest.mark.parametrize("following", [STORAGE, None])
def test_null_in_the_record_is_how_a_lock_is_changed(world, following):
    world.write("insert", rows("a"), LOCKED)

    world.store.put(IDENTITY_FILE, RELEASED + b"\n")
    assert verify(world.open()).is_clean
    world.write("insert", rows("b"), WriteSettings(lock=following))

    recorded = read_identity(world.store)
    assert (recorded and recorded.settings) == following
    assert world.open().ledger.read().lock == str(recorded or "")
    assert verify(world.open()).is_clean
    if following is not None:
        with pytest.raises(InvalidOption, match="under another lock"):
            open_lock(world.open(), FILE)


def test_a_record_that_says_something_else_than_the_ledger_is_told(world):
    world.write("insert", rows("a"), LOCKED)
    world.store.put(IDENTITY_FILE, world.store.read(IDENTITY_FILE).replace(b"hoodie/lock", b"hoodie/lick"))

    with pytest.raises(InvalidOption, match=r"another lock.*hoodie/lick"):
        world.write("insert", rows("b"), LOCKED)
    with pytest.raises(InvalidOption, match=r"another lock.*hoodie/lick"):
        undo(world.open())
    [finding] = verify(world.open()).findings
    assert "hoodie/lick" in finding.detail
    assert "ledger says" in finding.detail


def test_the_lock_of_a_table_of_before_gets_into_the_ledger(world):
    open_lock(world.open(), FILE)
    assert world.open().ledger.read().lock == ""

    world.write("insert", rows("a"), LOCKED)

    assert world.open().ledger.read().lock == "FileSystemBasedLockProvider at .hoodie/lock"


def test_a_damaged_record_is_told(world):
    world.store.put(IDENTITY_FILE, b"{")

    with pytest.raises(TableDamaged, match=IDENTITY_FILE):
        open_lock(world.open(), None)


# Places


@pytest.mark.parametrize("provider", [LockProvider.IN_PROCESS, LockProvider.FILE, LockProvider.STORAGE])
def test_two_who_open_the_same_lock_exclude_each_other(tmp_path, provider):
    settings = LockSettings(provider=provider, wait_ms=0, client_retries=0)
    table = _table(tmp_path)

    with open_lock(table, settings).hold(), pytest.raises(LockTimeout):
        open_lock(table, settings).hold().__enter__()

    with open_lock(table, settings).hold():
        pass


def test_a_lock_file_can_be_in_another_folder(tmp_path):
    settings = LockSettings(provider=LockProvider.FILE, file_folder=f"{tmp_path}/locks/")

    with open_lock(_table(tmp_path / "table"), settings).hold():
        assert (tmp_path / "locks" / "lock").is_file()

    assert not (tmp_path / "locks" / "lock").exists()


def test_a_folder_inside_the_table_is_the_same_however_the_table_is_moved(tmp_path):
    folder = f"{LOCATION.uri.rstrip('/')}/.hoodie/.aux"
    world = memory_world()
    world.create()

    open_lock(world.open(), LockSettings(provider=LockProvider.FILE, file_folder=folder))

    assert b'"place":".hoodie/.aux/lock"' in world.store.read(IDENTITY_FILE)


def _table(folder):
    world = World(LocalStore(str(folder)))
    world.create()
    return open_existing(world.store, location_of(str(folder)), clock=SystemClock(), host=SystemHost())


# ZooKeeper, without a server


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
    ],
)
def test_xxhash_is_as_published(data, value):
    assert xxhash64(data, 0) == value


def test_servers_are_named_in_one_order_with_their_ports():
    settings = LockSettings.from_options({**ZOOKEEPER, "hoodie.write.lock.zookeeper.port": "2199"})

    assert hosts_of(settings) == "zk1:2199,zk2:2182"


def test_servers_may_have_a_path_for_a_root():
    settings = LockSettings.from_options(
        {**ZOOKEEPER, "hoodie.write.lock.zookeeper.url": "b:1,[::1]:2,a/lake/"}
    )

    assert hosts_of(settings) == "[::1]:2,a:2181,b:1/lake"


def test_the_path_ends_in_the_key_or_the_name_of_the_table():
    named = LockSettings.from_options(ZOOKEEPER)
    keyed = LockSettings.from_options({**ZOOKEEPER, "hoodie.write.lock.zookeeper.lock_key": "mine"})

    assert path_of(named, table_uri="/lake/trips", table_name="trips") == "/hudi/locks/trips"
    assert path_of(keyed, table_uri="/lake/trips", table_name="trips") == "/hudi/locks/mine"


def test_the_implicit_path_is_the_same_for_all_spellings_of_a_bucket():
    settings = LockSettings.from_options({**ZOOKEEPER, PROVIDER: LockProvider.ZOOKEEPER_BY_TABLE})
    paths = {
        path_of(settings, table_uri=uri, table_name="trips")
        for uri in ("s3://lake/trips", "s3a://lake/trips", "S3A://lake/trips", "s3://lake/trips/")
    }

    (path,) = paths
    assert path.startswith("/tmp/")
    assert path.endswith("/lock_key")
    assert len(path) == len("/tmp/") + 16 + len("/lock_key")


def test_the_implicit_path_is_the_same_through_a_link(tmp_path):
    settings = LockSettings.from_options({**ZOOKEEPER, PROVIDER: LockProvider.ZOOKEEPER_BY_TABLE})
    holdfast.create_table(str(tmp_path / "trips"), name="trips", record_key="id")
    (tmp_path / "link").symlink_to(tmp_path / "trips")

    for name in ("trips", "link"):
        open_lock(open_at(str(tmp_path / name)), settings)  # Refused if it were another lock.


def test_without_kazoo_the_option_says_what_to_install():
    """In a process of its own, because this one has kazoo."""
    script = f"""
import sys
sys.modules["kazoo"] = None
from harness.world import memory_world
from holdfast.concurrency.locks.open import open_lock
from holdfast.config.locks import LockSettings
world = memory_world()
world.create()
open_lock(world.open(), LockSettings.from_options({ZOOKEEPER!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd="tests", capture_output=True, text=True)

    assert "pip install 'holdfast-lake[zookeeper]'" in done.stderr
