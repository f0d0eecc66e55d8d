"""A folder becomes a link between any two steps of a call: nothing behind it is touched or told."""

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from holdfast.errors import StorageUnavailable
from holdfast.storage.disk import Disk
from holdfast.storage.local import STAGING_FOLDER, LocalStore

STEPS = ("scandir", "open", "mkdir", "rmdir", "unlink", "link", "replace", "stat")


def _upload(store):
    with store.upload("day=1/new") as sink:
        sink.write(b"ours")


def _opened(store):
    with store.open("day=1/file") as source:
        return source.read()


CALLS = {
    "create": lambda store: store.create("day=1/new", b"ours"),
    "create in a new folder": lambda store: store.create("day=1/new/deep/file", b"ours"),
    "put": lambda store: store.put("day=1/file", b"ours"),
    "put in a new folder": lambda store: store.put("day=1/new/deep/file", b"ours"),
    "upload": _upload,
    "replace": lambda store: store.replace("day=1/file", b"ours", store.read_version("day=1/file")[1]),
    "delete": lambda store: store.delete("day=1/file"),
    "delete_all": lambda store: store.delete_all(["day=1/file", "day=1/empty/x"]),
    "prune": lambda store: store.prune("day=1"),
    "prune all": lambda store: store.prune(""),
    "walk": lambda store: [file.path for file in store.walk("")],
    "paths": lambda store: store.paths(""),
    "paths below": lambda store: store.paths("day=1"),
    "folder": lambda store: store.folder("day=1"),
    "stat": lambda store: store.stat("day=1/file"),
    "read": lambda store: store.read("day=1/file"),
    "open": _opened,
    "leftovers": lambda store: store.leftovers(),
    "sweep_leftovers": lambda store: store.sweep_leftovers(),
}


def _tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


class _Swapping:
    """Puts a link in the place of a folder right before the given step."""

    def __init__(self, monkeypatch, folder: Path, target: Path, at: int) -> None:
        self.left = at
        self._folder, self._target = folder, target
        self._real = {name: getattr(os, name) for name in STEPS}
        for name in STEPS:
            monkeypatch.setattr(os, name, self._stepping(name))

    def _stepping(self, name):
        def step(*arguments, **options):
            self.left -= 1
            if self.left == 0:
                os.rename(self._folder, f"{self._folder}-moved")
                os.symlink(self._target, self._folder)
            return self._real[name](*arguments, **options)

        return step


@pytest.mark.parametrize("has_nameless_files", [True, False], ids=["nameless", "staged"])
@pytest.mark.parametrize("swapped", ["day=1", ".hoodie", STAGING_FOLDER])
@pytest.mark.parametrize("call", CALLS)
def test_no_step_follows_a_link_that_came_in_between(
    tmp_path, monkeypatch, call, swapped, has_nameless_files
):
    for at in count(1):
        case = tmp_path / str(at)
        outside = case / "outside"
        (outside / "empty").mkdir(parents=True)
        (outside / ".holdfast" / "staging").mkdir(parents=True)
        for name in ("file", "precious"):
            (outside / name).write_bytes(b"precious")
        root = case / "table"
        (root / "day=1" / "empty").mkdir(parents=True)
        (root / "day=1" / "file").write_bytes(b"table's")
        (root / STAGING_FOLDER).mkdir(parents=True)
        before = _tree(outside)
        told = None
        with monkeypatch.context() as patched:
            swapping = _Swapping(patched, root / swapped, outside, at)
            disk = Disk(link=lambda *a, **o: os.link(*a, **o), has_nameless_files=has_nameless_files)
            with suppress(StorageUnavailable, OSError):
                told = CALLS[call](LocalStore(str(root), disk=disk))

        assert _tree(outside) == before, f"step {at}"
        assert "precious" not in repr(told), f"step {at}"
        if swapping.left > 0:
            assert at > 1
            return


def test_no_folder_is_made_behind_a_link(tmp_path, monkeypatch):
    outside, root = tmp_path / "outside", tmp_path / "table"
    outside.mkdir()
    root.mkdir()
    (root / "day=1").symlink_to(outside)

    with pytest.raises(StorageUnavailable):
        LocalStore(str(root)).create("day=1/new/file", b"")

    assert list(outside.iterdir()) == []
