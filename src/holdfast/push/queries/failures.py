"""Why a query failed, in the numbers and names that Pinot's clients know."""

from enum import IntEnum

from holdfast.errors import HoldfastError


class QueryError(IntEnum):
    """Pinot's error codes, as far as this broker has a use for them."""

    JSON_PARSING = 100
    SQL_PARSING = 150
    SQL_RUNTIME = 160
    ACCESS_DENIED = 180
    TABLE_DOES_NOT_EXIST = 190
    QUERY_EXECUTION = 200
    SERVER_SEGMENT_MISSING = 235
    QUERY_SCHEDULING_TIMEOUT = 240
    SERVER_RESOURCE_LIMIT_EXCEEDED = 245
    EXECUTION_TIMEOUT = 250
    BROKER_SEGMENT_UNAVAILABLE = 305
    BROKER_TIMEOUT = 400
    BROKER_RESOURCE_MISSING = 410
    TOO_MANY_REQUESTS = 429
    INTERNAL = 450
    QUERY_CANCELLATION = 503
    QUERY_VALIDATION = 700
    UNKNOWN_COLUMN = 710
    UNKNOWN = 1000

    @property
    def title(self) -> str:
        """The name that begins the message."""
        return _TITLES.get(self) or "".join(word.title() for word in self.name.split("_")) + "Error"

    @property
    def http_status(self) -> int:
        """For clients that ask to be told by status."""
        return _STATUSES.get(self, 500)


_TITLES = {
    QueryError.SQL_PARSING: "SQLParsingError",
    QueryError.SQL_RUNTIME: "SQLRuntimeError",
    QueryError.ACCESS_DENIED: "AccessDenied",
    QueryError.QUERY_CANCELLATION: "QueryCancellationError",
}
_STATUSES = {
    QueryError.JSON_PARSING: 400,
    QueryError.SQL_PARSING: 400,
    QueryError.ACCESS_DENIED: 403,
    QueryError.TABLE_DOES_NOT_EXIST: 404,
    QueryError.SERVER_SEGMENT_MISSING: 404,
    QueryError.QUERY_SCHEDULING_TIMEOUT: 408,
    QueryError.SERVER_RESOURCE_LIMIT_EXCEEDED: 503,
    QueryError.EXECUTION_TIMEOUT: 408,
    QueryError.BROKER_SEGMENT_UNAVAILABLE: 503,
    QueryError.BROKER_TIMEOUT: 408,
    QueryError.BROKER_RESOURCE_MISSING: 503,
    QueryError.TOO_MANY_REQUESTS: 429,
    QueryError.QUERY_CANCELLATION: 503,
    QueryError.QUERY_VALIDATION: 400,
    QueryError.UNKNOWN_COLUMN: 400,
}


class QueryFailed(HoldfastError):
    """A query that has no answer. The broker turns it into Pinot's `exceptions`."""

    def __init__(self, code: QueryError, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message, hint=hint, **facts)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.code, self.message, self.hint, self.facts)

    @property
    def text(self) -> str:
        """The message as Pinot words it: name, then detail."""
        return f"{self.code.title}: {self}"


def _rebuild(code: QueryError, message: str, hint: str, facts: dict[str, object]) -> QueryFailed:
    return QueryFailed(code, message, hint=hint, **facts)
