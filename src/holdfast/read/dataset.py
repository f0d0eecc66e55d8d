"""A snapshot as a pyarrow dataset, for engines that ask for columns and rows by themselves."""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from holdfast.errors import InvalidRequest
from holdfast.read.batches import Selection


class TableDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """Reads a selection, each time anew, and of it only what is asked for.

    DuckDB and Polars take it for a dataset of pyarrow's own: they hand down the
    columns that a query needs and the filters that they can. How it is read is
    no matter of pyarrow's, so what asks for files is refused.
    """

    def __init__(self, selection: Selection) -> None:
        # Not that of the base, which stands for a dataset in C++.
        self._selection = selection

    @property
    def schema(self) -> pa.Schema:
        return self._selection.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Nothing is known of all rows."""
        return pc.scalar(True)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # the word of pyarrow
        **_tuning: Any,
    ) -> ds.Scanner:
        """One pass over the rows; what only tunes pyarrow's own reader has no effect."""
        return ds.Scanner.from_batches(self._narrow(columns, filter).stream())

    def to_batches(self, **asked: Any) -> Iterator[pa.RecordBatch]:
        return iter(self._narrow(asked.get("columns"), asked.get("filter")).stream())

    def to_table(self, **asked: Any) -> pa.Table:
        return self._narrow(asked.get("columns"), asked.get("filter")).read()

    def head(self, num_rows: int, **asked: Any) -> pa.Table:
        """The first rows; no more are read."""
        return self.scanner(**asked).head(num_rows)

    def count_rows(self, **asked: Any) -> int:
        narrowest = self.schema.names[:1]
        return sum(batch.num_rows for batch in self.to_batches(columns=narrowest, filter=asked.get("filter")))

    def filter(self, expression: pc.Expression) -> "TableDataset":
        return TableDataset(self._selection.narrow(columns=None, filter=expression))

    def __repr__(self) -> str:
        count = self._selection.snapshot.slices.num_rows
        return f"TableDataset({count} file slices, columns={self.schema.names})"

    def __reduce__(self) -> NoReturn:
        raise _refusal("pickle")

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:  # noqa: A002
        raise _refusal("get_fragments")

    def take(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal("take")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        raise _refusal("replace_schema")

    def sort_by(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal("sort_by")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal("join")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal("join_asof")

    def _narrow(self, columns: Sequence[str] | None, wanted: pc.Expression | None) -> Selection:
        if columns is not None and (
            isinstance(columns, dict | str) or not set(columns) <= {*self.schema.names}
        ):
            raise InvalidRequest("name columns of the table in a list", columns=str(columns)[:200])
        return self._selection.narrow(columns=columns, filter=wanted)


def _refusal(what: str) -> InvalidRequest:
    return InvalidRequest(
        "a table is not a dataset of files", asked=what, hint="to_table() gives a pyarrow table, which can"
    )
