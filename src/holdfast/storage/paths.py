"""Paths inside a store: which are allowed, and how they are taken apart."""

from holdfast.errors import InvalidRequest

_REFUSED_SEGMENTS = frozenset({"", ".", ".."})


def check_path(path: str) -> None:
    """Refuse what cannot name a file in every store."""
    if not _REFUSED_SEGMENTS.isdisjoint(path.split("/")) or "\0" in path or not is_text(path):
        raise InvalidRequest("not a path inside the store", path=repr(path))


def check_folder(folder: str) -> None:
    """As `check_path`; the root is a folder too."""
    if folder:
        check_path(folder)


def is_text(name: str) -> bool:
    """Whether the name can be written as UTF-8; a name read from a disk need not be."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def prefix_of(folder: str) -> str:
    """What every path below the folder begins with."""
    return f"{folder}/" if folder else ""


def outside(folder: str, paths: list[str]) -> list[str]:
    """The paths that are not below `folder`; all of them if it is empty."""
    return [path for path in paths if not path.startswith(f"{folder}/")] if folder else paths
