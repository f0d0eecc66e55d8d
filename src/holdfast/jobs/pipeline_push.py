"""The last stage of a pipeline: the newest snapshot of its table, pushed when queries see another.

Whether it is due is asked of the service each time, so a run that died after
its commit is made up for by the next.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from holdfast.config.pipeline import Pipeline, Publication
from holdfast.config.push import name_with_type, parse_table
from holdfast.config.push_job import PushJob, SegmentSizing, TableInput
from holdfast.errors import Conflict, InvalidRequest, TableNotFound
from holdfast.jobs.reports import Announce, PushReport
from holdfast.jobs.service_client import ServiceClient, segments_path
from holdfast.model.instant import InstantTime
from holdfast.model.pushes import LAKE_INSTANT, LAKE_TABLE
from holdfast.read.snapshot import table_schema
from holdfast.table.opened import OpenTable
from holdfast.table.settled import read_settled
from holdfast.timeline.timeline import load_timeline

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_TYPE = "OFFLINE"


def due_instant(publication: Publication, table: OpenTable) -> tuple[InstantTime | None, str]:
    """The newest commit, if queries should see it and do not, and a warning if there is a reason for that.

    A commit counts once no older write can change its snapshot any more.
    What was pushed and reverted is not pushed again: there has to be a new commit.
    `InvalidRequest` if a push would add its rows to those of the last one.
    """
    settled = read_settled(table)
    newest, last = settled.commit, settled.timeline.last_commit
    waits = ""
    if last is not None and last != newest:
        waits = f"commit {last.time} is not pushed before the older write {settled.undecided} is decided"
    if newest is None:
        return None, waits
    client = ServiceClient(publication.controller, publication.token)
    try:
        known = client.get(segments_path(publication.table, "snapshots"))["snapshots"]
    except TableNotFound:
        if publication.create:
            return newest.time, waits
        raise
    of_newest = [one for one in known if _is_from(one.get("source") or {}, table, newest.time)]
    if any(one["isCurrent"] for one in of_newest):
        return None, waits
    if any(one["position"] < 0 for one in of_newest):
        return None, f"the push of commit {newest.time} was reverted, so it is not pushed again"
    _check_replaced_whole(client, publication.table)
    return newest.time, waits


def push_table(
    pipeline: Pipeline, table: OpenTable, instant: InstantTime, *, spark: SparkSession, announce: Announce
) -> PushReport:
    """Push the snapshot of a commit as the pipeline says."""
    from holdfast.jobs.push.run import run_push_job

    publication = pipeline.push
    assert publication is not None, "there is a push to make"
    if publication.create:
        _ensure_push_table(publication, table)
    job = PushJob(
        table=publication.table,
        controllers=(publication.controller,),
        input=TableInput(
            path=pipeline.destination.path,
            as_of=instant,
            storage_options=pipeline.destination.storage_options,
        ),
        columns=publication.columns,
        sizing=SegmentSizing(rows=publication.segment_rows),
        gates=publication.gates,
        token=publication.token,
        note=f"pipeline {pipeline.name}",
    )
    return run_push_job(job, spark=spark, announce=announce)


def _is_from(source: dict[str, str], table: OpenTable, instant: InstantTime) -> bool:
    return source.get(LAKE_TABLE) == table.location.uri and source.get(LAKE_INSTANT) == instant


def _check_replaced_whole(client: ServiceClient, table: str) -> None:
    """Refuse a table that keeps the rows of earlier snapshots beside those of a new one."""
    name = name_with_type(table)
    config = parse_table(client.get(f"/tables/{quote(name, safe='')}", type=_TYPE)[_TYPE])
    if not (config.refresh and config.consistent_push):
        raise InvalidRequest(
            "a pipeline pushes whole snapshots, and the push table is not replaced as a whole",
            table=name,
            hint="set segmentIngestionType to REFRESH and consistentDataPush to true",
        )


def _ensure_push_table(publication: Publication, table: OpenTable) -> None:
    """Make the push table if it is not there, for pushes of whole snapshots."""
    client = ServiceClient(publication.controller, publication.token)
    name = publication.table.removesuffix("_OFFLINE")
    with suppress(TableNotFound):
        client.get(f"/tables/{quote(name, safe='')}/schema")
        return
    columns = table_schema(table, load_timeline(table.store))
    assert columns is not None, "a table with a commit has a schema"
    documents = {
        "/schemas": push_schema(name, columns, publication.columns, table.settings.record_key),
        "/tables": _refresh_table(name),
    }
    for path, document in documents.items():
        # Another run may have been faster.
        with suppress(Conflict):
            client.post(path, document)


def push_schema(
    name: str, columns: pa.Schema, chosen: tuple[str, ...], record_key: tuple[str, ...]
) -> dict[str, Any]:
    """The schema of a push table that takes the rows of a lake table, or some of their columns."""
    fields = [columns.field(column) for column in chosen or columns.names]
    keys = [column for column in record_key if column in {field.name for field in fields}]
    dimensions: list[dict[str, Any]] = []
    moments: list[dict[str, Any]] = []
    for field in fields:
        kind, is_list = _push_type(field)
        if kind == "TIMESTAMP":
            moments.append(
                {
                    "name": field.name, "dataType": kind, "format": "TIMESTAMP",
                    "granularity": "1:MILLISECONDS",
                }
            )  # fmt: skip
        else:
            single = {"singleValueField": False} if is_list else {}
            dimensions.append({"name": field.name, "dataType": kind, **single})
    schema = {"schemaName": name, "dimensionFieldSpecs": dimensions, "dateTimeFieldSpecs": moments}
    return schema | ({"primaryKeyColumns": keys} if len(keys) == len(record_key) else {})


def _push_type(field: pa.Field) -> tuple[str, bool]:
    """The type of a column in a push table, and whether it holds several values."""
    from pyarrow import types

    is_list = types.is_list(field.type)
    kind = field.type.value_type if is_list else field.type
    for name, is_candidate in (
        ("BOOLEAN", types.is_boolean),
        ("LONG", types.is_int64),
        ("INT", types.is_integer),
        ("FLOAT", types.is_float32),
        ("DOUBLE", types.is_float64),
        ("BIG_DECIMAL", types.is_decimal),
        ("STRING", types.is_string),
        ("BYTES", types.is_binary),
        ("BYTES", types.is_fixed_size_binary),
    ):
        if is_candidate(kind):
            return name, is_list
    if not is_list and (types.is_timestamp(kind) or types.is_date(kind)):
        return "TIMESTAMP", False
    raise InvalidRequest(
        "a column has no counterpart in a push table",
        column=field.name,
        type=str(field.type),
        hint="choose others with push.columns, or make the push table yourself",
    )


def _refresh_table(name: str) -> dict[str, Any]:
    """A table whose every push replaces the whole."""
    batch = {"segmentIngestionType": "REFRESH", "consistentDataPush": True}
    return {
        "tableName": name,
        "tableType": "OFFLINE",
        "segmentsConfig": {"replication": "1"},
        "ingestionConfig": {"batchIngestionConfig": batch},
    }
