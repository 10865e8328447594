"""Parse query text to a syntax tree and its window clauses.

The parser does not support window clauses. They are removed from the token list first, and stored under the
position of the preceding word: the name or the alias of a stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from penstock.api.custom import CustomAggregate
from penstock.api.sql.grammar import check
from penstock.api.sql.source_span import Text
from penstock.api.sql.struct_fields import with_fields
from penstock.api.sql.window_clauses import Clause, read_clause
from penstock.api.sql.window_functions import without_functions
from penstock.errors import SqlError

LONGEST_TEXT = 1_000_000
_BEGINNINGS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)
_FUNCTIONS = ("window", "session")
_MISSING = re.compile(r"Required keyword: '\w+' missing for <class '(?:\w+\.)*(\w+)'>")
WITH_SYNTAX = ("CAST", "EXTRACT", "TRIM", "SUBSTRING", "CEIL", "FLOOR")


class Streaming(Dialect):
    """Standard SQL in which every function is a name with arguments; our catalogues define their meaning."""

    class Tokenizer(tokens.Tokenizer):
        """Adds `//`, and names in backquotes, as in Spark and Flink."""

        IDENTIFIERS = ['"', "`"]  # noqa: RUF012 - sqlglot's way to define dialects
        KEYWORDS = {  # noqa: RUF012
            **tokens.Tokenizer.KEYWORDS,
            "//": TokenType.DIV,
            "INT8": TokenType.BIGINT,  # bytes, as in INT2 and INT4
        }

    class Parser(parser.Parser):
        """Keeps only functions with special syntax."""

        FUNCTIONS: dict[str, Any] = {}  # noqa: RUF012
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: made for name, made in parser.Parser.FUNCTION_PARSERS.items() if name in WITH_SYNTAX
        }
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}  # noqa: RUF012
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            name: made
            for name, made in parser.Parser.NO_PAREN_FUNCTION_PARSERS.items()
            if name in ("CASE", "IF")
        }


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query: its tree, and its window clauses by position of the word before them."""

    text: Text
    tree: exp.Expression
    clauses: Mapping[int, Clause]


def read(sql: object, own: Mapping[str, CustomAggregate] | None = None) -> ParsedQuery:
    """Parse one query, which may call user-defined aggregates."""
    if not isinstance(sql, str):
        raise SqlError(f"a query is a text, not a {type(sql).__name__}")
    if len(sql) > LONGEST_TEXT:
        raise SqlError(f"the query has {len(sql):,} characters; {LONGEST_TEXT:,} are the most")
    if any("\ud800" <= character <= "\udfff" for character in sql):
        raise SqlError("the text holds half a character (a lone surrogate)")
    text = Text(sql, own or {})
    plain, functions = without_functions(_one_query(_tokens(text), text), text)
    found, clauses = _without_windows(_plain_names(plain), functions, text)
    (tree,) = _parsed(_relations_first(found), text)
    if tree is None:
        raise SqlError("the text holds no query")
    tree = with_fields(tree)
    check(tree, text)
    return ParsedQuery(text, tree, clauses)


def _tokens(text: Text) -> list[Token]:
    try:
        return list(Streaming().tokenize(text.sql))
    except (TokenError, ValueError, IndexError) as error:
        raise SqlError(
            f"the text cannot be cut into words: a quote or comment is left open ({_first_line(error)})"
        ) from None


def _one_query(given: list[Token], text: Text) -> list[Token]:
    """Reject text that is not a single query before parsing: the parser logs the text of unknown statements."""
    while given and given[-1].token_type == TokenType.SEMICOLON:
        given = given[:-1]
    if not given:
        raise SqlError("the text holds no query")
    for token in given:
        if token.token_type == TokenType.SEMICOLON:
            raise text.error_at("a text holds one query", token.start, token.end)
    if given[0].token_type not in _BEGINNINGS:
        raise text.error_at("a query is a SELECT, or several with UNION ALL", given[0].start, given[0].end)
    return given


def _plain_names(given: list[Token]) -> list[Token]:
    """Let window(…) and session(…) be functions; the parser treats both as keywords."""
    names = {
        place for place, token in enumerate(given[:-1]) if given[place + 1].token_type == TokenType.L_PAREN
    }
    return [
        _word(TokenType.VAR, token.text, token)
        if place in names and token.text.lower() in _FUNCTIONS
        else token
        for place, token in enumerate(given)
    ]


def _parsed(found: list[Token], text: Text) -> Sequence[exp.Expression | None]:
    try:
        trees: list[exp.Expression | None] = Streaming().parser().parse(found, text.sql)
    except ParseError as error:
        raise _refused(error, text) from None
    except RecursionError:
        raise SqlError("the query is nested too deeply; name its parts in a WITH clause") from None
    except Exception as error:  # noqa: BLE001 - any failure of the external parser is an error of the text
        raise SqlError(f"the text is not a query that can be read ({type(error).__name__})") from None
    return trees


def _refused(error: ParseError, text: Text) -> SqlError:
    first = error.errors[0] if error.errors else {}
    what = _described(str(first.get("description") or "this cannot be read"))
    line, column = first.get("line"), first.get("col")
    if line is None or column is None:
        return SqlError(f"the text is not a query: {what}")
    piece = str(first.get("highlight") or "")[:40]
    return SqlError(f"line {line}, column {max(int(column) - len(piece) + 1, 1)}, at {piece!r}: {what}")


def _described(description: str) -> str:
    """Translate the parser's message from its class names to SQL terms."""
    missing = _MISSING.match(description)
    if missing is not None:
        return f"a part of {missing[1].upper()} is missing here"
    return description.partition(" but got <")[0].rstrip(".")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:80]


# --- windows ----------------------------------------------------------------------------------------


def _without_windows(
    given: list[Token], functions: Mapping[int, Clause], text: Text
) -> tuple[list[Token], dict[int, Clause]]:
    """Remove the bracketed clauses, and store each, beside those of functions, under the position of its name."""
    kept: list[Token] = []
    clauses = dict(functions)
    rest = list(reversed(given))
    while rest:
        token = rest.pop()
        if token.token_type != TokenType.L_BRACKET:
            kept.append(token)
            continue
        inside, end = _bracketed(token, rest, text)
        clause = read_clause(inside, token.start, end, text)
        anchor = _anchor(kept, rest)
        if anchor is None or anchor in clauses:
            raise text.error_at("a window stands behind the name of a stream, in FROM", token.start, end)
        clauses[anchor] = clause
    return kept, clauses


def _bracketed(opening: Token, rest: list[Token], text: Text) -> tuple[list[Token], int]:
    inside: list[Token] = []
    while rest:
        token = rest.pop()
        if token.token_type == TokenType.R_BRACKET:
            return inside, token.end
        inside.append(token)
    raise text.error_at("this bracket is not closed", opening.start, opening.end)


def _anchor(before: list[Token], rest: list[Token]) -> int | None:
    """Return the position of the word before a window; after a sub-query, of the alias that follows."""
    if not before:
        return None
    if before[-1].token_type != TokenType.R_PAREN:
        return int(before[-1].start)
    follows = [token for token in reversed(rest[-2:]) if token.token_type != TokenType.ALIAS]
    return int(follows[0].start) if follows else None


# --- SABER's leading relations ------------------------------------------------------------------------


def _relations_first(given: list[Token]) -> list[Token]:
    """Rewrite SABER's `(query) as R select … from R` to `with R as (query) select … from R`."""
    named: list[Token] = []
    rest = given
    while (cut := _relation(rest)) is not None:
        body, name, rest = cut
        alias = _word(TokenType.ALIAS, "AS", name)
        comma = [_word(TokenType.COMMA, ",", name)] if named else []
        named += [*comma, name, alias, *body]
    if not named:
        return given
    return [_word(TokenType.WITH, "WITH", given[0]), *named, *rest]


def _relation(given: list[Token]) -> tuple[list[Token], Token, list[Token]] | None:
    """Split `(…) as name` off the front, if a query follows it."""
    if not given or given[0].token_type != TokenType.L_PAREN:
        return None
    depth = 0
    for place, token in enumerate(given):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            after = given[place + 1 :]
            if len(after) > 2 and after[0].token_type == TokenType.ALIAS and _begins(after[2]):
                return given[: place + 1], after[1], after[2:]
            return None
    return None


def _begins(token: Token) -> bool:
    return token.token_type in (TokenType.SELECT, TokenType.L_PAREN)


def _word(kind: TokenType, text: str, near: Token) -> Token:
    return Token(kind, text, line=near.line, col=near.col, start=near.start, end=near.end)
