"""Line records: small files beside the ledger that hold lines, and the digest of them.

They speed something up, or remember what the timeline tells no more; nothing is
decided by them.
"""

import hashlib
from collections.abc import Callable, Sequence

from holdfast.format.malformed import Malformed
from holdfast.storage.store import Store

Lines = tuple[str, ...]


def change_lines(store: Store, path: str, change: Callable[[bytes | None], Sequence[str] | None]) -> None:
    """Store what `change` makes of the record's content, None if it is not there, whoever changes it, too.

    `change` runs again whenever another process was faster; None leaves the record as it is.
    """
    while True:
        content: bytes | None
        try:
            content, version = store.read_version(path)
        except FileNotFoundError:
            content, version = None, ""
        lines = change(content)
        if lines is None:
            return
        stored = encode_lines(lines)
        if store.create(path, stored) if content is None else store.replace(path, stored, version):
            return


def encode_lines(lines: Sequence[str]) -> bytes:
    text = "".join(f"{line}\n" for line in lines).encode()
    return _digest(text) + b"\n" + text


def decode_lines(content: bytes) -> Lines:
    """The lines; `Malformed` if they are not those that were written."""
    digest, _, text = content.partition(b"\n")
    if digest != _digest(text):
        raise Malformed("its digest is not that of its content")
    return tuple(text.decode().split("\n")[:-1])


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
