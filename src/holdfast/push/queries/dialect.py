"""Pinot's SQL as a grammar: what is read, before anybody asks whether it is allowed.

Every function call stays a plain call under its own name, so that one table of
functions (`functions`) decides what each of them means.
"""

from typing import ClassVar

from sqlglot import Dialect, parser, tokens
from sqlglot.tokenizer_core import TokenType

_TYPES = {
    "LONG": TokenType.BIGINT,
    "STRING": TokenType.TEXT,
    "BYTES": TokenType.VARBINARY,
    "BIG_DECIMAL": TokenType.DECIMAL,
}
_KEYWORDS = {
    word: kind
    for word, kind in tokens.Tokenizer.KEYWORDS.items()
    # Hints and the braces of templates are no part of the language.
    if word not in ("/*+", "{%", "%}", "{{+", "{{-", "{{", "+}}", "-}}", "}}")
}


class Pinot(Dialect):
    NULL_ORDERING = "nulls_are_large"

    class Tokenizer(tokens.Tokenizer):
        VAR_SINGLE_TOKENS: ClassVar[set[str]] = {"$"}
        # Nothing is passed through as text that nobody has looked at.
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {**_KEYWORDS, **_TYPES}
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = {
            sign: kind for sign, kind in tokens.Tokenizer.SINGLE_TOKENS.items() if sign != "$"
        }

    class Parser(parser.Parser):
        FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in parser.Parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in ("CASE",)
        }
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in parser.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "EXTRACT")
        }
