"""Names of tables as requests spell them.

A raw name is `orders`, a typed one `orders_OFFLINE`. The header `database`
puts its value and a dot before the raw name; `default` means none.
"""

from holdfast.config.push import check_table_name
from holdfast.errors import InvalidRequest, TableNotFound
from holdfast.server.errors import NameContradiction

TYPES = ("OFFLINE", "REALTIME")
_NO_DATABASE = "default"


def raw_name(table: str) -> str:
    """The name without its type."""
    for kind in TYPES:
        if table.endswith(f"_{kind}"):
            return table[: -len(kind) - 1]
    return table


def type_of(table: str) -> str | None:
    """The type that a typed name ends with; None for a raw name."""
    return next((kind for kind in TYPES if table.endswith(f"_{kind}")), None)


def qualify(table: str, database: str | None) -> str:
    """The name in its database, checked. The type, if there is one, stays."""
    check_table_name(table)
    for name in filter(None, (database, table.partition(".")[0] if "." in table else "")):
        if name.lower() == _NO_DATABASE and name != _NO_DATABASE:
            # Queries do not look at the case, and would read a table without a database.
            raise InvalidRequest(
                "the database that means none is written in small letters",
                database=name,
                code="INVALID_TABLE_NAME",
                hint=f"write {_NO_DATABASE}",
            )
    if not database or database == _NO_DATABASE:
        return table.removeprefix(f"{_NO_DATABASE}.")
    if "." in database:
        raise InvalidRequest("not a database name", database=repr(database[:100]), code="INVALID_TABLE_NAME")
    check_table_name(database)
    prefix, dot, _ = table.partition(".")
    if not dot:
        return f"{database}.{table}"
    if prefix != database:
        raise InvalidRequest(
            "the table is in another database", table=table, database=database, code="INVALID_TABLE_NAME"
        )
    return table


def parse_type(text: str) -> str:
    """A type in any case. `InvalidRequest` if it is none."""
    kind = text.strip().upper()
    if kind not in TYPES:
        raise InvalidRequest(
            "not a table type",
            type=repr(text[:40]),
            code="INVALID_TABLE_TYPE",
            hint="use OFFLINE or REALTIME",
        )
    return kind


def offline_name(table: str, kind: str | None) -> str:
    """The typed name that a qualified name and a type mean. Only OFFLINE tables exist here."""
    named = type_of(table)
    if named is not None and kind is not None and named != kind:
        raise NameContradiction(
            "the table's name contradicts the type", table=table, type=kind, code="TYPE_CONTRADICTION"
        )
    if (named or kind or "OFFLINE") != "OFFLINE":
        raise TableNotFound(
            "there is no such table", table=table, type="REALTIME", code="TABLE_NOT_FOUND",
            hint="only OFFLINE tables are served",
        )  # fmt: skip
    return f"{raw_name(table)}_OFFLINE"
