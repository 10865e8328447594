"""Custom aggregates as data: a state, and expressions that update it.

    definition ::= init                  one literal for each component of the state
                   add(state, args)      the components after one more row
                   result(state)         the value of a window, from the state of its rows
                   merge(state, other)   the components of both states' rows; None: rows cannot be split
                   remove(state, args)   the components without the oldest row; None: rows cannot be removed

Expressions read the components as columns `state0, state1, …`, those of the other state as `other0, …` and
a row's arguments as `arg0, …`; nothing else is in scope, so they never read a user's column. A definition is
generic until `typed` binds it to argument types; `Plain` then runs it in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.caches import CACHES
from penstock.errors import ExpressionTypeError
from penstock.expr.arithmetic import convert
from penstock.expr.evaluate import evaluator
from penstock.expr.nodes import Call, Column, Expr, Literal, rewrite, walk
from penstock.expr.rules import NUMBER_KINDS, common_type
from penstock.expr.show import show
from penstock.expr.typing import null_as, operand_of, type_of, typed_nulls
from penstock.types.arrow import kind_of, value_type

Types = tuple[pa.DataType, ...]
State = tuple[Any, ...]
Row = tuple[Any, ...]


def state_column(place: int) -> Column:
    """Return the column of a component of the state."""
    return Column(f"state{place}")


def other_column(place: int) -> Column:
    """Return the column of a component of the other state in a merge."""
    return Column(f"other{place}")


def argument_column(place: int) -> Column:
    """Return the column of an argument of the current row."""
    return Column(f"arg{place}")


@dataclass(frozen=True, slots=True, repr=False)
class Definition:
    """A user-defined aggregate. Equal definitions are the same aggregate, wherever they are written.

    `commutative` means that the order of rows does not matter; `place` is the source location of the functions.
    `typed` sets the types of `args`, `state` and `value`.
    """

    arity: int
    init: tuple[Literal, ...]
    add: tuple[Expr, ...]
    result: Expr
    merge: tuple[Expr, ...] | None = None
    remove: tuple[Expr, ...] | None = None
    commutative: bool = False
    place: str = field(default="", compare=False)
    args: Types = ()
    state: Types = ()
    value: pa.DataType | None = None

    def __repr__(self) -> str:
        return f"{{add: {', '.join(map(show, self.add))}; result: {show(self.result)}}}"

    @property
    def steps(self) -> dict[str, tuple[Expr, ...]]:
        """The functions that return a new state, by name."""
        given = {"add": self.add, "merge": self.merge, "remove": self.remove}
        return {name: exprs for name, exprs in given.items() if exprs is not None}

    @property
    def scope(self) -> pa.Schema:
        """The columns that expressions may reference."""
        return _scope(self.state, self.args)

    @property
    def undoes(self) -> bool:
        """Whether `remove` is exact: floats keep rounding errors, and a null component stays null."""
        nodes = [node for exprs in self.steps.values() for expr in exprs for node in walk(expr)]
        floats = any(kind_of(dtype) == "float" for dtype in self.state)
        return self.remove is not None and not floats and not any(map(_may_make_null, (*nodes, *self.init)))

    def typed(self, args: Iterable[pa.DataType]) -> Definition:
        """Return the definition with all types derived from those of the arguments."""
        return _typed(self, tuple(map(value_type, args)))

    def reduce(self, rows: Iterable[Row], args: Iterable[pa.DataType]) -> Any:
        """Reduce a window's rows in order: the reference semantics."""
        plain = Plain(self.typed(args))
        return plain.result(plain.fold(rows))


@CACHES.results(most=256)
def _typed(definition: Definition, args: Types) -> Definition:
    """Infer the types of state and result: those of `init`, widened until `add`, `merge` and `remove` fit."""
    try:
        return _with_types(definition, args)
    except ExpressionTypeError as error:
        raise ExpressionTypeError(f"{error} (in the aggregate defined at {definition.place})") from error


def _with_types(definition: Definition, args: Types) -> Definition:
    for place, arg in enumerate(args):
        _require_number(argument_column(place), arg)
    state = _state_types(definition, args)
    scope = _scope(state, args)
    resolved = _resolved(definition, state, scope)
    for expr in _expressions(resolved):
        for node in walk(expr):
            _require_number(node, type_of(node, scope))
    return replace(resolved, args=args, state=state, value=type_of(resolved.result, scope))


def _scope(state: Types, args: Types) -> pa.Schema:
    kinds = ((state_column, state), (other_column, state), (argument_column, args))
    return pa.schema([(name(i).name, dtype) for name, types in kinds for i, dtype in enumerate(types)])


def _expressions(definition: Definition) -> Iterator[Expr]:
    yield from (expr for exprs in definition.steps.values() for expr in exprs)
    yield definition.result


def _require_number(expr: Expr, dtype: pa.DataType) -> None:
    """Reject types that aggregate kernels do not support: strings, times, and untyped nulls."""
    if kind_of(dtype) not in NUMBER_KINDS:
        raise ExpressionTypeError(
            f"custom aggregates compute with numbers and booleans, but {show(expr)} is {dtype}; pass a text "
            'as a comparison (pk.col("kind") == "view") and a time as ticks (pk.col("ts").dt.epoch())'
        )
    if isinstance(expr, Call) and expr.function == "truncate":
        raise ExpressionTypeError(f"truncate is for times; write x - x % every, in: {show(expr)}")


def _may_make_null(node: Expr) -> bool:
    """Return whether a node can be null though its operands are not: a null literal, or an integer division by zero."""
    match node:
        case Literal(value=None) | Call(function="floordiv" | "mod" | "quotient" | "remainder"):
            return True
        case _:
            return False


# --- state types ------------------------------------------------------------------------------------------


def _state_types(definition: Definition, args: Types) -> Types:
    """Widen the state types to a fixpoint: null < bool and integers < float64, so this terminates."""
    types = tuple(_widest(literal.type) for literal in definition.init)
    while (wider := _widened(definition, types, _scope(types, args))) != types:
        types = wider
    for place, dtype in enumerate(types):
        if kind_of(dtype) == "null":
            raise ExpressionTypeError(
                f"component {place} of the state is null in init and never anything else; leave it out, or let add give it a value"
            )
    return types


def _widest(dtype: pa.DataType) -> pa.DataType:
    match kind_of(dtype):
        case "int":
            return pa.int64()
        case "uint":
            return pa.uint64()
        case "float":
            return pa.float64()
        case _:
            return dtype


def _widened(definition: Definition, types: Types, scope: pa.Schema) -> Types:
    return tuple(_joined(definition, place, dtype, scope) for place, dtype in enumerate(types))


def _joined(definition: Definition, place: int, own: pa.DataType, scope: pa.Schema) -> pa.DataType:
    """Return the type that holds a component before and after every step."""
    joined = own
    for name, exprs in definition.steps.items():
        new = type_of(exprs[place], scope)
        common = common_type([operand_of(state_column(place), joined), operand_of(exprs[place], new)])
        if common is None:
            raise ExpressionTypeError(
                f"component {place} of the state is {joined}, but {name} makes it {new}: {show(exprs[place])}; "
                "let init be of that type, or convert with .cast(...)"
            )
        joined = common
    return joined


def _resolved(definition: Definition, state: Types, scope: pa.Schema) -> Definition:
    """Give every untyped null the type of its context."""

    def resolve(expr: Expr) -> Expr:
        return rewrite(expr, lambda node: typed_nulls(node, scope))

    def components(exprs: tuple[Expr, ...] | None) -> tuple[Expr, ...] | None:
        if exprs is None:
            return None
        return tuple(null_as(resolve(expr), dtype, scope) for expr, dtype in zip(exprs, state, strict=True))

    return replace(
        definition,
        init=tuple(_converted(literal, dtype) for literal, dtype in zip(definition.init, state, strict=True)),
        add=components(definition.add) or (),
        merge=components(definition.merge),
        remove=components(definition.remove),
        result=resolve(definition.result),
    )


def _converted(literal: Literal, dtype: pa.DataType) -> Literal:
    return Literal(convert(literal.value, literal.type, dtype), dtype)


# --- reference implementation -----------------------------------------------------------------------------


class Plain:
    """A typed definition as functions of Python values: the reference for compiled code."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self.init: State = tuple(literal.value for literal in definition.init)
        self._result = evaluator(definition.result, definition.scope)
        self._steps = {name: self._step(exprs) for name, exprs in definition.steps.items()}

    def _step(self, exprs: Sequence[Expr]) -> Callable[[dict[str, Any]], State]:
        scope = self._definition.scope
        parts = [
            (evaluator(expr, scope), type_of(expr, scope), dtype)
            for expr, dtype in zip(exprs, self._definition.state, strict=True)
        ]
        return lambda row: tuple(convert(value(row, ()), source, goal) for value, source, goal in parts)

    def add(self, state: State, row: Row) -> State:
        """Add a row without null arguments."""
        return self._steps["add"](_named(state_column, state) | _named(argument_column, row))

    def remove(self, state: State, row: Row) -> State:
        """Remove the oldest row."""
        return self._steps["remove"](_named(state_column, state) | _named(argument_column, row))

    def merge(self, state: State, other: State) -> State:
        """Merge the states of two runs of rows."""
        return self._steps["merge"](_named(state_column, state) | _named(other_column, other))

    def result(self, state: State) -> Any:
        """Return the value of a state."""
        return self._result(_named(state_column, state), ())

    def fold(self, rows: Iterable[Row], state: State | None = None) -> State:
        """Add rows in order; skip rows with a null argument."""
        folded = self.init if state is None else state
        for row in rows:
            folded = folded if None in row else self.add(folded, row)
        return folded


def _named(column: Callable[[int], Column], values: Sequence[Any]) -> dict[str, Any]:
    return {column(place).name: value for place, value in enumerate(values)}
