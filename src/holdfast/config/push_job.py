"""Push jobs: Pinot's job specification and what Holdfast adds to it, read once into typed values.

Keys that steer Pinot's own machinery (staging folders, tar files, plug-in
classes) are understood and have no effect; where one would have changed what
is pushed, a warning says so. A key that is neither is refused.
"""

import os
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from holdfast.config.documents import Document, Section, read_document
from holdfast.config.gates import gate_spec
from holdfast.config.push import table_name
from holdfast.config.record_readers import LIST_SEPARATOR, RecordReader, parse_reader
from holdfast.config.values import (
    HOUR_MS,
    address,
    count,
    flag,
    moment,
    number,
    one_of,
    options,
    or_default,
    positive_period,
    scalar,
    size,
    text,
    texts,
    whole,
    without_none,
)
from holdfast.errors import InvalidOption

_METADATA_PUSH = "SegmentCreationAndMetadataPush"
_JOB_TYPES = (_METADATA_PUSH, "SegmentCreationAndTarPush", "SegmentCreationAndUriPush")
_HALF_JOB_TYPES = ("SegmentCreation", "SegmentTarPush", "SegmentUriPush", "SegmentMetadataPush")
_FIXED, _INPUT_FILE = "fixed", "inputFile"
_NAMING = ("simple", "normalizedDate", _FIXED, _INPUT_FILE)
_REALTIME_NAMING = "uploadedRealtime"
_RUNNERS = tuple(
    f"segment{part}JobRunnerClassName" for part in ("Generation", "TarPush", "UriPush", "MetadataPush")
)
_KNOWN_CLASS = re.compile(
    r"([A-Za-z_]\w*\.)*"
    r"((Spark|Hadoop)?Segment(Generation|TarPush|UriPush|MetadataPush)JobRunner"
    r"|(Local|S3|Gcs|Hadoop|ADLSGen2|Azure)PinotFS"
    r"|(Avro|CSV|JSON|ORC|Parquet|ParquetNative|ParquetAvro)RecordReader(Config)?)"
)
"""Classes of Pinot's whose work is done here by other means."""

_TLS_TEXTS = tuple(
    f"{store}Store{part}" for store in ("key", "trust") for part in ("Path", "Password", "Type")
)
_LEASE_MIN_MS, _LEASE_MAX_MS = 10_000, HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInput:
    """Files of one format beneath a folder, chosen by patterns."""

    folder: str
    """An absolute path, or a URI."""
    folder_line: int = field(default=0, compare=False)
    """Where it stands in the file of the job; 0: in none."""
    format: str
    """`parquet`, `csv`, `json`, `avro` or `orc`."""
    recursive: bool = True
    include: str = ""
    """`glob:…` or `regex:…` over the whole path; empty: every file."""
    exclude: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Options of Spark's reader."""
    header: tuple[str, ...] = ()
    """The names of the columns of CSV files, whatever their first line says."""
    list_separator: str = LIST_SEPARATOR
    """What stands between the values of a multi-value column within a field of a CSV file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInput:
    """A snapshot of a lake table."""

    path: str
    path_line: int = field(default=0, compare=False)
    """Where it stands in the file of the job; 0: in none."""
    as_of: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSizing:
    """How much goes into a segment. With neither limit, as much as the default in bytes."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNaming:
    """How segments are named, by one of Pinot's name generators."""

    kind: str = ""
    """`simple`, `normalizedDate`, `fixed`, `inputFile`, or empty: as Pinot chooses."""
    prefix: str = ""
    """Empty: the table's typed name."""
    postfix: str = ""
    """Stands before the moment of the run."""
    exclude_sequence: bool = False
    exclude_time: bool = False
    fixed: str = ""
    """The whole name, for `fixed`."""
    file_pattern: str = ""
    """A regular expression over the address of an input file, for `inputFile`."""
    template: str = ""
    """The name, for `inputFile`: `${filePathPattern:\\1}` stands for a group of the pattern."""
    appends_uuid: bool = False
    numbers_all_files: bool | None = None
    """Files are numbered through all folders, not anew in each; None: as the push needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """The part of an APPEND table that the push replaces.

    The segments that lie wholly in [start_ms, end_ms) are replaced, of all
    those that carry `partition`, if it is given.
    """

    start_ms: int
    end_ms: int
    partition: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushJob:
    table: str
    """As written: raw or typed."""
    controllers: tuple[str, ...]
    input: FileInput | TableInput | None = None
    """None: the caller brings a DataFrame."""
    columns: tuple[str, ...] = ()
    """The columns to push; empty: those of the schema."""
    sizing: SegmentSizing = field(default_factory=SegmentSizing)
    naming: SegmentNaming = field(default_factory=SegmentNaming)
    gates: Sequence[Mapping[str, Any]] = ()
    """As `config.gates.parse_gates` reads them; checked when the job is read."""
    output: str = ""
    """Where the segments are built; empty: in the deep store of the service."""
    copies: bool = False
    """The service copies the segments from `output` into its deep store."""
    backfill: Backfill | None = None
    fail_on_empty: bool = False
    """A segment without rows is an error."""
    allow_empty: bool = False
    """An input without rows may empty the table."""
    lease_ms: int = 30_000
    """How long after its last sign of life the job counts as running."""
    parallelism: int = 0
    """Tasks that build segments; 0: as Spark cuts the input."""
    attempts: int = 5
    retry_ms: int = 1000
    token: str = field(default="", repr=False)
    """Sent as `Authorization`; empty: `HOLDFAST_TOKEN`."""
    note: str = ""
    warnings: tuple[str, ...] = ()
    """What was ignored, to be shown once."""


def load_push_job(path: str | os.PathLike[str], values: Mapping[str, str] | None = None) -> PushJob:
    """The job in a file. `${name}` stands for one of `values`, or for a variable of the environment."""
    document = read_document(path, names=ChainMap(dict(values or {}), dict(os.environ)))
    return parse_push_job(document, os.path.dirname(os.path.abspath(path)))


def parse_push_job(document: Document | Mapping[str, Any], folder: str) -> PushJob:
    """The job that a document means. Relative paths are relative to `folder`."""
    top = Section(document, folder)
    ignored = _IgnoredSettings()
    top.section("executionFrameworkSpec", ignored.framework)
    top.sections("pinotFSSpecs", ignored.file_system)
    top.section("tlsSpec", ignored.tls)
    kind = top.read("jobType", _job_type) or _METADATA_PUSH
    table, uris = top.require_section("tableSpec", _table)
    controllers = top.sections("pinotClusterSpecs", lambda part: part.require("controllerURI", address))
    reader = top.section("recordReaderSpec", parse_reader)
    ignored.classes += reader.classes if reader else ()
    push = top.section("pushJobSpec", lambda part: _push_settings(part, ignored)) or {}
    output = top.read("outputDirURI", top.place) or ""
    copies = push.pop("copies", None) or False
    job = {
        "table": table,
        "controllers": controllers,
        "input": _input(top, reader),
        "columns": top.read("columns", texts),
        "sizing": top.section("segments", _sizing),
        "naming": top.section("segmentNameGeneratorSpec", _naming),
        "gates": top.each("gates", gate_spec),
        # Tar and URI push end in the deep store; there is no need to go through another folder.
        "output": output if kind == _METADATA_PUSH else "",
        "copies": copies and kind == _METADATA_PUSH,
        "backfill": top.section("backfill", _backfill),
        "fail_on_empty": top.read("failOnEmptySegment", flag),
        "allow_empty": top.read("allow_empty", flag),
        "lease_ms": top.read("lease", _lease),
        "parallelism": top.read("segmentCreationJobParallelism", _parallelism),
        "token": top.read("authToken", top.secret),
        "note": top.read("note", text),
        **push,
    }
    for key in ("overwriteOutput", "cleanUpOutputDir", "createMetadataTarGz"):
        top.read(key, flag)
    top.finish()
    if not controllers:
        raise top.missing("pinotClusterSpecs")
    for key, uri in uris.items():
        if not uri.startswith(controllers):
            ignored.warnings.append(f"tableSpec.{key} is not read: the controller knows the table")
    return PushJob(**without_none(job), warnings=ignored.all_warnings())


class _IgnoredSettings:
    """Settings that are read and have no effect here, and what is said about them."""

    def __init__(self) -> None:
        self.classes: tuple[str, ...] = ()
        self.warnings: list[str] = []

    def all_warnings(self) -> tuple[str, ...]:
        unknown = sorted({name for name in self.classes if not _KNOWN_CLASS.fullmatch(name)})
        if unknown:
            return (*self.warnings, f"Java classes are not loaded: {', '.join(unknown)}")
        return tuple(self.warnings)

    def framework(self, part: Section) -> None:
        part.read("name", text)
        part.read("extraConfigs", options)
        self.classes += tuple(filter(None, (part.read(runner, text) for runner in _RUNNERS)))

    def file_system(self, part: Section) -> None:
        scheme = part.read("scheme", text)
        self.classes += tuple(filter(None, (part.read("className", text),)))
        if part.read("configs", options):
            self.warnings.append(
                f"pinotFSSpecs.configs of {scheme} are not used: configure Spark and the environment"
            )

    def tls(self, part: Section) -> None:
        stores = [part.read(name, text) for name in _TLS_TEXTS]
        part.read("connectTimeout", number)
        part.read("readTimeout", number)
        if any(stores):
            self.warnings.append("tlsSpec is not used: name a PEM file in SSL_CERT_FILE")


def _push_settings(part: Section, ignored: _IgnoredSettings) -> dict[str, Any]:
    for name in ("pushParallelism", "segmentMetadataGenerationParallelism"):
        part.read(name, _parallelism)
    for name in ("batchSegmentUpload", "preferMetadataTarGz"):
        part.read(name, flag)
    part.read("pushFileNamePattern", scalar)
    if any([part.read("segmentUriPrefix", scalar), part.read("segmentUriSuffix", scalar)]):
        ignored.warnings.append("pushJobSpec.segmentUriPrefix and segmentUriSuffix are not used")
    return {
        "attempts": part.read("pushAttempts", lambda value: whole(value, 1, 1000)),
        "retry_ms": part.read("pushRetryIntervalMillis", number),
        "copies": part.read("copyToDeepStoreForMetadataPush", flag),
    }


def _naming(part: Section) -> SegmentNaming:
    kind = part.read("type", _naming_kind) or ""
    naming = part.section("configs", lambda configs: _names(configs, kind)) or SegmentNaming(kind=kind)
    if naming.kind == _FIXED and not naming.fixed:
        raise part.wrong("configs", "fixed names need segment.name")
    if naming.kind == _INPUT_FILE and not (naming.file_pattern and naming.template):
        raise part.wrong("configs", "names by input file need file.path.pattern and segment.name.template")
    return naming


def _names(part: Section, kind: str) -> SegmentNaming:
    fixed = part.read("segment.name", scalar) or ""
    every, each = (part.read(f"use.{name}.directory.sequence.id", flag) for name in ("global", "local"))
    return SegmentNaming(
        # As Pinot chooses where no type is named.
        kind=kind or (_FIXED if fixed else ""),
        fixed=fixed,
        prefix=part.read("segment.name.prefix", scalar) or "",
        postfix=part.read("segment.name.postfix", scalar) or "",
        exclude_sequence=part.read("exclude.sequence.id", flag) or False,
        exclude_time=part.read("exclude.time.in.segment.name", flag) or False,
        file_pattern=part.read("file.path.pattern", _regex) or "",
        template=part.read("segment.name.template", scalar) or "",
        appends_uuid=part.read("append.uuid.to.segment.name", flag) or False,
        numbers_all_files=every if every is not None else (None if each is None else not each),
    )


def _input(top: Section, reader: RecordReader | None) -> FileInput | TableInput | None:
    folder = top.read("inputDirURI", top.place)
    source = top.section("source", _table_input)
    recursive = top.read("searchRecursively", flag)
    include = top.read("includeFileNamePattern", _pattern)
    exclude = top.read("excludeFileNamePattern", _pattern)
    if source is not None and folder is not None:
        raise top.wrong("source", "a job has one input", hint="leave out source or inputDirURI")
    if folder is None:
        return source
    if reader is None:
        raise top.missing("recordReaderSpec")
    return FileInput(
        folder=folder,
        folder_line=top.text_line("inputDirURI"),
        format=reader.format,
        recursive=or_default(recursive, True),
        include=include or "",
        exclude=exclude or "",
        options=reader.options,
        header=reader.header,
        list_separator=reader.list_separator,
    )


def _table_input(part: Section) -> TableInput:
    return TableInput(
        path=part.require("table", part.place),
        path_line=part.text_line("table"),
        as_of=part.read("as_of", scalar),
        storage_options=part.read("storage_options", options) or {},
    )


def _table(part: Section) -> tuple[str, dict[str, str]]:
    name = part.require("tableName", table_name)
    return name, without_none({key: part.read(key, text) for key in ("schemaURI", "tableConfigURI")})


def _sizing(part: Section) -> SegmentSizing:
    rows = part.read("rows", count)
    size_bytes = part.read("bytes", size)
    if rows is not None and size_bytes is not None:
        raise part.wrong("bytes", "segments are sized by rows or by bytes, not both")
    return SegmentSizing(rows=rows, bytes=size_bytes)


def _backfill(part: Section) -> Backfill:
    start, end = part.require("start", moment), part.require("end", moment)
    if start >= end:
        raise part.wrong("end", "the end is not after the start", hint="the end itself is not replaced")
    return Backfill(
        start_ms=int(start.timestamp() * 1000),
        end_ms=int(end.timestamp() * 1000),
        partition=part.read("partition", _partition),
    )


def _partition(value: Any) -> tuple[str, str]:
    columns = options(value)
    if len(columns) != 1:
        raise ValueError("not one column and its value")
    return next(iter(columns.items()))


def _job_type(value: Any) -> str:
    if scalar(value).lower() in map(str.lower, _HALF_JOB_TYPES):
        raise InvalidOption("a job both builds the segments and pushes them", hint=f"use {_METADATA_PUSH}")
    return one_of(value, _JOB_TYPES)


def _naming_kind(value: Any) -> str:
    if scalar(value).lower() == _REALTIME_NAMING.lower():
        raise InvalidOption("only OFFLINE tables are served", hint=f"use one of {', '.join(_NAMING)}")
    return one_of(value, _NAMING)


def _pattern(value: Any) -> str:
    written = text(value)
    kind, colon, pattern = written.partition(":")
    if not colon or kind not in ("glob", "regex") or not pattern:
        raise ValueError("begins neither with glob: nor with regex:")
    if kind == "regex":
        _regex(pattern)
    return written


def _regex(value: Any) -> str:
    written = text(value)
    try:
        re.compile(written)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from error
    return written


def _lease(value: Any) -> int:
    lease_ms = positive_period(value)
    if not _LEASE_MIN_MS <= lease_ms <= _LEASE_MAX_MS:
        raise ValueError("a lease lasts from 10s to 1h")
    return lease_ms


def _parallelism(value: Any) -> int:
    """A number of tasks; 0, or Pinot's -1, where none is chosen."""
    return 0 if value in (-1, "-1") else number(value)
