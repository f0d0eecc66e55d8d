"""Rows of any library, by the one method that they have in common."""

from typing import Protocol


class ArrowStream(Protocol):
    """A Table of pyarrow, a DataFrame of pandas or Polars, a relation of DuckDB, and others."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
