"""Opening stores by address."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import InvalidOption, InvalidRequest
from holdfast.storage.local import LocalStore
from holdfast.storage.objects import ObjectStore
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation

S3_KEYS = {"access_key_id": "key", "secret_access_key": "secret", "region": "us-east-1"}
AZURE_KEYS = {"account_name": "account", "account_key": "a2V5"}
GOOGLE_ACCOUNT = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
GOOGLE_KEYS = {"service_account_key": json.dumps(GOOGLE_ACCOUNT)}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/tables/a", "/tables/a"),
        ("/tables/a b#c%20d", "/tables/a b#c%20d"),
        ("file:///tables/a", "/tables/a"),
        ("file:/tables/a", "/tables/a"),
        ("FILE://localhost/tables/a", "/tables/a"),
        ("file:///tables/a%20b", "/tables/a b"),
        ("file:///tables/a#b?c", "/tables/a#b?c"),
    ],
)
def test_paths_and_file_addresses_are_local(uri: str, path: str):
    store = open_store(StoreLocation(uri, {}))

    assert isinstance(store, LocalStore)
    assert store.uri("file") == f"{path}/file"


def test_a_relative_path_is_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    assert open_store(StoreLocation("tables/a", {})).uri("") == f"{tmp_path}/tables/a"


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket/tables/a", S3_KEYS),
        ("s3a://bucket/tables/a", {f"aws_{name}": value for name, value in S3_KEYS.items()}),
        ("gs://bucket/tables/a", GOOGLE_KEYS),
        ("az://container/tables/a", AZURE_KEYS),
        ("adl://container/tables/a", AZURE_KEYS),
        ("abfs://container@account.dfs.core.windows.net/tables/a", AZURE_KEYS),
        ("abfss://container@account.dfs.core.windows.net/tables/a", AZURE_KEYS),
    ],
)
@pytest.mark.parametrize(
    "connection", [{}, {"allow_http": "true", "timeout": "5s"}, {"aws_allow_http": "true"}]
)
def test_object_store_addresses_are_opened_without_a_request(
    uri: str, options: dict[str, str], connection: dict[str, str]
):
    store = open_store(StoreLocation(uri, options | connection))

    assert isinstance(store, ObjectStore)
    assert store.uri("file") == f"{uri}/file"


@pytest.mark.parametrize(
    "uri", ["memory:///a", "hdfs://name/a", "http://host/a", "s3:/bucket/a", "s3n://b/a"]
)
def test_an_unknown_scheme_is_refused_with_the_known_ones(uri: str):
    with pytest.raises(InvalidRequest, match="the scheme is not known") as caught:
        open_store(StoreLocation(uri, {}))

    assert caught.value.hint == "use a path or one of file, s3, s3a, gs, az, abfs, abfss, adl"


@pytest.mark.parametrize("uri", ["", "file://other-machine/tables", "s3://", "/a\0b"])
def test_an_address_without_a_place_is_refused(uri: str):
    with pytest.raises(InvalidRequest):
        open_store(StoreLocation(uri, {}))


def test_an_option_that_the_service_does_not_know_is_refused():
    with pytest.raises(InvalidOption, match="nonsense"):
        open_store(StoreLocation("s3://bucket/a", S3_KEYS | {"nonsense": "1"}))


def test_an_option_with_a_bad_value_is_refused():
    for option in ({"timeout": "soon"}, {"virtual_hosted_style_request": "perhaps"}):
        with pytest.raises(InvalidRequest, match="failed to parse"):
            open_store(StoreLocation("s3://bucket/a", S3_KEYS | option))


def test_a_local_store_is_opened_without_loading_the_object_store_client(tmp_path: Path):
    program = (
        "import sys\n"
        "from holdfast.storage.open import open_store\n"
        "from holdfast.storage.store import StoreLocation\n"
        f"open_store(StoreLocation({str(tmp_path)!r}, {{}})).create('file', b'')\n"
        "print('obstore' in sys.modules)\n"
    )

    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert finished.stdout == "False\n"
    assert (tmp_path / "file").exists()
