"""Nullable values inside kernels, and the scope of an expression while it is lowered, with its error reporting.

The translations of functions (`arithmetic.py`, `logic.py`, `calendar.py`) depend on nothing else of the kernel.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions import calendar
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, I64, I128, Const, Literal, Type, Unary, Value, const, select
from penstock.loop.numbers import embeds, fits, limits, machine_type


@dataclass(frozen=True, slots=True)
class Cell:
    """A value and its validity. `valid` is None if the value is never null; no null check is then generated."""

    value: Value
    valid: Value | None = None


def both(*cells: Cell) -> Value | None:
    """Return the validity of a result that is null if any operand is null."""
    masks = [cell.valid for cell in cells if cell.valid is not None]
    if not masks:
        return None
    result = masks[0]
    for mask in masks[1:]:
        if mask != result:
            result = result & mask
    return result


def is_true(cell: Cell) -> Value:
    """Return a predicate's value for a filter: null is false."""
    return cell.value if cell.valid is None else cell.value & cell.valid


def narrow(valid: Value | None, also: Value) -> Value:
    """Restrict a validity by a further condition."""
    return also if valid is None else valid & also


def conjunction(a: Value | None, b: Value | None) -> Value | None:
    """Return the conjunction of two conditions; None means always true."""
    return b if a is None else a if b is None else a & b


def disjunction(conditions: Sequence[Value]) -> Value | None:
    """Return the disjunction of conditions, nested as little as possible; None if there are none."""
    found = list(conditions)
    while len(found) > 1:
        pairs = [one | other for one, other in zip(found[::2], found[1::2], strict=False)]
        found = pairs + found[2 * len(pairs) :]
    return found[0] if found else None


def is_nan(value: Value) -> Value:
    return value.ne(value)


def _surely_not_nan(value: Value) -> bool:
    return isinstance(value, Const | Literal) and not math.isnan(value.value)


def less(a: Value, b: Value) -> Value:
    """Return a < b in the total order in which NaN is the greatest value and equals itself."""
    if not a.type.is_float:
        return a < b
    if _surely_not_nan(b):
        return a < b
    if _surely_not_nan(a):
        return ~(b <= a)
    return (a < b) | (is_nan(b) & a.eq(a))


def equal(a: Value, b: Value) -> Value:
    """Return a = b in the same order."""
    if not a.type.is_float or _surely_not_nan(a) or _surely_not_nan(b):
        return a.eq(b)
    return a.eq(b) | (is_nan(a) & is_nan(b))


def smaller(a: Value, b: Value) -> Value:
    """Return the smaller of two values in that order, the first of equals.

    The first select is one vector instruction. Its result is NaN only if the other value is the correct one.
    """
    chosen = select(b < a, b, a)
    if not a.type.is_float or _surely_not_nan(a):
        return chosen
    return select(is_nan(chosen), b, chosen)


def larger(a: Value, b: Value) -> Value:
    """Return the larger of two values in that order, the first of equals."""
    chosen = select(a < b, b, a)
    if not b.type.is_float or _surely_not_nan(b):
        return chosen
    return select(is_nan(b), b, chosen)


def negate(value: Value) -> Value:
    return const(not value.value, BOOL) if isinstance(value, Const) else Unary("not", value)


@dataclass(slots=True)
class Lowered:
    """A lowered expression, and the condition under which it fails: None if it never does, or is reported already.

    The condition does not depend on where the expression is used, so all uses share it, as they share the value.
    """

    cell: Cell
    failure: Value | None = None


@dataclass
class Scope(ABC):
    """Everything an expression may refer to while it is lowered into kernel `k`.

    `column` returns the cell of a column in the current row; `text_equals` compares a text column with a
    literal; `valid_at` tests a column of any type for null without reading its value; `on_error` records an
    condition. `failures` collects error conditions where they count conditionally; None where they are reported at once.
    """

    k: KernelBuilder
    schema: pa.Schema
    column: Callable[[str], Cell]
    on_error: Callable[[Value], None]
    text_equals: Callable[[str, str], Cell]
    valid_at: Callable[[str], Value | None] | None = None
    reduced: Sequence[Cell] = ()
    reduced_types: Sequence[pa.DataType] = ()
    failures: list[Value] | None = None
    known: dict[ex.Expr, Lowered] = field(default_factory=dict)

    @abstractmethod
    def lower(self, expr: ex.Expr) -> Cell:
        """Lower an expression once; equal subexpressions share the result."""

    @contextmanager
    def under(self, condition: Value) -> Iterator[None]:
        """Lower expressions whose errors count only where a condition holds; values are computed on every row."""
        outer, self.failures = self.failures, []
        yield
        failure = self.any_of(self.failures)
        self.failures = outer
        if failure is not None:
            self.fail(failure & condition)

    def fail(self, condition: Value) -> None:
        """Report the condition under which a row is an error."""
        if self.failures is None:
            self.on_error(condition)
        else:
            self.failures.append(condition)

    def any_of(self, conditions: Sequence[Value]) -> Value | None:
        """Bind the disjunction of conditions to a variable; None if there are none."""
        found: Value | None = None
        for condition in conditions:
            found = self.k.var("failed", condition if found is None else found | condition)
        return found

    def valid(self, expr: ex.Expr) -> Value | None:
        """Return whether an expression is not null (None: never null); a column's value is not read for that."""
        if isinstance(expr, ex.Column) and self.valid_at is not None:
            return self.valid_at(expr.name)
        return self.lower(expr).valid

    def type_of(self, expr: ex.Expr) -> pa.DataType:
        return type_of(expr, self.schema, self.reduced_types)

    def machine_of(self, expr: ex.Expr) -> Type:
        return computed_type(self.type_of(expr))

    def bind(self, cell: Cell) -> Cell:
        """Bind a cell's parts to variables, so that repeated uses compute them once."""
        value = cell.value if isinstance(cell.value, Const | Literal) else self.k.var("v", cell.value)
        valid = cell.valid
        if valid is not None and not isinstance(valid, Const):
            valid = self.k.var("ok", valid)
        return Cell(value, valid)

    def lower_as(self, expr: ex.Expr, dtype: pa.DataType) -> Cell:
        """Convert implicitly to the common type of several values."""
        cell, goal = self.lower(expr), computed_type(dtype)
        factor = calendar.finer(self.type_of(expr), dtype)
        value = cell.value if factor == 1 else self.scaled(cell.value, factor)
        if goal.is_float or embeds(value.type, goal):
            return Cell(value.to(goal), cell.valid)
        return self.narrowed(Cell(value, cell.valid), goal)

    def scaled(self, ticks: Value, factor: int) -> Value:
        """Convert ticks to a finer unit; a literal stays a 64-bit literal, if it fits."""
        if isinstance(ticks, Literal) and fits(int(ticks.value) * factor, I64):
            return self.k.literal(int(ticks.value) * factor, I64)
        return calendar.scaled(ticks.to(I64), factor)

    def narrowed(self, cell: Cell, goal: Type) -> Cell:
        """Convert an integer to a type that may be too narrow; report an error where it is."""
        if isinstance(cell.value, Literal) and fits(int(cell.value.value), goal):
            return Cell(self.k.literal(cell.value.value, goal), cell.valid)
        wide = self.k.var("wide", cell.value.to(I128))
        least, most = limits(goal)
        self.fail(narrow(cell.valid, (wide < least) | (wide > most)))
        return Cell(cell.value.to(goal), cell.valid)


Rule = Callable[[Scope, ex.Call], Cell]


def computed_type(dtype: pa.DataType) -> Type:
    """Return the machine type of values that a kernel computes with."""
    machine = machine_type(dtype)
    if machine is None:
        raise UnsupportedError(f"values of type {dtype} can be carried along but not computed with")
    return machine


def choose(condition: Value, a: Cell, b: Cell) -> Cell:
    """Return cell `a` where a condition holds, else cell `b`."""
    value = select(condition, a.value, b.value)
    if a.valid is None and b.valid is None:
        return Cell(value)
    yes = const(True, BOOL)
    return Cell(value, select(condition, a.valid or yes, b.valid or yes))
