"""The values that options and properties choose from."""

from enum import StrEnum

from holdfast.model.instant import Action


class TableType(StrEnum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class ExportFormat(StrEnum):
    """Another format in which other engines can read the table."""

    DELTA = "delta"


class LogBlockFormat(StrEnum):
    """How the rows of a log file are stored."""

    PARQUET = "parquet"
    AVRO = "avro"


class CompactionTrigger(StrEnum):
    """When a compaction is due."""

    NUM_COMMITS = "NUM_COMMITS"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


class CompactionStrategy(StrEnum):
    """Which file slices a compaction takes first, and whether there is a limit."""

    LOG_BYTES = "org.apache.hudi.table.action.compact.strategy.LogFileSizeBasedCompactionStrategy"
    LOG_COUNT = "org.apache.hudi.table.action.compact.strategy.LogFileNumBasedCompactionStrategy"
    IN_ORDER = "org.apache.hudi.table.action.compact.strategy.BoundedIOCompactionStrategy"
    ALL = "org.apache.hudi.table.action.compact.strategy.UnBoundedCompactionStrategy"


class TimelineZone(StrEnum):
    """Whose wall clock the instants of a table are read off."""

    UTC = "UTC"
    LOCAL = "LOCAL"
    """That of the processes that write it, which must agree."""


class MergeMode(StrEnum):
    EVENT_TIME = "EVENT_TIME_ORDERING"
    COMMIT_TIME = "COMMIT_TIME_ORDERING"


class TimestampType(StrEnum):
    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    SCALAR = "SCALAR"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"


class TimeUnit(StrEnum):
    NANOSECONDS = "NANOSECONDS"
    MICROSECONDS = "MICROSECONDS"
    MILLISECONDS = "MILLISECONDS"
    SECONDS = "SECONDS"
    MINUTES = "MINUTES"
    HOURS = "HOURS"
    DAYS = "DAYS"


class FailedWritesPolicy(StrEnum):
    """When the traces of failed writes are removed."""

    EAGER = "EAGER"
    """When the next write begins: for tables with one writer."""
    LAZY = "LAZY"
    """When their heartbeat has expired: for tables with many writers."""
    NEVER = "NEVER"
    """Only when a caller asks for it."""


class ConcurrencyMode(StrEnum):
    SINGLE_WRITER = "SINGLE_WRITER"
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"


class BucketEngine(StrEnum):
    SIMPLE = "SIMPLE"


class IndexType(StrEnum):
    """How the file group that holds a key is found."""

    SIMPLE = "SIMPLE"
    GLOBAL_SIMPLE = "GLOBAL_SIMPLE"
    BLOOM = "BLOOM"
    GLOBAL_BLOOM = "GLOBAL_BLOOM"
    BUCKET = "BUCKET"

    @property
    def is_global(self) -> bool:
        """Whether a key names one record in the whole table, not one in each partition."""
        return self in (IndexType.GLOBAL_SIMPLE, IndexType.GLOBAL_BLOOM)

    @property
    def prunes_by_bloom(self) -> bool:
        return self in (IndexType.BLOOM, IndexType.GLOBAL_BLOOM)


class CleanPolicy(StrEnum):
    """What decides how long a version of a file stays."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"


class CleanTrigger(StrEnum):
    NUM_COMMITS = "NUM_COMMITS"


class LockProvider(StrEnum):
    """Where the lock is; the names are the last parts of Hudi's class names."""

    IN_PROCESS = "InProcessLockProvider"
    FILE = "FileSystemBasedLockProvider"
    STORAGE = "StorageBasedLockProvider"
    ZOOKEEPER = "ZookeeperBasedLockProvider"
    ZOOKEEPER_BY_TABLE = "ZookeeperBasedImplicitBasePathLockProvider"
    """As ZOOKEEPER, at a path that follows from the table's own."""

    @property
    def is_zookeeper(self) -> bool:
        return self in (LockProvider.ZOOKEEPER, LockProvider.ZOOKEEPER_BY_TABLE)


class Operation(StrEnum):
    """What a write does. The values are those of Hudi's options; commits have them in capitals."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
    DELETE_PARTITION = "delete_partition"

    @property
    def is_delete(self) -> bool:
        """Whether it only takes away, so that there is nothing to create or to replace."""
        return self in (Operation.DELETE, Operation.DELETE_PARTITION)

    @property
    def is_overwrite(self) -> bool:
        """Whether its rows take the place of all rows that are there, in some partitions or in the table."""
        return self in (Operation.INSERT_OVERWRITE, Operation.INSERT_OVERWRITE_TABLE)

    def action_on(self, kind: TableType) -> Action:
        """The kind of instant that it makes in a table of that type."""
        if self.is_overwrite or self is Operation.DELETE_PARTITION:
            return Action.REPLACECOMMIT
        return Action.DELTACOMMIT if kind is TableType.MERGE_ON_READ else Action.COMMIT

    @property
    def name_in_commits(self) -> str:
        return self.value.upper()


class QueryType(StrEnum):
    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"
