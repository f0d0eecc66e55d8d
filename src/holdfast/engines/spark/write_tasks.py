"""The tasks of a write, as workers run them, and what they tell the driver.

Workers import the modules that a task refers to, and are started anew when they
had nothing to do for a minute. So nothing of the driver's half is needed here:
it takes longer to import than a small write takes.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from holdfast.engines.spark.tasks import Body
from holdfast.format.commits import WriteStat
from holdfast.model.reports import IndexReport
from holdfast.storage.store import Store
from holdfast.writes.merge_task import MergeRequest, merge_rows
from holdfast.writes.task import TaskIdentity, TaskRequest, write_rows


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a task tells: about a file, or about its look-ups."""

    stat: WriteStat | None = None
    index: IndexReport | None = None


def writing(request: TaskRequest) -> Body:
    return _telling(lambda store, me, batches: write_rows(store, request, me, batches))


def merging(request: MergeRequest) -> Body:
    return _telling(lambda store, me, batches: merge_rows(store, request, me, batches))


def _telling(
    body: Callable[[Store, TaskIdentity, Iterable[pa.RecordBatch]], Iterator[WriteStat | IndexReport]],
) -> Body:
    def told(store: Store, me: TaskIdentity, batches: Iterable[pa.RecordBatch]) -> Iterator[Told]:
        for one in body(store, me, batches):
            yield Told(stat=one) if isinstance(one, WriteStat) else Told(index=one)

    return told
