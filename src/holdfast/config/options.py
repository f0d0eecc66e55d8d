"""Options: the spellings in circulation, and which of them Holdfast honours.

Option strings exist only in this package. Everything else sees typed settings.
"""

import difflib
from collections.abc import Mapping

from holdfast.config.cleaning import CLEAN_OPTIONS
from holdfast.config.locks import LOCK_OPTIONS
from holdfast.errors import InvalidOption

HONOURED: Mapping[str, tuple[str, ...]] = {
    "max_file_bytes": ("hoodie.parquet.max.file.size",),
    "compression": ("hoodie.parquet.compression.codec",),
    "small_file_bytes": ("hoodie.parquet.small.file.limit",),
    "record_bytes": ("hoodie.copyonwrite.record.size.estimate",),
    "bloom_error_rate": ("hoodie.index.bloom.fpp", "hoodie.bloom.index.filter.error.rate"),
    "index_type": ("hoodie.index.type",),
    "moves_records": (
        "hoodie.simple.index.update.partition.path",
        "hoodie.bloom.index.update.partition.path",
    ),
    "bucket_engine": ("hoodie.index.bucket.engine",),
    "bucket_count": ("hoodie.bucket.index.num.buckets",),
    "bucket_fields": ("hoodie.bucket.index.hash.field",),
    "combines_inserts": ("hoodie.combine.before.insert",),
    "fills_missing_columns": ("hoodie.write.set.null.for.missing.columns",),
    "parallelism": (
        "hoodie.upsert.shuffle.parallelism",
        "hoodie.insert.shuffle.parallelism",
        "hoodie.delete.shuffle.parallelism",
    ),
    "heartbeat_interval_ms": ("hoodie.client.heartbeat.interval_in_ms",),
    "heartbeat_misses": ("hoodie.client.heartbeat.tolerable.misses",),
    "failed_writes_policy": (
        "hoodie.clean.failed.writes.policy",
        "hoodie.cleaner.policy.failed.writes",
    ),
    "concurrency_mode": ("hoodie.write.concurrency.mode",),
    "conflict_retries": ("hoodie.write.num.retries.on.conflict.failures",),
    "refuses_duplicates": ("hoodie.fail.job.on.duplicate.data.file.detection",),
    "detects_conflicts_early": ("hoodie.write.concurrency.early.conflict.detection.enable",),
    "archives": ("hoodie.archive.automatic",),
    "archives_beside_write": ("hoodie.archive.async",),
    "archives_beyond_savepoints": ("hoodie.archive.beyond.savepoint",),
    "archive_batch": ("hoodie.commits.archival.batch",),
}
"""Setting → its option names, newest spelling first."""

_KNOWN_ONLY = frozenset(
    {
        "hoodie.archive.delete.parallelism",
        "hoodie.archive.limit.instants",
        "hoodie.archive.merge.enable",
        "hoodie.archive.merge.files.batch.size",
        "hoodie.archive.merge.small.file.limit.bytes",
        "hoodie.fail.on.timeline.archiving",
        "hoodie.timeline.manifest.retained.versions",
        "hoodie.bulkinsert.shuffle.parallelism",
        "hoodie.bulkinsert.sort.mode",
        "hoodie.clean.delete.bootstrap.base.file",
        "hoodie.cleaner.delete.bootstrap.base.file",
        "hoodie.compact.inline",
        "hoodie.datasource.hive_sync.enable",
        "hoodie.datasource.insert.dup.policy",
        "hoodie.datasource.write.drop.partition.columns",
        "hoodie.datasource.write.hive_style_partitioning",
        "hoodie.datasource.write.keygenerator.class",
        "hoodie.datasource.write.operation",
        "hoodie.datasource.write.partitionpath.field",
        "hoodie.datasource.write.precombine.field",
        "hoodie.datasource.write.recordkey.field",
        "hoodie.datasource.write.table.type",
        "hoodie.datasource.write.partitionpath.urlencode",
        "hoodie.datasource.write.payload.class",
        "hoodie.metadata.derive.from.datatable.clean.policy",
        "hoodie.metadata.enable",
        "hoodie.parquet.block.size",
        "hoodie.parquet.page.size",
        "hoodie.prewrite.cleaner.policy",
        "hoodie.rollback.using.markers",
        "hoodie.table.name",
        "hoodie.table.ordering.fields",
        "hoodie.table.precombine.field",
    }
)
"""Hudi's options that a write does not honour yet. Ignoring one would be a silent lie."""


_APART = frozenset(
    name for options in (CLEAN_OPTIONS, LOCK_OPTIONS) for names in options.values() for name in names
)


def recognise(options: Mapping[str, str]) -> dict[str, str]:
    """The options by setting; `InvalidOption` for any that cannot be honoured.

    Those of cleaning and of locks are left to settings of their own.
    """
    settings_of = {name: setting for setting, names in HONOURED.items() for name in names}
    found: dict[str, str] = {}
    for name in sorted(options.keys() - _APART, key=lambda name: _rank(name, settings_of)):
        setting = settings_of.get(name)
        if setting is None:
            raise _unhonoured(name, known=[*settings_of, *_APART, *_KNOWN_ONLY])
        found.setdefault(setting, str(options[name]))
    return found


def _rank(name: str, settings_of: Mapping[str, str]) -> int:
    """Newer spellings first, so that they win over older ones."""
    setting = settings_of.get(name)
    return HONOURED[setting].index(name) if setting else -1


def _unhonoured(name: str, *, known: list[str]) -> InvalidOption:
    if name in _KNOWN_ONLY:
        return InvalidOption("this option is not implemented", option=name, hint="leave it out")
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    hint = f"did you mean {nearest[0]}?" if nearest else "see the list of options in docs/options.md"
    return InvalidOption("unknown option", option=name, hint=hint)
