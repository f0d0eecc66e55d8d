"""The option table: every option that has an effect here, declared once.

Parsing, settings, refusals, "did you mean" and the pages on options come out
of it. What Apache Hudi's other options are answered with is in `hudi_options.tsv`.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from holdfast.config.choices import (
    BucketEngine,
    CleanPolicy,
    CleanTrigger,
    CompactionStrategy,
    CompactionTrigger,
    ConcurrencyMode,
    FailedWritesPolicy,
    IndexType,
    LockProvider,
    LogBlockFormat,
    MergeMode,
    Operation,
    QueryType,
    TableType,
    TimelineZone,
    TimestampType,
    TimeUnit,
)
from holdfast.config.option import REQUIRED, Area, Option, field_options, option

log = logging.getLogger(__name__)

CODECS = ("zstd", "snappy", "gzip", "lz4", "uncompressed")
NO_NUMBER = -1
KEEP_MIN_COMMITS = 20
KEEP_MAX_COMMITS = 30
"""What archiving leaves on the active timeline by default."""
_BUCKETS_MAX = 100_000_000
"""A bucket's number is the first eight digits of its file ids."""

IGNORE_TUNING = "holdfast.ignore.tuning.options"

# The classes that settings inherit from only declare: nothing is generated for them twice.
# fmt: off


@dataclass(init=False, repr=False, eq=False, frozen=True, slots=True, kw_only=True)
class SwitchOptions:
    """What every verb takes."""

    ignores_tuning: bool = option(
        False, IGNORE_TUNING,
        meaning="ignore options that only tune how Apache Hudi works, with one warning that lists them,"
        " instead of refusing them",
    )


@dataclass(init=False, repr=False, eq=False, frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A write, and what it archives."""

    max_file_bytes: int = option(
        120 * 1024 * 1024, "hoodie.parquet.max.file.size", least=1024,
        meaning="bytes at which a base file is cut",
    )
    compression: str = option(
        "zstd", "hoodie.parquet.compression.codec", choices=CODECS,
        meaning="how base files are compressed",
    )
    bloom_error_rate: float = option(
        1e-9, "hoodie.index.bloom.fpp", "hoodie.bloom.index.filter.error.rate", shown="0.000000001",
        meaning="error rate of the bloom filter in each footer; files with very many keys get fewer bits"
        " per key",
    )
    small_file_bytes: int = option(
        100 * 1024 * 1024, "hoodie.parquet.small.file.limit", least=0,
        meaning="file groups below this size receive new records of insert and upsert; 0 switches that"
        " off",
    )
    record_bytes: int = option(
        256, "hoodie.copyonwrite.record.size.estimate", least=1,
        meaning="bytes a stored record is taken to have when many new ones are spread over tasks; files"
        " are cut by their real size",
    )
    index_type: IndexType = option(
        IndexType.SIMPLE, "hoodie.index.type",
        meaning="how the file group that holds a key is found: `SIMPLE`, `BLOOM` (keys are unique in"
        " their partition), `GLOBAL_SIMPLE`, `GLOBAL_BLOOM` (in the table), `BUCKET` (no look-up)",
    )
    simple_moves_records: bool = option(
        True, "hoodie.simple.index.update.partition.path",
        meaning="with `GLOBAL_SIMPLE`, a record whose partition column changed moves there; if `false` it"
        " is updated where it is",
    )
    bloom_moves_records: bool = option(
        True, "hoodie.bloom.index.update.partition.path",
        meaning="the same with `GLOBAL_BLOOM`",
    )
    bucket_count: int = option(
        256, "hoodie.bucket.index.num.buckets", least=1, most=_BUCKETS_MAX,
        meaning="buckets per partition; every write must give the number the table was made with",
    )
    bucket_fields: str = option(
        "", "hoodie.bucket.index.hash.field", shown="the key columns",
        meaning="key columns that a record's bucket depends on, separated by commas",
    )
    bucket_engine: BucketEngine = option(
        BucketEngine.SIMPLE, "hoodie.index.bucket.engine",
        meaning="the only engine there is",
    )
    log_ratio_max: float = option(
        0.1, "holdfast.mor.max.log.ratio",
        meaning="merge-on-read: a write appends a log file to a file group as long as its log files have"
        " less than this part of the base file's bytes, and rewrites the base file from then on; 0 always"
        " rewrites",
    )
    logs_max: int = option(
        5, "holdfast.mor.max.logs", least=0,
        meaning="merge-on-read: the log files that a file group may have before a write rewrites its base"
        " file; 0 always rewrites",
    )
    log_block_format: LogBlockFormat = option(
        LogBlockFormat.PARQUET, "hoodie.logfile.data.block.format",
        meaning="merge-on-read: how the rows of log files are stored: `parquet`, or `avro`, which is many"
        " times slower",
    )
    compacts_inline: bool = option(
        False, "hoodie.compact.inline",
        meaning="merge-on-read: compact after a write, if that is due",
    )
    schedules_inline: bool = option(
        False, "hoodie.compact.schedule.inline",
        meaning="merge-on-read: plan a compaction after a write, if that is due, and leave it to"
        " `compact` to carry it out",
    )
    compaction_trigger: CompactionTrigger = option(
        CompactionTrigger.NUM_COMMITS, "hoodie.compact.inline.trigger.strategy",
        meaning="when a compaction is due: after some commits, some time, both, or either",
    )
    compaction_commits: int = option(
        5, "hoodie.compact.inline.max.delta.commits", least=1,
        meaning="commits since the last compaction after which one is due",
    )
    compaction_seconds: int = option(
        3600, "hoodie.compact.inline.max.delta.seconds", least=1,
        meaning="seconds since the last compaction after which one is due",
    )
    compaction_strategy: CompactionStrategy = option(
        CompactionStrategy.LOG_BYTES, "hoodie.compaction.strategy",
        meaning="which file slices a compaction takes first: those with the most bytes of log files, with"
        " the most log files, or as they come; or all there are, without a limit",
    )
    compaction_io_mb: int = option(
        512_000, "hoodie.compaction.target.io", least=1,
        meaning="megabytes that one compaction reads and writes at most, if the strategy has a limit",
    )
    compaction_log_bytes_least: int = option(
        0, "hoodie.compaction.logfile.size.threshold", least=0,
        meaning="bytes of log files that a file slice must have to be compacted, if the strategy goes by"
        " them",
    )
    compaction_logs_least: int = option(
        0, "hoodie.compaction.logfile.num.threshold", least=0,
        meaning="log files that a file slice must have to be compacted, if the strategy goes by their"
        " number",
    )
    combines_inserts: bool = option(
        False, "hoodie.combine.before.insert",
        meaning="reduce records of one key within an insert, bulk insert or overwrite to one, as upsert"
        " always does",
    )
    fills_missing_columns: bool = option(
        False, "hoodie.write.set.null.for.missing.columns",
        meaning="fill columns that the rows lack with nulls instead of refusing the rows",
    )
    parallelism: int = option(
        0, "hoodie.upsert.shuffle.parallelism", "hoodie.insert.shuffle.parallelism",
        "hoodie.delete.shuffle.parallelism", least=0,
        meaning="tasks that merge; 0 lets Holdfast choose",
    )
    heartbeat_interval_ms: int = option(
        60_000, "hoodie.client.heartbeat.interval_in_ms", least=1000,
        meaning="time between two beats of a running write",
    )
    heartbeat_misses: int = option(
        2, "hoodie.client.heartbeat.tolerable.misses", least=1,
        meaning="a writer counts as gone after this many intervals without a beat",
    )
    concurrency_mode: ConcurrencyMode = option(
        ConcurrencyMode.SINGLE_WRITER, "hoodie.write.concurrency.mode",
        meaning="one writer at a time; `OPTIMISTIC_CONCURRENCY_CONTROL` for [many](many-writers.md)",
    )
    failed_writes_policy: FailedWritesPolicy = option(
        FailedWritesPolicy.EAGER, "hoodie.clean.failed.writes.policy", "hoodie.cleaner.policy.failed.writes",
        shown="`EAGER`; `LAZY` with many writers",
        meaning="when failed writes are removed: by the next write, when their heartbeat has expired, or"
        " `NEVER`",
    )
    conflict_retries: int = option(
        0, "hoodie.write.num.retries.on.conflict.failures", least=0,
        meaning="how often a write is made anew after a conflict",
    )
    detects_conflicts_early: bool = option(
        False, "hoodie.write.concurrency.early.conflict.detection.enable",
        meaning="tasks look for other writers on their file groups before they write",
    )
    refuses_duplicates: bool = option(
        False, "hoodie.fail.job.on.duplicate.data.file.detection",
        meaning="refuse a write whose tasks left files beside those that count, instead of deleting them",
    )
    archives: bool = option(
        True, "hoodie.archive.automatic",
        meaning="archive after each commit, after its clean",
    )
    archives_beside_write: bool = option(
        False, "hoodie.archive.async",
        meaning="archive while files are being written instead",
    )
    archive_batch: int = option(
        10, "hoodie.commits.archival.batch", least=1,
        meaning="files of the timeline that share a block of an archive",
    )
    application: str = option(
        "", "txnAppId", "txnappid", "hoodie.datasource.write.streaming.checkpoint.identifier",
        meaning="an application that numbers its writes, each of which is then [committed"
        " once](python.md#exactly-once); given together with the number",
    )
    batch_number: int = option(
        NO_NUMBER, "txnVersion", "txnversion", shown="none",
        meaning="the number that the application gives this write; its numbers ascend",
    )
    archives_beyond_savepoints: bool = option(
        True, "hoodie.archive.beyond.savepoint",
        meaning="archive savepointed commits, and those after them, like all others: Holdfast restores to"
        " such a savepoint all the same, Hudi cannot. With `false`, Hudi's default, archiving"
        " stops at the oldest savepoint, and every commit costs more the longer it stays",
    )


@dataclass(init=False, repr=False, eq=False, frozen=True, slots=True, kw_only=True)
class LockOptions:
    """The lock that keeps out programs that do not know the ledger."""

    provider: LockProvider = option(
        REQUIRED, "hoodie.write.lock.provider", kind=str,
        meaning="`InProcessLockProvider`, `FileSystemBasedLockProvider`, `StorageBasedLockProvider`,"
        " `ZookeeperBasedLockProvider`, `ZookeeperBasedImplicitBasePathLockProvider`, alone or as"
        " Hudi's class names",
    )
    wait_ms: int = option(
        60_000, "hoodie.write.lock.wait_time_ms", least=0,
        meaning="how long one attempt waits for the lock",
    )
    client_retries: int = option(
        50, "hoodie.write.lock.client.num_retries", least=0,
        meaning="attempts after the first",
    )
    client_wait_ms: int = option(
        5_000, "hoodie.write.lock.client.wait_time_ms_between_retry", least=0,
        meaning="pause between two attempts",
    )
    retry_wait_ms: int = option(
        1_000, "hoodie.write.lock.wait_time_ms_between_retry", least=1,
        meaning="first pause between two looks at a lock that is held; it grows",
    )
    retry_wait_ms_max: int = option(
        16_000, "hoodie.write.lock.max_wait_time_ms_between_retry", least=1,
        meaning="longest such pause",
    )
    connection_retries: int = option(
        15, "hoodie.write.lock.num_retries", least=0,
        meaning="attempts to reach ZooKeeper",
    )
    file_folder: str = option(
        "", "hoodie.write.lock.filesystem.path", shown="the table's `.hoodie`",
        meaning="folder of the lock file",
    )
    file_expiry_minutes: int = option(
        0, "hoodie.write.lock.filesystem.expire", least=0,
        meaning="minutes without a sign of life after which a lock file is free; 0 means never",
    )
    storage_validity_s: int = option(
        300, "hoodie.write.lock.storage.validity.timeout.secs", least=10,
        meaning="how long a lock object is valid; at least ten renewals",
    )
    storage_renewal_s: int = option(
        30, "hoodie.write.lock.storage.renew.interval.secs", "hoodie.write.lock.storage.heartbeat.poll.secs",
        least=1,
        meaning="time between two renewals",
    )
    zookeeper_url: str = option(
        "", "hoodie.write.lock.zookeeper.url",
        meaning="servers, `host:port` separated by commas; needed",
    )
    zookeeper_port: int = option(
        2_181, "hoodie.write.lock.zookeeper.port", least=1,
        meaning="port of servers named without one",
    )
    zookeeper_base_path: str = option(
        "", "hoodie.write.lock.zookeeper.base_path",
        meaning="path of the locks, begins with `/`; needed, unless it follows from the table's address",
    )
    zookeeper_lock_key: str = option(
        "", "hoodie.write.lock.zookeeper.lock_key", shown="the table's name",
        meaning="node of the lock below that path",
    )
    zookeeper_session_timeout_ms: int = option(
        60_000, "hoodie.write.lock.zookeeper.session_timeout_ms", least=1,
        meaning="how long a silent holder keeps the lock",
    )
    zookeeper_connection_timeout_ms: int = option(
        15_000, "hoodie.write.lock.zookeeper.connection_timeout_ms", least=1,
        meaning="how long to wait for a connection",
    )


@dataclass(init=False, repr=False, eq=False, frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """Cleaning, and how much archiving leaves."""

    automatic: bool = option(
        True, "hoodie.clean.automatic",
        meaning="clean after each commit",
    )
    asynchronous: bool = option(
        False, "hoodie.clean.async.enabled", "hoodie.clean.async",
        meaning="clean while files are being written instead; the commit waits for it",
    )
    services_enabled: bool = option(
        True, "hoodie.table.services.enabled",
        meaning="`false` lets a write do nothing but write",
    )
    policy: CleanPolicy = option(
        CleanPolicy.KEEP_LATEST_COMMITS, "hoodie.clean.policy", "hoodie.cleaner.policy",
        meaning="what decides: `KEEP_LATEST_COMMITS`, `KEEP_LATEST_BY_HOURS`,"
        " `KEEP_LATEST_FILE_VERSIONS`; if only one of the next three options is given, it decides",
    )
    commits_retained: int = option(
        10, "hoodie.clean.commits.retained", "hoodie.cleaner.commits.retained", least=1,
        meaning="a query is safe for this many further commits",
    )
    hours_retained: int = option(
        24, "hoodie.clean.hours.retained", "hoodie.cleaner.hours.retained", least=1,
        meaning="a query is safe for this many hours",
    )
    versions_retained: int = option(
        3, "hoodie.clean.fileversions.retained", "hoodie.cleaner.fileversions.retained", least=1,
        meaning="versions of each file group that stay; replaced file groups go at once",
    )
    max_commits: int = option(
        1, "hoodie.clean.max.commits", "hoodie.clean.trigger.max.commits",
        "hoodie.cleaner.trigger.max.commits", least=1,
        meaning="commits since the last clean that make the next worth planning",
    )
    trigger: CleanTrigger = option(
        CleanTrigger.NUM_COMMITS, "hoodie.clean.trigger.strategy", "hoodie.cleaner.trigger.strategy",
        meaning="the only strategy there is",
    )
    incremental: bool = option(
        True, "hoodie.clean.incremental.enabled", "hoodie.cleaner.incremental.enabled",
        "hoodie.cleaner.incremental.mode",
        meaning="look only at partitions that changed since the last clean",
    )
    parallelism: int = option(
        200, "hoodie.clean.parallelism", "hoodie.cleaner.parallelism", least=1,
        meaning="files deleted at the same time",
    )
    plans_beside_pending: bool = option(
        False, "hoodie.clean.multiple.enabled", "hoodie.clean.allow.multiple",
        meaning="plan a clean also in a run that carried out a pending one",
    )
    max_commits_to_clean: int = option(
        0, "hoodie.clean.max.commits.to.clean", "hoodie.cleaner.max.commits.clean", least=0,
        meaning="commits by which one clean may advance; 0 is without limit",
    )
    empty_clean_hours: int = option(
        -1, "hoodie.write.empty.clean.interval.hours",
        meaning="hours after which a clean is recorded though nothing was to be deleted; negative is"
        " never",
    )
    partition_pattern: str = option(
        "", "hoodie.clean.partition.filter.regex", "hoodie.cleaner.partition.filter.regex",
        meaning="clean only partitions whose whole path matches",
    )
    partitions_selected: tuple[str, ...] = option(
        (), "hoodie.clean.partition.filter.selected", "hoodie.cleaner.partition.filter.selected",
        meaning="clean only these partitions, separated by commas; wins over the pattern",
    )
    cleans_idle_tables: bool = option(
        True, "holdfast.clean.idle.tables",
        meaning="by hours: a table without a commit in that time keeps its latest versions only; `false`"
        " cleans nothing then, as Hudi does",
    )
    keep_min: int | None = option(
        None, "hoodie.keep.min.commits", shown=str(KEEP_MIN_COMMITS), least=1,
        meaning="commits that archiving leaves on the timeline; must be more than the commits retained",
    )
    keep_max: int | None = option(
        None, "hoodie.keep.max.commits", shown=str(KEEP_MAX_COMMITS), least=1,
        meaning="commits at which archiving begins; must be more than it leaves",
    )


@dataclass(init=False, repr=False, eq=False, frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What one write does, by the options of Hudi's datasource."""

    operation: Operation | None = option(
        None, "hoodie.datasource.write.operation", shown="`upsert`",
        meaning="`upsert`, `insert`, `bulk_insert`, `delete`, `insert_overwrite`, `insert_overwrite_table`,"
        " `delete_partition`",
    )
    partitions: tuple[str, ...] = option(
        (), "hoodie.datasource.write.partitions.to.delete",
        meaning="what `delete_partition` deletes: paths separated by commas, no patterns",
    )


@dataclass(init=False, repr=False, eq=False, frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A read: by Hudi's options, with `columns`, `meta_columns` and `partitions` of our own."""

    query: QueryType = option(
        QueryType.SNAPSHOT, "hoodie.datasource.query.type", "hoodie.datasource.view.type",
        meaning="`snapshot`, `read_optimized` or `incremental`",
    )
    as_of: str | None = option(
        None, "as.of.instant", shown="the newest commit",
        meaning="the snapshot to read",
    )
    since: str | None = option(
        None, "hoodie.datasource.read.begin.instanttime",
        meaning="what changed after this commit, or `earliest`; needed by `incremental`",
    )
    until: str | None = option(
        None, "hoodie.datasource.read.end.instanttime", shown="the newest commit",
        meaning="the last commit whose changes are read",
    )
    columns: tuple[str, ...] | None = option(
        None, "columns", shown="all",
        meaning="columns to read, separated by commas",
    )
    deletes: bool = option(
        False, "deletes",
        meaning="with `incremental` and in streams: what became of each record, in the column `_change_type`",
    )
    meta_columns: bool = option(
        False, "meta_columns",
        meaning="read Hudi's five meta columns, too",
    )
    partitions: tuple[str, ...] | None = option(
        None, "partitions", shown="all",
        meaning="paths of partitions, or of folders above some, that alone are read, separated by commas",
    )


# fmt: on


def _table(stored: str, *names: str, meaning: str, **more: Any) -> Option:
    """What `hoodie.properties` keeps, by the name it is stored by."""
    return Option(area=Area.TABLE, setting=stored, names=names or (stored,), meaning=meaning, **more)


def _timestamps(name: str, meaning: str, **more: Any) -> Option:
    """Of partition paths made from moments; the older name is read, too."""
    names = ("hoodie.keygen." + name, "hoodie.deltastreamer.keygen." + name)
    return _table(names[0], *names, meaning=meaning, **more)


# fmt: off
TABLE_OPTIONS: tuple[Option, ...] = (
    _table(
        "hoodie.table.name", "hoodie.table.name", "hoodie.datasource.write.table.name",
        meaning="the table's name; needed for a new table only",
    ),
    _table(
        "hoodie.table.type", "hoodie.datasource.write.table.type", "hoodie.datasource.write.storage.type",
        "hoodie.table.type", kind=TableType, shown="`COPY_ON_WRITE`",
        meaning="writes need `COPY_ON_WRITE`",
    ),
    _table(
        "hoodie.table.recordkey.fields", "hoodie.datasource.write.recordkey.field",
        "hoodie.table.recordkey.fields",
        meaning="the key columns, separated by commas; needed for a new table",
    ),
    _table(
        "hoodie.table.partition.fields", "hoodie.datasource.write.partitionpath.field",
        "hoodie.table.partition.fields",
        meaning="the partition columns, separated by commas; `name:SIMPLE` and `name:TIMESTAMP` with the"
        " custom key generator",
    ),
    _table(
        "hoodie.table.precombine.field", "hoodie.table.ordering.fields",
        "hoodie.datasource.write.precombine.field", "hoodie.table.precombine.field",
        "hoodie.payload.ordering.field",
        meaning="the ordering column, one; the last of these names must agree with the others",
    ),
    _table(
        "hoodie.table.keygenerator.class", "hoodie.datasource.write.keygenerator.class",
        "hoodie.datasource.write.keygenerator.type", "hoodie.table.keygenerator.class",
        "hoodie.table.keygenerator.type", shown="follows from the columns",
        meaning="simple, complex, non-partitioned, timestamp-based or custom",
    ),
    _table(
        "hoodie.compaction.payload.class", "hoodie.datasource.write.payload.class",
        "hoodie.compaction.payload.class", shown="`DefaultHoodieRecordPayload` with an ordering column",
        meaning="`DefaultHoodieRecordPayload` or `OverwriteWithLatestAvroPayload`, with their package",
    ),
    _table(
        "hoodie.record.merge.mode", "hoodie.write.record.merge.mode", "hoodie.record.merge.mode",
        kind=MergeMode, shown="follows from the payload class",
        meaning="`EVENT_TIME_ORDERING` with an ordering column, `COMMIT_TIME_ORDERING` without one",
    ),
    _table(
        "hoodie.datasource.write.hive_style_partitioning", kind=bool,
        shown="`false`; `true` with `create_table`",
        meaning="partitions named `city=paris` instead of `paris`",
    ),
    _table(
        "hoodie.datasource.write.partitionpath.urlencode", kind=bool, shown="`false`",
        meaning="escape special characters in partition values",
    ),
    _table(
        "hoodie.database.name", shown="`default`",
        meaning="name of the database",
    ),
    _table(
        "hoodie.table.create.schema",
        meaning="Avro schema of the columns before the first write",
    ),
    _table(
        "hoodie.table.timeline.timezone", kind=TimelineZone, shown="`UTC`",
        meaning="whose clock instants go by; `LOCAL` is the zone of the writers, as in Hudi, where it is"
        " the default ([time zones](reference/interop.md#time-zones))",
    ),
    _table(
        "holdfast.export.formats",
        meaning="other formats to keep the table in, separated by commas: `delta`, `iceberg`"
        " ([other engines](other-engines.md))",
    ),
    _timestamps(
        "timebased.timestamp.type", "what a partition column of type TIMESTAMP holds", kind=TimestampType,
    ),
    _timestamps(
        "timebased.timestamp.scalar.time.unit", "what a number counts, if the type is SCALAR",
        kind=TimeUnit, default=TimeUnit.SECONDS,
    ),
    _timestamps("timebased.input.dateformat", "how texts are read; several are separated by commas"),
    _timestamps("timebased.input.dateformat.list.delimiter.regex", "what separates several"),
    _timestamps("timebased.input.timezone", "the zone of texts without one"),
    _timestamps("timebased.output.dateformat", "how the folder is named; needed"),
    _timestamps("timebased.output.timezone", "the zone of the folder's name"),
    _timestamps("timebased.timezone", "both zones"),
    _timestamps("datetime.parser.class", "Hudi's own parser, the only one there is"),
)
# fmt: on

OPTIONS: tuple[Option, ...] = (
    *field_options(Area.SWITCH, SwitchOptions),
    *field_options(Area.WRITE, WriteOptions),
    *field_options(Area.LOCK, LockOptions),
    *field_options(Area.CLEAN, CleanOptions),
    *TABLE_OPTIONS,
    *field_options(Area.SOURCE, SourceOptions),
    *field_options(Area.READ, ReadOptions),
)


def options_of(area: Area) -> Mapping[str, Option]:
    """The options of an area by their settings."""
    return _by_area()[area]


def option_named(name: str) -> Option | None:
    """The option that has this spelling."""
    return _by_name().get(name) or _by_name().get(name.lower())


def spellings(areas: Iterable[Area]) -> list[str]:
    """Every name of the options of these areas."""
    return [name for area in areas for row in options_of(area).values() for name in row.names]


def parse_settings(area: Area, options: Mapping[str, str] | None) -> dict[str, Any]:
    """The settings that options of the area give, among options of any kind."""
    settings = {}
    for setting, row in options_of(area).items():
        texts = {name: str((options or {})[name]) for name in row.names if name in (options or {})}
        if not texts:
            continue
        used = next(iter(texts))
        if len({text.strip() for text in texts.values()}) > 1:
            log.warning("options.contradictory", extra={"options": texts, "used": used})
        settings[setting] = row.parse(texts[used])
    return settings


def check_settings(area: Area, settings: object) -> None:
    """`InvalidOption` names the first option whose value is none that it may have."""
    for setting, row in options_of(area).items():
        row.check(getattr(settings, setting))


@cache
def _by_area() -> dict[Area, dict[str, Option]]:
    return {area: {row.setting: row for row in OPTIONS if row.area is area} for area in Area}


@cache
def _by_name() -> dict[str, Option]:
    return {name: row for row in OPTIONS for name in row.names}
