"""Statements: text in, one parsed statement out. What cannot be read is refused with its place.

sqlglot reads the statements that it knows. SHOW, DESCRIBE and CALL are read here,
from its tokens.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from holdfast.errors import InvalidRequest

try:
    import sqlglot
    from sqlglot import Token, TokenType, exp
    from sqlglot.errors import ParseError, SqlglotError
except ModuleNotFoundError as error:
    raise InvalidRequest(
        "a package is not installed", package=error.name, hint="pip install 'holdfast-lake[spark]'"
    ) from error

DIALECT = "spark"
_PLACE = re.compile(r"\d+:\d+")
_OPENINGS = re.compile(r"['\"`]|/\*")
_LITERALS = frozenset({TokenType.STRING, TokenType.NUMBER})


@dataclass(frozen=True, slots=True)
class ShowTables:
    pattern: str = ""
    """As in LIKE of SHOW: `*` stands for any text, `|` separates several."""


@dataclass(frozen=True, slots=True)
class Describe:
    table: exp.Table
    style: str = ""
    """`HISTORY`, `EXTENDED` or empty."""
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    procedure: str
    positional: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)


Statement = exp.Expr | ShowTables | Describe | Call


def parse_statement(text: str) -> Statement:
    """The one statement of a text."""
    tokens = [token for token in _tokens(text) if token.token_type is not TokenType.SEMICOLON]
    if not tokens:
        raise InvalidRequest("there is no statement", hint="write one, such as SELECT * FROM trips")
    first = tokens[0].text.upper()
    if first in ("SHOW", "CALL", "DESCRIBE", "DESC", "EXPLAIN", "SET", "USE", "RESET"):
        return _Reader(text, first).read()
    try:
        parsed = [one for one in sqlglot.parse(text, dialect=DIALECT) if one is not None]
    except ParseError as error:
        raise _unreadable(text, error) from error
    if len(parsed) != 1:
        raise InvalidRequest(
            "there is more than one statement", count=len(parsed), hint="run them one by one"
        )
    if isinstance(parsed[0], exp.Command):
        raise InvalidRequest("this statement is not supported", statement=first)
    return parsed[0]


def split_statements(text: str) -> list[str]:
    """The statements of a text, which semicolons separate."""
    found, start = [], 0
    for token in _tokens(text):
        if token.token_type is TokenType.SEMICOLON:
            found.append(text[start : token.start])
            start = token.end + 1
    found.append(text[start:])
    return [one.strip() for one in found if _has_words(one)]


def _has_words(text: str) -> bool:
    return any(token.token_type is not TokenType.SEMICOLON for token in _tokens(text))


def place_of(text: str, node: exp.Expr) -> dict[str, Any]:
    """Where something stands, as far as the parser kept it."""
    for each in node.find_all(exp.Identifier):
        if "start" in each.meta:
            return _place_at(text, each.meta["start"])
    return {}


def _tokens(text: str) -> list[Token]:
    try:
        return list(sqlglot.tokenize(text, dialect=DIALECT))
    except SqlglotError as error:
        raise _untokenizable(text, error) from error


def _untokenizable(text: str, error: SqlglotError) -> InvalidRequest:
    reason = _PLACE.sub("", str(error.__cause__ or error)).removesuffix(" from ").strip()
    return InvalidRequest("the statement cannot be read", **_open_end(text), cause=reason)


def _open_end(text: str) -> dict[str, Any]:
    """Where a text or a comment begins that does not end: what stands before it can be read."""
    for start in [match.start() for match in _OPENINGS.finditer(text)][::-1]:
        with suppress(SqlglotError):
            sqlglot.tokenize(text[:start], dialect=DIALECT)
            return _place_at(text, start)
    return {}


def _place_at(text: str, start: int) -> dict[str, Any]:
    return {"line": text.count("\n", 0, start) + 1, "column": start - text.rfind("\n", 0, start)}


def _unreadable(text: str, error: ParseError) -> InvalidRequest:
    first = error.errors[0] if error.errors else {}
    facts: dict[str, Any] = {}
    if first.get("line") is not None:
        word = first.get("highlight") or ""
        facts = {
            "line": first["line"],
            "column": max(1, first["col"] - len(word) + 1),
            "at": word or "its end",
        }
    return InvalidRequest(
        "the statement cannot be read", **facts, cause=first.get("description") or str(error)
    )


class _Reader:
    """Reads the statements that sqlglot leaves as they are."""

    def __init__(self, text: str, first: str) -> None:
        self._text, self._first = text, first
        # After such a word sqlglot takes the rest of the text for one token.
        start = text.upper().index(first)
        neutral = text[:start] + "_" * len(first) + text[start + len(first) :]
        self._tokens = [t for t in _tokens(neutral) if t.token_type is not TokenType.SEMICOLON]
        self._at = 1

    def read(self) -> Statement:
        match self._first:
            case "SHOW":
                statement: Statement = self._show()
            case "CALL":
                statement = self._call()
            case "DESCRIBE" | "DESC":
                statement = self._describe()
            case _:
                raise InvalidRequest("this statement is not supported", statement=self._first)
        if self._at < len(self._tokens):
            self._refuse("the end")
        return statement

    def _show(self) -> ShowTables:
        if not self._take("TABLES"):
            raise InvalidRequest(
                "this statement is not supported", statement="SHOW", hint="SHOW TABLES [LIKE 'pattern']"
            )
        if self._take("LIKE") or self._is_literal():
            return ShowTables(str(self._literal()))
        return ShowTables()

    def _describe(self) -> Describe:
        style = ""
        if self._take("HISTORY"):
            style = "HISTORY"
        else:
            self._take("TABLE")
            style = "EXTENDED" if self._take("EXTENDED") or self._take("FORMATTED") else ""
        table = self._table()
        limit = None
        if style == "HISTORY" and self._take("LIMIT"):
            given = self._literal()
            limit = given if isinstance(given, int) else self._refuse("a number")
        return Describe(table, style, limit)

    def _call(self) -> Call:
        name = self._word()
        while self._take("."):
            name = self._word()
        positional: list[object] = []
        named: dict[str, object] = {}
        self._expect("(")
        while not self._take(")"):
            if positional or named:
                self._expect(",")
            following = self._tokens[self._at + 1].text if self._at + 1 < len(self._tokens) else ""
            if following in ("=>", ":="):
                argument = self._word().lower()
                self._at += 1
                if argument in named:
                    raise InvalidRequest("an argument is given twice", argument=argument, procedure=name)
                named[argument] = self._literal()
            else:
                positional.append(self._literal())
        if positional and named:
            raise InvalidRequest("arguments are either all named or all in their order", procedure=name)
        return Call(name.lower(), tuple(positional), named)

    def _table(self) -> exp.Table:
        parts = [self._word()]
        while self._take("."):
            parts.append(self._word())
        named = dict(zip(("this", "db", "catalog"), reversed(parts[-3:]), strict=False))
        return exp.Table(**{part: exp.to_identifier(name, quoted=True) for part, name in named.items()})

    def _is_literal(self) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].token_type in _LITERALS

    def _literal(self) -> object:
        sign = -1 if self._take("-") else 1
        token = self._tokens[self._at] if self._at < len(self._tokens) else self._refuse("a value")
        self._at += 1
        if token.token_type is TokenType.STRING:
            return token.text
        if token.token_type is TokenType.NUMBER and token.text.isdigit():
            return sign * int(token.text)
        words: dict[str, object] = {"TRUE": True, "FALSE": False, "NULL": None}
        if token.text.upper() in words:
            return words[token.text.upper()]
        self._at -= 1
        return self._refuse("a text, a whole number, true, false or null")

    def _word(self) -> str:
        if self._at >= len(self._tokens):
            self._refuse("a name")
        self._at += 1
        return str(self._tokens[self._at - 1].text)

    def _take(self, word: str) -> bool:
        is_there = self._at < len(self._tokens) and self._tokens[self._at].text.upper() == word
        self._at += is_there
        return is_there

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._refuse(word)

    def _refuse(self, wanted: str) -> NoReturn:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            start = token.start
            at = token.text
        else:
            start, at = len(self._text), "its end"
        place = _place_at(self._text, start)
        raise InvalidRequest("the statement cannot be read", **place, at=at, wanted=wanted)


def names_in(parts: Sequence[exp.Expr]) -> str:
    return ".".join(part.name for part in parts)
