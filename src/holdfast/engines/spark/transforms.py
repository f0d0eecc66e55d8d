"""The SQL transform of a pipeline: one query over the view `source`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame

from holdfast.errors import InvalidOption

_PLACE = re.compile(r"line (\d+),? pos \d+")
_LINES_BEFORE = 1
"""Lines of the statement before the first line of the query."""


@contextmanager
def run_transform(frame: DataFrame, query: str, *, first_line: int = 0) -> Iterator[DataFrame]:
    """What the query makes of the rows, for as long as the block runs.

    `first_line` is where the query begins in the file it was read from. The
    query is put into a subquery, where nothing but a query has a place.
    """
    session = frame.sparkSession
    view = f"holdfast_{uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        text = query.strip().removesuffix(";").rstrip()
        # The author of the pipeline decides what is read.
        statement = f"WITH source AS (SELECT * FROM {view}) SELECT * FROM (\n{text}\n)"  # noqa: S608
        try:
            made = session.sql(statement)
            # On Spark Connect nothing is looked at before this.
            assert made.columns is not None, "a query has columns"
        except (AnalysisException, ParseException) as error:
            raise _wrong(error, query, first_line) from error
        yield made
    finally:
        session.catalog.dropTempView(view)


def _wrong(error: Exception, query: str, first_line: int) -> InvalidOption:
    cause = str(error).strip().partition("\n")[0]
    place = _PLACE.search(str(error))
    skipped = query[: len(query) - len(query.lstrip())].count("\n")
    line = 0 if place is None else max(int(place[1]) - _LINES_BEFORE, 1) + skipped
    where: dict[str, Any] = {"line": first_line + line - 1} if first_line and line else {}
    return InvalidOption(
        "Spark cannot run the transform", key="transform", **where, cause=_without_place(cause)
    )


def _without_place(cause: str) -> str:
    """The sentence alone: its line counts from where the statement begins, not the file."""
    return _PLACE.sub("", cause).replace("()", "").rstrip("; ").strip()
