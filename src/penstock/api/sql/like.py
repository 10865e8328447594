"""LIKE: patterns as prefix, suffix or substring tests, else as regular expressions."""

from __future__ import annotations

from sqlglot import exp

from penstock.api.expr import Expr
from penstock.api.sql.source_span import Text
from penstock.expr import text as regex


def like(value: Expr, node: exp.Expression, text: Text) -> Expr:
    """Translate LIKE and ILIKE of a constant pattern: `%` matches any text, `_` one character."""
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise text.error("LIKE takes a pattern in quotes", node)
    pattern = str(node.expression.this)
    if "\\" in pattern:
        raise text.error(
            "LIKE has no escapes; search for % _ and \\ themselves with contains(x, '50%')", node
        )
    if isinstance(node, exp.ILike):
        value, pattern = value.str.to_lowercase(), pattern.lower()
    return _matched(value, pattern)


def _matched(value: Expr, pattern: str) -> Expr:
    """Use prefix, suffix or substring tests, which are compiled, if they suffice; else a regular expression."""
    parts = pattern.split("%")
    first, inner, last = parts[0], [part for part in parts[1:-1] if part], parts[-1]
    if "_" in pattern or len(inner) > 1 or (inner and (first or last)):
        return value.str.contains(_expression(pattern))
    if len(parts) == 1:
        return value == pattern
    if inner:
        return value.str.contains(inner[0], literal=True)
    ends = [value.str.starts_with(first)] if first else []
    ends += [value.str.ends_with(last)] if last else []
    if not ends:  # matches any text; null stays null
        return value.str.len_chars() >= 0
    long_enough = value.str.len_chars() >= len(first) + len(last)
    return ends[0] if len(ends) == 1 else ends[0] & ends[1] & long_enough


def _expression(pattern: str) -> str:
    """Convert a pattern to a regular expression over the whole text, in which `.` also matches newlines."""
    meaning = {"%": ".*", "_": "."}
    return (
        r"(?s)\A"
        + "".join(meaning.get(character) or regex.quoted(character) for character in pattern)
        + r"\z"
    )
