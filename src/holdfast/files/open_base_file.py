"""Opening a base file to read it, with everything checked that can be."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.errors import SchemaMismatch, TableDamaged, UnsupportedTable
from holdfast.format.malformed import Malformed
from holdfast.format.schemas import arrow_schema, without_meta_columns
from holdfast.storage.store import Store

_OUR_WRITER = "parquet-cpp-arrow"


@contextmanager
def open_base_file(store: Store, path: str, *, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """One base file; whatever cannot be read in this block is damage.

    The columns named in `dictionaries` come as dictionaries.
    """
    with reading(path), hold_base_file(store, path, dictionaries=dictionaries) as file:
        yield file


@contextmanager
def hold_base_file(store: Store, path: str, *, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """The same for a block that does other things, too: what reads in it is marked by `reading`."""
    with ExitStack() as stack:
        with reading(path):
            source = stack.enter_context(store.open(path))
            file = stack.enter_context(
                pq.ParquetFile(source, page_checksum_verification=True, read_dictionary=list(dictionaries))
            )
            _check_columns(file, path)
        yield file


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Whatever goes wrong in this block is damage of the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise TableDamaged("a data file is missing", file=path) from error
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, Malformed, SchemaMismatch) as error:
        raise TableDamaged("a data file cannot be read", file=path, cause=error) from error


def _check_columns(file: pq.ParquetFile, path: str) -> None:
    """Compare the columns with the schema stored beside them: a footer has no checksum of its own.

    A damaged name would otherwise be a column that is not there, and read as nulls.
    """
    stored = (file.metadata.metadata or {}).get(b"parquet.avro.schema")
    if stored is None:
        return
    is_ours = file.metadata.created_by.startswith(_OUR_WRITER)
    try:
        found, expected = file.schema_arrow, arrow_schema(stored.decode())
    except UnsupportedTable as error:
        if is_ours:
            raise TableDamaged("a data file's footer cannot be read", file=path, cause=error) from error
        raise
    if is_ours:
        is_whole = without_meta_columns(found) == without_meta_columns(expected)
    else:
        is_whole = set(found.names) >= set(without_meta_columns(expected).names)
    if not is_whole:
        raise TableDamaged("a data file's columns are not those it was written with", file=path)
