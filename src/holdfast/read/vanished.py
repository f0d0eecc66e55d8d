"""Files that vanish while they are read, because no clean knew of the reader."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import Conflict, HoldfastError, SnapshotExpired, TableDamaged
from holdfast.model.instant import InstantTime
from holdfast.model.names import parse_base_file, parse_log_file
from holdfast.storage.store import Store
from holdfast.table.clean_plans import find_deleting_clean
from holdfast.timeline.timeline import load_timeline


@contextmanager
def explaining_absence(store: Store) -> Iterator[None]:
    """Say why a data file is missing that a snapshot consists of.

    `SnapshotExpired` if a clean removed it, `Conflict` if its commit was taken
    back, and `TableDamaged` only if nothing explains it.
    """
    try:
        yield
    except TableDamaged as error:
        explanation = _explain(store, error) if isinstance(error.__cause__, FileNotFoundError) else None
        if explanation is None:
            raise
        raise explanation from error


def _explain(store: Store, error: TableDamaged) -> HoldfastError | None:
    file = str(error.facts["file"])
    clean = find_deleting_clean(store, file)
    if clean is not None:
        return SnapshotExpired(
            "a clean removed a file of this snapshot while it was read",
            clean=clean,
            file=file,
            hint="read again; a lease keeps the files of a snapshot: table.lease(owner, ttl)",
        )
    instant = _writer(file.rpartition("/")[2])
    timeline = load_timeline(store)
    first = timeline.first_commit_time
    if instant is None or first is None or instant < first:
        return None
    if instant in {commit.time for commit in timeline.completed_commits}:
        return None
    return Conflict(
        "a commit was taken back while its rows were read", instant=instant, file=file, hint="read again"
    )


def _writer(name: str) -> InstantTime | None:
    """The write whose name a data file has; None for log files of other programs."""
    log = parse_log_file(name)
    if log is not None:
        return log.written_by
    base = parse_base_file(name)
    return None if base is None else base.instant
