"""Partition columns that the paths of files tell, so that a query can leave out whole partitions.

A record that was found by a global index may lie in another partition than its
columns name, and Hudi's programs write such rows, too. So paths are relied on
only where every commit, also the archived ones, says that it left none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.key_generators import PartitionType
from holdfast.format.partition_paths import DEFAULT_PARTITION
from holdfast.read.snapshot import Snapshot
from holdfast.table.in_place import archived_in_place
from holdfast.table.opened import OpenTable


@dataclass(frozen=True, slots=True)
class PathColumns:
    pattern: str
    """What the path of a file looks like that tells them."""

    def split(self, paths: Sequence[str]) -> tuple[list[str], list[str]]:
        """The files whose paths tell the values, and the others: those of nulls and of escaped values."""
        column = pa.array(paths, pa.string())
        # A null and an empty text have one folder.
        is_default = pc.match_substring(column, f"={DEFAULT_PARTITION}/")
        tells = pc.and_(pc.match_substring_regex(column, self.pattern), pc.invert(is_default))
        return column.filter(tells).to_pylist(), column.filter(pc.invert(tells)).to_pylist()


def path_columns(table: OpenTable, snapshot: Snapshot, schema: pa.Schema) -> PathColumns | None:
    """What the paths of a snapshot tell of the wanted columns; None if files have to be opened for it."""
    settings = table.settings
    is_plain = settings.hive_style and set(settings.told_partition_types or ()) == {PartitionType.SIMPLE}
    is_wanted = not set(settings.partition_by).isdisjoint(schema.names)
    if not is_plain or not is_wanted or not snapshot.are_in_place or snapshot.schema is None:
        return None
    kinds = {field.name: field.type for field in snapshot.schema}
    spellings = {name: _spelling(kinds.get(name)) for name in settings.partition_by}
    if None in spellings.values() or not archived_in_place(table):
        return None
    segments = (f"{name}={text}/" for name, text in spellings.items())
    return PathColumns(f"^{''.join(segments)}[^/]+$")


def _spelling(kind: pa.DataType | None) -> str | None:
    """How values are spelled in a path if they can be read back from it; None if that is not sure."""
    if kind is None:
        return None
    if pa.types.is_string(kind):
        return r"[^/%\\]+"
    if pa.types.is_integer(kind):
        return "-?[0-9]+"
    if pa.types.is_date(kind):
        return "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    return None
