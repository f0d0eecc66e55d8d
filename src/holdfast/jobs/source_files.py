"""The files of a source: one listing of a folder, in a directory or in an object store."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.errors import InvalidRequest
from holdfast.storage.globs import glob_regex, split_glob
from holdfast.storage.open import location_of, open_store
from holdfast.storage.store import Store, StoredFile

_KINDS = ("glob", "regex")


@dataclass(frozen=True, slots=True)
class SourceFile:
    uri: str
    """An absolute path, or the address in an object store."""
    size: int
    modified_ms: int


@contextmanager
def name_key_on_error(line: int, key: str) -> Iterator[None]:
    """Say of a source that is not there which key of the job's file names it, if there is a file."""
    try:
        yield
    except InvalidRequest as error:
        if line:
            error.facts = {"line": line, "key": key, **error.facts}
        raise


def matching_files(path: str, *, storage_options: Mapping[str, str] | None = None) -> tuple[SourceFile, ...]:
    """The files that a glob names, by their addresses; none is no error, a folder that is missing is.

    A path without wildcards is a file, or a folder with everything in it.
    """
    folder, pattern = split_glob(path)
    if pattern:
        matches = glob_regex(pattern).fullmatch
        return _list_folder(
            folder,
            storage_options,
            # Names alone are matched by a pattern without folders, so what lies deeper is not listed.
            is_deep="/" in pattern or "**" in pattern,
            accepts=lambda name, _: matches(name) is not None,
        )
    place = location_of(path).uri
    if _is_object(place) or os.path.isdir(place):
        beneath = _list_folder(path, storage_options, is_deep=True, accepts=lambda *_: True)
        if beneath or not _is_object(place):
            return beneath
    return _single(path, storage_options)


def list_files(
    folder: str,
    *,
    recursive: bool = True,
    include: str = "",
    exclude: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> tuple[SourceFile, ...]:
    """The files beneath a folder whose whole address `include` matches and `exclude` does not.

    Both are `glob:…` or `regex:…`; empty ones match everything and nothing.
    """
    wanted, unwanted = _matcher(include), _matcher(exclude)

    def accepts(_: str, uri: str) -> bool:
        return (wanted is None or wanted(uri)) and not (unwanted is not None and unwanted(uri))

    return _list_folder(folder, storage_options, is_deep=recursive, accepts=accepts)


def _matcher(text: str) -> Callable[[str], bool] | None:
    """Whether an address matches; None if nothing is asked."""
    if not text:
        return None
    kind, colon, pattern = text.partition(":")
    if not colon or kind not in _KINDS:
        raise InvalidRequest("a pattern says glob: or regex: first", pattern=text)
    if kind == "glob":
        regex = glob_regex(pattern)
    else:
        try:
            regex = re.compile(pattern)
        except re.error as error:
            raise InvalidRequest("not a regular expression", pattern=pattern, cause=error) from error
    return lambda uri: regex.fullmatch(uri) is not None


def _list_folder(
    folder: str,
    storage_options: Mapping[str, str] | None,
    *,
    is_deep: bool,
    accepts: Callable[[str, str], bool],
) -> tuple[SourceFile, ...]:
    """The files whose path in the folder, and whose address, are accepted; sorted by their addresses."""
    location = location_of(folder, storage_options)
    if not _is_object(location.uri) and not os.path.isdir(location.uri):
        raise InvalidRequest("there is no such folder", folder=location.uri)
    store = open_store(location)
    found: list[SourceFile] = []
    for file in _files(store, is_deep=is_deep):
        if not _is_hidden(file.path):
            uri = store.uri(file.path)
            if accepts(file.path, uri):
                found.append(SourceFile(uri, file.size, file.modified_ms))
    return tuple(sorted(found, key=lambda file: file.uri))


def _single(path: str, storage_options: Mapping[str, str] | None) -> tuple[SourceFile, ...]:
    folder, _, name = path.rstrip("/").rpartition("/")
    store = open_store(location_of(folder or ("/" if path.startswith("/") else "."), storage_options))
    found = store.stat(name)
    if found is None:
        raise InvalidRequest("there is no such file or folder", path=path)
    return (SourceFile(store.uri(name), found.size, found.modified_ms),)


def _is_object(uri: str) -> bool:
    """Whether it is in an object store, where folders exist only as far as something is in them."""
    return ":/" in uri


def _files(store: Store, *, is_deep: bool) -> list[StoredFile]:
    return list(store.walk("")) if is_deep else list(store.folder("").files)


def _is_hidden(path: str) -> bool:
    """Whether Spark would skip the file, or a folder on the way to it."""
    return any(
        name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
        for name in path.split("/")
    )
