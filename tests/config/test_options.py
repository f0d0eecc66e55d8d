import pytest

from holdfast.config.choices import CompactionStrategy, FailedWritesPolicy
from holdfast.config.option import Area
from holdfast.config.option_table import options_of
from holdfast.config.table import new_table_settings
from holdfast.config.write import WriteSettings
from holdfast.errors import InvalidOption, UnsupportedTable


def test_every_spelling_of_a_supported_option_is_accepted():
    values = {
        "max_file_bytes": "4096",
        "compression": "GZIP",
        "small_file_bytes": "0",
        "record_bytes": "100",
        "bloom_error_rate": "0.01",
        "index_type": "global_bloom",
        "simple_moves_records": "False",
        "bloom_moves_records": "False",
        "bucket_engine": "simple",
        "bucket_count": "8",
        "bucket_fields": "Id",
        "combines_inserts": "true",
        "log_ratio_max": "0.5",
        "logs_max": "7",
        "log_block_format": "avro",
        "compacts_inline": "true",
        "schedules_inline": "true",
        "compaction_trigger": "num_or_time",
        "compaction_commits": "3",
        "compaction_seconds": "60",
        "compaction_strategy": CompactionStrategy.ALL,
        "compaction_io_mb": "100",
        "compaction_log_bytes_least": "1000",
        "compaction_logs_least": "2",
        "fills_missing_columns": "true",
        "parallelism": "3",
        "heartbeat_interval_ms": "5000",
        "failed_writes_policy": "eager",
        "heartbeat_misses": "3",
        "concurrency_mode": "single_writer",
        "conflict_retries": "4",
        "refuses_duplicates": "true",
        "detects_conflicts_early": "true",
        "archives": "false",
        "archives_beside_write": "true",
        "archives_beyond_savepoints": "true",
        "archive_batch": "3",
        "application": "Nightly",
        "batch_number": "7",
    }
    together = {"application": {"txnVersion": "7"}, "batch_number": {"txnAppId": "Nightly"}}
    assert set(values) == set(options_of(Area.WRITE))
    for setting, option in options_of(Area.WRITE).items():
        for name in option.names:
            given = {name: values[setting], **together.get(setting, {})}
            found = getattr(WriteSettings.from_options(given), setting)
            assert str(found).lower() == values[setting].lower()


def test_the_newer_spelling_wins():
    settings = WriteSettings.from_options(
        {"hoodie.bloom.index.filter.error.rate": "0.5", "hoodie.index.bloom.fpp": "0.25"}
    )

    assert settings.bloom_error_rate == 0.25


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hoodie.parquet.max.filesize": "1"}, "did you mean hoodie.parquet.max.file.size"),
        ({"nonsense": "1"}, "unknown option"),
        ({"hoodie.parquet.page.size": "1"}, "only tunes Apache Hudi"),
        ({"hoodie.parquet.max.file.size": "big"}, "a whole number"),
        ({"hoodie.parquet.max.file.size": "1"}, "at least 1024"),
        ({"hoodie.parquet.compression.codec": "rar"}, "zstd"),
        ({"hoodie.client.heartbeat.interval_in_ms": "10"}, "at least 1000"),
        ({"holdfast.mor.max.log.ratio": "-0.1"}, "at least 0"),
        ({"holdfast.mor.max.log.ratio": "nan"}, "at least 0"),
        ({"hoodie.logfile.data.block.format": "hfile"}, "parquet, avro"),
        ({"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}, "SINGLE_WRITER"),
        ({"hoodie.clean.failed.writes.policy": "sometimes"}, "EAGER, LAZY, NEVER"),
        (
            {
                "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
                "hoodie.cleaner.policy.failed.writes": "EAGER",
            },
            "use LAZY",
        ),
        ({"hoodie.client.heartbeat.tolerable.misses": "0"}, "at least 1"),
        ({"hoodie.write.lock.wait_time_ms": "1"}, "no lock provider"),
        ({"hoodie.index.type": "RECORD_INDEX"}, "GLOBAL_SIMPLE"),
        ({"hoodie.combine.before.insert": "yes"}, "true or false"),
        ({"hoodie.bucket.index.num.buckets": "0"}, "at least 1"),
        ({"hoodie.bucket.index.num.buckets": "100000001"}, "at most 100000000"),
        ({"hoodie.index.bloom.fpp": "small"}, "a number"),
        ({"hoodie.index.bloom.fpp": "1"}, "between 0 and 1"),
        ({"hoodie.table.name": "trips"}, "for what a table is"),
        ({"as.of.instant": "20240101000000000"}, "for a read"),
        ({"holdfast.ignore.tuning.options": "yes"}, "true or false"),
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "SIMPLE"),
    ],
)
def test_an_option_that_cannot_be_honoured_says_why(options, said):
    with pytest.raises(InvalidOption, match=said):
        WriteSettings.from_options(options)


def test_whether_records_move_is_said_by_the_option_of_the_index_in_use():
    stays = {
        "hoodie.simple.index.update.partition.path": "true",
        "hoodie.bloom.index.update.partition.path": "false",
    }

    assert WriteSettings.from_options({**stays, "hoodie.index.type": "GLOBAL_SIMPLE"}).moves_records
    assert not WriteSettings.from_options({**stays, "hoodie.index.type": "GLOBAL_BLOOM"}).moves_records


def test_many_writers_remove_failed_writes_lazily_unless_told_otherwise():
    mode = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}

    assert WriteSettings.from_options(mode).failed_writes_policy is FailedWritesPolicy.LAZY
    never = mode | {"hoodie.clean.failed.writes.policy": "NEVER"}
    assert WriteSettings.from_options(never).failed_writes_policy is FailedWritesPolicy.NEVER


def settings_for(**changes):
    given = {
        "name": "t",
        "record_key": ("id",),
        "partition_by": (),
        "ordering": None,
        "table_type": "COPY_ON_WRITE",
        "properties": {},
    }
    return new_table_settings(**(given | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": " padded "},
        {"record_key": ()},
        {"record_key": ("a", "a")},
        {"partition_by": ("",)},
        {"table_type": "COPY"},
        {"properties": {"hoodie.table.version": "8"}},
        {"properties": {"hoodie.table.nmae": "x"}},
        {"properties": {"hoodie.datasource.write.hive_style_partitioning": "yes"}},
        {"properties": {"hoodie.datasource.write.hive_style_partitioning": True}},
        {"record_key": ("trip id",)},
        {"record_key": ("a,b",)},
        {"record_key": ("_hoodie_record_key",)},
        {"ordering": ["ts"]},
        {"name": "\ud800"},
    ],
)
def test_a_table_that_cannot_be_is_refused(changes):
    with pytest.raises(InvalidOption):
        settings_for(**changes)


@pytest.mark.parametrize(
    ("record_key", "partition_by", "generator"),
    [
        (("id",), (), "NonpartitionedKeyGenerator"),
        (("id", "ts"), (), "NonpartitionedKeyGenerator"),
        (("id",), ("city",), "SimpleKeyGenerator"),
        (("id", "ts"), ("city",), "ComplexKeyGenerator"),
        (("id",), ("city", "day"), "ComplexKeyGenerator"),
    ],
)
def test_the_key_generator_follows_from_keys_and_partitions(record_key, partition_by, generator):
    settings = settings_for(record_key=record_key, partition_by=partition_by)

    assert settings.key_generator == f"org.apache.hudi.keygen.{generator}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.cdc.enabled", "true"),
        ("hoodie.populate.meta.fields", "false"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.table.keygenerator.class", "org.apache.hudi.keygen.TimestampBasedKeyGenerator"),
        ("hoodie.table.recordkey.fields", ""),
    ],
)
def test_features_a_writer_would_break_are_refused_for_writing_only(key, value):
    properties = dict(settings_for().properties) | {key: value}
    settings = type(settings_for()).from_properties(properties)

    with pytest.raises(UnsupportedTable):
        settings.check_writable()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.version", "8"),
        ("hoodie.timeline.layout.version", "2"),
        ("hoodie.table.base.file.format", "ORC"),
        ("hoodie.bootstrap.base.path", "/x"),
        ("hoodie.table.type", "SOMETHING"),
    ],
)
def test_what_cannot_be_read_rightly_is_not_opened(key, value):
    with pytest.raises(UnsupportedTable):
        type(settings_for()).from_properties(dict(settings_for().properties) | {key: value})
