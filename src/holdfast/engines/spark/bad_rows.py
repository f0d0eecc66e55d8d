"""Rows of CSV and JSON files that do not fit: named by file, line and column, or taken out and listed."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as spark

from holdfast.engines.spark.inputs import strict_options
from holdfast.errors import SchemaMismatch

_MALFORMED = "MALFORMED_RECORD_IN_PARSING"
"""How Spark calls it, from 3.5 on; the text that follows differs."""
_RAW, _FILE = "_holdfast_raw_row", "_holdfast_file"
_IS_BAD = f"{_RAW} IS NOT NULL"
_TOLD = 80
"""Characters of a value that a message repeats."""


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Files of CSV or JSON, and how they are read."""

    paths: Sequence[str]
    file_format: str
    options: Mapping[str, str]
    schema: spark.StructType

    def lenient_options(self) -> dict[str, str]:
        ours = ("mode", "columnnameofcorruptrecord", "inferschema")
        strict = strict_options(self.file_format, self.options)
        return {name: text for name, text in strict.items() if name.lower() not in ours}

    def read_leniently(self, session: SparkSession) -> DataFrame:
        """All rows, those that do not fit with their text in a column of its own, and each with its file."""
        wider = spark.StructType([*self.schema.fields, spark.StructField(_RAW, spark.StringType())])
        return (
            session.read.format(self.file_format)
            .options(**self.lenient_options(), mode="PERMISSIVE", columnNameOfCorruptRecord=_RAW)
            .schema(wider)
            .load(list(self.paths))
            .selectExpr("*", f"_metadata.file_path AS {_FILE}")
        )


def explain_bad_row(session: SparkSession, error: Exception, files: TextFiles) -> SchemaMismatch | None:
    """The error that names the first bad row; None if something else was wrong.

    The files are read once more, up to that row.
    """
    if _MALFORMED not in str(error):
        return None
    found = files.read_leniently(session).where(_IS_BAD).head(1)
    if not found:
        return None
    return SchemaMismatch(
        "a row does not fit its columns",
        **_describe(found, files)[0],
        hint="correct the file and run again, or set rejects; nothing of this run was committed",
    )


@contextmanager
def separate_bad_rows(
    session: SparkSession, files: TextFiles, *, at_most: int
) -> Iterator[tuple[DataFrame, list[dict[str, object]]]]:
    """The rows that fit, and what is wrong with those that do not, while the block runs.

    The rows are read once, into Spark's cache: what is found bad is exactly what
    is left out, whatever columns a transform looks at. `SchemaMismatch` if more
    are bad than `at_most`.
    """
    frame = files.read_leniently(session).persist()
    try:
        bad = frame.where(_IS_BAD).head(at_most + 1)
        described = _describe(bad, files)
        if len(bad) > at_most:
            raise SchemaMismatch(
                "more rows do not fit their columns than are admitted",
                max_rows=at_most,
                **described[0],
                hint="look at the file, or raise rejects.max_rows; nothing of this run was committed",
            )
        yield frame.where(f"{_RAW} IS NULL").drop(_RAW, _FILE), described
    finally:
        frame.unpersist()


def _describe(rows: Sequence[Row], files: TextFiles) -> list[dict[str, object]]:
    """For each row its file, its line or its text, and what is wrong with it."""
    wanted: dict[str, set[bytes]] = {}
    for row in rows:
        wanted.setdefault(row[_FILE], set()).add(_first_line(row[_RAW]))
    lines = {uri: _lines_of(uri, texts) for uri, texts in wanted.items()}
    return [
        {
            "file": _path_of(row[_FILE]),
            **_take_line(lines[row[_FILE]], row[_RAW]),
            **_column_facts(row, files.file_format, files.lenient_options(), files.schema),
        }
        for row in rows
    ]


def _path_of(uri: str) -> str:
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def _lines_of(uri: str, wanted: set[bytes]) -> dict[bytes, list[int]]:
    """On which lines these stand; only a local file is looked through, and one that is not compressed."""
    found: dict[bytes, list[int]] = {}
    if uri.startswith("file:"):
        with suppress(OSError), open(_path_of(uri), "rb") as lines:
            for number, line in enumerate(lines, start=1):
                text = line.rstrip(b"\r\n")
                if text in wanted:
                    found.setdefault(text, []).append(number)
    return found


def _take_line(lines: dict[bytes, list[int]], raw: str) -> dict[str, object]:
    """The line of a row; of equal rows each has the next one."""
    numbers = lines.get(_first_line(raw))
    return {"line": numbers.pop(0)} if numbers else {"row": _shorten(raw)}


def _first_line(raw: str) -> bytes:
    return raw.split("\n", 1)[0].rstrip("\r").encode()


def _column_facts(
    row: Row, file_format: str, options: Mapping[str, str], schema: spark.StructType
) -> dict[str, object]:
    """The first column whose text was there and became nothing, or how the fields were counted wrong."""
    if file_format == "json":
        with suppress(ValueError):
            values = json.loads(row[_RAW])
            known = values if isinstance(values, dict) else {}
            return _misfit(row, schema, [known.get(name) for name in schema.names])
        return {"found": _shorten(row[_RAW]), "expected": "a JSON object"}
    spelled = {name.lower(): text for name, text in options.items()}
    separator = spelled.get("sep", spelled.get("delimiter", ","))
    if file_format != "csv" or len(separator) != 1:
        return {"found": _shorten(row[_RAW])}
    fields = next(csv.reader([row[_RAW]], delimiter=separator), [])
    if len(fields) != len(schema.names):
        return {"found": f"{len(fields)} fields", "expected": f"{len(schema.names)} fields"}
    return _misfit(row, schema, fields)


def _misfit(row: Row, schema: spark.StructType, given: Sequence[object]) -> dict[str, object]:
    for field, value in zip(schema.fields, given, strict=True):
        if row[field.name] is None and value not in (None, ""):
            expected = field.dataType.simpleString()
            return {"column": field.name, "found": _shorten(str(value)), "expected": expected}
    return {"found": _shorten(row[_RAW])}


def _shorten(text: str) -> str:
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}..."
