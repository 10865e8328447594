"""Positions in the query text, and errors that report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.api.custom import CustomAggregate
from penstock.errors import PenstockError, SqlError

_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a query, for error positions, and the user-defined aggregates it may call, in lower case."""

    sql: str
    own: Mapping[str, CustomAggregate] = field(default_factory=dict, compare=False, repr=False)

    def place(self, start: int) -> str:
        r"""Return line and column of a position, both from 1.

        >>> Text("select a,\n  b").place(12)
        'line 2, column 3'
        """
        before = self.sql[:start]
        return f"line {before.count(chr(10)) + 1}, column {start - (before.rfind(chr(10)) + 1) + 1}"

    def error(self, message: str, node: exp.Expression | None = None) -> SqlError:
        """Return an error about a node of the tree."""
        span = None if node is None else span_of(node)
        return SqlError(message) if span is None else self.error_at(message, *span)

    def error_at(self, message: str, start: int, end: int) -> SqlError:
        """Return an error about a range of the text."""
        piece = self.sql[start : end + 1]
        shown = piece if len(piece) <= _SHOWN else piece[: _SHOWN - 3] + "..."
        return SqlError(f"{self.place(start)}, at {shown!r}: {message}")

    @contextmanager
    def at(self, node: exp.Expression) -> Iterator[None]:
        """Add the position of a node to errors of the fluent API."""
        try:
            yield
        except PenstockError as error:
            span = span_of(node)
            if span is None or isinstance(error, SqlError) or str(error).startswith("line "):
                raise
            raise type(error)(f"{self.place(span[0])}: {error}") from None


def span_of(node: exp.Expression) -> tuple[int, int] | None:
    """Return the first positioned word of a node, or of its closest parent that has one."""
    metas = [part.meta for part in node.walk() if part.meta.get("start") is not None]
    if metas:
        first = min(metas, key=lambda meta: int(meta["start"]))
        return int(first["start"]), int(first["end"])
    return None if node.parent is None else span_of(node.parent)
