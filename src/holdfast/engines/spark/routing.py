"""Routing on Spark: every row to the slot in which it meets the file groups its key may be in.

Usually a slot is a partition: the task that merges it looks for the keys
itself, so rows travel once and nothing else does. Where a partition is too
large for one task, Spark joins the keys (never the rows) with those of the
base files first, and a slot is one file group. With a global index Spark
first looks for partitions that share a key; these are treated in that way.

Rows travel twice only where the keys to be joined are too many to be sent to
every task, which are two million for each GB of heap, or one with a global
index: an ordinary join gathers the rows by key first.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.config.write import IndexType
from holdfast.engines.spark.footers import asked_footers, index_report
from holdfast.engines.spark.keys import bucket_of_row, partition_path_of, quoted, record_key_of
from holdfast.engines.spark.reader import read_frame
from holdfast.engines.spark.session import heap_bytes
from holdfast.files.key_footer import Verdict
from holdfast.files.meta_columns import FILE_NAME, PARTITION_PATH, RECORD_KEY
from holdfast.model.reports import IndexReport
from holdfast.read.snapshot import Snapshot
from holdfast.table.opened import OpenTable
from holdfast.writes.gather import SLOT
from holdfast.writes.layout import FileGroup, insertion_targets, total_bytes
from holdfast.writes.merge_task import REMOVES, TARGET, MergeRequest
from holdfast.writes.task import IS_DELETED, has_removals

_KEY = "_holdfast_key"
_MARK = "_holdfast_mark"
_PATH = "_holdfast_path"
_FOUND = "_holdfast_found"
_TARGETS = "_holdfast_targets"
_ACTION = "_holdfast_action"
_ACTIONS = "array<struct<target:string,removes:boolean>>"

TASKS_PER_CORE = 4
"""So many that a core which was given the small ones does not idle long."""
_BROADCAST_SHARE = 0.4
"""What part of the heap may go to keys that every task gets."""
_BROADCAST_MAX = 6 << 30
_MARK_BYTES, _KEY_BYTES = 200, 400
"""What a hash and a key take there, with where they were found."""
_SLICES_MAX = 65_536


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
    if _is_global(request) and request.looks_up:
        return _globally(rows, counts, table, request)
    if _is_global(request) and request.combines:
        keyed = _keyed(rows, request)
        is_tied = _ties(keyed, counts).are_in_batch
        keyed, held = _newest_partition_of_each_key(keyed, request) if is_tied else (keyed, ())
        return replace(_by_partition(keyed.drop(_KEY), counts, request), held=held)
    rows = rows.withColumn(_PATH, partition_path_of(rows, request.task.table))
    if write.index_type is IndexType.BUCKET:
        return _by_bucket(rows, counts, request)
    crowded = _crowded_partitions(rows.sparkSession, counts, request) if request.looks_up else frozenset()
    if not crowded:
        return _by_partition(rows, counts, request)
    keyed = rows.withColumn(_KEY, record_key_of(rows, request.task.table))
    candidates = [group for path in crowded for group in request.groups[path]]
    asked = _asked(keyed.where(_is_in(crowded)), candidates, table, request)
    # Rows of new partitions need no look-up, but can be spread in the same way.
    crowded |= counts.keys() - request.groups.keys()
    candidates = _may_match(asked)
    route = _marked(keyed, counts, crowded, candidates, table, request) or _located(
        keyed, counts, crowded, candidates, table, request
    )
    return replace(route, index=index_report(asked.values()))


def _is_global(request: MergeRequest) -> bool:
    """Whether a key may be in another partition than its row comes for."""
    return request.task.write.index_type.is_global and bool(request.task.table.partition_by)


def _globally(rows: DataFrame, counts: Mapping[str, int], table: OpenTable, request: MergeRequest) -> Routed:
    """The rows with their slots, where their keys may be in other partitions than they come for."""
    keyed = _keyed(rows, request)
    groups = [group for members in request.groups.values() for group in members]
    asked = _asked(keyed, groups, table, request)
    candidates = _may_match(asked)
    if not _says_partition(rows, request):
        route = _located(keyed, counts, frozenset(request.groups), candidates, table, request)
        return replace(route, index=index_report(asked.values()))
    ties = _ties(keyed, counts, _hits(rows.sparkSession, candidates, table, request))
    keyed, held = _newest_partition_of_each_key(keyed, request) if ties.are_in_batch else (keyed, ())
    located = ties.partitions | _crowded_partitions(rows.sparkSession, counts, request)
    if not located:
        route = _by_partition(keyed, counts, request)
    else:
        located |= counts.keys() - request.groups.keys()
        candidates = [group for group in candidates if group.partition in located]
        route = _located(keyed, counts, located, candidates, table, request)
    # Tasks tell of the partitions they look into themselves.
    looked_into = counts.keys() - located
    report = index_report(verdict for group, verdict in asked.items() if group.partition not in looked_into)
    return replace(route, index=report, held=(*route.held, *held))


def _asked(
    keyed: DataFrame, groups: Sequence[FileGroup], table: OpenTable, request: MergeRequest
) -> dict[FileGroup, Verdict]:
    """Whether each file group may hold a key of the rows; each may, if the index asks no footers."""
    if not groups or not request.task.write.index_type.prunes_by_bloom:
        return dict.fromkeys(groups, Verdict.MAYBE)
    keys = keyed.select(_KEY).coalesce(parallelism(keyed.sparkSession))
    return asked_footers(keys, groups, table.location)


def _may_match(asked: Mapping[FileGroup, Verdict]) -> list[FileGroup]:
    return [group for group, verdict in asked.items() if verdict is Verdict.MAYBE]


def _by_partition(rows: DataFrame, counts: Mapping[str, int], request: MergeRequest) -> Routed:
    """Slots of one partition, or of one new file group where there are many of these."""
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
    # A session of Spark Connect has no context, but its server makes as many slices of a range.
    slices = session.range(_SLICES_MAX).select(f.spark_partition_id()).distinct()
    return max(1, slices.count())


def _fits(session: SparkSession, count: int, bytes_each: int) -> bool:
    """Whether so many keys can be sent to every task."""
    return count * bytes_each <= min(_BROADCAST_SHARE * heap_bytes(session), _BROADCAST_MAX)


def _computed(frame: DataFrame) -> DataFrame:
    """Cached and there: Spark gives what it sends to every task five minutes, which rows may take to make."""
    cached = frame.persist()
    cached.count()
    return cached


def _says_partition(rows: DataFrame, request: MergeRequest) -> bool:
    return set(request.task.table.partition_by) <= set(rows.columns)


def _keyed(rows: DataFrame, request: MergeRequest) -> DataFrame:
    """The rows with their keys and partitions; null where they do not say the partition."""
    table = request.task.table
    path = partition_path_of(rows, table) if _says_partition(rows, request) else f.lit(None).cast("string")
    return rows.withColumn(_KEY, record_key_of(rows, table)).withColumn(_PATH, path)


def _newest_partition_of_each_key(
    keyed: DataFrame, request: MergeRequest
) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """The rows without those whose key comes, newer, for another partition; and what was cached for it.

    What is left of a key comes for one partition, whose task takes the newest.
    Only keys are compared, so the rows stay where they are, unless very many
    keys come for several partitions.
    """
    ordering = request.task.table.ordering
    order = f.col(quoted(ordering)) if ordering in keyed.columns else f.lit(0)
    newest = f.max(f.struct(order.alias("order"), f.col(_PATH).alias("partition")))["partition"]
    is_tied = f.min(_PATH) != f.max(_PATH)
    tied = keyed.groupBy(_KEY).agg(newest.alias(_FOUND), is_tied.alias(_MARK)).where(_MARK).drop(_MARK)
    tied = tied.persist()
    few = _fits(keyed.sparkSession, tied.count(), _KEY_BYTES)
    joined = keyed.join(f.broadcast(tied) if few else tied, _KEY, "left")
    kept = joined.where(f.col(_FOUND).isNull() | (f.col(_FOUND) == f.col(_PATH)))
    return kept.drop(_FOUND), (tied,)


@dataclass(frozen=True, slots=True)
class _Ties:
    """Partitions that have a key in common."""

    partitions: frozenset[str]
    """Rows come for one, and their key is stored in another, or rows with it come for another, too."""
    are_in_batch: bool
    """Whether rows with one key come for several partitions."""


def _ties(keyed: DataFrame, counts: Mapping[str, int], hits: DataFrame | None = None) -> _Ties:
    """What ties partitions together, looking at the rows and at what is stored.

    Keys are compared by their hashes, which are shorter: two keys that only
    look alike tie two partitions for nothing.
    """
    mark = f.xxhash64(_KEY).alias(_MARK)
    marks = _computed(keyed.select(mark, _PATH))
    try:
        met = marks.select(_MARK, f.col(_PATH).alias("partition"), f.lit(True).alias("is_in_batch"))
        if hits is not None:
            met = met.union(hits.select(mark, "partition", f.lit(False)))
        is_small = _fits(keyed.sparkSession, sum(counts.values()), _MARK_BYTES)
        tied = met.join(f.broadcast(marks) if is_small else marks, _MARK)
        tied = tied.where(f.col("partition") != f.col(_PATH))
        both = f.explode(f.array("partition", _PATH)).alias("partition")
        said = tied.select(both, "is_in_batch").distinct().collect()
    finally:
        marks.unpersist()
    return _Ties(frozenset(row[0] for row in said), any(row[1] for row in said))


def _is_in(partitions: frozenset[str]) -> Column:
    return f.col(_PATH).isin(*partitions)


def _marked(
    rows: DataFrame,
    counts: Mapping[str, int],
    partitions: frozenset[str],
    candidates: Sequence[FileGroup],
    table: OpenTable,
    request: MergeRequest,
) -> Routed | None:
    """As `_located`, for keys that stay in their partitions: by hashes, which take far less memory.

    A new key that looks like one of its partition goes into the file group of
    that one, which is as good as any. None if stored keys of several files
    look alike, or the keys are too many even so.
    """
    coming = {path: count for path, count in counts.items() if path in partitions}
    session = rows.sparkSession
    if not _fits(session, sum(coming.values()), _MARK_BYTES):
        return None
    mark = _mark().alias(_MARK)
    numbered = [(number, group.partition, group.path) for number, group in enumerate(candidates)]
    files = session.createDataFrame(numbered, f"{_FOUND} int, {_PATH} string, {TARGET} string")
    hits = _hits(session, candidates, table, request).select(mark, f.col("target").alias(TARGET))
    marks = _computed(rows.where(_is_in(partitions)).select(mark))
    try:
        matched = hits.join(f.broadcast(marks), _MARK, "left_semi").join(f.broadcast(files), TARGET, "left")
        is_unclear = (f.min(_FOUND) != f.max(_FOUND)) | (f.count(_FOUND) < f.count("*"))
        found = matched.groupBy(_MARK).agg(f.min(_FOUND).alias(_FOUND), is_unclear.alias(_ACTION))
        found = found.coalesce(TASKS_PER_CORE * parallelism(session)).persist()
        said = found.groupBy(_FOUND).agg(f.count("*"), f.max(_ACTION)).collect()
    finally:
        marks.unpersist()
    if any(is_unclear for _, _, is_unclear in said):
        found.unpersist()
        return None
    known = Counter[str]()
    for number, count, _ in said:
        known[candidates[number].partition] += count
    new = {path: count - known[path] for path, count in coming.items()}
    spread = _spread(new if not request.removes else {}, request)
    joined = rows.withColumn(_MARK, mark).join(f.broadcast(found.drop(_ACTION)), _MARK, "left").drop(_MARK)
    joined = _with_targets(joined.join(f.broadcast(files), [_FOUND, _PATH], "left"), spread)
    is_new = _is_in(partitions) & f.col(TARGET).isNull()
    chosen = f.when(is_new, f.coalesce(_chosen_target(), f.lit(""))).otherwise(f.col(TARGET))
    placed = joined.where(~(is_new & _removal(rows, request))).withColumn(TARGET, chosen)
    slots = len(candidates) + sum(map(len, spread.values())) + len(counts)
    return Routed(_with_slot(placed, _slot_of_target()), slots, IndexReport(), held=(found,))


def _located(
    rows: DataFrame,
    counts: Mapping[str, int],
    partitions: frozenset[str],
    candidates: Sequence[FileGroup],
    table: OpenTable,
    request: MergeRequest,
) -> Routed:
    """The rows with the file groups that hold their keys, those of other partitions with none.

    `candidates` are the file groups of these partitions that may hold a key.
    Rows that do not say their partition may belong to any.
    """
    match = [_KEY] if _is_global(request) else [_KEY, _PATH]
    has_path = _says_partition(rows, request)
    asking = [count for path, count in counts.items() if path in partitions or not has_path]
    few = _fits(rows.sparkSession, sum(asking), _KEY_BYTES)
    keys = (rows.where(_is_in(partitions)) if has_path else rows).select(*match)
    keys = _computed(keys) if few else keys
    hits = _hits(rows.sparkSession, candidates, table, request)
    matched = hits.join(f.broadcast(keys) if few else keys, match, "left_semi")
    hit = f.struct("target", "partition", "stored")
    if _is_global(request):
        # Spark shuffles into two hundred parts unless told otherwise, and keeps them in what it caches.
        tasks = TASKS_PER_CORE * parallelism(rows.sparkSession)
        found = matched.groupBy(*match).agg(f.collect_list(hit).alias(_FOUND)).coalesce(tasks)
    else:
        found = matched.select(*match, f.array(hit).alias(_FOUND))
    found = _computed(found)
    joined = rows.join(f.broadcast(found) if few else found, match, "left")
    coming = {path: count for path, count in counts.items() if path in partitions}
    spread = _spread(_new_rows(found, coming) if not request.removes else {}, request)
    joined = _with_targets(joined, spread)
    actions = _actions(rows, request)
    if has_path:
        looks = f.array(_action(f.lit(None).cast("string"), removes=False)).cast(_ACTIONS)
        actions = f.when(_is_in(partitions), actions).otherwise(looks)
    placed = joined.withColumn(_ACTION, f.explode(actions))
    placed = placed.withColumn(TARGET, f.col(_ACTION)["target"]).withColumn(
        REMOVES, f.col(_ACTION)["removes"]
    )
    slots = len(candidates) + sum(map(len, spread.values())) + len(counts)
    return Routed(_with_slot(placed, _slot_of_target()), slots, IndexReport(), held=(found, keys))


def _mark() -> Column:
    """What stands for a key and its partition."""
    return f.xxhash64(_KEY, _PATH)


def _slot_of_target() -> Column:
    return (
        f.when(f.col(TARGET).isNull(), f.xxhash64(_PATH))
        .when(f.col(TARGET) == "", f.xxhash64(_PATH, _choice()))
        .otherwise(f.xxhash64(TARGET))
    )


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


def _new_rows(found: DataFrame, counts: Mapping[str, int]) -> dict[str, int]:
    """About how many rows of each partition are new."""
    partition = f.col(_FOUND)[0]["partition"]
    known = {row[0]: row[1] for row in found.groupBy(partition).count().toLocalIterator()}
    return {path: count - known.get(path, 0) for path, count in counts.items()}


def _spread(new: Mapping[str, int], request: MergeRequest) -> dict[str, list[str]]:
    """Among which base files so many new rows of each partition are spread."""
    return {
        path: insertion_targets(request.groups.get(path, ()), max(1, count), request.task.write)
        for path, count in new.items()
    }


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


def _actions(rows: DataFrame, request: MergeRequest) -> Column:
    """What is done with a row: pairs of a base file and whether the row only removes its key there."""
    nothing = f.array().cast(_ACTIONS)
    chosen = _action(f.coalesce(_chosen_target(), f.lit("")), removes=False)
    removes = _removal(rows, request)
    moves = _is_global(request) and request.task.write.moves_records and not request.removes
    leaves = (lambda x: (x["partition"] != f.col(_PATH)) & ~removes) if moves else (lambda x: f.lit(False))
    wins = _wins(request)
    kept = f.filter(_FOUND, lambda x: ~leaves(x) | wins(x))
    known = f.transform(kept, lambda x: f.struct(x["target"].alias("target"), leaves(x).alias("removes")))
    is_new = ~removes & ~f.exists(_FOUND, lambda x: ~leaves(x) | ~wins(x))
    return f.when(
        f.col(_FOUND).isNull(), f.when(removes, nothing).otherwise(f.array(chosen).cast(_ACTIONS))
    ).otherwise(
        f.concat(known.cast(_ACTIONS), f.when(is_new, f.array(chosen).cast(_ACTIONS)).otherwise(nothing))
    )


def _removal(rows: DataFrame, request: MergeRequest) -> Column:
    """Whether a row takes its key away."""
    if has_removals(request.task.schema) and IS_DELETED in rows.columns and not request.removes:
        return f.coalesce(f.col(IS_DELETED), f.lit(False))
    return f.lit(request.removes)


def _action(target: Column, *, removes: bool) -> Column:
    return f.struct(target.alias("target"), f.lit(removes).alias("removes"))


def _wins(request: MergeRequest) -> Callable[[Column], Column]:
    """Whether an incoming row is not older than what a file holds; null is the least of all."""
    decides = request.deciding_column
    if decides is None or request.removes:
        return lambda x: f.lit(True)
    incoming = f.col(quoted(decides))
    return lambda x: f.coalesce(incoming >= x["stored"], x["stored"].isNull())
