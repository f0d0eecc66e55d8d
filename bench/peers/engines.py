"""The peers, each in the words of its own documentation. One process runs one of them."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, Row
from pyspark.sql import functions as f

import holdfast
from bench.peers.engine import (
    CODEC,
    DIGESTED,
    FILE_BYTES,
    Digest,
    Engine,
    Load,
    Setting,
    SparkParts,
    Version,
    arrow_digest,
    city_names,
    digest,
    leave_orphans,
    shuffles,
    spark_session,
    write_plain,
)
from bench.workloads import native
from bench.workloads.rollback import leave_failed_write
from bench.workloads.trips import CITIES, KEY, ORDERING, PARTITION

_INCOMING = "incoming"
_SAME = f"old.{PARTITION} = new.{PARTITION} AND old.{KEY} = new.{KEY}"
_UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
_DELETE = "WHEN MATCHED THEN DELETE"

_HUDI_AND_OURS = {
    "hoodie.parquet.compression.codec": CODEC,
    "hoodie.parquet.max.file.size": str(FILE_BYTES),
    "hoodie.index.type": "SIMPLE",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}

_KEEPS_LOGS = {"holdfast.mor.max.log.ratio": "1000", "holdfast.mor.max.logs": "1000"}


class Holdfast:
    def __init__(self, setting: Setting) -> None:
        self._spark = spark_session("holdfast", setting, SparkParts())

    def ready(self, table: str) -> None:
        """Nothing is kept of a table."""

    def load(self, table: str, rows: Load) -> None:
        holdfast.create_table(table, name="trips", record_key=KEY, partition_by=PARTITION, ordering=ORDERING)
        self.append(table, rows)

    def append(self, table: str, rows: Load) -> None:
        holdfast.open_table(table).bulk_insert(rows.frame(self._spark), options=_HUDI_AND_OURS)

    def upsert(self, table: str, rows: Load) -> None:
        holdfast.open_table(table).upsert(rows.frame(self._spark), options=_HUDI_AND_OURS)

    def delete(self, table: str, rows: Load) -> None:
        holdfast.open_table(table).delete(rows.frame(self._spark), options=_HUDI_AND_OURS)

    def overwrite(self, table: str, rows: Load) -> None:
        holdfast.open_table(table).insert_overwrite(rows.frame(self._spark), options=_HUDI_AND_OURS)

    def read(self, table: str, version: Version = None) -> Digest:
        return digest(holdfast.open_table(table).read(self._spark, as_of=version))

    def changes(self, table: str, since: Version, until: Version) -> Digest:
        return digest(holdfast.open_table(table).changes(self._spark, since=since, until=until))

    def versions(self, table: str) -> list[Version]:
        return [str(i.time) for i in holdfast.open_table(table).timeline() if i.is_completed]

    def undo(self, table: str, newest: Version, before: Version) -> None:
        holdfast.open_table(table).undo()

    def reclaim(self, table: str) -> None:
        holdfast.open_table(table).clean({"hoodie.clean.commits.retained": "1"})

    def fail(self, table: str, rows: Load) -> None:
        """As large as the files of the others, which hold the rows."""
        files = rows.tasks * CITIES
        size = sum(path.stat().st_size for path in Path(rows.path).glob("*.parquet"))
        leave_failed_write(table, files=files, partitions=city_names(), file_bytes=size // files)

    def recover(self, table: str) -> None:
        holdfast.open_table(table).roll_back_failed_writes()


class HoldfastMergeOnRead(Holdfast):
    def load(self, table: str, rows: Load) -> None:
        holdfast.create_table(
            table,
            name="trips",
            record_key=KEY,
            partition_by=PARTITION,
            ordering=ORDERING,
            table_type="MERGE_ON_READ",
        )
        self.append(table, rows)

    def upsert(self, table: str, rows: Load) -> None:
        options = _HUDI_AND_OURS | (_KEEPS_LOGS if rows.keeps_logs else {})
        holdfast.open_table(table).upsert(rows.frame(self._spark), options=options)

    def read(self, table: str, version: Version = None) -> Digest:
        """Spark cannot tell which columns it needs of rows that are merged, so they are named."""
        opened = holdfast.open_table(table)
        return digest(opened.read(self._spark, as_of=version, columns=list(DIGESTED)))

    def compact(self, table: str) -> None:
        assert holdfast.open_table(table).compact(self._spark) is not None, (
            "nothing lay beside the base files"
        )


class Hudi:
    _CATALOG_TABLE = "trips"
    _FAIL_BEFORE_COMMIT: Mapping[str, str] = {
        "hoodie.precommit.validators": (
            "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"
        ),
        "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
        "hoodie.datasource.write.row.writer.enable": "false",
    }
    """No table has minus one rows: the write fails when all its files are there, as if killed then.

    The row writer asks no validators.
    """

    _MORE_FOLLOW: Mapping[str, str] = {
        "hoodie.metadata.enable": "false",
        "hoodie.write.markers.type": "DIRECT",
    }
    """Leaves the same table behind, sooner: with very many partitions its metadata table takes minutes for
    each version, and the next write with it makes it whole; markers, which go, are collected every 50 ms.
    """

    def __init__(
        self, setting: Setting, *, has_metadata_table: bool = True, table_type: str = "COPY_ON_WRITE"
    ) -> None:
        prefix = "org.apache.spark.sql.hudi"
        parts = SparkParts(
            extensions=f"{prefix}.HoodieSparkSessionExtension",
            settings={
                "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
                "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
                "spark.sql.catalog.spark_catalog": f"{prefix}.catalog.HoodieCatalog",
            },
        )
        self._spark = spark_session("hudi", setting, parts)
        self._options = {
            **_HUDI_AND_OURS,
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.table.type": table_type,
            "hoodie.datasource.write.recordkey.field": KEY,
            "hoodie.datasource.write.partitionpath.field": PARTITION,
            "hoodie.datasource.write.precombine.field": ORDERING,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.metadata.enable": str(has_metadata_table).lower(),
            # By default 100 tasks, however few rows there are.
            "hoodie.simple.index.parallelism": str(shuffles(setting)),
        }
        for name, value in self._options.items():
            self._spark.sql(f"set {name}={value}")

    def ready(self, table: str) -> None:
        """The procedures know tables by name."""
        self._spark.sql(f"drop table if exists {self._CATALOG_TABLE}")
        if Path(table).exists():
            self._spark.sql(f"create table {self._CATALOG_TABLE} using hudi location '{table}'")

    def load(self, table: str, rows: Load) -> None:
        self._write(table, rows, "bulk_insert")

    def append(self, table: str, rows: Load) -> None:
        self._write(table, rows, "bulk_insert")

    def upsert(self, table: str, rows: Load) -> None:
        self._write(table, rows, "upsert")

    def delete(self, table: str, rows: Load) -> None:
        self._write(table, rows, "delete")

    def overwrite(self, table: str, rows: Load) -> None:
        self._write(table, rows, "insert_overwrite")

    def read(self, table: str, version: Version = None) -> Digest:
        reader = self._spark.read.format("hudi")
        if version is not None:
            reader = reader.option("as.of.instant", version[0])
        return digest(reader.load(table))

    def changes(self, table: str, since: Version, until: Version) -> Digest:
        """Bounds are completion times in tables of this version."""
        reader = self._spark.read.format("hudi").option("hoodie.datasource.query.type", "incremental")
        reader = reader.option("hoodie.datasource.read.begin.instanttime", since[1])
        return digest(reader.option("hoodie.datasource.read.end.instanttime", until[1]).load(table))

    def versions(self, table: str) -> list[Version]:
        """Requested and completion time of each commit."""
        commit = re.compile(r"(\d+)_(\d+)\.(?:commit|deltacommit|replacecommit)")
        found = [commit.fullmatch(name) for name in _timeline(table)]
        return sorted([match[1], match[2]] for match in found if match)

    def undo(self, table: str, newest: Version, before: Version) -> None:
        self._call(f"rollback_to_instant(table => '{self._CATALOG_TABLE}', instant_time => '{newest[0]}')")

    def reclaim(self, table: str) -> None:
        self._call(f"run_clean(table => '{self._CATALOG_TABLE}', retain_commits => 1)")

    def compact(self, table: str) -> None:
        done = self._call(f"run_compaction(op => 'scheduleAndExecute', table => '{self._CATALOG_TABLE}')")
        assert done, "nothing lay beside the base files"

    def fail(self, table: str, rows: Load) -> None:
        try:
            self._write(table, rows, "bulk_insert", self._FAIL_BEFORE_COMMIT)
        except Exception as error:  # py4j's, whatever the cause in the JVM
            if "alidat" not in str(error):
                raise
        else:
            raise AssertionError("the write was to fail")

    def recover(self, table: str) -> None:
        """What its next write would do first."""
        begun = {name.partition(".")[0] for name in _timeline(table) if name.endswith(".inflight")}
        (pending,) = begun - {requested for requested, _ in self.versions(table)}
        jvm: Any = self._spark._jvm
        context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
            self._spark._jsparkSession.sparkContext()
        )
        client = jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
            context, None, table, "trips", self._options
        )
        try:
            assert client.rollback(pending)
        finally:
            client.close()

    def _write(
        self, table: str, rows: Load, operation: str, options: Mapping[str, str] | None = None
    ) -> None:
        given = self._options | {"hoodie.datasource.write.operation": operation} | dict(options or {})
        if rows.more_follow:
            given |= self._MORE_FOLLOW
        rows.frame(self._spark).write.format("hudi").options(**given).mode("append").save(table)

    def _call(self, procedure: str) -> list[Row]:
        return self._spark.sql(f"call {procedure}").collect()


class Delta:
    def __init__(self, setting: Setting, *, has_deletion_vectors: bool = False) -> None:
        self._has_deletion_vectors = has_deletion_vectors
        parts = SparkParts(
            extensions="io.delta.sql.DeltaSparkSessionExtension",
            settings={
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.retentionDurationCheck.enabled": "false",
                # By default 50, for logs far longer than these.
                "spark.databricks.delta.snapshotPartitions": str(setting.cores),
                # By default the driver deletes one file after the other; nobody else does.
                "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
            },
        )
        self._spark = spark_session("delta", setting, parts)

    def ready(self, table: str) -> None:
        jvm: Any = self._spark._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def load(self, table: str, rows: Load) -> None:
        writer = rows.frame(self._spark).write.format("delta").partitionBy(PARTITION)
        writer = writer.option("delta.enableDeletionVectors", str(self._has_deletion_vectors).lower())
        writer.option("delta.enableChangeDataFeed", str(rows.keeps_changes).lower()).save(table)

    def append(self, table: str, rows: Load) -> None:
        rows.frame(self._spark).write.format("delta").mode("append").save(table)

    def upsert(self, table: str, rows: Load) -> None:
        self._merge(table, rows, _UPSERT)

    def delete(self, table: str, rows: Load) -> None:
        self._merge(table, rows, _DELETE)

    def overwrite(self, table: str, rows: Load) -> None:
        writer = rows.frame(self._spark).write.format("delta").mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").save(table)

    def read(self, table: str, version: Version = None) -> Digest:
        reader = self._spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return digest(reader.load(table))

    def changes(self, table: str, since: Version, until: Version) -> Digest:
        reader = self._spark.read.format("delta").option("readChangeFeed", "true")
        return digest(reader.option("startingVersion", since + 1).option("endingVersion", until).load(table))

    def versions(self, table: str) -> list[Version]:
        return sorted(
            row["version"] for row in self._spark.sql(f"DESCRIBE HISTORY {_delta(table)}").collect()
        )

    def undo(self, table: str, newest: Version, before: Version) -> None:
        self._spark.sql(f"RESTORE TABLE {_delta(table)} TO VERSION AS OF {before}").collect()

    def reclaim(self, table: str) -> None:
        self._spark.sql(f"VACUUM {_delta(table)} RETAIN 0 HOURS").collect()

    def compact(self, table: str) -> None:
        self._spark.sql(f"REORG TABLE {_delta(table)} APPLY (PURGE)").collect()

    def fail(self, table: str, rows: Load) -> None:
        leave_orphans(table, lambda: write_plain(rows.frame(self._spark), table))

    def recover(self, table: str) -> None:
        self._spark.sql(f"VACUUM {_delta(table)}").collect()

    def _merge(self, table: str, rows: Load, clauses: str) -> None:
        rows.frame(self._spark).createOrReplaceTempView(_INCOMING)
        self._spark.sql(
            f"MERGE INTO {_delta(table)} AS old USING {_INCOMING} AS new ON {_SAME} {clauses}"
        ).collect()


class Iceberg:
    def __init__(self, setting: Setting, *, mode: str = "copy-on-write") -> None:
        self._workspace = Path(setting.workspace)
        self._mode = mode
        parts = SparkParts(
            extensions="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            settings={
                "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.peer.type": "hadoop",
                "spark.sql.catalog.peer.warehouse": setting.workspace,
                "spark.sql.catalog.peer.cache-enabled": "false",
            },
        )
        self._spark = spark_session("iceberg", setting, parts)

    def ready(self, table: str) -> None:
        """The catalog keeps nothing."""

    def load(self, table: str, rows: Load) -> None:
        writer = rows.frame(self._spark).writeTo(f"peer.{self._name(table)}").partitionedBy(f.col(PARTITION))
        for name, value in (
            ("format-version", "2"),
            ("write.parquet.compression-codec", CODEC),
            ("write.target-file-size-bytes", str(FILE_BYTES)),
            *((f"write.{verb}.mode", self._mode) for verb in ("delete", "update", "merge")),
        ):
            writer = writer.tableProperty(name, value)
        if rows.has_many_cities:
            # By default the writers keep a file open for each, which does not fit into the heap.
            writer = writer.tableProperty("write.spark.fanout.enabled", "false")
        writer.create()

    def append(self, table: str, rows: Load) -> None:
        rows.frame(self._spark).writeTo(f"peer.{self._name(table)}").append()

    def upsert(self, table: str, rows: Load) -> None:
        self._merge(table, rows, _UPSERT)

    def delete(self, table: str, rows: Load) -> None:
        self._merge(table, rows, _DELETE)

    def overwrite(self, table: str, rows: Load) -> None:
        rows.frame(self._spark).writeTo(f"peer.{self._name(table)}").overwritePartitions()

    def read(self, table: str, version: Version = None) -> Digest:
        return self._digest(table, {} if version is None else {"snapshot-id": version})

    def changes(self, table: str, since: Version, until: Version) -> Digest:
        return self._digest(table, {"start-snapshot-id": since, "end-snapshot-id": until})

    def versions(self, table: str) -> list[Version]:
        snapshots = self._spark.table(f"peer.{self._name(table)}.snapshots").orderBy("committed_at")
        return [str(row["snapshot_id"]) for row in snapshots.collect()]

    def undo(self, table: str, newest: Version, before: Version) -> None:
        self._call(f"rollback_to_snapshot('{self._name(table)}', {before})")

    def reclaim(self, table: str) -> None:
        until = "older_than => TIMESTAMP '2999-01-01', retain_last => 2"
        self._call(f"expire_snapshots(table => '{self._name(table)}', {until})")

    def compact(self, table: str) -> None:
        every = "map('delete-file-threshold', '1')"
        self._call(f"rewrite_data_files(table => '{self._name(table)}', options => {every})")

    def fail(self, table: str, rows: Load) -> None:
        leave_orphans(table, lambda: write_plain(rows.frame(self._spark), f"{table}/data"))

    def recover(self, table: str) -> None:
        self._call(f"remove_orphan_files(table => '{self._name(table)}')")

    def _digest(self, table: str, options: Mapping[str, str]) -> Digest:
        reader: DataFrameReader = self._spark.read.format("iceberg").options(**options)
        return digest(reader.load(f"peer.{self._name(table)}"))

    def _merge(self, table: str, rows: Load, clauses: str) -> None:
        rows.frame(self._spark).createOrReplaceTempView(_INCOMING)
        name = f"peer.{self._name(table)}"
        self._spark.sql(f"MERGE INTO {name} AS old USING {_INCOMING} AS new ON {_SAME} {clauses}").collect()

    def _call(self, procedure: str) -> None:
        self._spark.sql(f"CALL peer.system.{procedure}").collect()

    def _name(self, table: str) -> str:
        """The catalog's name of the folder: its path below the workspace."""
        return ".".join(f"`{part}`" for part in Path(table).relative_to(self._workspace).parts)


class Plain:
    """Parquet files and Spark: no commit, no versions, nothing to take back."""

    def __init__(self, setting: Setting) -> None:
        self._spark = spark_session("plain", setting, SparkParts())

    def ready(self, table: str) -> None:
        """Nothing is kept of a folder."""

    def load(self, table: str, rows: Load) -> None:
        rows.frame(self._spark).write.partitionBy(PARTITION).parquet(table)

    def upsert(self, table: str, rows: Load) -> None:
        self._rewrite(table, lambda old, new: native.upsert(old, rows.frame(self._spark), new))

    def delete(self, table: str, rows: Load) -> None:
        self._rewrite(table, lambda old, new: native.delete(old, rows.frame(self._spark), new))

    def overwrite(self, table: str, rows: Load) -> None:
        native.overwrite_partitions(Path(table), rows.frame(self._spark))

    def read(self, table: str, version: Version = None) -> Digest:
        return digest(self._spark.read.parquet(table))

    def _rewrite(self, table: str, act: Callable[[DataFrame, Path], None]) -> None:
        """A new folder, which takes the place of the old one."""
        new = Path(table).with_name("new")
        act(self._spark.read.parquet(table), new)
        shutil.rmtree(table)
        new.rename(table)


class Deltalake:
    """The native engine, without Spark; it gets the rows as Arrow."""

    def __init__(self, setting: Setting) -> None:
        # Only here: the other processes need not have it in memory.
        import deltalake

        self._delta = deltalake

    def ready(self, table: str) -> None:
        """Nothing is kept of a table."""

    def load(self, table: str, rows: Load) -> None:
        self._delta.write_deltalake(
            table,
            rows.arrow(),
            partition_by=[PARTITION],
            configuration={"delta.enableChangeDataFeed": str(rows.keeps_changes).lower()},
        )

    def append(self, table: str, rows: Load) -> None:
        self._delta.write_deltalake(table, rows.arrow(), mode="append")

    def upsert(self, table: str, rows: Load) -> None:
        self._merger(table, rows).when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, table: str, rows: Load) -> None:
        self._merger(table, rows).when_matched_delete().execute()

    def overwrite(self, table: str, rows: Load) -> None:
        new = rows.arrow()
        cities = ", ".join(f"'{city}'" for city in new[PARTITION].unique().to_pylist())
        self._delta.write_deltalake(table, new, mode="overwrite", predicate=f"{PARTITION} IN ({cities})")

    def read(self, table: str, version: Version = None) -> Digest:
        rows = self._delta.DeltaTable(table, version=version).to_pyarrow_dataset()
        return arrow_digest(rows.to_table(columns=list(DIGESTED)))

    def changes(self, table: str, since: Version, until: Version) -> Digest:
        found = self._delta.DeltaTable(table).load_cdf(since + 1, until, columns=list(DIGESTED))
        rows = pa.table(found.read_all())
        # Arrow cannot yet compare the views of strings that come.
        return arrow_digest(rows.set_column(rows.schema.get_field_index(KEY), KEY, rows[KEY].cast("string")))

    def versions(self, table: str) -> list[Version]:
        return sorted(one["version"] for one in self._delta.DeltaTable(table).history())

    def undo(self, table: str, newest: Version, before: Version) -> None:
        self._delta.DeltaTable(table).restore(before)

    def reclaim(self, table: str) -> None:
        opened = self._delta.DeltaTable(table)
        opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def fail(self, table: str, rows: Load) -> None:
        new = rows.arrow()

        def write() -> None:
            for number in range(rows.tasks):
                part = new.slice(number * len(new) // rows.tasks, len(new) // rows.tasks)
                name = f"part-{number}-{{i}}.parquet"
                pq.write_to_dataset(part, table, partition_cols=[PARTITION], basename_template=name)

        leave_orphans(table, write)

    def recover(self, table: str) -> None:
        self._delta.DeltaTable(table).vacuum(dry_run=False, full=True)

    def _merger(self, table: str, rows: Load) -> Any:
        opened = self._delta.DeltaTable(table)
        return opened.merge(rows.arrow(), _SAME, source_alias="new", target_alias="old")


def engine(name: str, setting: Setting) -> Engine:
    makers: dict[str, Callable[[Setting], Any]] = {
        "holdfast": Holdfast,
        "hudi": Hudi,
        "hudi-bare": lambda setting: Hudi(setting, has_metadata_table=False),
        "delta": Delta,
        "iceberg": Iceberg,
        "holdfast-merge-on-read": HoldfastMergeOnRead,
        "hudi-merge-on-read": lambda setting: Hudi(setting, table_type="MERGE_ON_READ"),
        "delta-deletion-vectors": lambda setting: Delta(setting, has_deletion_vectors=True),
        "iceberg-merge-on-read": lambda setting: Iceberg(setting, mode="merge-on-read"),
        "plain": Plain,
        "deltalake": Deltalake,
    }
    found: Engine = makers[name](setting)
    return found


def _timeline(table: str) -> list[str]:
    """The names of Hudi's instants."""
    return [path.name for path in (Path(table) / ".hoodie" / "timeline").iterdir()]


def _delta(table: str) -> str:
    return f"delta.`{table}`"
