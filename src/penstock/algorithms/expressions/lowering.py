"""Lower scalar expressions to loop IR, with the semantics of `expr/evaluate.py`.

Each node becomes a `Cell`: a value and its validity. Intermediate results are bound to variables, so a deep
expression stays linear in size. An operation that may fail (integer overflow, a cast out of range) reports
its error condition to `fail` and continues with a harmless value: kernels have no exceptions; the runtime
raises after the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

from penstock.algorithms.expressions import calendar
from penstock.algorithms.expressions.calls import decimals
from penstock.algorithms.expressions.calls.catalogue import CALLS
from penstock.algorithms.expressions.cells import Cell, is_true, narrow, negate
from penstock.algorithms.expressions.scope import Lowered, Scope, choose, computed_type
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.decimals import digits_of, is_exact
from penstock.expr.interning import ordered
from penstock.loop.nodes import BOOL, F64, I64, Type, Unary, Value, const
from penstock.loop.numbers import limits


@dataclass
class Lowering(Scope):
    """Lowers expressions over one row, or over the reductions of one window, into a kernel."""

    def lower(self, expr: ex.Expr) -> Cell:
        if isinstance(expr, ex.Literal):  # not shared: code must not depend on two literals being equal
            return self._literal(expr.value, expr.type)
        found = self.known.get(expr) or self._lower_with_operands(expr)
        if found.failure is not None:
            self.fail(found.failure)
            if self.failures is None:
                found.failure = None
        return found.cell

    def _lower_with_operands(self, expr: ex.Expr) -> Lowered:
        """Lower operands first: recursion would be as deep as the expression."""
        for node in ordered([expr], self._missing):
            if node not in self.known:
                self.known[node] = self._lowered(node)
        return self.known[expr]

    def _missing(self, expr: ex.Expr) -> Sequence[ex.Expr]:
        """List the operands that are lowered with every use of a node: not the values of a `Case`."""
        operands = [expr.branches[0][0]] if isinstance(expr, ex.Case) else ex.children(expr)
        return [
            operand for operand in operands if isinstance(operand, ex.Composite) and operand not in self.known
        ]

    def _lowered(self, expr: ex.Expr) -> Lowered:
        if self.failures is None:
            return Lowered(self.bind(self._lower(expr)))
        outer, self.failures = self.failures, []
        cell = self.bind(self._lower(expr))
        failure = self.any_of(self.failures)
        self.failures = outer
        return Lowered(cell, failure)

    def _lower(self, expr: ex.Expr) -> Cell:
        match expr:
            case ex.Column(name=name):
                return self.column(name)
            case ex.Reduced(index=index):
                return self.reduced[index]
            case ex.Cast(arg=arg, type=dtype):
                return self._cast(self.lower(arg), self.type_of(arg), dtype)
            case ex.Case():
                return self._case(expr)
            case ex.IsIn():
                return self._is_in(expr)
            case ex.Call(function=function):
                return CALLS[function](self, expr)
        raise UnsupportedError(f"{type(expr).__name__} cannot stand inside a kernel")

    def _case(self, expr: ex.Case) -> Cell:
        """Choose the first branch that is true; a branch fails only for the rows that take it."""
        dtype = self.type_of(expr)
        taken: Value = const(False, BOOL)
        cells: list[tuple[Value, Cell]] = []
        for place, (condition, value) in enumerate(expr.branches):
            with self.under(negate(taken)) if place else nullcontext():
                chosen = self.k.var("chosen", is_true(self.lower(condition)))
            with self.under(chosen & negate(taken) if place else chosen):
                cells.append((chosen, self.bind(self.lower_as(value, dtype))))
            taken = self.k.var("taken", taken | chosen) if place else chosen
        with self.under(negate(taken)):
            result = self.bind(self.lower_as(expr.otherwise, dtype))
        for takes, cell in reversed(cells):
            result = self.bind(choose(takes, cell, result))
        return result

    def _is_in(self, expr: ex.IsIn) -> Cell:
        cells = [self.lower(ex.Call("eq", (expr.arg, value))) for value in expr.values]
        found: Value = const(False, BOOL)
        for cell in cells:
            found = found | cell.value
        return Cell(found, cells[0].valid if cells else self.lower(expr.arg).valid)

    def _cast(self, cell: Cell, source: pa.DataType, target: pa.DataType) -> Cell:
        if source == target:
            return cell
        if is_exact(source) or is_exact(target):
            return decimals.converted(self, cell, source, target)
        goal = computed_type(target)
        if calendar.is_temporal(source) and calendar.is_temporal(target):
            value = calendar.rescale(cell.value.to(I64), source, target)
            return self._checked(Cell(value, cell.valid), goal)
        if goal == BOOL:
            return Cell(cell.value.ne(const(0, cell.value.type)), cell.valid)
        return self._checked(cell, goal)

    def _checked(self, cell: Cell, goal: Type) -> Cell:
        """Convert a number explicitly; values that do not fit the target are errors."""
        value = cell.value
        if goal.is_float or value.type in (BOOL, goal):
            return Cell(value.to(goal), cell.valid)
        if not value.type.is_float:
            return self.narrowed(cell, goal)
        least, most = limits(goal)
        whole = self.k.var("whole", Unary("trunc", value.to(F64)))
        fits = (whole >= float(least)) & (whole < float(most + 1))
        self.fail(narrow(cell.valid, ~fits))
        return Cell(whole.to(goal), cell.valid)

    def _literal(self, value: object, dtype: pa.DataType) -> Cell:
        """Lower a literal to its physical value in an Arrow buffer; literals of times are ticks already."""
        machine = computed_type(dtype)
        if value is None:
            return Cell(const(0, machine), const(False, BOOL))
        if isinstance(value, Decimal):
            return Cell(self.k.literal(digits_of(value, dtype), machine))
        assert isinstance(value, int | float), f"{type(value).__name__} is no physical value of {dtype}"
        return Cell(self.k.literal(value, machine))
