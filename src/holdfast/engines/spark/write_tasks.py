"""The tasks of a write, as workers run them, and what they report to the driver.

Workers import the modules that a task refers to, and are started anew when they
had nothing to do for a minute. So nothing of the driver's half is needed here:
it takes longer to import than a small write takes.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from holdfast.engines.spark.tasks import Body
from holdfast.storage.store import Store
from holdfast.writes.merge_task import MergeRequest, merge_rows
from holdfast.writes.outcome import TaskOutput
from holdfast.writes.task import TaskIdentity, TaskRequest, write_rows

KEY_HASH = "_holdfast_key_hash"
"""A hash of the key and partition of a row, where Spark looked for the key; null elsewhere."""


class KeySum(msgspec.Struct, frozen=True):
    """The sum of the hashes of keys: another one if one key is another, in whatever order they come.

    In two parts, neither of which overflows with thirty billion keys.
    """

    HIGH_SHIFT: ClassVar[int] = 36
    LOW_MASK: ClassVar[int] = (1 << 28) - 1

    high: int = 0
    low: int = 0

    def __add__(self, other: "KeySum") -> "KeySum":
        return KeySum(self.high + other.high, self.low + other.low)

    @classmethod
    def of(cls, hashes: pa.Array) -> "KeySum":
        values = hashes.drop_null().to_numpy().view(np.uint64)
        high, low = values >> np.uint64(cls.HIGH_SHIFT), values & np.uint64(cls.LOW_MASK)
        return cls(int(high.sum()), int(low.sum()))


class KeyedOutput(TaskOutput, frozen=True, omit_defaults=True):
    """What a task reports, or the keys that came to it."""

    keys: KeySum | None = None


def writing(request: TaskRequest) -> Body:
    def write(store: Store, me: TaskIdentity, batches: Iterable[pa.RecordBatch]) -> Iterator[TaskOutput]:
        return write_rows(store, request, me, batches)

    return write


def merging(request: MergeRequest) -> Body:
    def merge(store: Store, me: TaskIdentity, batches: Iterable[pa.RecordBatch]) -> Iterator[TaskOutput]:
        keys = _SummedKeys(batches)
        yield from merge_rows(store, request, me, keys.rest())
        yield KeyedOutput(keys=keys.sum)

    return merge


class _SummedKeys:
    """Batches whose hashes of keys are added up and left out as they pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.sum = KeySum()

    def rest(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if KEY_HASH not in batch.schema.names:
                yield batch
                continue
            self.sum += KeySum.of(batch.column(KEY_HASH))
            yield batch.drop_columns([KEY_HASH])
