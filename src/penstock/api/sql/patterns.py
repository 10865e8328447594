"""LIKE: the patterns that prefixes, suffixes and substrings can tell."""

from __future__ import annotations

from sqlglot import exp

from penstock.api.expr import Expr
from penstock.api.sql.places import Text


def like(value: Expr, node: exp.Expression, text: Text) -> Expr:
    """Translate LIKE and ILIKE of a constant pattern with `%` at its ends, or once inside."""
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise text.error("LIKE takes a pattern in quotes", node)
    pattern = str(node.expression.this)
    if isinstance(node, exp.ILike):
        value, pattern = value.str.to_lowercase(), pattern.lower()
    parts = pattern.split("%")
    if "_" in pattern or "\\" in pattern or len([each for each in parts[1:-1] if each]) > 1:
        raise text.error(
            "of LIKE, patterns such as 'abc%', '%abc', '%abc%' and 'ab%yz' are known; no _ and no escapes",
            node,
        )
    return _matched(value, parts, node, text)


def _matched(value: Expr, parts: list[str], node: exp.Expression, text: Text) -> Expr:
    if len(parts) == 1:
        return value == parts[0]
    first, last = parts[0], parts[-1]
    inner = [each for each in parts[1:-1] if each]
    if inner and (first or last):
        raise text.error("a pattern with a text between two % has nothing before and after them here", node)
    if inner:
        return value.str.contains(inner[0], literal=True)
    ends = [value.str.starts_with(first)] if first else []
    ends += [value.str.ends_with(last)] if last else []
    if not ends:  # any text matches; null stays null
        return value.str.len_chars() >= 0
    long_enough = value.str.len_chars() >= len(first) + len(last)
    return ends[0] if len(ends) == 1 else ends[0] & ends[1] & long_enough
