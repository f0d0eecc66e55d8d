"""What is special about object stores: the wire, its faults, and other programs' objects."""

import json
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator

import pytest
from obstore.store import AzureStore, GCSStore, S3Store

from holdfast.errors import InvalidRequest, StorageUnavailable
from holdfast.storage.objects import ObjectStore
from holdfast.storage.open import open_store
from holdfast.storage.store import Folder

from .conftest import BUCKET, S3Server
from .wire import Wire, wire_server

HTTP = {"allow_http": True}
NO_RETRIES = {"max_retries": 0}


@pytest.fixture
def wire() -> Iterator[Wire]:
    with wire_server() as wire:
        yield wire


def s3(wire: Wire, **options: object) -> ObjectStore:
    objects = S3Store(
        "b",
        endpoint=wire.endpoint,
        access_key_id="key",
        secret_access_key="secret",
        region="us-east-1",
        client_options=HTTP,
        **options,
    )
    return ObjectStore(objects, "s3://b")


def google(wire: Wire) -> ObjectStore:
    # An account without OAuth: otherwise the client would ask the machine's metadata service for a token.
    account = {
        "gcs_base_url": wire.endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    objects = GCSStore(
        "b", service_account_key=json.dumps(account), client_options=HTTP, retry_config=NO_RETRIES
    )
    return ObjectStore(objects, "gs://b")


def azure(wire: Wire) -> ObjectStore:
    objects = AzureStore(
        "b",
        endpoint=wire.endpoint,
        account_name="account",
        account_key="a2V5",
        client_options=HTTP,
        retry_config=NO_RETRIES,
    )
    return ObjectStore(objects, "az://b")


@pytest.mark.parametrize(
    ("connect", "create_condition", "replace_condition"),
    [
        (s3, ("If-None-Match", "*"), ("If-Match", '"tag-1"')),
        (google, ("x-goog-if-generation-match", "0"), ("x-goog-if-generation-match", "1")),
        (azure, ("If-None-Match", "*"), ("If-Match", '"tag-1"')),
    ],
    ids=["s3", "google", "azure"],
)
def test_each_service_is_asked_for_its_own_kind_of_condition(
    wire: Wire, connect, create_condition, replace_condition
):
    store = connect(wire)

    assert store.create("file", b"one") is True
    assert store.create("file", b"two") is False
    content, version = store.read_version("file")
    assert store.replace("file", content + b"!", version) is True
    assert store.replace("file", content + b"?", version) is False

    assert content == b"one"
    assert store.read("file") == b"one!"
    assert wire.conditions == [create_condition] * 2 + [replace_condition] * 2


def test_create_may_deny_its_own_success_when_the_client_repeats_it(wire: Wire):
    store = s3(wire)
    wire.errors_after_success = 1

    won = store.create("file", b"mine")

    assert won is False
    assert store.read("file") == b"mine"


def test_promise_8_an_error_of_the_service_names_the_path(wire: Wire):
    store = s3(wire, retry_config=NO_RETRIES)
    wire.errors_after_success = 1

    with pytest.raises(StorageUnavailable, match="storage refused") as caught:
        store.create("folder/file", b"")

    assert caught.value.facts["path"] == "folder/file"
    assert "500" in str(caught.value.facts["cause"])


def test_promise_8_a_service_that_is_not_there_is_unavailable_to_every_verb():
    with wire_server() as wire:
        store = s3(wire, retry_config=NO_RETRIES)

    for act in (
        lambda: store.create("file", b""),
        lambda: store.put("file", b""),
        lambda: store.read("file"),
        lambda: store.read_version("file"),
        lambda: store.replace("file", b"", "version"),
        lambda: store.stat("file"),
        lambda: store.delete("file"),
        lambda: store.paths("file"),
        lambda: store.walk("file"),
        lambda: store.folder("file"),
        lambda: store.folder("file", after="x"),
        lambda: store.open("file"),
        lambda: _upload(store),
    ):
        with pytest.raises(StorageUnavailable) as caught:
            act()
        assert caught.value.facts["path"] == "file"
    assert store.delete_all(["file", "other"]) == ("file", "other")


def _upload(store: ObjectStore) -> None:
    with store.upload("file") as sink:
        sink.write(b"x")


def test_promise_8_a_bucket_that_is_not_there_is_no_absent_file_to_a_writer(s3_server: S3Server):
    location = s3_server.location("")
    objects = S3Store(
        "no-such-bucket",
        endpoint=s3_server.endpoint,
        access_key_id="key",
        secret_access_key="secret",
        region="us-east-1",
        client_options=HTTP,
    )
    store = ObjectStore(objects, location.uri)

    with pytest.raises(StorageUnavailable):
        store.create("file", b"")
    with pytest.raises(StorageUnavailable):
        store.paths("")


def test_a_source_whose_object_vanishes_is_unavailable_storage(wire: Wire):
    store = s3(wire, retry_config=NO_RETRIES)
    store.put("file", b"x" * 3_000_000)
    source = store.open("file")
    assert source.read(1) == b"x"

    wire.objects.clear()

    with pytest.raises(StorageUnavailable):
        source.read()


def test_control_characters_are_refused_as_a_path(s3_server: S3Server):
    store = open_store(s3_server.location("x"))

    with pytest.raises(InvalidRequest, match="not a path for an object store"):
        store.create("tab\there", b"")


def test_the_objects_that_hadoop_leaves_for_folders_are_no_files(s3_server: S3Server):
    prefix = uuid.uuid4().hex
    store = open_store(s3_server.location(prefix))
    for key in ["day=1/", "day=1/hour=2/", "day=1/hour=2/file", "day=1-/"]:
        s3_server.put_raw(f"{prefix}/{key}", b"")
    store.create("day=1-/empty", b"")

    assert store.paths("") == ["day=1-/empty", "day=1/hour=2/file"]
    assert [file.path for file in store.walk("day=1")] == ["day=1/hour=2/file"]
    assert store.folder("day=1") == Folder((), ("day=1/hour=2",))
    assert store.folder("", after="day") == Folder((), ("day=1", "day=1-"))


def test_an_empty_folder_of_hadoop_is_a_folder_in_a_listing_from_a_name_on(s3_server: S3Server):
    prefix = uuid.uuid4().hex
    store = open_store(s3_server.location(prefix))
    store.create("flat/1", b"entry")
    s3_server.put_raw(f"{prefix}/flat/2/", b"")

    listed = store.folder("flat", after="0")

    assert [file.path for file in listed.files] == ["flat/1"]
    assert listed.folders == ("flat/2",)


def test_an_upload_needs_far_less_memory_than_the_file_has_bytes(s3_server: S3Server):
    location = s3_server.location(uuid.uuid4().hex)
    program = textwrap.dedent(
        f"""
        import threading
        from holdfast.storage.open import open_store
        from holdfast.storage.store import StoreLocation

        def anonymous_kib():
            lines = open("/proc/self/status").read().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

        store = open_store(StoreLocation({location.uri!r}, {location.options!r}))
        store.create("warm", b"")
        before, peak, done = anonymous_kib(), 0, threading.Event()

        def watch():
            global peak
            while not done.wait(0.002):
                peak = max(peak, anonymous_kib())

        watcher = threading.Thread(target=watch)
        watcher.start()
        with store.upload("data") as sink:
            for _ in range(48):
                sink.write(bytes(1 << 20))
        done.set()
        watcher.join()
        print(peak - before, store.stat("data").size)
        """
    )

    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    grown_kib, size = map(int, finished.stdout.split())
    assert size == 48 << 20
    assert grown_kib < 16 << 10


def test_the_uri_of_an_object_is_below_the_location(s3_server: S3Server):
    store = open_store(s3_server.location("tables/a"))

    assert store.uri("day=1/x y") == f"s3://{BUCKET}/tables/a/day=1/x y"
