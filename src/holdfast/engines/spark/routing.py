"""Routing on Spark: every row to the slot in which it meets the file groups its key may be in.

Usually a slot is a partition: the task that merges it looks for the keys
itself, so rows travel once and nothing else does. Where a partition is too
large for one task, or a key may be anywhere in the table, Spark joins the
keys (never the rows) with those of the base files first, and a slot is one
file group.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from holdfast.config.write import IndexType
from holdfast.engines.spark.footers import pruned_by_footers
from holdfast.engines.spark.keys import bucket_of_row, partition_path_of, quoted, record_key_of
from holdfast.engines.spark.reader import read_frame
from holdfast.files.meta_columns import FILE_NAME, PARTITION_PATH, RECORD_KEY
from holdfast.model.reports import IndexReport
from holdfast.read.snapshot import Snapshot
from holdfast.table.opened import OpenTable
from holdfast.writes.gather import SLOT
from holdfast.writes.layout import FileGroup, insertion_targets, total_bytes
from holdfast.writes.merge_task import REMOVES, TARGET, MergeRequest
from holdfast.writes.task import IS_DELETED, has_removals

_KEY = "_holdfast_key"
_PATH = "_holdfast_path"
_FOUND = "_holdfast_found"
_TARGETS = "_holdfast_targets"
_ACTION = "_holdfast_action"
_ACTIONS = "array<struct<target:string,removes:boolean>>"

TASKS_PER_CORE = 4
"""So many that a core which was given the small ones does not idle long."""
_BROADCAST_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class Routed:
    rows: DataFrame
    """With the slot's column, in no order yet."""
    slots: int
    """About how many slots there are."""
    index: IndexReport
    held: tuple[DataFrame, ...] = ()
    """What was cached for this, to be let go when the rows are written."""


def routed(rows: DataFrame, counts: Mapping[str, int], table: OpenTable, request: MergeRequest) -> Routed:
    """The rows with their slots. `counts` are the rows of each partition, where the rows say it."""
    write = request.task.write
    if request.looks_up and write.index_type.is_global:
        return _located(_keyed(rows, request), counts, frozenset(request.groups), table, request)
    if request.combines and write.index_type.is_global:
        rows = _keyed(rows, request).drop(_KEY)
    else:
        rows = rows.withColumn(_PATH, partition_path_of(rows, request.task.table))
    if write.index_type is IndexType.BUCKET:
        return _by_bucket(rows, counts, request)
    crowded = _crowded_partitions(rows.sparkSession, counts, request) if request.looks_up else frozenset()
    if crowded:
        keyed = rows.withColumn(_KEY, record_key_of(rows, request.task.table))
        # Rows of new partitions need no look-up, but can be spread in the same way.
        return _located(keyed, counts, crowded | (counts.keys() - request.groups.keys()), table, request)
    targets = {path: _targets(path, count, request) for path, count in counts.items()}
    spread = {path: files for path, files in targets.items() if len(files) > 1}
    if not spread:
        return Routed(_with_slot(rows, f.xxhash64(_PATH)), len(counts), IndexReport())
    placed = _with_targets(rows.withColumn(_KEY, record_key_of(rows, request.task.table)), spread)
    placed = placed.withColumn(TARGET, _chosen_target())
    slot = f.xxhash64(_PATH, _choice())
    return Routed(_with_slot(placed, slot), sum(map(len, targets.values())), IndexReport())


def _by_bucket(rows: DataFrame, counts: Mapping[str, int], request: MergeRequest) -> Routed:
    """Slots of one bucket, or of one partition where there are enough of these to keep all cores busy."""
    write = request.task.write
    if len(counts) >= TASKS_PER_CORE * parallelism(rows.sparkSession) or write.bucket_count == 1:
        return Routed(_with_slot(rows, f.xxhash64(_PATH)), len(counts), IndexReport())
    slot = f.xxhash64(_PATH, bucket_of_row(rows, request.task.table, write))
    return Routed(_with_slot(rows, slot), len(counts) * write.bucket_count, IndexReport())


def _with_slot(rows: DataFrame, slot: Column) -> DataFrame:
    return rows.withColumn(SLOT, slot).drop(_PATH, _KEY, _TARGETS, _FOUND, _ACTION)


def _targets(path: str, count: int, request: MergeRequest) -> list[str]:
    """Where new rows of a partition go if they are too many for one slot."""
    groups = request.groups.get(path, ())
    if groups and request.looks_up:
        return [""]  # The task that looks for the keys also places what is new.
    return insertion_targets(groups, count, request.task.write)


def _crowded_partitions(
    session: SparkSession, counts: Mapping[str, int], request: MergeRequest
) -> frozenset[str]:
    """Partitions with so much data, stored or to come, that one task each would leave other cores idle."""
    write = request.task.write
    sizes = {
        path: total_bytes(request.groups[path]) + count * write.record_bytes
        for path, count in counts.items()
        if path in request.groups
    }
    largest = max(sum(sizes.values()) / parallelism(session), write.max_file_bytes)
    return frozenset(path for path, size in sizes.items() if size > largest)


def parallelism(session: SparkSession) -> int:
    """How many tasks run at once, as far as the session tells."""
    context = getattr(session, "_sc", None)
    if context is not None:
        return max(1, int(context.defaultParallelism))
    told = session.conf.get("spark.default.parallelism", None)
    return max(1, int(told or session.conf.get("spark.sql.shuffle.partitions") or 1))


def _keyed(rows: DataFrame, request: MergeRequest) -> DataFrame:
    """The rows with key and partition, reduced to one per key in the whole table."""
    table = request.task.table
    has_path = set(table.partition_by) <= set(rows.columns)
    keyed = rows.withColumn(_KEY, record_key_of(rows, table))
    keyed = keyed.withColumn(
        _PATH, partition_path_of(rows, table) if has_path else f.lit(None).cast("string")
    )
    if not table.partition_by or not has_path:
        return keyed  # Rows of one key meet in one task, which reduces them.
    many = keyed.groupBy(_KEY).agg(f.count_distinct(_PATH).alias(_FOUND)).filter(f.col(_FOUND) > 1)
    if many.limit(1).count() == 0:
        return keyed
    order = (
        [f.col(quoted(table.ordering)).desc_nulls_last()] if table.ordering in rows.columns else [f.lit(0)]
    )
    rank = f.row_number().over(Window.partitionBy(_KEY).orderBy(*order))
    return keyed.withColumn(_FOUND, rank).filter(f.col(_FOUND) == 1).drop(_FOUND)


def _located(
    rows: DataFrame,
    counts: Mapping[str, int],
    partitions: frozenset[str],
    table: OpenTable,
    request: MergeRequest,
) -> Routed:
    """The rows with the file groups that hold their keys, looked for in these partitions."""
    is_global = request.task.write.index_type.is_global
    match = [_KEY] if is_global else [_KEY, _PATH]
    few = sum(counts.values()) <= _BROADCAST_ROWS
    # Spark shuffles into two hundred parts unless told otherwise, and keeps them in what it caches.
    tasks = TASKS_PER_CORE * parallelism(rows.sparkSession)
    keys = rows.select(*match).distinct().coalesce(tasks)
    candidates = [group for path in sorted(partitions) for group in request.groups.get(path, ())]
    candidates, report = pruned_by_footers(keys.select(_KEY), candidates, table, request)
    hits = _hits(rows.sparkSession, candidates, table, request)
    matched = hits.join(f.broadcast(keys) if few else keys, match).groupBy(*match)
    found = matched.agg(f.collect_list(f.struct("target", "partition", "stored")).alias(_FOUND))
    found = found.coalesce(tasks).persist()
    joined = rows.join(f.broadcast(found) if few else found, match, "left")
    new = _new_rows(found, counts, request) if not request.removes else {}
    spread = {
        path: insertion_targets(request.groups.get(path, ()), n, request.task.write)
        for path, n in new.items()
    }
    joined = _with_targets(joined, spread)
    actions = _actions(rows, request, partitions)
    placed = joined.withColumn(_ACTION, f.explode(actions))
    placed = placed.withColumn(TARGET, f.col(_ACTION)["target"]).withColumn(
        REMOVES, f.col(_ACTION)["removes"]
    )
    slot = (
        f.when(f.col(TARGET).isNull(), f.xxhash64(_PATH))
        .when(f.col(TARGET) == "", f.xxhash64(_PATH, _choice()))
        .otherwise(f.xxhash64(TARGET))
    )
    slots = len(candidates) + sum(map(len, spread.values())) + len(counts)
    return Routed(_with_slot(placed, slot), slots, report, held=(found,))


def _hits(
    session: SparkSession, candidates: Sequence[FileGroup], table: OpenTable, request: MergeRequest
) -> DataFrame:
    """The keys of the base files, each with the file it is in and the stored ordering value."""
    schema = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH, FILE_NAME)]
    decides = request.deciding_column
    if decides is not None:
        schema.append(request.task.schema.field(decides))
    files = Snapshot(None, [group.path for group in candidates], request.written_with)
    stored = read_frame(session, table.store, files, pa.schema(schema))
    path = f.col(PARTITION_PATH)
    name = f.col(FILE_NAME)
    return stored.select(
        f.col(RECORD_KEY).alias(_KEY),
        path.alias(_PATH),
        f.when(path == "", name).otherwise(f.concat(path, f.lit("/"), name)).alias("target"),
        path.alias("partition"),
        (f.col(quoted(decides)) if decides else f.lit(None).cast("int")).alias("stored"),
    )


def _new_rows(found: DataFrame, counts: Mapping[str, int], request: MergeRequest) -> dict[str, int]:
    """About how many rows of each partition are new."""
    partition = f.col(_FOUND)[0]["partition"]
    known = {row[0]: row[1] for row in found.groupBy(partition).count().toLocalIterator()}
    return {path: max(1, count - known.get(path, 0)) for path, count in counts.items()}


def _with_targets(rows: DataFrame, spread: Mapping[str, list[str]]) -> DataFrame:
    """The rows with the base files among which new ones of their partition are spread."""
    if not spread:
        return rows.withColumn(_TARGETS, f.lit(None).cast("array<string>"))
    targets = rows.sparkSession.createDataFrame(
        list(spread.items()), f"{_PATH} string, {_TARGETS} array<string>"
    )
    return rows.join(f.broadcast(targets), _PATH, "left")


def _choice() -> Column:
    """Which of the targets a row takes: always the same for one key."""
    return f.pmod(f.xxhash64(_KEY), f.greatest(f.size(_TARGETS), f.lit(1)))


def _chosen_target() -> Column:
    return f.get(f.col(_TARGETS), _choice().cast("int"))


def _actions(rows: DataFrame, request: MergeRequest, partitions: frozenset[str]) -> Column:
    """What is done with a row: pairs of a base file and whether the row only removes its key there."""
    is_global = request.task.write.index_type.is_global
    nothing = f.array().cast(_ACTIONS)
    chosen = _action(f.coalesce(_chosen_target(), f.lit("")), removes=False)
    removes = f.lit(request.removes)
    if has_removals(request.task.schema) and IS_DELETED in rows.columns and not request.removes:
        removes = f.coalesce(f.col(IS_DELETED), f.lit(False))
    moves = is_global and request.task.write.moves_records and not request.removes
    leaves = (lambda x: (x["partition"] != f.col(_PATH)) & ~removes) if moves else (lambda x: f.lit(False))
    wins = _wins(request)
    kept = f.filter(_FOUND, lambda x: ~leaves(x) | wins(x))
    known = f.transform(kept, lambda x: f.struct(x["target"].alias("target"), leaves(x).alias("removes")))
    is_new = ~removes & ~f.exists(_FOUND, lambda x: ~leaves(x) | ~wins(x))
    located = f.when(
        f.col(_FOUND).isNull(), f.when(removes, nothing).otherwise(f.array(chosen).cast(_ACTIONS))
    ).otherwise(
        f.concat(known.cast(_ACTIONS), f.when(is_new, f.array(chosen).cast(_ACTIONS)).otherwise(nothing))
    )
    if is_global:
        return located
    looks = f.array(_action(f.lit(None).cast("string"), removes=False)).cast(_ACTIONS)
    return f.when(f.col(_PATH).isin(*partitions), located).otherwise(looks)


def _action(target: Column, *, removes: bool) -> Column:
    return f.struct(target.alias("target"), f.lit(removes).alias("removes"))


def _wins(request: MergeRequest) -> Callable[[Column], Column]:
    """Whether an incoming row is not older than what a file holds; null is the least of all."""
    decides = request.deciding_column
    if decides is None or request.removes:
        return lambda x: f.lit(True)
    incoming = f.col(quoted(decides))
    return lambda x: f.coalesce(incoming >= x["stored"], x["stored"].isNull())
