"""One writer of a chaos run: writes batch after batch until it is told to stop, or killed.

    python -m chaos.writer TABLE LOG NUMBER SEED STOP

Its log lies outside the table. What it is about to write is in it, durable,
before the call; what became of it follows after the call.
"""

import itertools
import logging
import os
import random
import sys
import time
from pathlib import Path

import msgspec
import pyarrow as pa

import holdfast
from chaos.kept_ledger import keeping_entries
from holdfast.errors import HoldfastError, OutcomeUnknown
from holdfast.host import SystemHost

WRITERS = 4
HOT = "hot"
"""The partition that all writers share; each has one of its own beside it."""
OUTCOME_UNKNOWN = 3
"""Exit code of a writer that cannot tell what became of its last batch."""

_OWN_KEYS = 40
_HOT_KEYS = 15
_OPERATIONS = {"insert": 4, "upsert": 6, "delete": 2, "insert_overwrite": 1}
_OPTIONS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
    "hoodie.write.num.retries.on.conflict.failures": "3",
}
_NEW_FILE_GROUPS = {"hoodie.parquet.small.file.limit": "0"}
_APPENDS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "4"}
_EARLY_DETECTION = {"hoodie.write.concurrency.early.conflict.detection.enable": "true"}


class Started(msgspec.Struct, frozen=True, tag=True):
    pid: int
    started: str


class Batch(msgspec.Struct, frozen=True, tag=True):
    name: str
    operation: str
    keys: tuple[tuple[str, str], ...]
    """Partition and id."""
    value: int


class Retried(msgspec.Struct, frozen=True, tag=True):
    """An attempt at the batch lost against another write, and the next one begins."""

    cause: str


class Ended(msgspec.Struct, frozen=True, tag=True):
    instant: str | None = None
    """The commit; None if there is none."""
    error: str = ""
    cause: str = ""
    problems: tuple[str, ...] = ()


Line = Started | Batch | Retried | Ended


def partition_of(number: int) -> str:
    return f"w{number}"


class _Log:
    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def add(self, line: Line) -> None:
        os.write(self._descriptor, msgspec.json.encode(line) + b"\n")
        os.fsync(self._descriptor)


class _Retries(logging.Handler):
    """Puts into the log what only an event tells."""

    def __init__(self, log: _Log) -> None:
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == "write.retried":
            self._log.add(Retried(record.__dict__["cause"]))


def main(path: str, log_path: str, number: str, seed: str, stop: str, table_type: str) -> int:
    chance = random.Random(seed)
    log = _Log(log_path)
    events = logging.getLogger("holdfast.writes.transaction")
    events.setLevel(logging.INFO)
    events.addHandler(_Retries(log))
    me = SystemHost().owner("")
    log.add(Started(me.pid, me.started))
    table = holdfast.open_table(path)
    for count in itertools.count():
        if Path(stop).exists():
            return 0
        batch = _batch(chance, int(number), f"{seed}-{count}", is_first=table.schema() is None)
        log.add(batch)
        ended = _written(table, batch, _options(chance, has_logs=table_type == "MERGE_ON_READ"))
        log.add(ended)
        if ended.error == OutcomeUnknown.__name__:
            return OUTCOME_UNKNOWN
        time.sleep(0 if ended.instant else chance.uniform(0, 0.2))
    raise AssertionError("counting does not end")


def _written(table: holdfast.Table, batch: Batch, options: dict[str, str]) -> Ended:
    try:
        commit = getattr(table, batch.operation)(_rows(batch), options=options)
    except HoldfastError as error:
        return Ended(error=type(error).__name__, cause=str(error))
    return Ended(instant=commit.instant, problems=commit.post_commit_errors)


def _options(chance: random.Random, *, has_logs: bool) -> dict[str, str]:
    options = dict(_OPTIONS)
    if has_logs and chance.random() < 0.8:
        options |= _APPENDS
    if chance.random() < 0.15:
        options |= _NEW_FILE_GROUPS
    if chance.random() < 0.3:
        options |= _EARLY_DETECTION
    return options


def _rows(batch: Batch) -> pa.Table:
    partitions, ids = zip(*batch.keys, strict=True)
    columns = {"id": ids, "part": partitions}
    if batch.operation != "delete":
        columns |= {"batch": [batch.name] * len(ids), "value": [batch.value] * len(ids)}
    return pa.table(columns)


def _batch(chance: random.Random, number: int, name: str, *, is_first: bool) -> Batch:
    operation = "insert" if is_first else chance.choices(*zip(*_OPERATIONS.items(), strict=True))[0]
    own = partition_of(number)
    fresh = [f"{name}-{count}" for count in range(chance.randint(1, 5))]
    mine = [f"{own}-{key}" for key in chance.sample(range(_OWN_KEYS), chance.randint(1, 8))]
    hot = [f"hot-{key}" for key in chance.sample(range(_HOT_KEYS), chance.randint(1, 3))]
    is_hot = chance.random() < 0.4
    keys: list[tuple[str, str]] = []
    match operation:
        case "insert":
            # An insert does not look for its keys, so only new ones keep them unique.
            guest = partition_of(chance.randrange(WRITERS)) if chance.random() < 0.2 else own
            keys = [(guest, key) for key in fresh] + [(HOT, fresh[0])] * is_hot
        case "upsert" | "delete":
            keys = [(own, key) for key in mine] + [(HOT, key) for key in hot if is_hot]
        case "insert_overwrite":
            keys = [(own, key) for key in (*mine, *fresh)]
    return Batch(name, operation, tuple(keys), chance.randrange(1_000_000))


if __name__ == "__main__":
    with keeping_entries(Path(sys.argv[1])):
        sys.exit(main(*sys.argv[1:]))
