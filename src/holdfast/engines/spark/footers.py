"""Pruning by footers on Spark: which base files may hold one of very many keys."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.engines.spark.session import own_interpreter
from holdfast.files.key_footer import Verdict
from holdfast.files.merge import opened_old_version
from holdfast.model.reports import IndexReport
from holdfast.storage.open import open_store
from holdfast.storage.store import StoreLocation
from holdfast.table.opened import OpenTable
from holdfast.writes.layout import FileGroup
from holdfast.writes.merge_task import MergeRequest

_VERDICT = "path string, verdict string"


def pruned_by_footers(
    keys: DataFrame, candidates: Sequence[FileGroup], table: OpenTable, request: MergeRequest
) -> tuple[list[FileGroup], IndexReport]:
    """The file groups that may hold one of the keys, if the index asks footers at all."""
    if not request.task.write.index_type.prunes_by_bloom or not candidates:
        return list(candidates), IndexReport(file_groups=len(candidates))
    task = _AskFooters(table.location, tuple(group.path for group in candidates))
    with own_interpreter(keys.sparkSession):
        said = keys.mapInArrow(task, _VERDICT).distinct().collect()
    verdicts: dict[str, set[str]] = {}
    for path, verdict in said:
        verdicts.setdefault(path, set()).add(verdict)
    maybe = [group for group in candidates if Verdict.MAYBE.name in verdicts.get(group.path, ())]
    by_bloom = sum(
        Verdict.NOT_IN_BLOOM.name in found and Verdict.MAYBE.name not in found for found in verdicts.values()
    )
    pruned = len(candidates) - len(maybe)
    return maybe, IndexReport(
        file_groups=len(candidates), pruned_by_range=pruned - by_bloom, pruned_by_bloom=by_bloom
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _AskFooters:
    location: StoreLocation
    paths: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [batch.column(0) for batch in batches if batch.num_rows > 0]
        if not parts:
            return
        # A session may send texts with wide offsets.
        keys = pa.concat_arrays(parts).cast(pa.string())
        store = open_store(self.location)
        for path in self.paths:
            with opened_old_version(store, path) as old:
                verdict = old.keys.verdict(keys)
            yield pa.RecordBatch.from_arrays(
                [pa.array([path]), pa.array([verdict.name])], names=["path", "verdict"]
            )
