"""User-defined aggregates: plain Python functions over a state, traced once and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.api.arguments import flag
from penstock.api.expr import Expr, column_or_node
from penstock.api.literals import literal
from penstock.api.tracing import TracedFunction, symbols
from penstock.errors import AggregateError, ExpressionTypeError
from penstock.expr import nodes
from penstock.expr.custom import Definition, argument_column, other_column, state_column
from penstock.expr.rules import NUMBER_KINDS
from penstock.types.arrow import kind_of

MOST_COMPONENTS = 32


def aggregate(
    init: object,
    add: Callable[..., object],
    result: Callable[..., object],
    merge: Callable[..., object] | None = None,
    remove: Callable[..., object] | None = None,
    *,
    commutative: bool | None = None,
) -> CustomAggregate:
    """Define an aggregate: an initial state, a function that adds a row, and a function that returns the result.

    `init` is the state before any row: a number, a bool or None, or a flat tuple of these. `add(state, x, …)` returns
    the state after a row; it takes as many arguments as the aggregate. `result(state)` returns the value of a
    window. Rows with a null argument are skipped.

    `merge(state, other)` combines the states of two runs of rows, which lets windows and threads share work;
    `remove(state, x, …)` removes the oldest row. Give them only if they agree with `add`; `pk.check_aggregate`
    tests this. With `merge`, the order of rows is assumed not to matter, unless `commutative=False` states that
    the second state's rows follow the first's.

    The functions are called once, with symbols: use the operators and methods of `pk.Expr`, `pk.when`,
    `pk.least` and `pk.greatest`.

    >>> import pyarrow as pa, penstock as pk
    >>> rms = pk.aggregate(
    ...     init=(0.0, 0),
    ...     add=lambda s, x: (s[0] + x * x, s[1] + 1),
    ...     result=lambda s: (s[0] / s[1]).sqrt(),
    ...     merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ... )
    >>> table = pa.table({"t": [0, 1, 10], "v": [3.0, 4.0, 5.0]})
    >>> pk.from_arrow(table, time="t").window(20).agg(rms=rms("v"), peak=pk.max("v") / rms("v")).collect()["rms"][0]
    <pyarrow.DoubleScalar: 4.08248290463863>
    """
    state = _State(init)
    functions = {"add": TracedFunction("add", add), "result": TracedFunction("result", result)}
    functions |= {
        role: TracedFunction(role, call)
        for role, call in (("merge", merge), ("remove", remove))
        if call is not None
    }
    arity = max(functions["add"].parameters() - 1, 0)
    traced = {role: _traced(function, state, arity) for role, function in functions.items()}
    definition = Definition(
        arity,
        state.init,
        traced["add"],
        traced["result"][0],
        traced.get("merge"),
        traced.get("remove"),
        merge is not None if commutative is None else flag(commutative, "commutative"),
        functions["add"].place,
    )
    return CustomAggregate(definition)


class CustomAggregate:
    """An aggregate defined by `pk.aggregate`: call it with columns, as `pk.sum` is called."""

    __slots__ = ("_definition",)

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    @property
    def definition(self) -> Definition:
        """The expressions of the functions."""
        return self._definition

    def __call__(self, *args: object, where: object = None) -> Expr:
        """Aggregate a window's rows, or those for which `where` is true."""
        if len(args) != self._definition.arity:
            raise ExpressionTypeError(
                f"this aggregate takes {self._definition.arity} arguments, as add does behind the state, "
                f"not {len(args)} (defined at {self._definition.place})"
            )
        condition = None if where is None else column_or_node(where)
        options = (("definition", self._definition),)
        return Expr(nodes.Aggregate("custom", tuple(map(column_or_node, args)), condition, options))

    def __repr__(self) -> str:
        return f"<aggregate {self._definition!r}>"


class _State:
    """The shape of a state: one value, or a (named) tuple of values."""

    def __init__(self, init: object) -> None:
        self._make = getattr(type(init), "_make", tuple) if isinstance(init, tuple) else None
        given = init if isinstance(init, tuple) else (init,)
        if not 0 < len(given) <= MOST_COMPONENTS:
            raise AggregateError(f"init has {len(given)} components; a state has 1 to {MOST_COMPONENTS}")
        self.init = tuple(map(_initial, given))

    def symbol(self, columns: Sequence[nodes.Column]) -> object:
        """Return the symbols of a state in its shape."""
        values = list(map(Expr, columns))
        return values[0] if self._make is None else self._make(values)

    def components(self, function: TracedFunction, value: object) -> Sequence[object]:
        """Split a state that a function returned into its components."""
        if self._make is None:
            if isinstance(value, tuple | list):
                raise function.error(f"it returns {len(value)} values, but init is a single one")
            return (value,)
        if not isinstance(value, tuple | list):
            raise function.error(
                f"it returns a {type(value).__name__}, but init is a tuple of {len(self.init)}: return one like it"
            )
        if len(value) != len(self.init):
            raise function.error(f"it returns {len(value)} components, but init has {len(self.init)}")
        return value


def _initial(value: object) -> nodes.Literal:
    try:
        found = literal(value)
    except ExpressionTypeError as error:
        raise AggregateError(f"init holds a {type(value).__name__}; {error}") from error
    if kind_of(found.type) not in NUMBER_KINDS | {"null"}:
        raise AggregateError(
            f"init holds a {type(value).__name__}; a state is made of numbers, bools and None"
        )
    return found


_SHAPES: dict[str, Any] = {
    "add": "the state, then the aggregate's arguments",
    "remove": "the state, then the aggregate's arguments",
    "merge": "two states",
    "result": "the state",
}


def _traced(function: TracedFunction, state: _State, arity: int) -> tuple[nodes.Expr, ...]:
    """Trace one of the functions; return the expressions of its result."""
    places = range(len(state.init))
    own = symbols(map(state_column, places))
    others = symbols(map(other_column, places))
    rows = symbols(map(argument_column, range(arity)))
    match function.role:
        case "result":
            columns, args = own, [state.symbol(own)]
        case "merge":
            columns, args = [*own, *others], [state.symbol(own), state.symbol(others)]
        case _:
            columns, args = [*own, *rows], [state.symbol(own), *map(Expr, rows)]
    function.require(len(args), _SHAPES[function.role])
    value = function.trace(*args)
    parts = (value,) if function.role == "result" else state.components(function, value)
    return tuple(function.node(part, columns) for part in parts)
