"""Distinguish fields of structs from columns of streams: both follow a dot."""

from __future__ import annotations

from sqlglot import exp

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
