"""Query options: read from the statement and from the request, and taken apart from the SQL.

    SET timeoutMs = 5000; SELECT ... OPTION(enableNullHandling = true)

Where a key is given twice, `SET` wins over `OPTION`, and both over the request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from holdfast.push.calls import moment_ms
from holdfast.push.queries.dialect import Pinot
from holdfast.push.queries.failures import QueryError, QueryFailed

DEFAULT_TIMEOUT_MS = 10_000
MAX_SQL_BYTES = 64 * 1024
MAX_TOKENS = 20_000
MAX_NESTING = 32
"""Pairs of brackets, and of CASE and END, inside each other."""
_KNOWN_STATEMENTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    null_handling: bool = False
    allow_partial: bool = False
    client_id: str | None = None
    min_epoch: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By raw table name; under the empty name if no table was named."""
    as_of_epoch: int | None = None
    as_of_ms: int | None = None
    """Answer from what queries saw at this moment."""
    entry_id: str | None = None
    """Answer from the hidden segments of this open entry, as if it were completed."""


@dataclass(frozen=True, slots=True)
class Statement:
    sql: str
    options: QueryOptions
    is_explain: bool


def read_statement(text: str, given: Mapping[str, str], *, max_timeout_ms: int) -> Statement:
    """Split what was sent into one statement and its options."""
    return _read(text, tuple(given.items()), max_timeout_ms)


@lru_cache(maxsize=_KNOWN_STATEMENTS)
def _read(text: str, given: tuple[tuple[str, str], ...], max_timeout_ms: int) -> Statement:
    if len(text.encode(errors="replace")) > MAX_SQL_BYTES:
        raise QueryFailed(QueryError.SQL_PARSING, "the statement is too long", limit_bytes=MAX_SQL_BYTES)
    sources: list[Mapping[str, str]] = []
    statements: list[Sequence[Token]] = []
    for tokens in _statements(_tokens(text)):
        if tokens[0].text.upper() == "SET" and not statements:
            sources.append(_assignment(tokens))
        else:
            statements.append(tokens)
    if len(statements) != 1:
        raise QueryFailed(
            QueryError.SQL_PARSING, "exactly one statement is answered", statements=len(statements)
        )
    only = statements[0]
    is_explain = [token.text.upper() for token in only[:3]] == ["EXPLAIN", "PLAN", "FOR"]
    body, trailing = _without_option_clause(only[3:] if is_explain else only)
    if not body:
        raise QueryFailed(QueryError.SQL_PARSING, "there is no statement")
    options = read_options((*sources, trailing, dict(given)), max_timeout_ms=max_timeout_ms)
    return Statement(text[body[0].start : body[-1].end + 1], options, is_explain)


def split_options(text: str) -> dict[str, str]:
    """The `queryOptions` of a request: `key=value` pieces with `;` between them."""
    pieces = [piece.strip() for piece in text.split(";")]
    options: dict[str, str] = {}
    for piece in filter(None, pieces):
        key, equals, value = piece.partition("=")
        if not equals or not key.strip():
            raise QueryFailed(QueryError.SQL_PARSING, "a query option is not key=value", option=piece)
        options.setdefault(key.strip(), _unquote(value.strip()))
    return options


def read_options(sources: Iterable[Mapping[str, str]], *, max_timeout_ms: int) -> QueryOptions:
    """Typed options. Keys match without regard to case, unknown ones are ignored, earlier sources win."""
    merged: dict[str, str] = {}
    for source in sources:
        for key, value in source.items():
            merged.setdefault(key.lower(), str(value))
    return QueryOptions(
        timeout_ms=_timeout(merged, max_timeout_ms),
        null_handling=_is_true(merged.get("enablenullhandling")),
        allow_partial=_is_true(merged.get("allowpartial")),
        client_id=merged.get("clientqueryid"),
        min_epoch=MappingProxyType(_epochs(merged.get("minsnapshotepoch"))),
        as_of_epoch=_number(merged, "asofepoch"),
        as_of_ms=_moment(merged.get("asoftime")),
        entry_id=merged.get("snapshotentryid") or merged.get("asofentryid"),
    )


def _tokens(text: str) -> list[Token]:
    try:
        tokens = list(Pinot().tokenize(text))
    except TokenError as error:
        raise QueryFailed(QueryError.SQL_PARSING, "the statement cannot be read") from error
    if len(tokens) > MAX_TOKENS:
        raise QueryFailed(QueryError.SQL_PARSING, "the statement has too many parts", limit=MAX_TOKENS)
    _check_nesting(tokens)
    return tokens


def _check_nesting(tokens: Iterable[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.END):
            depth -= 1
        if depth > MAX_NESTING:
            raise QueryFailed(QueryError.SQL_PARSING, "the statement is nested too deeply", limit=MAX_NESTING)


def _statements(tokens: Sequence[Token]) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [statement for statement in found if statement]


def _assignment(tokens: Sequence[Token]) -> Mapping[str, str]:
    """`SET key = value`."""
    if len(tokens) < 4 or tokens[2].text != "=":
        raise QueryFailed(QueryError.SQL_PARSING, "SET is not followed by key = value")
    return {tokens[1].text: _text(tokens[3:])}


def _without_option_clause(tokens: Sequence[Token]) -> tuple[Sequence[Token], Mapping[str, str]]:
    """The statement without its trailing `OPTION(key=value, ...)`."""
    at = next(
        (
            number
            for number in range(len(tokens) - 2, 0, -1)
            if tokens[number].text.upper() == "OPTION"
            and tokens[number].token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
            and tokens[number + 1].token_type is TokenType.L_PAREN
        ),
        None,
    )
    if at is None or tokens[-1].token_type is not TokenType.R_PAREN:
        return tokens, {}
    inside = tokens[at + 2 : -1]
    if any(token.token_type in (TokenType.L_PAREN, TokenType.R_PAREN) for token in inside):
        return tokens, {}
    options: dict[str, str] = {}
    for piece in _split(inside, TokenType.COMMA):
        if len(piece) < 3 or piece[1].text != "=":
            raise QueryFailed(QueryError.SQL_PARSING, "OPTION holds something that is not key = value")
        options.setdefault(piece[0].text, _text(piece[2:]))
    return tokens[:at], options


def _split(tokens: Sequence[Token], at: TokenType) -> list[list[Token]]:
    pieces: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is at:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [piece for piece in pieces if piece]


def _text(tokens: Sequence[Token]) -> str:
    return "".join(token.text for token in tokens)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] == "'" else text


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def _number(options: Mapping[str, str], key: str) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise QueryFailed(
            QueryError.QUERY_VALIDATION, "the option is not a whole number", option=key, value=text
        ) from None


def _moment(text: str | None) -> int | None:
    try:
        return None if text is None else moment_ms(text)
    except (ValueError, OverflowError):
        raise QueryFailed(
            QueryError.QUERY_VALIDATION, "the option is not a time", option="asoftime", value=text
        ) from None


def _timeout(options: Mapping[str, str], max_timeout_ms: int) -> int:
    asked = _number(options, "timeoutms")
    if asked is None:
        return min(DEFAULT_TIMEOUT_MS, max_timeout_ms)
    if asked <= 0:
        raise QueryFailed(QueryError.QUERY_VALIDATION, "the timeout is not positive", value=asked)
    return min(asked, max_timeout_ms)


def _epochs(text: str | None) -> dict[str, int]:
    """`17`, or `orders:17,items:4` for a query of several tables."""
    epochs: dict[str, int] = {}
    for piece in filter(None, (text or "").replace(" ", "").split(",")):
        table, colon, number = piece.rpartition(":")
        found = _number({"minsnapshotepoch": number}, "minsnapshotepoch")
        assert found is not None
        epochs[table if colon else ""] = found
    return epochs
