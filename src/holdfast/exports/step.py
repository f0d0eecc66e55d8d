"""A step: one version of an export, what it is to show and where it comes from.

A program that reads an export never sees anything that was not a state of the table.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.instant import InstantTime

NO_INSTANT = InstantTime("0")
"""What an export is at that shows an empty table: all its commits were taken back."""
ENGINE = "holdfast"
_PLAIN_PATH = "^[A-Za-z0-9/=_.~-]*$"


@dataclass(frozen=True, slots=True)
class Step:
    instant: InstantTime
    """The newest commit whose rows it shows."""
    slot: int
    """Where the ledger was when the table was looked at; what was taken back before is not shown."""
    moment_ms: int
    """The time of its instant."""
    schema: pa.Schema | None
    """The data columns; None if the table has none any more: the export keeps those that it had."""
    files: pa.Table
    """The base files, as columns `path` and `size`."""


@dataclass(frozen=True, slots=True)
class ExportedTable:
    """What every step of a table's exports has in common."""

    name: str
    root: str
    """How other programs name the table's folder."""
    partition_by: tuple[str, ...]
    """The partition columns, if the values that the rows of a file have of each are all the same."""


def encode_paths(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Paths as relative URIs."""
    is_plain = pc.match_substring_regex(paths, _PLAIN_PATH)
    if pc.all(is_plain).as_py() or len(paths) == 0:
        return paths
    return pa.chunked_array([[encode_path(path) for path in paths.to_pylist()]], pa.string())


def encode_path(path: str) -> str:
    return path if re.match(_PLAIN_PATH, path) else quote(path, safe="/=_.~-")
