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
from penstock.api.sql.source_span import Text
from penstock.api.sql.window_clauses import Clause, read_clause
from penstock.api.sql.window_functions import without_functions
from penstock.errors import SqlError

# --- The allow-list: the syntax nodes of streaming SQL, and their allowed arguments.
#
# The parser accepts far more than we translate, and stores it in arguments that are easy to overlook: a NOT, an
# ESCAPE, WITH TIES. So the whole tree is checked against this list first; everything else is rejected.

_BINARY = "Add Sub Mul And Or Xor Pow EQ NEQ LT LTE GT GTE NullSafeEQ NullSafeNEQ IntDiv Mod Is Filter WithinGroup Extract"
_UNARY = "Paren Neg Not IgnoreNulls RespectNulls From Where Having Ceil Floor TableAlias Var Boolean"
_LISTS = "With Group Order Distinct"
_PARTS = {
    **dict.fromkeys(_BINARY.split(), "this expression"),
    **dict.fromkeys(_UNARY.split(), "this"),
    **dict.fromkeys(_LISTS.split(), "expressions"),
    "Select": "expressions from_ joins where group having distinct order limit with_",
    "Union": "this expression distinct with_",
    "Subquery": "this alias with_",
    "CTE": "this alias",
    "Table": "this alias",
    "Join": "this side kind method on using",
    "Ordered": "this desc nulls_first",
    "Limit": "expression",
    "Alias": "this alias",
    "Column": "this table",
    "Dot": "this expression",
    "Identifier": "this quoted",
    "Literal": "this is_string",
    "Star": "",
    "Null": "",
    "Div": "this expression typed safe",
    "DPipe": "this expression safe",
    "Interval": "this unit",
    "In": "this expressions",
    "Between": "this low high",
    "Like": "this expression negate",
    "ILike": "this expression negate",
    "Case": "this ifs default",
    "If": "this true false",
    "Cast": "this to _type",
    "DataType": "this kind expressions",
    "DataTypeParam": "this",
    "Anonymous": "this expressions",
    "Trim": "this expression",
    "Substring": "this start length",
}
ALLOWED = {name: frozenset(parts.split()) for name, parts in _PARTS.items()}
_STATEMENT = "a query is a SELECT, or several with UNION ALL"
_ALONE = "behind a stream stand its window and its alias, nothing else"
_HINTS = {
    "Window": "OVER is not part of streaming SQL; put a window behind the stream, [range …], or use .rolling(...)",
    "Exists": "a sub-query stands in FROM only; join with it there",
    "In": "IN takes a list of values; join with the other stream instead of a sub-query",
    "Group": "GROUP BY takes values; GROUPING SETS, CUBE, ROLLUP and ALL are not part of streaming SQL",
    "Rollup": "GROUP BY takes values; ROLLUP is not part of streaming SQL",
    "Join": "joins take ON or USING",
    "Table": _ALONE,
    "TableAlias": "a name has no list of columns behind it here; name columns with AS in the SELECT list",
    "Distinct": "DISTINCT ON is not part of streaming SQL; use last(…) and GROUP BY",
    "Limit": "LIMIT takes a whole number of rows, and nothing further",
    "Star": "a star takes no EXCEPT, REPLACE or RENAME",
    "Column": "a column is called by its name, or by stream.name; fields of a struct follow it behind dots",
    "Trim": "TRIM takes characters off both ends; write trim(x), or trim(x, 'chars')",
    "Floor": "floor and ceil take one argument",
    "Ceil": "floor and ceil take one argument",
    "With": "WITH RECURSIVE is not part of streaming SQL",
    "Union": "behind UNION ALL stands nothing further; put it into a sub-query",
    "Subquery": "behind a sub-query stand its window and its name, nothing else",
    "Order": "inside an aggregate rows have the order of time; ORDER BY stands in WITHIN GROUP only",
    **dict.fromkeys(
        ("Except", "Intersect", "Insert", "Create", "Drop", "Command", "Update", "Delete"), _STATEMENT
    ),
}


def check(tree: exp.Expression, text: Text) -> None:
    """Reject every node, and every argument of a node, that is not allowed."""
    for node in tree.walk():
        name = type(node).__name__
        allowed = ALLOWED.get(name)
        further = (
            [] if allowed is None else [key for key, part in node.args.items() if part and key not in allowed]
        )
        if allowed is None or further:
            raise text.error(_reason(name, further), node)


def _reason(name: str, further: list[str]) -> str:
    if name in _HINTS:
        return _HINTS[name]
    if further:
        return f"{further[0].strip('_').upper()} is not part of streaming SQL here"
    return f"this syntax ({name}) is not part of streaming SQL"


# --- Distinguish fields of structs from columns of streams: both follow a dot.

_BOUNDS = ("start", "end")  # window.start names a bound of the window


def with_fields(tree: exp.Expression) -> exp.Expression:
    """Rewrite dotted names: `stream.column.field` and `column.field` become reads of a field of a column.

    The parser takes up to four names for a column with a table, a database and a catalog. The first name is a stream if
    FROM has one of that name.
    """
    for column in list(tree.find_all(exp.Column)):
        parts = column.parts
        own = 2 if len(parts) > 1 and _is_source(parts, column) else 1
        if len(parts) > own:
            column.replace(_read(parts, own))
    return tree


def _is_source(parts: list[exp.Expression], column: exp.Column) -> bool:
    first = parts[0].name.lower()
    window = first == "window" and len(parts) == 2 and parts[1].name.lower() in _BOUNDS
    return window or isinstance(parts[1], exp.Star) or first in _sources(column.find_ancestor(exp.Select))


def _sources(select: exp.Expression | None) -> set[str]:
    """Return the names of the streams in FROM, in lower case."""
    if select is None:
        return set()
    origin = select.args.get("from_")
    joins = select.args.get("joins") or []
    given = [*([] if origin is None else [origin]), *joins]
    return {item.this.alias_or_name.lower() for item in given}


def _read(parts: list[exp.Expression], own: int) -> exp.Expression:
    names = [part.copy() for part in parts]
    found: exp.Expression = exp.Column(this=names[own - 1], table=names[0] if own > 1 else None)
    for name in names[own:]:
        found = exp.Dot(this=found, expression=name)
    return found


def is_struct(column: exp.Column) -> bool:
    """Return whether a field of a column is read."""
    return isinstance(column.parent, exp.Dot) and column.parent.this is column


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
        raise SqlError("the text holds no query; write one, such as 'select * from events'")
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
        raise SqlError("the text holds no query; write one, such as 'select * from events'")
    for token in given:
        if token.token_type == TokenType.SEMICOLON:
            raise text.error_at("a text holds one query; call pk.sql once for each", token.start, token.end)
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
