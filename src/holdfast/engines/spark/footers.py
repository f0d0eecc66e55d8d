"""Pruning by footers on Spark: which base files may hold one of very many keys."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from holdfast.engines.spark.session import own_interpreter, spare_archives
from holdfast.files.key_footer import KeyFooter, Verdict
from holdfast.files.merge import open_old_version
from holdfast.model.reports import IndexReport
from holdfast.model.slices import FileSlice
from holdfast.storage.open import open_store
from holdfast.storage.store import Store, StoreLocation

_VERDICT = "path string, verdict string"
_KEYS_AT_ONCE = 1_000_000
_SAMPLE_KEYS = 1_000
"""A file that holds many of the keys most likely holds one of a sample this large."""


def check_footers(
    keys: DataFrame, groups: Sequence[FileSlice], location: StoreLocation
) -> dict[FileSlice, Verdict]:
    """Whether each file group may hold one of the keys. Every task reads the footers of all."""
    task = _CheckFooters(location, tuple(group.home for group in groups))
    with own_interpreter(keys.sparkSession):
        rows = keys.mapInArrow(task, _VERDICT).distinct().collect()
    verdicts: dict[str, list[Verdict]] = {}
    for path, verdict in rows:
        verdicts.setdefault(path, []).append(Verdict[verdict])
    return {group: _weakest(verdicts.get(group.home, ())) for group in groups}


def index_report(verdicts: Iterable[Verdict]) -> IndexReport:
    """What was asked and ruled out."""
    verdicts = list(verdicts)
    return IndexReport(
        file_groups=len(verdicts),
        pruned_by_range=verdicts.count(Verdict.OUT_OF_RANGE),
        pruned_by_bloom=verdicts.count(Verdict.NOT_IN_BLOOM),
    )


def _weakest(verdicts: Iterable[Verdict]) -> Verdict:
    """What holds of all keys, given what holds of some each."""
    return max(verdicts, key=lambda verdict: verdict.value, default=Verdict.OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class _CheckFooters:
    location: StoreLocation
    paths: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spare_archives()
        store = open_store(self.location)
        verdicts: dict[str, Verdict] = {}
        for keys in _key_batches(batches):
            for path in self.paths:
                if verdicts.get(path) is not Verdict.MAYBE:
                    verdict = _verdict(store, path, keys)
                    verdicts[path] = _weakest([verdict, verdicts.get(path, verdict)])
        names = [verdict.name for verdict in verdicts.values()]
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(verdicts), pa.string()), pa.array(names, pa.string())], names=["path", "verdict"]
        )


def _key_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Array]:
    """The keys in batches, large enough that footers are read seldom, and small enough for memory."""
    parts: list[pa.Array] = []
    for batch in batches:
        # A session may send texts with wide offsets.
        parts.append(batch.column(0).cast(pa.string()))
        if sum(map(len, parts)) >= _KEYS_AT_ONCE:
            yield pa.concat_arrays(parts)
            parts = []
    if sum(map(len, parts)) > 0:
        yield pa.concat_arrays(parts)


def _verdict(store: Store, path: str, keys: pa.Array) -> Verdict:
    with open_old_version(store, path) as old:
        footer: KeyFooter = old.keys
    step = max(1, len(keys) // _SAMPLE_KEYS)
    sample = keys.take(pa.array(np.arange(0, len(keys), step)))
    if footer.verdict(sample) is Verdict.MAYBE:
        return Verdict.MAYBE
    return footer.verdict(keys)
