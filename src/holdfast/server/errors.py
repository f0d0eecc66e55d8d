"""Errors as answers: the one place where they get a status and a body.

Pinot answers 500 whenever a rule of start, end, revert or delete fails, and
its clients repeat such calls. The same status is given here by default, with
the real cause in the body; a request with `X-Lineage-Status: precise` gets
400, 403, 404 or 409 instead.
"""

import logging
from collections.abc import Mapping
from typing import Any

from holdfast.errors import (
    Conflict,
    Fenced,
    HoldfastError,
    InvalidRequest,
    OutcomeUnknown,
    Refused,
    StorageUnavailable,
    TableDamaged,
    TableExists,
    TableNotFound,
)

log = logging.getLogger(__name__)


class LoginRequired(InvalidRequest):
    """No user has these credentials."""


class AccessDenied(InvalidRequest):
    """The caller is known, and may not do this."""


class NameContradiction(InvalidRequest):
    """A table's name and the type beside it do not agree."""


class RouteNotFound(InvalidRequest):
    """Nothing is served at this path, or not with this method."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message, code=code)
        self.status = status


class TooLarge(InvalidRequest):
    """The body is larger than the limit."""


class TooSlow(InvalidRequest):
    """The rest of the request does not come."""


class TooMany(HoldfastError):
    """A limit on how much is asked at a time was reached."""

    retry_after_s = 1


class TooLate(TooMany):
    """The deadline of a request came before its turn."""


STATUSES: Mapping[type[HoldfastError], int] = {
    InvalidRequest: 400,
    LoginRequired: 401,
    AccessDenied: 403,
    NameContradiction: 403,
    TableNotFound: 404,
    TableExists: 409,
    Refused: 409,
    Conflict: 409,
    Fenced: 409,
    TooSlow: 408,
    TooLarge: 413,
    TooMany: 429,
    HoldfastError: 500,
    TableDamaged: 500,
    StorageUnavailable: 503,
    OutcomeUnknown: 504,
}

CODES: Mapping[str, int] = {
    "ENTRY_NOT_FOUND": 404,
    "SEGMENT_NOT_FOUND": 404,
    "SNAPSHOT_NOT_FOUND": 404,
    "QUERY_NOT_FOUND": 404,
    "TASK_NOT_FOUND": 404,
    "JOB_NOT_FOUND": 404,
    "INSTANCE_NOT_FOUND": 404,
    "TENANT_NOT_FOUND": 404,
    "QUOTA_EXCEEDED": 403,
    "INVALID_TIME_RANGE": 403,
    "FOREIGN_ENTRY": 403,
    "URI_REFUSED": 403,
    "REFRESH_OF_MISSING": 410,
    "CRC_MISMATCH": 412,
}
"""Where the code says more than the kind of error."""

LINEAGE_RULES = frozenset(
    {
        "CAS_EXHAUSTED",
        "ENTRY_CHANGED",
        "ENTRY_NOT_FOUND",
        "ENTRY_REVERTED",
        "FROM_ALREADY_REPLACED",
        "FROM_MISSING_AT_END",
        "FROM_NOT_VISIBLE",
        "REVERT_CONSUMED_BY",
        "REVERT_NEEDS_FORCE",
        "REVERT_SOURCE_GONE",
        "SEGMENT_LOCKED",
        "TO_ALREADY_VISIBLE",
        "TO_NAME_CONFLICT",
        "TO_NOT_DECLARED",
        "TO_NOT_ONLINE",
        "TO_NOT_UPLOADED",
    }
)
"""Rules that Pinot has as well, whose failure is 500 unless the client asks for more."""

REFUSALS = (InvalidRequest, Conflict, Fenced, TooMany)
"""Nothing was done, because of what was asked, by whom or when.

Other errors are the service's own, may come after the change, and name files
and hosts in their facts, which belong into the log only.
"""


def code_of(error: HoldfastError) -> str:
    """The stable word for programs."""
    code = error.facts.get("code")
    return str(code) if code else _words(type(error).__name__)


def status_of(error: HoldfastError, *, is_precise: bool) -> int:
    """The status of the nearest listed ancestor, so that new kinds of errors inherit theirs."""
    if isinstance(error, RouteNotFound):
        return error.status
    code = code_of(error)
    if code in LINEAGE_RULES and not is_precise:
        return 500
    return CODES.get(code) or next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def error_body(error: HoldfastError, *, status: int, request_id: str) -> dict[str, Any]:
    return {
        "code": status,
        "error": public_text(error),
        "errorCode": code_of(error),
        "details": _facts(error) if isinstance(error, REFUSALS) else {},
        "requestId": request_id,
    }


def public_text(error: HoldfastError) -> str:
    """The text of an error for callers. Its facts are in it only if they are about the request."""
    return _sentence(error, _facts(error)) if isinstance(error, REFUSALS) else error.message


def _facts(error: HoldfastError) -> dict[str, object]:
    return {name: _plain(value) for name, value in error.facts.items() if name != "code"}


def internal_body(*, request_id: str) -> dict[str, Any]:
    """For an unexpected error; the log has the rest under the same id."""
    return {
        "code": 500,
        "error": "internal error; the log of the service tells more under the request id",
        "errorCode": "INTERNAL",
        "details": {},
        "requestId": request_id,
    }


def _sentence(error: HoldfastError, facts: Mapping[str, object]) -> str:
    text = error.message
    if facts:
        text += " (" + ", ".join(f"{name}: {value}" for name, value in facts.items()) + ")"
    return f"{text}; {error.hint}" if error.hint else text


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(one) for one in value]
        case set() | frozenset():
            return sorted(map(str, value))
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
    return str(value)


def _words(name: str) -> str:
    """`TableNotFound` as `TABLE_NOT_FOUND`."""
    return "".join(f"_{char}" if char.isupper() and at else char for at, char in enumerate(name)).upper()
