"""Parquet files put together from the column chunks of other Parquet files, copied as bytes.

What an upsert does not change is neither decoded nor encoded again. Pages keep
their checksums; only the footer is new.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO

from holdfast.format.malformed import Malformed
from holdfast.format.parquet_footer import (
    MAGIC,
    TAIL_BYTES,
    Chunk,
    Footer,
    Leaf,
    RowGroup,
    decode_footer,
    encode_footer,
    footer_size,
    move_chunk,
    rename_chunk,
    same_leaf,
)

_PIECE_BYTES = 8 * 1024 * 1024


class ParquetSource:
    """A Parquet file whose chunks can be copied; its reader must stay open as long.

    `repeats` names columns that the file lacks, each with one that has the
    same values: they are given its chunks. `Malformed` if the file is not
    Parquet, is damaged or has encrypted columns.
    """

    def __init__(self, reader: BinaryIO, *, repeats: Mapping[str, str] | None = None) -> None:
        self._reader = reader
        self.footer = _read_footer(reader)
        self._positions = {leaf.path: position for position, leaf in enumerate(self.footer.leaves)}
        for name, repeated in (repeats or {}).items():
            self._positions[(name,)] = self._positions[(repeated,)]

    def leaf(self, path: tuple[str, ...]) -> Leaf | None:
        """The leaf under a path, if the file has one."""
        position = self._positions.get(path)
        return None if position is None else replace(self.footer.leaves[position], path=path)

    def chunk(self, row_group: int, leaf: Leaf) -> Chunk:
        """The chunk in a row group that may stand in another file under `leaf`; `Malformed` if none may."""
        held = self.leaf(leaf.path)
        if held is None or not same_leaf(held, leaf):
            raise Malformed(f"no column chunk of the file fits the column {leaf.dotted!r}")
        chunk = self.footer.row_groups[row_group].chunks[self._positions[leaf.path]]
        return rename_chunk(chunk, leaf.path)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes of a range in order, a few megabytes at a time."""
        self._reader.seek(start)
        while start < end:
            piece = self._reader.read(min(end - start, _PIECE_BYTES))
            if not piece:
                raise Malformed(f"the Parquet file ends at {start}, inside a column chunk")
            start += len(piece)
            yield piece


class ChunkFile:
    """A new Parquet file on an empty sink, with the schema and the writer's name of the template.

    The file cannot be read before `close`.
    """

    def __init__(self, sink: BinaryIO, *, template: Footer) -> None:
        self._sink = sink
        self._template = template
        self._row_groups: list[RowGroup] = []
        self._sink.write(MAGIC)
        self._end = len(MAGIC)

    def add_row_group(self, rows: int, chunks: Sequence[tuple[ParquetSource, int]]) -> None:
        """Copy a row group: for each leaf of the template, the source and the row group of its chunk.

        Without rows there is nothing to copy. `Malformed` before a byte is written if a chunk does
        not fit its leaf or its row group.
        """
        if rows == 0:
            return
        chunks_to_copy = [
            (source, _check_chunk(source, row_group, leaf, rows=rows))
            for leaf, (source, row_group) in zip(self._template.leaves, chunks, strict=True)
        ]
        moved: list[Chunk] = []
        for _, chunk in chunks_to_copy:
            moved.append(move_chunk(chunk, self._end))
            self._end += chunk.size_bytes
        for source, start, end in _runs(chunks_to_copy):
            for piece in source.pieces(start, end):
                self._sink.write(piece)
        self._row_groups.append(RowGroup(rows, tuple(moved)))

    def close(self, key_values: Mapping[str, str]) -> None:
        """Write the footer. The sink stays open."""
        self._sink.write(encode_footer(self._template, self._row_groups, key_values))


def copyable_columns(source: Footer, template: Footer) -> frozenset[str]:
    """The template's columns, by their names at the top level, that the source has in the same form."""
    leaves = {leaf.path: leaf for leaf in source.leaves}
    changed = {
        leaf.path[0]
        for leaf in template.leaves
        if leaf.path not in leaves or not same_leaf(leaves[leaf.path], leaf)
    }
    return frozenset(leaf.path[0] for leaf in template.leaves) - changed


def _read_footer(reader: BinaryIO) -> Footer:
    file_size = reader.seek(0, io.SEEK_END)
    if file_size < len(MAGIC) + TAIL_BYTES:
        raise Malformed(f"a file of {file_size} bytes is too small for Parquet")
    reader.seek(file_size - TAIL_BYTES)
    size = footer_size(reader.read(TAIL_BYTES))
    data_end = file_size - TAIL_BYTES - size
    if data_end < len(MAGIC):
        raise Malformed(f"a file of {file_size} bytes cannot have a Parquet footer of {size}")
    reader.seek(data_end)
    return decode_footer(reader.read(size), data_end=data_end)


def _check_chunk(source: ParquetSource, row_group: int, leaf: Leaf, *, rows: int) -> Chunk:
    rows_held = source.footer.row_groups[row_group].rows
    if rows_held != rows:
        raise Malformed(f"a chunk of {leaf.dotted!r} has {rows_held} rows in a row group of {rows}")
    return source.chunk(row_group, leaf)


def _runs(chunks_to_copy: Sequence[tuple[ParquetSource, Chunk]]) -> Iterator[tuple[ParquetSource, int, int]]:
    """Ranges to copy, neighbours in their source joined: storage likes few long reads."""
    run: tuple[ParquetSource, int, int] | None = None
    for source, chunk in chunks_to_copy:
        if run is not None and run[0] is source and run[2] == chunk.start:
            run = source, run[1], chunk.end
            continue
        if run is not None:
            yield run
        run = source, chunk.start, chunk.end
    if run is not None:
        yield run
