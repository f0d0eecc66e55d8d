"""Whether the SQL of a pipeline is a query at all, asked without Spark."""

from holdfast.errors import InvalidOption


def parse_transform(query: str, *, first_line: int = 0) -> bool:
    """Whether the query was looked at: sqlglot must be there, and know the statement.

    `InvalidOption` with the place if it is not one query in Spark's dialect.
    `first_line` is where it begins in the file it was read from.
    """
    # Loaded here because it comes with the extra `server`, and only a dry run asks.
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.errors import SqlglotError
    except ModuleNotFoundError:
        return False
    try:
        statements = [each for each in sqlglot.parse(query, read="spark") if each is not None]
    except SqlglotError as error:
        first = (getattr(error, "errors", None) or [{}])[0]
        line = first.get("line")
        where = {"line": first_line + line - 1} if first_line and line else {}
        cause = first.get("description") or str(error).partition("\n")[0]
        raise InvalidOption(
            "the transform is not Spark SQL", key="transform", **where, cause=str(cause)
        ) from error
    if len(statements) != 1:
        raise InvalidOption("the transform is not one query", key="transform", statements=len(statements))
    if isinstance(statements[0], exp.Command):
        return False
    if not isinstance(statements[0], exp.Query):
        raise InvalidOption(
            "the transform is not a query", key="transform", found=statements[0].key.upper(),
            hint="write SELECT ... FROM source",
        )  # fmt: skip
    return True
