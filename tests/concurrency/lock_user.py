"""A process that uses a lock on local disk: `count ROUNDS` goes in and out, `hold` stays in until killed."""

import sys
import time
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.concurrency.locks.file import FileForm
from holdfast.concurrency.locks.lease import LeaseForm, LeaseLock, LockWait
from holdfast.concurrency.locks.storage import StorageForm
from holdfast.host import SystemHost
from holdfast.storage.disk import Disk
from holdfast.storage.local import LocalStore
from holdfast.storage.store import Store

LOCK_FILE = ".hoodie/lock"
FORMS: dict[str, LeaseForm] = {
    "file": FileForm(LOCK_FILE, valid_for_ms=60_000),
    "storage": StorageForm(300_000, 30_000),
}


def unsynced(root: str | Path) -> LocalStore:
    """Durability is not what is tried with it, and syncs would make it slow."""
    return LocalStore(str(root), disk=Disk(sync=lambda descriptor: None))


def real_lock(store: Store, form: str, *, patience_ms: int = 60_000) -> LeaseLock:
    patience = LockWait(total_ms=patience_ms, pause_ms=1, pause_ms_max=4, report_every_ms=60_000)
    return LeaseLock(
        store,
        FORMS[form],
        place=FORMS[form].path,
        clock=SystemClock(),
        host=SystemHost(),
        patience=patience,
    )


def count(root: Path, form: str, rounds: int) -> int:
    """Go in and out; how often somebody else was inside."""
    lock = real_lock(unsynced(root), form)
    inside, counter = root / "inside", root / "counter"
    collisions = 0
    for _ in range(rounds):
        with lock.hold() as hold:
            try:
                inside.mkdir()
            except FileExistsError:
                collisions += 1
            counter.write_text(str(int(counter.read_text()) + 1))
            hold.refuse_if_lost()
            inside.rmdir()
    return collisions


def hold(root: Path, form: str) -> None:
    with real_lock(unsynced(root), form).hold():
        sys.stdout.write("holding\n")
        sys.stdout.flush()
        time.sleep(600)


if __name__ == "__main__":
    root, form, task, *rounds = sys.argv[1:]
    if task == "hold":
        hold(Path(root), form)
    else:
        sys.stdout.write(f"{count(Path(root), form, int(rounds[0]))}\n")
