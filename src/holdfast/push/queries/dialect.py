"""Pinot's SQL as a grammar, and DuckDB's as it is written; `admission` decides which statements are allowed.

Every function call stays a plain call under its own name, so that one table of
functions (`functions`) decides what each of them means.
"""

from typing import ClassVar

from sqlglot import Dialect, exp, generator, parser, tokens
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
        # No statement is passed through as plain text that was not parsed.
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

        def _parse_type(
            self, parse_interval: bool = True, fallback_to_identifier: bool = False
        ) -> exp.Expr | None:
            """`DATE(x)` is a call, whatever a type may take in brackets.

            The grammar would read it as a type first and then once more as a
            call, and so would whatever stands inside: twice as often for each
            pair of brackets.
            """
            is_type = self._curr is not None and self._curr.token_type in self.TYPE_TOKENS
            if is_type and self._next is not None and self._next.token_type is TokenType.L_PAREN:
                return self._parse_column()
            return super()._parse_type(parse_interval, fallback_to_identifier)


def _write_sort_key(generator: generator.Generator, node: exp.Ordered) -> str:
    direction = " DESC" if node.args.get("desc") else ""
    place = "FIRST" if node.args.get("nulls_first") else "LAST"
    return f"{generator.sql(node, 'this')}{direction} NULLS {place}"


def _write_list(generator: generator.Generator, node: exp.Array) -> str:
    return f"[{generator.expressions(node, flat=True)}]"


class Engine(Dialect):
    """How trees are written for engines: as the standard has it, with the place of nulls always said."""

    class Generator(generator.Generator):
        TRANSFORMS: ClassVar = {
            **generator.Generator.TRANSFORMS,
            exp.Ordered: _write_sort_key,
            exp.Array: _write_list,
        }


def write(tree: exp.Expr) -> str:
    """A tree that was built for an engine, as SQL."""
    return Engine().generate(tree, copy=False, comments=False, normalize_functions=False)
