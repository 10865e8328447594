"""The functions that build row expressions."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, overload

from penstock.api.expr import Expr, column_or_node, node_of
from penstock.api.literals import literal, shown
from penstock.api.signals.graph import pointwise
from penstock.api.signals.operators import Operators
from penstock.errors import ExpressionTypeError
from penstock.expr import nodes
from penstock.types.arrow import as_type

if TYPE_CHECKING:
    from penstock.api.signals.choice import SignalWhen
    from penstock.api.signals.signal import Signal

Value = Expr | str | float | bool | date | timedelta | None


def col(name: str) -> Expr:
    """Return the column of that name.

    >>> import penstock as pk
    >>> pk.col("value") + 1
    <Expr value + 1>
    """
    if not isinstance(name, str):
        raise ExpressionTypeError(f"a column is named by a string, not by {shown(name)}")
    return Expr(nodes.Column(name))


def lit(value: object, dtype: object = None) -> Expr:
    """Return a constant, of the type inferred from the value or of the given type.

    >>> import penstock as pk
    >>> pk.lit(3, "uint8") * pk.lit(0.5)
    <Expr 3 * 0.5>
    """
    return Expr(literal(value, None if dtype is None else as_type(dtype)))


class When:
    """A condition without its value; `then` follows."""

    __slots__ = ("_branches", "_condition")

    def __init__(self, branches: tuple[tuple[nodes.Expr, nodes.Expr], ...], condition: nodes.Expr) -> None:
        self._branches = branches
        self._condition = condition

    def then(self, value: object) -> Then:
        """Set the value for rows where the condition is true; strings are constants."""
        return Then((*self._branches, (self._condition, node_of(value))))


class Then(Expr):
    """A choice between values; null where no condition is true, unless `otherwise` is called."""

    __slots__ = ("_branches",)

    def __init__(self, branches: tuple[tuple[nodes.Expr, nodes.Expr], ...]) -> None:
        super().__init__(nodes.Case(branches, literal(None)))
        self._branches = branches

    def when(self, condition: object) -> When:
        """Add a condition for rows where all earlier conditions are not true."""
        return When(self._branches, column_or_node(condition))

    def otherwise(self, value: object) -> Expr:
        """Set the value for rows where no condition is true."""
        return Expr(nodes.Case(self._branches, node_of(value)))


@overload
def when(condition: Operators) -> SignalWhen: ...
@overload
def when(condition: Expr | str | bool | None) -> When: ...
def when(condition: object) -> When | SignalWhen:
    """Choose between values: `pk.when(c).then(a).when(d).then(b).otherwise(e)`.

    >>> import penstock as pk
    >>> pk.when(pk.col("v") > 0).then("up").otherwise("down")
    <Expr (when v > 0 then "up" else "down")>

    If a condition or value is a signal, the result is a signal, defined where its conditions are.
    """
    if isinstance(condition, Operators):
        from penstock.api.signals.choice import SignalWhen  # noqa: PLC0415 - loaded on first use

        return SignalWhen((), condition)
    return When((), column_or_node(condition))


@overload
def least(first: Operators, /, *values: object) -> Signal: ...
@overload
def least(*values: Value) -> Expr: ...
def least(*values: object) -> Expr | Signal:
    """Return the smallest value of each row, ignoring nulls; strings name columns.

    >>> import penstock as pk
    >>> pk.least("bid", pk.col("ask") - 1)
    <Expr least(bid, ask - 1)>

    For signals and constants, the result is a signal: the smallest value at each instant where all are defined.
    """
    return _of_many("least", values)


@overload
def greatest(first: Operators, /, *values: object) -> Signal: ...
@overload
def greatest(*values: Value) -> Expr: ...
def greatest(*values: object) -> Expr | Signal:
    """Return the largest value of each row, ignoring nulls; strings name columns.

    >>> import penstock as pk
    >>> pk.greatest("bid", 0)
    <Expr greatest(bid, 0)>

    For signals and constants, the result is a signal: the largest value at each instant where all are defined.
    """
    return _of_many("greatest", values)


def _of_many(function: str, values: tuple[object, ...]) -> Expr | Signal:
    if not values:
        raise ExpressionTypeError(f"{function} takes at least one value, such as the name of a column")
    if any(isinstance(value, Operators) for value in values):
        return pointwise(lambda *args: Expr(nodes.Call(function, tuple(map(node_of, args)))), values)
    return Expr(nodes.Call(function, tuple(column_or_node(value) for value in values)))
