"""Pipelines: source, transform, lake table, clean, gates and push, read once into typed values."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holdfast.config.choices import Operation, TableType
from holdfast.config.datasource import SourceWrite
from holdfast.config.documents import Document, Section, read_document
from holdfast.config.gates import gate_spec
from holdfast.config.push import table_name
from holdfast.config.values import (
    address,
    count,
    flag,
    one_of,
    options,
    text,
    texts,
    without_none,
)

_GLOB = re.compile(r"[*?\[{]")
CHANGED_FILES = ("refuse", "ignore", "ingest")

_OPERATIONS = tuple(operation.value for operation in Operation if operation is not Operation.DELETE_PARTITION)
_TABLE_TYPES = tuple(kind.value for kind in TableType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What Spark reads. With `path` only files that were not ingested before are."""

    format: str
    path: str = ""
    """A glob, an absolute path or a URI; empty for sources without files, such as JDBC."""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    schema: str = ""
    """Spark's DDL; empty: the schema that Spark finds."""
    stream: bool = False
    """Read by Structured Streaming, one commit per micro-batch."""
    files_per_run: int = 0
    """At most this many files in one commit, oldest first; 0: all."""
    changed: str = "refuse"
    """What is done with a file that changed after it was ingested: `refuse`, `ignore` or `ingest`."""
    checkpoint: str = ""
    """Where a stream keeps its progress; empty: in the folder of the table."""
    storage_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The lake table, made when it is absent."""

    path: str
    name: str
    record_key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    ordering: str | None = None
    table_type: str = "COPY_ON_WRITE"
    operation: Operation = Operation.UPSERT
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    storage_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The push of the table's newest snapshot, when it is newer than the one that is served."""

    table: str
    controller: str
    gates: Sequence[Mapping[str, Any]] = ()
    columns: tuple[str, ...] = ()
    segment_rows: int | None = None
    create: bool = False
    """Make the push table if the service does not know it."""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejects:
    """Where rows go that do not fit their columns, instead of ending the run."""

    path: str
    max_rows: int = 1000
    """If more are bad, the run fails after all: something else is wrong than a row."""
    storage_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    name: str
    source: Source
    destination: Destination
    path_line: int = field(default=0, compare=False)
    """Where the path of the source stands in the file of the pipeline; 0: in none."""
    transform: str = ""
    """One SQL query over `source`; empty: all of it."""
    transform_line: int = 0
    """Where the query begins in the file of the pipeline; 0: in none."""
    clean: bool = False
    """Clean after the write, beyond what the table's own options say."""
    push: Publication | None = None
    rejects: Rejects | None = None


def load_pipeline(path: str | os.PathLike[str]) -> Pipeline:
    """The pipeline in a file; called like the file unless it has a name of its own.

    `${name}` stands for a variable of the environment.
    """
    document = read_document(path, names=os.environ)
    return parse_pipeline(document, os.path.dirname(os.path.abspath(path)), name=Path(path).stem)


def parse_pipeline(
    document: Document | Mapping[str, Any], folder: str, *, name: str = "pipeline"
) -> Pipeline:
    """The pipeline that a document means. Relative paths are relative to `folder`."""
    top = Section(document, folder)
    name = top.read("name", text) or name
    source, path_line = top.require_section("source", lambda part: (_source(part), part.text_line("path")))
    pipeline = Pipeline(
        name=name,
        source=source,
        path_line=path_line,
        destination=top.require_section("table", lambda part: _destination(part, name)),
        transform=top.read("transform", text) or "",
        transform_line=top.text_line("transform"),
        clean=top.read("clean", flag) or False,
        push=top.section("push", _publication),
        rejects=top.section("rejects", _rejects),
    )
    top.finish()
    if pipeline.rejects is not None:
        _check_rejects(top, source, pipeline.destination, pipeline.rejects)
    return pipeline


def _source(part: Section) -> Source:
    source = Source(
        format=part.require("format", text),
        **without_none(
            {
                "path": part.read("path", part.place),
                "options": part.read("options", options),
                "schema": part.read("schema", text),
                "stream": part.read("stream", flag),
                "files_per_run": part.read("files_per_run", count),
                "changed": part.read("changed", lambda value: one_of(value, CHANGED_FILES)),
                "checkpoint": part.read("checkpoint", part.place),
                "storage_options": part.read("storage_options", options),
            }
        ),
    )
    if source.checkpoint and not source.stream:
        raise part.wrong("checkpoint", "only a stream has a checkpoint", hint="write stream: true")
    if source.files_per_run and not source.path:
        raise part.wrong("files_per_run", "only files can be counted", hint="write a path")
    return source


def _destination(part: Section, pipeline: str) -> Destination:
    return Destination(
        path=part.require("path", part.place),
        name=part.read("name", text) or pipeline,
        record_key=part.require("record_key", texts),
        **without_none(
            {
                "partition_by": part.read("partition_by", texts),
                "ordering": part.read("ordering", text),
                "table_type": part.read("type", lambda value: one_of(value, _TABLE_TYPES)),
                "operation": part.read("operation", lambda value: Operation(one_of(value, _OPERATIONS))),
                "options": part.read("options", _write_options),
                "storage_options": part.read("storage_options", options),
            }
        ),
    )


def _rejects(part: Section) -> Rejects:
    return Rejects(
        path=part.require("path", part.place),
        **without_none(
            {
                "max_rows": part.read("max_rows", count),
                "storage_options": part.read("storage_options", options),
            }
        ),
    )


def _check_rejects(top: Section, source: Source, table: Destination, rejects: Rejects) -> None:
    """Only text has rows that do not fit; and how these are treated is said in one place."""
    if source.format.lower() not in ("csv", "json") or not source.path or source.stream:
        raise top.wrong(
            "rejects", "only files of CSV and JSON have rows to reject",
            hint="leave rejects out, or read such files without stream",
        )  # fmt: skip
    taken = [name for name in source.options if name.lower() in ("mode", "columnnameofcorruptrecord")]
    if taken:
        raise top.wrong("rejects", "this option decides what becomes of bad rows", option=taken[0])
    fixed = _GLOB.split(source.path, maxsplit=1)[0]
    read = source.path if fixed == source.path else fixed.rpartition("/")[0]
    for folder in (table.path, read):
        if f"{rejects.path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/"):
            raise top.wrong(
                "rejects", "the folder lies where the pipeline reads or writes",
                path=rejects.path, folder=folder, hint="take one beside it",
            )  # fmt: skip


def _publication(part: Section) -> Publication:
    return Publication(
        table=part.require("table", table_name),
        controller=part.require("controller", address),
        gates=part.each("gates", gate_spec),
        columns=part.read("columns", texts) or (),
        segment_rows=part.section("segments", lambda inner: inner.read("rows", count)),
        create=part.read("create", flag) or False,
        token=part.read("token", part.secret) or "",
    )


def _write_options(value: Any) -> dict[str, str]:
    given = options(value)
    SourceWrite.from_options(given)
    return given
