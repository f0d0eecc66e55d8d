"""Routing on Spark: every row goes to a bundle, with which it meets the file groups its key may be in.

Usually a bundle is a partition: the task that merges it looks for the keys
itself, so rows travel once and nothing else does. Where a partition is too
large for one task, Spark joins the keys (never the rows) with those of the
base files first, and a bundle is one file group. With a global index Spark
first looks for partitions that share a key; these are treated in that way.

Rows travel twice only where the keys to be joined are too many to be sent to
every task: more than two million for each GB of heap, or one with a global
index. Then an ordinary join gathers the rows by key first.

Where Spark looks for keys, they are computed once and kept, and the rows are
computed again when they are written. A source need not give the same rows
twice, so each row carries a hash of its key to its task, and the sum of these
must be that of the keys by which the rows were routed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.config.choices import IndexType
from holdfast.engines.spark.footers import check_footers, index_report
from holdfast.engines.spark.keys import bucket_of_row, partition_path_of, quote, record_key_of, says_partition
from holdfast.engines.spark.reader import read_frame
from holdfast.engines.spark.session import heap_bytes
from holdfast.engines.spark.write_tasks import KEY_HASH, KeySum
from holdfast.files.key_footer import Verdict
from holdfast.files.merged_slice import LogMerge
from holdfast.files.meta_columns import FILE_NAME, PARTITION_PATH, RECORD_KEY
from holdfast.model.reports import IndexReport
from holdfast.model.slices import FileSlice
from holdfast.read.snapshot import Snapshot
from holdfast.table.opened import OpenTable
from holdfast.table.view import slice_table
from holdfast.writes.gather import BUNDLE
from holdfast.writes.layout import insertion_targets, total_bytes
from holdfast.writes.merge_task import REMOVES, TARGET, MergeRequest, has_foreign_logs
from holdfast.writes.task import IS_DELETED, has_removals

_KEY = "_holdfast_key"
_MARK = "_holdfast_mark"
_PATH = "_holdfast_path"
_FOUND = "_holdfast_found"
_TARGETS = "_holdfast_targets"
_ACTION = "_holdfast_action"
_ACTION_NUMBER = "_holdfast_action_number"
_ORDER = "_holdfast_order"
_ACTIONS = "array<struct<target:string,removes:boolean>>"

TASKS_PER_CORE = 4
"""With several tasks per core, a core that got the small ones does not idle long."""
_BROADCAST_SHARE = 0.4
"""What part of the heap may go to keys that every task gets."""
_BROADCAST_MAX = 6 << 30
_MARK_BYTES, _KEY_BYTES = 200, 400
"""What a hash and a key take there, with where they were found."""
_SLICES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Route:
    rows: DataFrame
    """With the column `BUNDLE`, in no order yet."""
    bundles: int
    """About how many bundles there are."""
    index: IndexReport
    keys: KeySum | None = None
    """The keys that the rows must have; None if their tasks look for these themselves."""
    held: tuple[DataFrame, ...] = ()
    """What was cached for this, to be released when the rows are written."""


@dataclass(frozen=True, slots=True)
class _SharedKeys:
    """Partitions that have a key in common."""

    partitions: frozenset[str]
    """Rows come for one, and their key is stored in another, or rows with it come for another, too."""
    are_in_batch: bool
    """Whether rows with one key come for several partitions."""


def route_rows(rows: DataFrame, counts: Mapping[str, int], table: OpenTable, request: MergeRequest) -> Route:
    """The rows with their bundles. `counts` are the rows of each partition, where the rows say it."""
    router = _Router(rows.sparkSession, counts, table, request)
    try:
        route = router.route(rows)
    except BaseException:
        for frame in router.held:
            frame.unpersist()
        raise
    return replace(route, held=tuple(router.held))


@dataclass(frozen=True, slots=True)
class _Router:
    session: SparkSession
    counts: Mapping[str, int]
    table: OpenTable
    request: MergeRequest
    held: list[DataFrame] = field(default_factory=list)
    """What was cached so far."""

    def route(self, rows: DataFrame) -> Route:
        request = self.request
        if self._is_global and (request.looks_up or request.combines):
            return self._route_globally(rows)
        rows = rows.withColumn(_PATH, partition_path_of(rows, request.task.table))
        if request.task.write.index_type is IndexType.BUCKET:
            return self._route_by_bucket(rows)
        oversized = self._large_partitions() if request.looks_up else frozenset()
        if not oversized:
            return self._route_by_partition(rows)
        # Rows of new partitions need no look-up, but can be spread in the same way.
        located = oversized | (self.counts.keys() - request.groups.keys())
        keyed = rows.withColumn(_KEY, record_key_of(rows, request.task.table))
        keyed = keyed.withColumn(KEY_HASH, f.when(_is_in(located), _key_hash()))
        keys = self._cache(keyed.where(_is_in(located)).select(_KEY, _PATH))
        key_sum = _key_sum(keys)
        groups = [group for path in oversized for group in request.groups[path]]
        verdicts = self._bloom_verdicts(keys.where(_is_in(oversized)), groups)
        candidates = _may_match(verdicts)
        route = self._route_by_hash(keyed, keys, located, candidates)
        if route is None:
            route = self._route_by_key(keyed, keys, located, candidates)
        return replace(route, index=index_report(verdicts.values()), keys=key_sum)

    @property
    def _is_global(self) -> bool:
        """Whether a key may be in another partition than its row comes for."""
        return self.request.task.write.index_type.is_global and bool(self.request.task.table.partition_by)

    def _route_globally(self, rows: DataFrame) -> Route:
        """The rows with their bundles, where their keys may be in other partitions than they come for."""
        counts, request = self.counts, self.request
        keyed = self._with_keys(rows)
        keys = self._cache(self._keys_in_order(keyed))
        key_sum = _key_sum(keys)
        groups = [group for members in request.groups.values() for group in members]
        verdicts = self._bloom_verdicts(keys, groups if request.looks_up else [])
        candidates = _may_match(verdicts)
        if not says_partition(rows, self.request.task.table):
            route = self._route_by_key(keyed, keys, frozenset(request.groups), candidates)
            return replace(route, index=index_report(verdicts.values()), keys=key_sum)
        shared = self._find_shared_keys(keys, self._hits(candidates) if request.looks_up else None)
        if shared.are_in_batch:
            newest = self._newest_partitions(keys)
            keyed, keys = self._drop_older(keyed, newest), self._drop_older(keys, newest)
            key_sum = _key_sum(keys)
        if not request.looks_up:
            return replace(self._route_by_partition(keyed), keys=key_sum)
        located = shared.partitions | self._large_partitions()
        if not located:
            route = self._route_by_partition(keyed)
        else:
            located |= counts.keys() - request.groups.keys()
            candidates = [group for group in candidates if group.partition in located]
            route = self._route_by_key(keyed, keys, located, candidates)
        # Tasks report the partitions that they look into themselves.
        looked_into = counts.keys() - located
        driver_verdicts = (v for group, v in verdicts.items() if group.partition not in looked_into)
        return replace(route, index=index_report(driver_verdicts), keys=key_sum)

    def _route_by_partition(self, rows: DataFrame) -> Route:
        """Bundles of one partition, or of one new file group where there are many of these."""
        targets = {path: self._targets(path, count) for path, count in self.counts.items()}
        spread = {path: files for path, files in targets.items() if len(files) > 1}
        if not spread:
            return Route(_with_bundle(rows, f.xxhash64(_PATH)), len(self.counts), IndexReport())
        keyed = rows.withColumn(_KEY, record_key_of(rows, self.request.task.table))
        placed = _with_targets(keyed, spread).withColumn(TARGET, _target_of_new_row())
        bundle = f.xxhash64(_PATH, _choice())
        return Route(_with_bundle(placed, bundle), sum(map(len, targets.values())), IndexReport())

    def _targets(self, path: str, count: int) -> list[str]:
        """Where new rows of a partition go if they are too many for one bundle."""
        groups = self.request.groups.get(path, ())
        if groups and self.request.looks_up:
            return [""]  # The task that looks for the keys also places what is new.
        return insertion_targets(groups, count, self.request.task.write)

    def _route_by_bucket(self, rows: DataFrame) -> Route:
        """Bundles of one bucket, or of one partition where these are enough to keep all cores busy."""
        write, partitions = self.request.task.write, len(self.counts)
        if partitions >= TASKS_PER_CORE * parallelism(self.session) or write.bucket_count == 1:
            return Route(_with_bundle(rows, f.xxhash64(_PATH)), partitions, IndexReport())
        bundle = f.xxhash64(_PATH, bucket_of_row(rows, self.request.task.table, write))
        return Route(_with_bundle(rows, bundle), partitions * write.bucket_count, IndexReport())

    def _route_by_hash(
        self,
        rows: DataFrame,
        keys: DataFrame,
        partitions: frozenset[str],
        candidates: Sequence[FileSlice],
    ) -> Route | None:
        """As `_route_by_key`, for keys that stay in their partitions: by hashes, which take far less memory.

        A new key with the hash of a stored one goes into the file group of that one,
        which is as good as any. None if stored keys of several files have the same
        hash, or the keys are too many even so.
        """
        coming = self._coming(partitions)
        if not self._fits(sum(coming.values()), _MARK_BYTES):
            return None
        mark = _key_hash().alias(_MARK)
        numbered = [(number, group.partition, group.home) for number, group in enumerate(candidates)]
        files = self.session.createDataFrame(numbered, f"{_FOUND} int, {_PATH} string, {TARGET} string")
        hits = self._hits(candidates).select(mark, f.col("target").alias(TARGET))
        matched = hits.join(f.broadcast(keys.select(mark)), _MARK, "left_semi")
        matched = matched.join(f.broadcast(files), TARGET, "left")
        is_unclear = (f.min(_FOUND) != f.max(_FOUND)) | (f.count(_FOUND) < f.count("*"))
        found = matched.groupBy(_MARK).agg(f.min(_FOUND).alias(_FOUND), is_unclear.alias(_ACTION))
        found = self._cache(found.coalesce(TASKS_PER_CORE * parallelism(self.session)))
        counted = found.groupBy(_FOUND).agg(f.count("*"), f.max(_ACTION)).collect()
        if any(is_unclear for _, _, is_unclear in counted):
            return None
        known = Counter[str]()
        for number, count, _ in counted:
            known[candidates[number].partition] += count
        new = {path: count - known[path] for path, count in coming.items()}
        spread = self._spread(new if not self.request.removes else {})
        joined = (
            rows.withColumn(_MARK, mark).join(f.broadcast(found.drop(_ACTION)), _MARK, "left").drop(_MARK)
        )
        joined = _with_targets(joined.join(f.broadcast(files), [_FOUND, _PATH], "left"), spread)
        is_new = _is_in(partitions) & f.col(TARGET).isNull()
        target = f.when(is_new, f.coalesce(_target_of_new_row(), f.lit(""))).otherwise(f.col(TARGET))
        return self._route_to_targets(joined.withColumn(TARGET, target), candidates, spread)

    def _route_by_key(
        self,
        rows: DataFrame,
        keys: DataFrame,
        partitions: frozenset[str],
        candidates: Sequence[FileSlice],
    ) -> Route:
        """The rows with the file groups that hold their keys, those of other partitions with none.

        `candidates` are the file groups of these partitions that may hold a key.
        Rows that do not say their partition may belong to any.
        """
        match = [_KEY] if self._is_global else [_KEY, _PATH]
        has_path = says_partition(rows, self.request.task.table)
        coming = self._coming(partitions)
        few = self._fits(sum((coming if has_path else self.counts).values()), _KEY_BYTES)
        keys = (keys.where(_is_in(partitions)) if has_path else keys).select(*match)
        matched = self._hits(candidates).join(f.broadcast(keys) if few else keys, match, "left_semi")
        hit = f.struct("target", "partition", "stored")
        if self._is_global:
            # Spark shuffles into two hundred parts unless told otherwise, and keeps them in what it caches.
            tasks = TASKS_PER_CORE * parallelism(self.session)
            found = matched.groupBy(*match).agg(f.collect_list(hit).alias(_FOUND)).coalesce(tasks)
        else:
            found = matched.select(*match, f.array(hit).alias(_FOUND))
        # Spark waits five minutes for what it sends to tasks, and rows may take longer: they are made before.
        found = self._cache(found)
        found.count()
        joined = rows.join(f.broadcast(found) if few else found, match, "left")
        spread = self._spread(_new_rows(found, coming) if not self.request.removes else {})
        joined = _with_targets(joined, spread)
        actions = self._actions(rows)
        if has_path:
            looks = f.array(_action(f.lit(None).cast("string"), removes=False)).cast(_ACTIONS)
            actions = f.when(_is_in(partitions), actions).otherwise(looks)
        placed = joined.select("*", f.posexplode(actions).alias(_ACTION_NUMBER, _ACTION))
        removes = (
            f.col(_ACTION)["removes"] | f.col(REMOVES)
            if REMOVES in rows.columns
            else f.col(_ACTION)["removes"]
        )
        placed = placed.withColumn(TARGET, f.col(_ACTION)["target"]).withColumn(REMOVES, removes)
        # A row that goes to several places is still one row.
        placed = placed.withColumn(KEY_HASH, f.when(f.col(_ACTION_NUMBER) == 0, f.col(KEY_HASH)))
        return self._route_to_targets(placed, candidates, spread)

    def _route_to_targets(
        self, rows: DataFrame, candidates: Sequence[FileSlice], spread: Mapping[str, list[str]]
    ) -> Route:
        bundles = len(candidates) + sum(map(len, spread.values())) + len(self.counts)
        return Route(_with_bundle(rows, _bundle_of_target()), bundles, IndexReport())

    def _coming(self, partitions: frozenset[str]) -> dict[str, int]:
        """How many rows come for each of these partitions."""
        return {path: count for path, count in self.counts.items() if path in partitions}

    def _spread(self, new: Mapping[str, int]) -> dict[str, list[str]]:
        """The base files over which the new rows of each partition are spread."""
        groups, write = self.request.groups, self.request.task.write
        return {
            path: insertion_targets(groups.get(path, ()), max(1, count), write) for path, count in new.items()
        }

    def _large_partitions(self) -> frozenset[str]:
        """Partitions with more data, stored or to come, than one task should take while other cores idle."""
        write, groups = self.request.task.write, self.request.groups
        sizes = {
            path: total_bytes(groups[path]) + count * write.record_bytes
            for path, count in self.counts.items()
            if path in groups
        }
        largest = max(sum(sizes.values()) / parallelism(self.session), write.max_file_bytes)
        return frozenset(path for path, size in sizes.items() if size > largest)

    def _bloom_verdicts(self, keys: DataFrame, groups: Sequence[FileSlice]) -> dict[FileSlice, Verdict]:
        """Whether each file group may hold one of the keys; each may, if the index looks at no footers."""
        if not groups or not self.request.task.write.index_type.prunes_by_bloom:
            return dict.fromkeys(groups, Verdict.MAYBE)
        few = keys.select(_KEY).coalesce(parallelism(self.session))
        telling = [group for group in groups if not has_foreign_logs(group)]
        return dict.fromkeys(groups, Verdict.MAYBE) | check_footers(few, telling, self.table.location)

    def _hits(self, candidates: Sequence[FileSlice]) -> DataFrame:
        """The keys of the file groups, each with the base file of its group and the stored ordering value."""
        schema = [pa.field(name, pa.string()) for name in (RECORD_KEY, PARTITION_PATH, FILE_NAME)]
        decides = self.request.deciding_column
        if decides is not None:
            schema.append(self.request.task.schema.field(decides))
        instants = self.request.log_instants
        merge = None
        if instants is not None:
            merge = LogMerge(instants, None if decides is None else self.request.task.schema.field(decides))
        files = Snapshot(None, slice_table(candidates), self.request.written_with, merge=merge)
        stored = read_frame(self.session, self.table, files, pa.schema(schema))
        path = f.col(PARTITION_PATH)
        name = f.col(FILE_NAME)
        target = f.when(path == "", name).otherwise(f.concat(path, f.lit("/"), name))
        if merge is not None:
            # Rows of log files are stored under the id of their file group alone.
            groups = [(group.partition, group.file_id, group.home) for group in candidates]
            homes = self.session.createDataFrame(
                groups, f"{PARTITION_PATH} string, {_FOUND} string, {TARGET} string"
            )
            stored = stored.withColumn(_FOUND, f.substring_index(name, "_", 1))
            stored = stored.join(f.broadcast(homes), [PARTITION_PATH, _FOUND], "left")
            target = f.col(TARGET)
        return stored.select(
            f.col(RECORD_KEY).alias(_KEY),
            path.alias(_PATH),
            target.alias("target"),
            path.alias("partition"),
            (f.col(quote(decides)) if decides else f.lit(None).cast("int")).alias("stored"),
        )

    def _fits(self, count: int, bytes_each: int) -> bool:
        """Whether this number of keys can be sent to every task."""
        return count * bytes_each <= min(_BROADCAST_SHARE * heap_bytes(self.session), _BROADCAST_MAX)

    def _cache(self, frame: DataFrame) -> DataFrame:
        """Computed once, when it is first needed. The caller releases it with all that is held."""
        cached = frame.persist()
        self.held.append(cached)
        return cached

    def _with_keys(self, rows: DataFrame) -> DataFrame:
        """The rows with their keys and partitions; null where they do not say the partition."""
        table = self.request.task.table
        path = (
            partition_path_of(rows, table)
            if says_partition(rows, self.request.task.table)
            else f.lit(None).cast("string")
        )
        keyed = rows.withColumn(_KEY, record_key_of(rows, table)).withColumn(_PATH, path)
        return keyed.withColumn(KEY_HASH, _key_hash())

    def _keys_in_order(self, keyed: DataFrame) -> DataFrame:
        """The keys and partitions of the rows, with what says which of one key is the newest."""
        ordering = self.request.task.table.ordering
        order = f.col(quote(ordering)) if ordering in keyed.columns else f.lit(0)
        return keyed.select(_KEY, _PATH, order.alias(_ORDER))

    def _newest_partitions(self, keys: DataFrame) -> DataFrame:
        """The keys that come for several partitions, with the one for which the newest row comes."""
        newest = f.max(f.struct(_ORDER, f.col(_PATH).alias("partition")))["partition"]
        is_shared = f.min(_PATH) != f.max(_PATH)
        shared = keys.groupBy(_KEY).agg(newest.alias(_FOUND), is_shared.alias(_MARK))
        return self._cache(shared.where(_MARK).drop(_MARK))

    def _drop_older(self, keyed: DataFrame, newest: DataFrame) -> DataFrame:
        """The rows without those whose key comes, newer, for another partition.

        What is left of a key comes for one partition, whose task takes the newest.
        Only keys are compared, so the rows stay where they are, unless very many
        keys come for several partitions.
        """
        few = self._fits(newest.count(), _KEY_BYTES)
        joined = keyed.join(f.broadcast(newest) if few else newest, _KEY, "left")
        return joined.where(f.col(_FOUND).isNull() | (f.col(_FOUND) == f.col(_PATH))).drop(_FOUND)

    def _find_shared_keys(self, keys: DataFrame, hits: DataFrame | None) -> _SharedKeys:
        """The partitions that share a key, by the keys of the rows and by those that are stored.

        Keys are compared by their hashes, which are shorter. Two keys with the same
        hash only cost a look.
        """
        mark = f.xxhash64(_KEY).alias(_MARK)
        marks = keys.select(mark, _PATH)
        met = marks.select(_MARK, f.col(_PATH).alias("partition"), f.lit(True).alias("is_in_batch"))
        if hits is not None:
            met = met.union(hits.select(mark, "partition", f.lit(False)))
        is_small = self._fits(sum(self.counts.values()), _MARK_BYTES)
        shared = met.join(f.broadcast(marks) if is_small else marks, _MARK)
        shared = shared.where(f.col("partition") != f.col(_PATH))
        both = f.explode(f.array("partition", _PATH)).alias("partition")
        collected = shared.select(both, "is_in_batch").distinct().collect()
        return _SharedKeys(frozenset(row[0] for row in collected), any(row[1] for row in collected))

    def _actions(self, rows: DataFrame) -> Column:
        """What is done with a row: pairs of a base file and whether the row only removes its key there.

        A row that changes nothing goes to a task, too, which reports that its key was looked for. One that
        removes a key that is not stored goes where an older row with the key would be added, and wins there.
        """
        request = self.request
        nothing = f.array().cast(_ACTIONS)
        target = f.coalesce(_target_of_new_row(), f.lit(""))
        addition = f.array(_action(target, removes=False)).cast(_ACTIONS)
        removes = _removal(rows, request)
        moves = self._is_global and request.task.write.moves_records and not request.removes
        leaves = (
            (lambda x: (x["partition"] != f.col(_PATH)) & ~removes) if moves else (lambda x: f.lit(False))
        )
        wins = _wins(request)
        # A row that is older than the stored one does not leave: its task finds that, and reports it.
        known = f.transform(
            _FOUND, lambda x: f.struct(x["target"].alias("target"), (leaves(x) & wins(x)).alias("removes"))
        )
        is_new = ~removes & ~f.exists(_FOUND, lambda x: ~leaves(x) | ~wins(x))
        found = f.concat(known.cast(_ACTIONS), f.when(is_new, addition).otherwise(nothing))
        return f.when(f.col(_FOUND).isNull(), addition).otherwise(found)


def _may_match(asked: Mapping[FileSlice, Verdict]) -> list[FileSlice]:
    return [group for group, verdict in asked.items() if verdict is Verdict.MAYBE]


def _with_bundle(rows: DataFrame, bundle: Column) -> DataFrame:
    return rows.withColumn(BUNDLE, bundle).drop(_PATH, _KEY, _TARGETS, _FOUND, _ACTION, _ACTION_NUMBER)


def parallelism(session: SparkSession) -> int:
    """How many tasks run at once, as far as the session tells."""
    context = getattr(session, "_sc", None)
    if context is not None:
        return max(1, int(context.defaultParallelism))
    # A session of Spark Connect has no context, but its server makes as many slices of a range.
    slices = session.range(_SLICES_MAX).select(f.spark_partition_id()).distinct()
    return max(1, slices.count())


def _key_hash() -> Column:
    """What a row carries to its task, to be compared with the keys that were looked for."""
    return f.xxhash64(_KEY, _PATH)


def _key_sum(keys: DataFrame) -> KeySum:
    hashes = _key_hash()
    parts = f.shiftrightunsigned(hashes, KeySum.HIGH_SHIFT), hashes.bitwiseAND(f.lit(KeySum.LOW_MASK))
    high, low = keys.agg(*(f.coalesce(f.sum(part), f.lit(0)) for part in parts)).collect()[0]
    return KeySum(high, low)


def _is_in(partitions: frozenset[str]) -> Column:
    return f.col(_PATH).isin(*partitions)


def _bundle_of_target() -> Column:
    return (
        f.when(f.col(TARGET).isNull(), f.xxhash64(_PATH))
        .when(f.col(TARGET) == "", f.xxhash64(_PATH, _choice()))
        .otherwise(f.xxhash64(TARGET))
    )


def _new_rows(found: DataFrame, counts: Mapping[str, int]) -> dict[str, int]:
    """About how many rows of each partition are new."""
    partition = f.col(_FOUND)[0]["partition"]
    known = {row[0]: row[1] for row in found.groupBy(partition).count().toLocalIterator()}
    return {path: count - known.get(path, 0) for path, count in counts.items()}


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


def _target_of_new_row() -> Column:
    return f.get(f.col(_TARGETS), _choice().cast("int"))


def _removal(rows: DataFrame, request: MergeRequest) -> Column:
    """Whether a row takes its key away."""
    if REMOVES in rows.columns:
        return f.col(REMOVES)
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
    incoming = f.col(quote(decides))
    return lambda x: f.coalesce(incoming >= x["stored"], x["stored"].isNull())
