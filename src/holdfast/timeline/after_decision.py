"""What an error means once something is decided.

Before its decision a verb has changed nothing that anybody sees. After it the
ledger has decided, and the next operation carries out what this one could not.
Storage that says "nothing was changed" then speaks of one file, not of the verb.

A decision is one file that is created. Whether it was is found out by asking
again, never guessed.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import OutcomeUnknown, StorageRefused, StorageUnavailable
from holdfast.storage.store import Store

_ATTEMPTS_ON_ERROR = 3


def create_for_certain(store: Store, path: str, content: bytes, *, what: str, hint: str) -> bool:
    """Create a file that decides; whether it is ours. `OutcomeUnknown` if storage does not let us find out.

    After an error the same bytes are offered again: the file then holds them, in which case it is
    ours, whatever was reported, or another's. `FileNotFoundError` if it vanished in between.
    """
    failures: list[StorageUnavailable] = []
    for _ in range(_ATTEMPTS_ON_ERROR):
        try:
            return store.create(path, content) or (bool(failures) and store.read(path) == content)
        except StorageUnavailable as error:
            failures.append(error)
    if all(isinstance(failure, StorageRefused) for failure in failures):
        raise failures[-1]
    raise OutcomeUnknown(
        f"storage failed while {what}", file=path, cause=failures[-1], hint=hint
    ) from failures[-1]


@contextmanager
def after_decision(decided: str, *, hint: str, **facts: object) -> Iterator[None]:
    """Carry out in this block what was decided before it: storage that fails there takes nothing back.

    `decided` says what stands, and `hint` what will happen and what to do.
    """
    try:
        yield
    except StorageUnavailable as error:
        raise OutcomeUnknown(
            f"{decided}, and storage failed before that was carried out", **facts, cause=error, hint=hint
        ) from error
