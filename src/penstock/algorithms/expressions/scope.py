"""The scope of an expression while it is lowered, and its error reporting.

The translations of functions (`calls/`) depend on nothing else of the kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algorithms.expressions import calendar
from penstock.algorithms.expressions.cells import Cell, narrow
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.loop.build import KernelBuilder
from penstock.loop.machine import embeds, machine_type
from penstock.loop.nodes import BOOL, I64, I128, Const, Literal, Type, Value, const, select
from penstock.loop.numbers import fits, limits


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
