"""Folders and files that are for the user of this process alone."""

import logging
import os
import stat

log = logging.getLogger(__name__)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def close_folder(path: str, *, follows_link: bool = False) -> bool:
    """Take the rights of everybody else to a folder that is there; False if it is another user's."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follows_link else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return True
    try:
        return close_opened(descriptor, path)
    finally:
        os.close(descriptor)


def close_opened(descriptor: int, path: str) -> bool:
    """As `close_folder`, for what is open already; `path` is for the log."""
    found = os.fstat(descriptor)
    if not found.st_mode & _OTHERS:
        return True
    if found.st_uid != os.geteuid():
        return False
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_OTHERS)
    log.warning(
        "storage.closed_to_others", extra={"path": path, "mode_before": f"{stat.S_IMODE(found.st_mode):o}"}
    )
    return True
