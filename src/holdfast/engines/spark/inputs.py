"""Files as DataFrames: Spark's own readers over an explicit list of files.

A value that does not fit its column fails the read, instead of becoming null.
"""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import types as spark

from holdfast.engines.spark.session import listing_few_tasks
from holdfast.engines.spark.types import spark_schema_of
from holdfast.errors import InvalidRequest, SchemaMismatch

FAILURES = (PySparkException, Py4JJavaError)
"""What Spark raises about a source that it cannot plan: some errors come as Java has them."""

_GLOB_CHARACTERS = re.compile(r"([*?\[\]{}\\])")
_TEXT = ("csv", "json")
"""Formats that say nothing, or not all, about the types of their columns."""
_STRICT = {"mode": "FAILFAST"}
_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    # Spark goes by position even if there are names; so the names of every file are compared.
    "csv": {**_STRICT, "header": "true", "inferSchema": "true", "enforceSchema": "false"},
    "json": _STRICT,
    "xml": _STRICT,
}
_AVRO = (
    f"org.apache.spark:spark-avro_{'2.13' if pyspark.__version__ >= '4' else '2.12'}:{pyspark.__version__}"
)
_AVRO_MISSING = ("AVRO_DATA_SOURCE_NOT_ENABLED", "_LEGACY_ERROR_TEMP_1139")
"""How Spark calls it that it cannot read Avro; the second up to 4.0."""


def file_frame(
    session: SparkSession,
    files: Sequence[str],
    *,
    file_format: str,
    options: Mapping[str, str] | None = None,
    schema: pa.Schema | None = None,
    ddl: str = "",
    is_partial: bool = False,
) -> DataFrame:
    """The rows of the files, each named as `spark_path` does. `options` are those of Spark's reader.

    CSV and JSON are read in `schema`, by name, if it is given; else the types
    are found by Spark, or are as `ddl` says. Columns that JSON files lack are
    null, unless rows may be partial.
    """
    reader = _reader(session, file_format, options)
    try:
        with listing_few_tasks(session):
            if ddl:
                return reader.schema(ddl).load(list(files))
            if schema is None or file_format not in _TEXT:
                return reader.load(list(files))
            wanted = spark_schema_of(schema)
            if file_format == "json" or _is_named(options):
                columns = _columns(session, files, file_format, options)
                _refuse_unknown(columns, schema)
                if file_format == "csv" or is_partial:
                    wanted = spark.StructType([wanted[name] for name in columns])
            return reader.schema(wanted).load(list(files))
    except FAILURES as error:
        raise unreadable(error, file_format) from error


def whole_frame(
    session: SparkSession, source_format: str, options: Mapping[str, str], *, ddl: str = ""
) -> DataFrame:
    """All rows of a source without files, such as JDBC."""
    reader = _reader(session, source_format, options)
    try:
        return (reader.schema(ddl) if ddl else reader).load()
    except FAILURES as error:
        raise unreadable(error, source_format) from error


def _reader(session: SparkSession, file_format: str, options: Mapping[str, str] | None) -> DataFrameReader:
    """Spark's reader of a format, strict unless the options say otherwise."""
    return session.read.format(file_format).options(**strict_options(file_format, options))


def strict_options(file_format: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """The options with our defaults, each of which gives way to whatever spelling is given."""
    given = dict(options or {})
    spelled = {name.lower() for name in given}
    defaults = _DEFAULTS.get(file_format.lower(), {})
    return {name: value for name, value in defaults.items() if name.lower() not in spelled} | given


def spark_path(file: str) -> str:
    """An absolute path, or a URI, as Spark needs it where it takes every path for a pattern."""
    return spark_uri(_GLOB_CHARACTERS.sub(r"\\\1", file))


def spark_uri(path: str) -> str:
    """The same where it takes a path as it is; a bare one it would look for in the cluster's own storage."""
    return f"file://{path}" if path.startswith("/") else path


def unreadable(error: Exception, file_format: str) -> InvalidRequest:
    """What Spark found wrong before it read a row."""
    raised = getattr(error, "java_exception", None)
    cause = str(error if raised is None else raised.getMessage()).strip().partition("\n")[0]
    hint = f"Avro needs Spark's package {_AVRO}" if _condition(error) in _AVRO_MISSING else ""
    return InvalidRequest("Spark cannot read the source", format=file_format, cause=cause, hint=hint)


def _condition(error: Exception) -> str | None:
    """Spark's name of what is wrong; the method is called otherwise before Spark 4."""
    named = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    return None if named is None else named()


def _is_named(options: Mapping[str, str] | None) -> bool:
    """Whether the files begin with the names of their columns."""
    given = {name.lower(): text for name, text in strict_options("csv", options).items()}
    return given["header"].lower() == "true"


def _columns(
    session: SparkSession, files: Sequence[str], file_format: str, options: Mapping[str, str] | None
) -> list[str]:
    """The names of the columns, without a look at the types."""
    cheap = {"primitivesAsString": "true"} if file_format == "json" else {"inferSchema": "false"}
    others = {name: text for name, text in (options or {}).items() if name.lower() != "inferschema"}
    if "mode" not in {name.lower() for name in others}:
        # A row that does not fit fails the read of the rows, which can say which one it is.
        cheap["mode"] = "DROPMALFORMED"
    return _reader(session, file_format, others | cheap).load(list(files)).columns


def _refuse_unknown(names: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        columns = ", ".join(schema.names)
        raise SchemaMismatch("the table has no such column", column=unknown[0], columns=columns)
