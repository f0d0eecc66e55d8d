"""Change feeds: what a feed of changes asks of the table that it is applied to.

Type 1 keeps the newest row of each key: the ordering column of the table is the
sequence, so that a change which comes late loses. Type 2 keeps every version,
from `valid_from` until before `valid_to`; the first is part of the record key.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.config.table import TableSettings
from holdfast.errors import InvalidRequest, Refused

VALID_FROM, VALID_TO = "valid_from", "valid_to"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFeed:
    """How the rows of a feed are to be taken."""

    keys: tuple[str, ...]
    sequence_by: str

    def check_columns(self, columns: pa.Schema) -> None:
        """`InvalidRequest` if the feed lacks a column that it is applied by."""
        for name in (*self.keys, self.sequence_by):
            if name not in columns.names:
                raise InvalidRequest(
                    "the feed has no such column", column=name, columns=", ".join(columns.names)
                )

        for name in (VALID_FROM, VALID_TO):
            if name in columns.names and name != self.sequence_by:
                raise InvalidRequest("the feed has a column by the name of one that is computed", column=name)

    def check_newest_only(self, table: TableSettings) -> None:
        """`Refused` if the table would not keep the newest row of each key."""
        _check_keys(table, self.keys)
        if table.deciding_column != self.sequence_by:
            raise Refused(
                "the table does not decide between rows by the column that gives the order of changes",
                sequence_by=self.sequence_by,
                ordering=table.deciding_column or "the latest write",
                hint=f"create the table with ordering={self.sequence_by!r}",
            )

    def check_history(self, table: TableSettings) -> None:
        """`Refused` if the table would not keep every version of each key."""
        _check_keys(table, (*self.keys, VALID_FROM))
        if table.deciding_column not in (None, VALID_FROM):
            raise Refused(
                "versions are closed after they were written, which this table's order does not admit",
                ordering=table.deciding_column,
                hint="create the table without an ordering column",
            )


def change_feed(keys: str | Sequence[str], sequence_by: str) -> ChangeFeed:
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    if not names or not sequence_by:
        raise InvalidRequest("name the keys of the feed, and the column that gives the order of its changes")
    return ChangeFeed(keys=names, sequence_by=sequence_by)


def _check_keys(table: TableSettings, keys: tuple[str, ...]) -> None:
    if set(table.record_key) != set(keys):
        raise Refused(
            "the table has another record key than this kind of feed needs",
            record_key=", ".join(table.record_key),
            needed=", ".join(keys),
            hint=f"create the table with record_key={list(keys)!r}",
        )
