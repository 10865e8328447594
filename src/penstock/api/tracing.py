"""Trace a user's function: run it once over symbols and record what it computes.

A symbol is a `pk.Expr`, so a function can use all operations of expressions. Operations on plain Python values run
once, during tracing. An operation that cannot be traced (`if`, `float()`, a loop over a value) is an error that names
the line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from penstock.api.bind import refuse_depth
from penstock.api.expr import node_of
from penstock.errors import AggregateError, ExpressionTypeError, PenstockError
from penstock.expr import nodes
from penstock.expr.show import show

MOST_TRACED_NODES = 1_000

_INSTEAD = (
    "write pk.when(c).then(a).otherwise(b) instead of if, pk.least and pk.greatest instead of min and max"
)


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A user's function and its role; errors name the role, the file and the line."""

    role: str
    call: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise AggregateError(f"{self.role} is a {type(self.call).__name__}; it must be a function")

    @property
    def place(self) -> str:
        """The source location of the function."""
        code = _code(self.call)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else f"a {type(self.call).__name__}"

    def parameters(self) -> int:
        """Count the required parameters."""
        try:
            given = inspect.signature(self.call).parameters.values()
        except (TypeError, ValueError) as error:
            raise self.error(f"its parameters are not known; wrap it in a lambda ({error})") from error
        needed = [argument for argument in given if argument.default is argument.empty]
        odd = [
            parameter.name
            for parameter in needed
            if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        if odd:
            raise self.error(f"write its parameters out, one by one, instead of {', '.join(odd)}")
        return len(needed)

    def require(self, count: int, what: str) -> None:
        """Reject a function with another number of parameters."""
        found = self.parameters()
        if found != count:
            raise self.error(f"it takes {found} parameters instead of {count}: {what}")

    def error(self, says: str, place: str | None = None) -> AggregateError:
        """Return an error about the function, with its location."""
        return AggregateError(f"{self.role} ({place or self.place}): {says}")

    def trace(self, *args: object) -> object:
        """Call the function; convert an exception to an error with the line that raised it."""
        try:
            return self.call(*args)
        except Exception as error:
            raise self.error(_explained(error), self._line_of(error)) from error

    def _line_of(self, error: Exception) -> str:
        """Return the last executed line in the function's file, which may be in a helper."""
        code = _code(self.call)
        frames = [] if code is None else list(walk_tb(error.__traceback__))
        lines = [line for frame, line in frames if code and frame.f_code.co_filename == code.co_filename]
        return f"{code.co_filename}:{lines[-1]}" if code and lines else self.place

    def node(self, value: object, own: Iterable[Symbol]) -> nodes.Expr:
        """Convert a returned value to a node over columns: an expression over the function's symbols, or a constant."""
        try:
            node = node_of(value)
        except ExpressionTypeError as error:
            raise self.error(f"it returns a {type(value).__name__}; {error}") from error
        try:
            refuse_depth(node)
        except PenstockError as error:
            raise self.error(str(error)) from error
        if len(nodes.ordered(node)) > MOST_TRACED_NODES:
            raise self.error(
                f"it computes more than {MOST_TRACED_NODES} operations; pass parts of it as arguments"
            )
        self._refuse_foreign(node, frozenset(own))
        return nodes.rewrite(node, _column)

    def _refuse_foreign(self, node: nodes.Expr, own: frozenset[Symbol]) -> None:
        """Reject columns that are not symbols, even of the same name, and other aggregates."""
        for part in nodes.walk(node):
            if isinstance(part, nodes.Column) and part not in own:
                raise self.error(
                    f"it reads the column {show(part)}, but sees its parameters only: give add one more "
                    "parameter, and pass the column where the aggregate is used"
                )
            if isinstance(part, nodes.Aggregate):
                raise self.error(
                    f"it uses the aggregate {show(part)}; combine aggregates outside of each other"
                )


@dataclass(frozen=True, slots=True)
class Symbol(nodes.Column):
    """A column that stands for a parameter while a function is traced; columns and symbols of other traces differ from it."""

    trace: object


def symbols(columns: Iterable[nodes.Column]) -> list[Symbol]:
    """Return symbols for columns, distinct from those of any other trace."""
    trace = object()
    return [Symbol(column.name, trace) for column in columns]


def _column(node: nodes.Expr) -> nodes.Expr:
    return nodes.Column(node.name) if isinstance(node, Symbol) else node


def _code(function: Any) -> Any:
    """Return the code object of a function, a method, a partial or a callable object."""
    for attribute in ("func", "__func__", "__wrapped__"):
        function = getattr(function, attribute, function)
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)


def _explained(error: Exception) -> str:
    match error:
        case ExpressionTypeError():
            return f"{error}; {_INSTEAD}"
        case PenstockError():  # the message already says what to do
            return str(error)
        case TypeError() | AttributeError():
            return f"{type(error).__name__}: {error}; values here are symbols: expressions, like pk.col"
        case IndexError() | ValueError():
            return f"{type(error).__name__}: {error}; a state has as many components as init"
        case _:
            return f"{type(error).__name__}: {error}"
