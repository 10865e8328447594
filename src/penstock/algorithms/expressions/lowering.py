"""Lower scalar expressions to loop IR, with the semantics of `expr/evaluate.py`: a rule per function, columns as parameters.

Each node becomes a `Cell`: a value and its validity. Intermediate results are bound to variables, so a deep
expression stays linear in size. An operation that may fail (integer overflow, a cast out of range) reports
its error condition to `fail` and continues with a harmless value: kernels have no exceptions; the runtime
raises after the task.

Column names do not reach a kernel: parameters are numbered. Each declared parameter has a `Binding` that
describes its contents for the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa

from penstock.algorithms.expressions import calendar, decimals
from penstock.algorithms.expressions.arithmetic import ARITHMETIC, NUMBER_CALLS
from penstock.algorithms.expressions.cells import (
    Cell,
    Lowered,
    Rule,
    Scope,
    choose,
    computed_type,
    is_true,
    narrow,
    negate,
)
from penstock.algorithms.expressions.logic import COMPARISON_CALLS, LOGIC
from penstock.algorithms.hash_table.text_kernels import equals_literal
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.decimals import digits_of, is_exact
from penstock.expr.interning import ordered
from penstock.loop.abi import Binding
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I32,
    I64,
    U8,
    U64,
    Buffer,
    Kernel,
    Peek,
    Space,
    Type,
    Unary,
    Value,
    Var,
    const,
)
from penstock.loop.numbers import is_text, limits, machine_type
from penstock.types.time import Time


def _part(scope: Scope, call: ex.Call) -> Cell:
    source = scope.type_of(call.args[0])
    a = scope.lower(call.args[0])
    ticks = scope.k.var("ticks", a.value.to(I64))
    part = calendar.CALENDAR_PARTS[call.function](scope.k, ticks, source)
    return Cell(part.to(scope.machine_of(call)), a.valid)


def _truncate(scope: Scope, call: ex.Call) -> Cell:
    a = scope.lower(call.args[0])
    every = dict(call.options)["every"]
    assert isinstance(every, int)
    own = a.value.type
    wide = I64 if own.is_signed else U64
    ticks = scope.k.var("ticks", a.value.to(wide))
    floored = scope.k.var("floored", ticks - calendar.floor_mod(ticks, const(every, wide)))
    if own.is_signed:  # the next lower multiple may be below the type's range
        scope.fail(narrow(a.valid, floored > ticks if own == I64 else floored < limits(own)[0]))
    return Cell(floored.to(own), a.valid)


TIMES: dict[str, Rule] = {**dict.fromkeys(calendar.CALENDAR_PARTS, _part), "truncate": _truncate}


CALLS: dict[str, Rule] = {**ARITHMETIC, **NUMBER_CALLS, **COMPARISON_CALLS, **LOGIC, **TIMES}


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


def may_be_null(expr: ex.Expr, schema: pa.Schema, nullable: frozenset[str]) -> bool:
    """Return whether an expression may be null, by lowering it on a scratch kernel: the result has a validity or not."""
    k = KernelBuilder("scratch")

    def valid(name: str) -> Var | None:
        return Var("ok", BOOL) if name in nullable else None

    def column(name: str) -> Cell:
        return Cell(Var("column", machine_type(schema.field(name).type) or I64), valid(name))

    lowering = Lowering(
        k,
        schema,
        column,
        lambda condition: None,
        lambda name, text: Cell(Var("same", BOOL), valid(name)),
        valid,
    )
    return lowering.lower(expr).valid is not None


@dataclass(frozen=True)
class RowKernel:
    """A kernel over a batch's rows, and the bindings of its column parameters."""

    kernel: Kernel
    bindings: tuple[Binding, ...]


def arenas(k: KernelBuilder) -> tuple[Binding, ...]:
    """The bindings of the buffers of interned texts that a kernel compares."""
    return tuple(Binding(buffer.name, column, role) for (role, column), buffer in k.shared.items() if column)


@dataclass
class Columns:
    """The columns of one kernel. `nullable` names those that hold nulls; the others are read without a test.

    `interned` names the text columns that arrive as codes. An implied time is computed from the row's number
    in its stream; `first_row` is that of the batch's first row.
    """

    k: KernelBuilder
    schema: pa.Schema
    nullable: frozenset[str]
    interned: frozenset[str]
    time: Time
    first_row: Var
    bindings: list[Binding] = field(default_factory=list)
    _params: dict[tuple[str, str, str | None], Buffer | Var] = field(default_factory=dict)

    def lowering(self, row: Value, on_error: Callable[[Value], None]) -> Lowering:
        """Lower expressions over the columns at a row of the batch."""
        return Lowering(
            self.k,
            self.schema,
            lambda name: self.cell(name, row),
            on_error,
            lambda name, text: self.text_equals(name, text, row),
            lambda name: self.valid(name, row),
        )

    def cell(self, name: str, row: Value) -> Cell:
        """Read a column at a row of the batch."""
        if self.time.period is not None and name == self.time.column:
            return Cell((self.first_row + row) * self.time.period + self.time.start)
        dtype = self.schema.field(name).type
        if is_text(dtype):
            return self._code(name, row)
        machine = machine_type(dtype)
        assert machine is not None, f"{dtype} does not enter kernels"
        if machine == BOOL:
            return Cell(self._bit(name, "bits", row), self.valid(name, row))
        values = self._buffer(name, "values", machine)
        return Cell(values[row], self.valid(name, row))

    def time_at(self, row: Value) -> Value:
        """The row's time in ticks; the runtime has removed rows without one."""
        if self.time.period is not None:
            return self.cell(self.time.column, row).value
        dtype = self.schema.field(self.time.column).type
        machine = machine_type(dtype)
        assert machine is not None
        return self._buffer(self.time.column, "values", machine)[row].to(I64) + self.time.shift

    def valid(self, name: str, row: Value) -> Value | None:
        """Whether a column is not null at a row; None if it never is null."""
        if name not in self.nullable:
            return None
        return self._code(name, row).valid if name in self.interned else self._bit(name, "validity", row)

    def text_equals(self, name: str, text: str, row: Value) -> Cell:
        """Compare a text column with a literal, whose characters are a parameter of the kernel."""
        if name in self.interned:
            code = self._code(name, row)
            return Cell(code.value.eq(self._scalar(name, "code", I32, text)), code.valid)
        dtype = self.schema.field(name).type
        offsets = self._buffer(name, "offsets", I64 if pa.types.is_large_string(dtype) else I32)
        data = self._buffer(name, "bytes", U8)
        literal = self._buffer(name, "literal", U8, text, Space.CONSTANT)
        size = self._scalar(name, "size", I64)
        same = equals_literal(self.k, offsets, data, size, row, literal, len(text.encode()))
        return Cell(same, self.valid(name, row))

    def _code(self, name: str, row: Value) -> Cell:
        code = self._buffer(name, "codes", I32)[row]
        return Cell(code, code >= 0 if name in self.nullable else None)

    def _bit(self, name: str, role: str, row: Value) -> Value:
        return Peek(self._buffer(name, role, U8), row + self._scalar(name, "shift", I64), BOOL)

    def _buffer(
        self, name: str, role: str, type: Type, text: str | None = None, space: Space = Space.GLOBAL
    ) -> Buffer:
        found = self._params.get((name, role, text))
        if found is None:
            found = self.k.buffer(role, type, space)
            self._remember(found, name, role, text)
        assert isinstance(found, Buffer)
        return found

    def _scalar(self, name: str, role: str, type: Type, text: str | None = None) -> Var:
        found = self._params.get((name, role, text))
        if found is None:
            found = self.k.scalar(role, type)
            self._remember(found, name, role, text)
        assert isinstance(found, Var)
        return found

    def _remember(self, param: Buffer | Var, name: str, role: str, text: str | None) -> None:
        self._params[name, role, text] = param
        self.bindings.append(Binding(param.name, name, role, text))
