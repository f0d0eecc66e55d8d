"""Both engines behind the same words: write, snapshot, changes. Rows come back as plain values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

import holdfast
from holdfast.model.instant import InstantTime
from interop.lines import Line
from interop.shapes import Shape

Rows = dict[str, dict[str, Any]]
"""Partition and record key → the row, with its meta columns."""

_TIMELINE_ZONE = "hoodie.table.timeline.timezone"
_QUERY_TYPE = "hoodie.datasource.query.type"
_OPERATION = "hoodie.datasource.write.operation"
_GENERATOR = "org.apache.hudi.common.table.timeline.HoodieInstantTimeGenerator"
_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
_FAIL_BEFORE_COMMIT = {
    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}
"""No table has minus one rows: the write fails when all its files are there, as if killed then."""


class Engine(Protocol):
    name: str

    def write(
        self,
        path: str,
        shape: Shape,
        operation: str,
        rows: pa.Table,
        options: Mapping[str, str] | None = None,
    ) -> InstantTime: ...

    def delete_partition(self, path: str, shape: Shape, *partitions: str) -> InstantTime: ...

    def snapshot(self, path: str, *, as_of: str | None = None, read_optimized: bool = False) -> Rows: ...

    def changes(self, path: str, *, since: str, until: str | None = None) -> Rows: ...


class Holdfast:
    name = "Holdfast"

    def __init__(self, timeline_zone: str | None = None) -> None:
        self.timeline_zone = timeline_zone
        """Whose clock new tables go by; None leaves it to the table."""

    def write(
        self,
        path: str,
        shape: Shape,
        operation: str,
        rows: pa.Table,
        options: Mapping[str, str] | None = None,
    ) -> InstantTime:
        made = {} if self.timeline_zone is None else {_TIMELINE_ZONE: self.timeline_zone}
        given = shape.options | made | {_OPERATION: operation} | dict(options or {})
        commit = holdfast.write(rows, path, given)
        assert commit is not None
        assert not commit.post_commit_errors, commit.post_commit_errors
        return commit.instant

    def delete_partition(self, path: str, shape: Shape, *partitions: str) -> InstantTime:
        return holdfast.open_table(path).delete_partitions(partitions).instant

    def snapshot(self, path: str, *, as_of: str | None = None, read_optimized: bool = False) -> Rows:
        table = holdfast.open_table(path)
        rows = table.to_arrow(as_of=as_of, read_optimized=read_optimized, meta_columns=True)
        return keyed(rows.to_pylist())

    def changes(self, path: str, *, since: str, until: str | None = None) -> Rows:
        table = holdfast.open_table(path)
        return keyed(table.changes_to_arrow(since=since, until=until, meta_columns=True).to_pylist())


class Hudi:
    """Apache Hudi in one Spark session, which lives as long as the conversation."""

    def __init__(self, line: Line, folder: Path) -> None:
        self.name = f"Hudi {line.version}"
        self._line = line
        self._folder = folder
        self._batches = 0
        self.timeline_zone = line.timeline_zone
        self.spark = start_session(line, folder)
        for option, value in self._options.items():
            self.spark.sql(f"set {option}={value}")

    @property
    def _options(self) -> dict[str, str]:
        """Of every write; the metadata table has checks of its own."""
        return {"hoodie.metadata.enable": "false", **self._line.options}

    def write(
        self,
        path: str,
        shape: Shape,
        operation: str,
        rows: pa.Table,
        options: Mapping[str, str] | None = None,
    ) -> InstantTime:
        before = newest_commit(path)
        self.save(self.frame(rows), path, shape, operation, options)
        after = newest_commit(path)
        assert after is not None
        assert after != before, f"{self.name} wrote nothing"
        return after

    def save(
        self, frame: DataFrame, path: str, shape: Shape, operation: str, options: Mapping[str, str] | None
    ) -> None:
        made = {_TIMELINE_ZONE: self.timeline_zone, _OPERATION: operation}
        given = shape.options | made | self._options | dict(options or {})
        frame.write.format("hudi").options(**given).mode("append").save(path)

    def delete_partition(self, path: str, shape: Shape, *partitions: str) -> InstantTime:
        none = pa.Table.from_batches([], holdfast.open_table(path).schema())
        return self.write(path, shape, "delete_partition", none, {_TO_DELETE: ",".join(partitions)})

    def fail(
        self,
        path: str,
        shape: Shape,
        operation: str,
        rows: pa.Table,
        options: Mapping[str, str] | None = None,
    ) -> InstantTime:
        """Write, and fail before the commit: files, markers and instant stay behind. The instant."""
        known = {instant.time for instant in holdfast.open_table(path).timeline()}
        try:
            self.write(path, shape, operation, rows, _FAIL_BEFORE_COMMIT | dict(options or {}))
        except Exception as error:  # py4j's, whatever the cause in the JVM
            if "alidat" not in str(error):
                raise
        else:
            raise AssertionError(f"{self.name} was to fail")
        pending = [i.time for i in holdfast.open_table(path).timeline() if not i.is_completed]
        (left,) = [time for time in pending if time not in known]
        return left

    def snapshot(self, path: str, *, as_of: str | None = None, read_optimized: bool = False) -> Rows:
        reader = self.spark.read.format("hudi")
        if read_optimized:
            reader = reader.option(_QUERY_TYPE, "read_optimized")
        if as_of is not None:
            reader = reader.option("as.of.instant", as_of)
        return keyed(plain_rows(reader.load(path)))

    def changes(self, path: str, *, since: str, until: str | None = None) -> Rows:
        reader = self.spark.read.format("hudi").option(_QUERY_TYPE, "incremental")
        reader = reader.option("hoodie.datasource.read.begin.instanttime", since)
        if until is not None:
            reader = reader.option("hoodie.datasource.read.end.instanttime", until)
        return keyed(plain_rows(reader.load(path)))

    def move_to(self, zone: str) -> None:
        """Go on as a JVM that is started in that zone now: one that runs never goes behind its instants."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone(zone))
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        last = jvm.java.lang.Class.forName(_GENERATOR, True, loader).getDeclaredField(self._line.last_instant)
        last.setAccessible(True)
        last.get(None).set("0")

    def call(self, path: str, procedure: str, **arguments: object) -> list[Row]:
        """One of Hudi's SQL procedures on the table at a path."""
        name = self.named(path)
        given = "".join(f", {key} => {_literal(value)}" for key, value in arguments.items())
        return self.spark.sql(f"call {procedure}(table => '{name}'{given})").collect()

    def named(self, path: str) -> str:
        """The table's name in the session's catalog; it is entered if it is not there."""
        name = "t_" + Path(path).name.replace("-", "_")
        self.spark.sql(f"create table if not exists {name} using hudi location '{path}'")
        return name

    def frame(self, rows: pa.Table) -> DataFrame:
        """The rows in Spark, by way of a file, so that no type is guessed."""
        self._batches += 1
        file = self._folder / "batches" / f"{self._batches}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(rows, file)
        return self.spark.read.parquet(str(file))


def newest_commit(path: str) -> InstantTime | None:
    if not holdfast.table_exists(path):
        return None
    actions = ("commit", "deltacommit", "replacecommit")
    found = [i.time for i in holdfast.open_table(path).timeline() if i.is_completed and i.action in actions]
    return max(found, default=None)


def keyed(rows: Sequence[Mapping[str, Any]]) -> Rows:
    found = {}
    for row in rows:
        key = f"{row['_hoodie_partition_path']}|{row['_hoodie_record_key']}"
        assert key not in found, f"a key is there twice: {key}"
        found[key] = {name: plain(value) for name, value in row.items()}
    return found


def plain_rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def plain(value: Any) -> Any:
    """The same for what Spark and Arrow call a value."""
    if isinstance(value, dt.datetime):
        # Spark's have no zone, and mean that of the process.
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {key: plain(each) for key, each in value}
    return [plain(each) for each in value] if isinstance(value, list) else value


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, (bool, int)) else f"'{value}'"


def start_session(line: Line, folder: Path) -> SparkSession:
    settings = {
        "spark.jars": str(line.jar),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Duser.timezone={line.zone}",
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
