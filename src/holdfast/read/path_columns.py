"""Partition columns that the paths of files tell, so that a query can leave out whole partitions.

A record that was found by a global index may lie in another partition than its
columns name, and Hudi's programs write such rows, too. So the paths of those
files alone are relied on that come from commits which left all rows in place.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.config.key_generators import PartitionType
from holdfast.format.partition_paths import DEFAULT_PARTITION
from holdfast.model.names import BASE_FILE_PATTERN
from holdfast.read.snapshot import Snapshot
from holdfast.table.opened import OpenTable
from holdfast.table.row_placement import commits_in_place, read_placement_record


@dataclass(frozen=True, slots=True)
class PathColumns:
    pattern: str
    """What the path of a file looks like that tells them."""
    commits: frozenset[str]
    """Those whose files have no row that lies elsewhere."""

    def split(self, paths: Sequence[str]) -> tuple[list[str], list[str]]:
        """The files whose paths tell the values, and the others: those of nulls and escaped values, too."""
        column = pa.array(paths, pa.string())
        instants = pc.struct_field(pc.extract_regex(column, BASE_FILE_PATTERN), "instant")
        is_in_place = pc.is_in(instants, pa.array(self.commits, pa.string()))
        # A null and an empty text have one folder.
        is_default = pc.match_substring(column, f"={DEFAULT_PARTITION}/")
        is_spelled = pc.and_(pc.match_substring_regex(column, self.pattern), pc.invert(is_default))
        tells = pc.and_(is_in_place, is_spelled)
        return column.filter(tells).to_pylist(), column.filter(pc.invert(tells)).to_pylist()


def path_columns(table: OpenTable, snapshot: Snapshot, schema: pa.Schema) -> PathColumns | None:
    """What the paths of a snapshot tell of the wanted columns; None if all files have to be opened for it."""
    settings = table.settings
    is_plain = settings.hive_style and set(settings.declared_partition_types or ()) == {PartitionType.SIMPLE}
    is_wanted = not set(settings.partition_by).isdisjoint(schema.names)
    if not is_plain or not is_wanted or not snapshot.plain.paths or snapshot.schema is None:
        return None
    kinds = {field.name: field.type for field in snapshot.schema}
    spellings = {name: _spelling(kinds.get(name)) for name in settings.partition_by}
    if None in spellings.values():
        return None
    segments = (f"{re.escape(name)}={text}/" for name, text in spellings.items())
    commits = commits_in_place(snapshot.placement_by_commit, read_placement_record(table.store))
    return PathColumns(f"^{''.join(segments)}[^/]+$", commits) if commits else None


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
