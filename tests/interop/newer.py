"""Tables of versions 8 and 9, as Hudi 1.x makes them, and Hudi's own answers to every kind of question.

A recipe is a list of steps. After its last one Hudi is asked for the snapshot, the snapshot as of each
commit, the read-optimized view, and what changed between commits; the answers are plain JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from harness.hudi_fixtures import as_json
from interop.engines import plain

_GENERATORS = "org.apache.hudi.keygen."
_QUERY = "hoodie.datasource.query.type"
_COMPLETED = re.compile(r"(\d{17})_(\d{17})\.(commit|deltacommit|replacecommit)")
_COLUMNS = "id, city, day, at, ts, seq, fare, note"
_FAIL = {
    "hoodie.precommit.validators": "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator",
    "hoodie.precommit.validators.single.value.sql.queries": "select count(*) from <TABLE_NAME>#-1",
}


def rows(*given: tuple[str, str, float], ts: int = 1, more: str = "") -> str:
    """Rows of id, city and fare as SQL; `more` adds columns."""
    values = ", ".join(
        f"('{key}', '{city}', date'2024-01-0{1 + n % 2}', {1_705_311_000_000 + n % 2 * 3_600_000}L, {ts}L, "
        f"{n % 3}, cast({fare} as double), 'note {key} {ts}')"
        for n, (key, city, fare) in enumerate(given)
    )
    return f"select *{more and ', ' + more} from values {values} as t({_COLUMNS})"


FIRST = (("a", "paris", 1), ("b", "rome", 2), ("c", "paris", 3), ("d", "rome", 4), ("e", "oslo", 5))


@dataclass(frozen=True)
class Step:
    operation: str
    """Of Hudi's datasource; or `sql`, with the table's name for {table}; or `call`."""
    text: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    fails: bool = False


@dataclass(frozen=True)
class Recipe:
    steps: tuple[Step, ...]
    kind: str = "COPY_ON_WRITE"
    partition_by: str = "city"
    key: str = "id"
    ordering: str = "ts"
    options: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ("8", "9")
    refused: str = ""
    """What the refusal to read it names."""

    @property
    def given(self) -> dict[str, str]:
        return {
            "hoodie.datasource.write.table.type": self.kind,
            "hoodie.datasource.write.recordkey.field": self.key,
            "hoodie.datasource.write.partitionpath.field": self.partition_by,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            "hoodie.compact.inline": "false",
            "hoodie.bloom.index.filter.type": "SIMPLE",
            "hoodie.index.bloom.num_entries": "10",
            "hoodie.metadata.enable": "false",
            "hoodie.parquet.small.file.limit": "0",
            **({_ORDERING: self.ordering} if self.ordering else {}),
            **self.options,
        }


_ORDERING = "hoodie.datasource.write.precombine.field"


def upsert(*given: tuple[str, str, float], ts: int = 2, **options: str) -> Step:
    return Step("upsert", rows(*given, ts=ts), _named(options))


def _named(options: Mapping[str, str]) -> dict[str, str]:
    return {"hoodie." + name.replace("__", "."): value for name, value in options.items()}


def delete(*given: tuple[str, str, float], ts: int = 3) -> Step:
    return Step("delete", rows(*given, ts=ts))


BEGUN = Step("insert", rows(*FIRST))
_CHANGES = (
    BEGUN,
    upsert(("a", "paris", 10), ("f", "lima", 6)),
    delete(("c", "paris", 3)),
    upsert(("b", "rome", 20), ("c", "paris", 30), ts=4),
)
_GENERATOR = "hoodie.datasource.write.keygenerator.class"
_UNPARTITIONED = {_GENERATOR: _GENERATORS + "NonpartitionedKeyGenerator"}
_BY_HOUR = {
    _GENERATOR: _GENERATORS + "TimestampBasedKeyGenerator",
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd/HH",
    "hoodie.keygen.timebased.timezone": "UTC",
}
_CLUSTER = Step("call", "run_clustering(table => '{table}', op => 'scheduleandexecute', order => 'fare')")
_PLAN_CLUSTERING = Step("call", "run_clustering(table => '{table}', op => 'schedule', order => 'fare')")
_PLAN = Step("call", "run_compaction(op => 'schedule', table => '{table}')")
_COMPACT = Step("call", "run_compaction(op => 'run', table => '{table}')")
_CLEAN = Step("call", "run_clean(table => '{table}', retain_commits => 1)")
_SAVE = Step("call", "create_savepoint(table => '{table}', commit_time => '{newest}')")
_RESTORE = Step("call", "rollback_to_savepoint(table => '{table}')")
_FEW_ACTIVE = {
    "hoodie.archive.automatic": "true",
    "hoodie.clean.automatic": "true",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.clean.commits.retained": "2",
    "hoodie.cleaner.commits.retained": "2",
    "hoodie.commits.archival.batch": "1",
}
_MANY = (BEGUN, *(upsert(("a", "paris", 10 + n), ("b", "rome", 20 + n), ts=2 + n) for n in range(9)))
_LATE = (
    BEGUN,
    upsert(("a", "paris", 10), ("b", "rome", 20), ts=5),
    upsert(("a", "paris", 11), ("b", "rome", 21), ("d", "rome", 41), ts=3),
    delete(("b", "rome", 0), ts=2),
    delete(("c", "paris", 0), ts=9),
    upsert(("c", "paris", 33), ("e", "oslo", 55), ts=4),
)
_MOR = "MERGE_ON_READ"
_METADATA = {"hoodie.metadata.enable": "true"}
_BY_COMMIT = {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}
_EVOLVED = (
    BEGUN,
    Step(
        "upsert", rows(("a", "paris", 10), ("g", "oslo", 7), ts=2, more="cast(nullif(7, 0) as int) as extra")
    ),
    Step(
        "upsert",
        rows(("b", "rome", 20), ts=3, more="cast(nullif(8, 0) as bigint) as extra, nullif('x', '') as late"),
    ),
)
_SETTLED = {"hoodie.schema.on.read.enable": "false", "hoodie.datasource.write.reconcile.schema": "true"}

RECIPES: dict[str, Recipe] = {
    "cow_simple": Recipe(_CHANGES, options=_METADATA),
    "cow_unpartitioned": Recipe(_CHANGES, partition_by="", options=_UNPARTITIONED),
    "cow_no_ordering": Recipe(_CHANGES, ordering="", options={}),
    "cow_complex": Recipe(
        _CHANGES, key="id,seq", partition_by="city,day",
        options={_GENERATOR: _GENERATORS + "ComplexKeyGenerator"},
    ),
    "cow_by_hour": Recipe(_CHANGES, partition_by="at", options=_BY_HOUR),
    "cow_custom": Recipe(
        _CHANGES, partition_by="city:SIMPLE,at:TIMESTAMP",
        options=_BY_HOUR | {_GENERATOR: _GENERATORS + "CustomKeyGenerator"},
    ),
    "cow_plain_paths": Recipe(
        _CHANGES, options={"hoodie.datasource.write.hive_style_partitioning": "false"}
    ),
    "cow_overwritten": Recipe((
        *_CHANGES[:2], Step("insert_overwrite", rows(("x", "paris", 9))),
        upsert(("x", "paris", 99), ts=7),
        Step("delete_partition", rows(*FIRST[:1]),
             {"hoodie.datasource.write.partitions.to.delete": "city=rome"}),
        upsert(("b", "rome", 8), ts=8), Step("insert_overwrite_table", rows(("z", "lima", 5))),
        upsert(("z", "lima", 6), ts=8),
    )),
    "cow_clustered": Recipe((*_CHANGES, _CLUSTER, upsert(("a", "paris", 12), ts=9))),
    "cow_clustering_pending": Recipe((*_CHANGES, _PLAN_CLUSTERING)),
    "cow_cleaned": Recipe((*_CHANGES, _CLEAN)),
    "cow_archived": Recipe(_MANY, options=_FEW_ACTIVE | _METADATA),
    "cow_rolled_back": Recipe((
        *_CHANGES[:2], Step("upsert", rows(("a", "paris", 77), ts=7), _FAIL, fails=True),
        upsert(("b", "rome", 22), ts=8),
    )),
    "cow_failed": Recipe((
        *_CHANGES[:2], Step("upsert", rows(("a", "paris", 77), ("h", "lima", 7), ts=7), _FAIL, fails=True),
    )),
    "cow_restored": Recipe((*_CHANGES[:2], _SAVE, *_CHANGES[2:], _RESTORE, upsert(("d", "rome", 44), ts=5))),
    "cow_evolved": Recipe(_EVOLVED, options=_SETTLED),
    "mor_simple": Recipe(_CHANGES, _MOR, options=_METADATA),
    "mor_unpartitioned": Recipe(_CHANGES, _MOR, partition_by="", options=_UNPARTITIONED),
    "mor_complex": Recipe(
        _CHANGES, _MOR, key="id,seq", partition_by="city,day",
        options={_GENERATOR: _GENERATORS + "ComplexKeyGenerator"},
    ),
    "mor_by_hour": Recipe(_CHANGES, _MOR, partition_by="at", options=_BY_HOUR),
    "mor_parquet_logs": Recipe(_LATE, _MOR, options={"hoodie.logfile.data.block.format": "parquet"}),
    "mor_event_time": Recipe(_LATE, _MOR),
    "mor_commit_time": Recipe(_LATE, _MOR, options=_BY_COMMIT),
    "mor_no_ordering": Recipe(_LATE, _MOR, ordering=""),
    "mor_two_orderings": Recipe(_LATE, _MOR, ordering="ts,seq", only=("9",)),
    "mor_log_only": Recipe(_LATE, _MOR, options={
        "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "1",
        "hoodie.storage.layout.type": "BUCKET",
        "hoodie.storage.layout.partitioner.class":
            "org.apache.hudi.table.action.commit.SparkBucketIndexPartitioner",
    }),
    "mor_compacted": Recipe((*_CHANGES, _PLAN, _COMPACT, upsert(("a", "paris", 12), ts=9))),
    "mor_compaction_pending": Recipe((
        *_CHANGES, _PLAN, upsert(("a", "paris", 12), ("k", "oslo", 13), ts=9),
        delete(("d", "rome", 0), ts=10),
    )),
    "mor_compacted_late": Recipe((
        *_CHANGES, _PLAN, upsert(("a", "paris", 12), ts=9), _COMPACT, upsert(("b", "rome", 13), ts=10),
    )),
    "mor_clustered": Recipe((*_CHANGES, _CLUSTER, upsert(("a", "paris", 12), ts=9))),
    "mor_overwritten": Recipe((
        *_CHANGES, Step("insert_overwrite", rows(("x", "paris", 9))), upsert(("x", "paris", 99), ts=7),
        Step("insert_overwrite_table", rows(("z", "lima", 5))), upsert(("z", "lima", 6), ts=8),
    )),
    "mor_archived": Recipe(
        _MANY, _MOR,
        options=_FEW_ACTIVE
        | {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"},
    ),
    "mor_archived_logs": Recipe(
        (
            *_MANY, upsert(("c", "paris", 88), ts=20),
            *(upsert(("a", "paris", 90 + n), ts=30 + n) for n in range(6)),
        ),
        _MOR, options=_FEW_ACTIVE,
    ),
    "mor_cleaned": Recipe((
        *_CHANGES, _PLAN, _COMPACT, upsert(("a", "paris", 12), ts=9), _PLAN, _COMPACT, _CLEAN,
    )),
    "mor_rolled_back": Recipe((
        *_CHANGES, Step("upsert", rows(("a", "paris", 77), ("h", "lima", 7), ts=7), _FAIL, fails=True),
        upsert(("b", "rome", 22), ts=8),
    )),
    "mor_failed": Recipe((
        *_CHANGES, Step("upsert", rows(("a", "paris", 77), ("h", "lima", 7), ts=7), _FAIL, fails=True),
    )),
    "mor_restored": Recipe((
        *_CHANGES[:2], _SAVE, *_CHANGES[2:], _RESTORE, upsert(("d", "rome", 44), ts=5),
    )),
    "mor_evolved": Recipe(_EVOLVED, _MOR, options=_SETTLED),
    "mor_partial": Recipe(
        (BEGUN, Step("sql", "merge into {table} t using (select 'a' id, 'paris' city, 50D fare, 9L ts) s "
                            "on t.id = s.id and t.city = s.city "
                            "when matched then update set fare = s.fare, ts = s.ts")),
        _MOR, refused="some of the columns alone",
    ),
    "mor_custom": Recipe(
        (BEGUN, upsert(("a", "paris", 10))), _MOR,
        options={"hoodie.datasource.write.payload.class":
                 "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"},
        refused="the log files of this kind of table cannot be read",
    ),
}  # fmt: skip
for _name, _recipe in list(RECIPES.items()):
    if _name.startswith("mor_"):
        RECIPES[_name] = Recipe(**{**_recipe.__dict__, "kind": _MOR})


def version_of(line_version: str) -> str:
    """The table version that a line of Hudi writes as it comes."""
    return "8" if line_version.startswith("1.0") else "9"


def make(spark: SparkSession, name: str, recipe: Recipe, path: Path) -> None:
    """Carry out the steps, one after the other."""
    table = f"t_{path.parent.name.replace('.', '_').replace('-', '_')}_{name}"
    options = recipe.given | {"hoodie.table.name": table}
    for step in recipe.steps:
        try:
            _carry_out(spark, step, table, options, path)
        except Exception:
            if not step.fails:
                raise
        else:
            assert not step.fails, f"{name}: this step was to fail"


def _carry_out(spark: SparkSession, step: Step, table: str, options: dict[str, str], path: Path) -> None:
    if step.operation in ("sql", "call"):
        spark.sql(f"create table if not exists {table} using hudi location '{path}'")
        newest = max((request for request, _ in commits(path)), default="")
        text = step.text.format(table=table, newest=newest)
        spark.sql(f"call {text}" if step.operation == "call" else text).collect()
        return
    writer = spark.sql(step.text).coalesce(1).write.format("hudi").options(**options).options(**step.options)
    writer.option("hoodie.datasource.write.operation", step.operation).mode("append").save(str(path))


def commits(path: Path) -> list[tuple[str, str]]:
    """Request and completion of each commit on the active timeline, by request."""
    names = (file.name for file in (path / ".hoodie" / "timeline").glob("*"))
    return sorted((m[1], m[2]) for m in map(_COMPLETED.fullmatch, names) if m)


def answers(spark: SparkSession, path: Path) -> dict[str, Any]:
    """What Hudi says is in the table."""
    done = commits(path)
    ends = [""] + [completion for _, completion in sorted(done, key=lambda each: each[1])]
    return {
        "commits": done,
        "snapshot": _asked(spark, path, {}),
        "read_optimized": _asked(spark, path, {_QUERY: "read_optimized"}),
        "as_of": {request: _asked(spark, path, {"as.of.instant": request}) for request, _ in done},
        "as_of_completion": {c: _asked(spark, path, {"as.of.instant": c}) for _, c in done},
        "changes": [
            [since or "000", until, _changes(spark, path, since, until)]
            for n, since in enumerate(ends[:-1])
            for until in {ends[n + 1], ends[-1]}
        ],
    }


def _changes(spark: SparkSession, path: Path, since: str, until: str) -> Any:
    return _asked(
        spark, path,
        {
            _QUERY: "incremental",
            "hoodie.datasource.read.begin.instanttime": since or "000",
            "hoodie.datasource.read.end.instanttime": until,
        },
    )  # fmt: skip


def _asked(spark: SparkSession, path: Path, options: Mapping[str, str]) -> Any:
    """The rows; or, as text, why there are none."""
    try:
        frame: DataFrame = spark.read.format("hudi").options(**options).load(str(path))
        found = [row.asDict(recursive=True) for row in frame.collect()]
    except Exception as error:  # noqa: BLE001  # py4j's, whatever the cause in the JVM
        return str(error).splitlines()[0][:200]
    return sorted((_plain(row) for row in found), key=lambda row: json.dumps(row, sort_keys=True))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("_hoodie_commit_seqno", "_hoodie_file_name")
    return {name: as_json(plain(value)) for name, value in row.items() if name not in left_out}
