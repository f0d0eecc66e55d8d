"""The row of a file that does not fit: a failed read is told by its file, line and column."""

import csv
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from pyspark.sql import Row, SparkSession
from pyspark.sql import types as spark

from holdfast.engines.spark.inputs import strict_options
from holdfast.errors import SchemaMismatch

_MALFORMED = "MALFORMED_RECORD_IN_PARSING"
"""How Spark calls it, from 3.5 on; the text that follows differs."""
_RAW, _FILE = "_holdfast_raw_row", "_holdfast_file"
_TOLD = 80
"""Characters of a value that a message repeats."""


def explain_bad_row(
    session: SparkSession,
    error: Exception,
    files: Sequence[str],
    *,
    file_format: str,
    options: Mapping[str, str],
    schema: spark.StructType,
) -> SchemaMismatch | None:
    """The error that names the first bad row; None if something else was wrong.

    The files are read once more, up to that row, with bad rows kept as text.
    """
    if _MALFORMED not in str(error):
        return None
    strict = strict_options(file_format, options)
    lenient = {
        name: text
        for name, text in strict.items()
        if name.lower() not in ("mode", "columnnameofcorruptrecord", "inferschema")
    }
    wider = spark.StructType([*schema.fields, spark.StructField(_RAW, spark.StringType())])
    frame = (
        session.read.format(file_format)
        .options(**lenient, mode="PERMISSIVE", columnNameOfCorruptRecord=_RAW)
        .schema(wider)
        .load(list(files))
    )
    found = frame.selectExpr("*", f"_metadata.file_path AS {_FILE}").where(f"{_RAW} IS NOT NULL").head(1)
    if not found:
        return None
    [row] = found
    place = unquote(urlsplit(row[_FILE]).path) if row[_FILE].startswith("file:") else row[_FILE]
    return SchemaMismatch(
        "a row does not fit its columns",
        file=place,
        **_line_facts(row[_FILE], row[_RAW]),
        **_column_facts(row, file_format, lenient, schema),
        hint="correct the file and run again; nothing of this run was committed",
    )


def _line_facts(uri: str, raw: str) -> dict[str, object]:
    """On which line the row stands; only a local file is looked through, and one that is not compressed."""
    if not uri.startswith("file:"):
        return {"row": _shorten(raw)}
    wanted = raw.split("\n", 1)[0].rstrip("\r").encode()
    with suppress(OSError), open(unquote(urlsplit(uri).path), "rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.rstrip(b"\r\n") == wanted:
                return {"line": number}
    return {"row": _shorten(raw)}


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
