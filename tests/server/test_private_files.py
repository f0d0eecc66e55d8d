"""What the service keeps is its owner's alone, also where the folder was there before, and for everybody."""

import os
import stat

import pyarrow as pa
import pytest

import holdfast
from harness.push_client import Client, make_table
from harness.push_jobs import push
from holdfast.push.metastore.open import open_metastore
from holdfast.storage.open import location_of, open_store


@pytest.fixture(autouse=True)
def _open_hearted():
    """As most systems set it: what is made is readable for all."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _modes(root):
    return {
        str(path.relative_to(root.parent)): stat.S_IMODE(path.stat().st_mode)
        for path in [root, *root.rglob("*")]
    }


def _check(root):
    for path, mode in _modes(root).items():
        expected = 0o700 if (root.parent / path).is_dir() else 0o600
        assert mode == expected, f"{path} has {mode:o}"


def test_files_and_folders_of_uploads_are_for_the_service_alone(serve, tmp_path):
    table = make_table(Client(serve()))
    table.push([], ["a"])
    table.push(["a"], ["b"])
    table.delete("a")

    kept = _modes(tmp_path / "segments")
    assert any(path.endswith(".parquet") for path in kept)
    _check(tmp_path / "segments")


def test_what_a_push_job_builds_in_the_deep_store_is_too(serve, tmp_path):
    running = serve()
    client = Client(running)
    table = make_table(client)

    push(running.controller_url, table.name, 1)

    assert [path for path in _modes(tmp_path / "segments") if path.endswith(".parquet")]
    _check(tmp_path / "segments")


def test_a_deep_store_that_was_there_is_closed_to_others_and_the_log_says_so(serve, tmp_path, caplog):
    root = tmp_path / "segments"
    root.mkdir(mode=0o755)
    assert stat.S_IMODE(root.stat().st_mode) == 0o755

    make_table(Client(serve())).push([], ["a"])

    _check(root)
    (told,) = [one for one in caplog.records if one.msg == "storage.closed_to_others"]
    assert (told.path, told.mode_before) == (str(root), "755")


def test_a_mount_of_another_user_is_not_touched_but_what_is_ours_in_it(serve, tmp_path, monkeypatch, caplog):
    root = tmp_path / "segments"
    root.mkdir(mode=0o755)
    (root / "Deleted_Segments").mkdir(mode=0o755)
    (root / "somebody's").mkdir(mode=0o755)
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (root / "Push_Runs").symlink_to(outside)
    fstat = os.fstat

    def of_another(descriptor):
        found = fstat(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}") != str(root):
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", of_another)
        serve()

    modes = _modes(root)
    assert modes["segments"] == 0o755
    assert modes["segments/Deleted_Segments"] == 0o700
    assert modes["segments/somebody's"] == 0o755
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    assert "service.deep_store_is_open" in [one.msg for one in caplog.records]


def test_a_store_that_everybody_could_read_is_closed(serve, tmp_path):
    with_store = serve()
    place = with_store.service.settings.store.removeprefix("sqlite:///")
    for suffix in ("", "-wal", "-shm"):
        os.chmod(place + suffix, 0o644)

    open_metastore(
        with_store.service.settings.store, with_store.service.settings.cluster, clock=with_store.service.clock
    ).close()

    for suffix in ("", "-wal", "-shm"):
        assert stat.S_IMODE(os.stat(place + suffix).st_mode) == 0o600, suffix


def test_lake_tables_and_other_folders_keep_to_the_umask(tmp_path):
    table = holdfast.create_table(str(tmp_path / "trips"), name="trips", record_key="id")
    table.insert(pa.table({"id": [1]}))

    modes = _modes(tmp_path / "trips")
    assert {mode for path, mode in modes.items() if path.endswith(".parquet")} == {0o644}
    assert modes["trips/.hoodie"] == 0o755
    open_store(location_of(str(tmp_path / "private"), is_private=True)).put("a/b", b"")
    _check(tmp_path / "private")
