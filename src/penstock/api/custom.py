"""User-defined aggregates: plain Python functions over a state, traced once and compiled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from penstock.api.bind import refuse_depth
from penstock.api.expr import Expr, column_or_node, node_of
from penstock.api.literals import flag, literal
from penstock.errors import AggregateError, ExpressionTypeError, PenstockError
from penstock.expr import nodes
from penstock.expr.custom import Definition, argument_column, other_column, state_column
from penstock.expr.rules import NUMBER_KINDS
from penstock.expr.show import show
from penstock.types.arrow import kind_of

# --- Trace a user's function: run it once over symbols and record what it computes.
#
# A symbol is a `pk.Expr`, so a function can use all operations of expressions. Operations on plain Python values run
# once, during tracing. An operation that cannot be traced (`if`, `float()`, a loop over a value) is an error that names
# the line.

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
                    f"it reads the column {show(part)}, but has its parameters only: give add one more "
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
