import pytest

from holdfast.config.options import HONOURED
from holdfast.config.table import new_table_settings
from holdfast.config.write import FailedWritesPolicy, WriteSettings
from holdfast.errors import InvalidOption, UnsupportedTable


def test_every_spelling_of_an_honoured_option_is_accepted():
    values = {
        "max_file_bytes": "4096",
        "compression": "GZIP",
        "small_file_bytes": "0",
        "record_bytes": "100",
        "bloom_error_rate": "0.01",
        "index_type": "global_bloom",
        "moves_records": "False",
        "bucket_engine": "simple",
        "bucket_count": "8",
        "bucket_fields": "Id",
        "combines_inserts": "true",
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
    }
    assert set(values) == set(HONOURED)
    for setting, names in HONOURED.items():
        for name in names:
            found = getattr(WriteSettings.from_options({name: values[setting]}), setting)
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
        ({"hoodie.metadata.enable": "true"}, "not implemented"),
        ({"hoodie.parquet.max.file.size": "big"}, "a number"),
        ({"hoodie.parquet.max.file.size": "1"}, "at least 1024"),
        ({"hoodie.parquet.compression.codec": "rar"}, "zstd"),
        ({"hoodie.client.heartbeat.interval_in_ms": "10"}, "at least 1000"),
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
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "SIMPLE"),
    ],
)
def test_an_option_that_cannot_be_honoured_says_why(options, said):
    with pytest.raises(InvalidOption, match=said):
        WriteSettings.from_options(options)


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
        ("hoodie.table.type", "MERGE_ON_READ"),
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
