"""Lower scalar expressions to loop IR, with the semantics of `expr/evaluate.py`.

Each node becomes a `Cell`: a value and its validity. Intermediate results are bound to variables, so a
deep expression stays linear in size. What may fail (integer overflow, a cast out of range) reports to
`fail` with the condition under which the row is wrong, and goes on with a harmless value: kernels have
no exceptions, the runtime raises after the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.typing import type_of
from penstock.kernels.cells import Cell, both, equal, is_nan, is_true, larger, less, narrow, negate, smaller
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import (
    BOOL,
    F64,
    I64,
    I128,
    Binary,
    Const,
    Overflows,
    Type,
    Unary,
    Value,
    const,
    select,
)
from penstock.lower import calendar
from penstock.lower.machine import is_text, machine_type

_LIMITS = {
    "int": lambda bits: (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    "uint": lambda bits: (0, (1 << bits) - 1),
}


@dataclass
class Lowering:
    """Everything an expression may refer to while it is lowered into kernel `k`.

    `column` gives the cell of a column of the current row; `text_equals` compares a text column with a
    literal; `valid_at` tells whether a column is there without reading it, which any type allows;
    `on_error` records an error condition. Under a `guard`, only rows for which it is true can be wrong.
    """

    k: KernelBuilder
    schema: pa.Schema
    column: Callable[[str], Cell]
    on_error: Callable[[Value], None]
    text_equals: Callable[[str, str], Cell]
    valid_at: Callable[[str], Value | None] | None = None
    reduced: Sequence[Cell] = ()
    reduced_types: Sequence[pa.DataType] = ()
    guard: Value | None = None
    _known: dict[ex.Expr, Cell] = field(default_factory=dict)

    def lower(self, expr: ex.Expr) -> Cell:
        """Lower an expression once; equal subexpressions share the result."""
        known = self._known.get(expr)
        if known is None:
            known = self._known[expr] = self._bind(self._lower(expr))
        return known

    @contextmanager
    def under(self, condition: Value) -> Iterator[None]:
        """Lower what counts only where a condition holds: elsewhere it cannot fail.

        What is lowered inside is not reused outside, where its errors would count.
        """
        outer = self.guard, self._known
        self.guard = condition if self.guard is None else self.k.var("guard", self.guard & condition)
        self._known = dict(self._known)
        yield
        self.guard, self._known = outer

    def fail(self, condition: Value) -> None:
        """Report the condition under which a row is wrong."""
        self.on_error(condition if self.guard is None else condition & self.guard)

    def valid(self, expr: ex.Expr) -> Value | None:
        """Tell whether an expression is not null (None: never); a column is not read for that."""
        if isinstance(expr, ex.Column) and self.valid_at is not None:
            return self.valid_at(expr.name)
        return self.lower(expr).valid

    def type_of(self, expr: ex.Expr) -> pa.DataType:
        return type_of(expr, self.schema, self.reduced_types)

    def _bind(self, cell: Cell) -> Cell:
        value = cell.value if isinstance(cell.value, Const) else self.k.var("v", cell.value)
        valid = cell.valid
        if valid is not None and not isinstance(valid, Const):
            valid = self.k.var("ok", valid)
        return Cell(value, valid)

    def _lower(self, expr: ex.Expr) -> Cell:
        match expr:
            case ex.Column(name=name):
                return self.column(name)
            case ex.Reduced(index=index):
                return self.reduced[index]
            case ex.Literal(value=value, type=dtype):
                return self._literal(value, dtype)
            case ex.Cast(arg=arg, type=dtype):
                return self._cast(self.lower(arg), self.type_of(arg), dtype)
            case ex.Case():
                return self._case(expr)
            case ex.IsIn():
                return self._is_in(expr)
            case ex.Call(function=function):
                return _CALLS[function](self, expr)
        raise UnsupportedError(f"{type(expr).__name__} cannot stand inside a kernel")

    def _literal(self, value: object, dtype: pa.DataType) -> Cell:
        machine = _machine(dtype)
        if value is None:
            return Cell(const(0, machine), const(False, BOOL))
        return Cell(const(physical_value(value, dtype), machine))

    def _case(self, expr: ex.Case) -> Cell:
        """Choose the first branch that is true; a branch fails only for the rows that take it."""
        dtype = self.type_of(expr)
        taken: Value = const(False, BOOL)
        cells: list[tuple[Value, Cell]] = []
        for condition, value in expr.branches:
            with self.under(negate(taken)):
                chosen = self.k.var("chosen", is_true(self.lower(condition)))
            with self.under(self.k.var("takes", chosen & negate(taken))):
                cells.append((chosen, self._bind(self._as(value, dtype))))
            taken = self.k.var("taken", taken | chosen)
        with self.under(negate(taken)):
            result = self._bind(self._as(expr.otherwise, dtype))
        for chosen, cell in reversed(cells):
            result = self._bind(_choose(chosen, cell, result))
        return result

    def _is_in(self, expr: ex.IsIn) -> Cell:
        tests = [ex.Call("eq", (expr.arg, value)) for value in expr.values]
        cells = [self.lower(test) for test in tests]
        found: Value = const(False, BOOL)
        for cell in cells:
            found = found | cell.value
        return Cell(found, self.lower(expr.arg).valid if not tests else cells[0].valid)

    def _as(self, expr: ex.Expr, dtype: pa.DataType) -> Cell:
        return self._convert(self.lower(expr), self.type_of(expr), dtype)

    def _convert(self, cell: Cell, source: pa.DataType, target: pa.DataType) -> Cell:
        """Convert implicitly, to a type that can hold every value (units of time become finer)."""
        factor = calendar.finer(source, target)
        value = cell.value
        if factor != 1:
            value = value.to(I64) * factor
        return Cell(value.to(_machine(target)), cell.valid)

    def _cast(self, cell: Cell, source: pa.DataType, target: pa.DataType) -> Cell:
        if source == target:
            return cell
        goal = _machine(target)
        if calendar.is_temporal(source) and calendar.is_temporal(target):
            value = calendar.rescale(cell.value.to(I64), source, target)
            return self._checked(Cell(value, cell.valid), goal)
        if goal == BOOL:
            return Cell(cell.value.ne(const(0, cell.value.type)), cell.valid)
        return self._checked(cell, goal)

    def _checked(self, cell: Cell, goal: Type) -> Cell:
        """Convert a number explicitly; values that do not fit the target are errors."""
        value = cell.value
        if goal.is_float or value.type == BOOL or goal == value.type:
            return Cell(value.to(goal), cell.valid)
        low, high = _LIMITS[goal.kind](goal.bits)
        if value.type.is_float:
            whole = self.k.var("whole", Unary("trunc", value.to(F64)))
            fits = (whole >= float(low)) & (whole < float(high + 1))
            self.fail(narrow(cell.valid, ~fits))
            return Cell(whole.to(goal), cell.valid)
        wide = self.k.var("wide", value.to(I128))
        self.fail(narrow(cell.valid, (wide < low) | (wide > high)))
        return Cell(value.to(goal), cell.valid)


def physical_value(value: object, dtype: pa.DataType) -> int | float | bool:
    """Read a literal as the number that stands in the Arrow buffer; literals of times are ticks already."""
    assert isinstance(value, int | float), f"{type(value).__name__} is no physical value of {dtype}"
    return value


def _machine(dtype: pa.DataType) -> Type:
    machine = machine_type(dtype)
    if machine is None:
        raise UnsupportedError(f"values of type {dtype} can be carried along but not computed with")
    return machine


def _choose(condition: Value, a: Cell, b: Cell) -> Cell:
    value = select(condition, a.value, b.value)
    if a.valid is None and b.valid is None:
        return Cell(value)
    yes = const(True, BOOL)
    return Cell(value, select(condition, a.valid or yes, b.valid or yes))


# --- calls: one small function for each family of the catalogue ---------------------------------------


def _arithmetic(op: str) -> Callable[[Lowering, ex.Call], Cell]:
    def lower(low: Lowering, expr: ex.Call) -> Cell:
        dtype = low.type_of(expr)
        if calendar.is_temporal(dtype):
            return _temporal_arithmetic(op, low, expr, dtype)
        goal = _machine(dtype)
        a, b = (low.lower(arg) for arg in expr.args)
        valid = both(a, b)
        if goal.is_float:
            return Cell(Binary(op, a.value.to(goal), b.value.to(goal)), valid)
        return _exact(low, op, a.value, b.value, goal, valid)

    return lower


def _exact(low: Lowering, op: str, a: Value, b: Value, goal: Type, valid: Value | None) -> Cell:
    """Integer arithmetic that reports what does not fit; operands of the other signedness go wide."""
    if _embeds(a.type, goal) and _embeds(b.type, goal):
        x, y = a.to(goal), b.to(goal)
        if not _never_overflows(op, a.type, b.type, goal):
            low.fail(narrow(valid, Overflows(op, x, y)))
        return Cell(Binary(op, x, y), valid)
    wide = low.k.var("wide", Binary(op, a.to(I128), b.to(I128)))
    least, most = _LIMITS[goal.kind](goal.bits)
    low.fail(narrow(valid, (wide < least) | (wide > most)))
    return Cell(wide.to(goal), valid)


def _embeds(source: Type, goal: Type) -> bool:
    if source.kind == goal.kind or source == BOOL:
        return source.bits <= goal.bits
    return source.kind == "uint" and source.bits < goal.bits


def _never_overflows(op: str, a: Type, b: Type, goal: Type) -> bool:
    spare = goal.bits - 1 if goal.kind == "int" else goal.bits
    if op == "mul":
        return a.bits + b.bits <= spare
    return max(a.bits, b.bits) < spare and not (goal.kind == "uint" and op == "sub")


def _temporal_arithmetic(op: str, low: Lowering, expr: ex.Call, dtype: pa.DataType) -> Cell:
    cells = [_in_unit_of(low, arg, dtype) for arg in expr.args]
    a, b = (cell.value.to(I64) for cell in cells)
    return _exact(low, op, a, b, I64, both(*cells))


def _in_unit_of(low: Lowering, arg: ex.Expr, dtype: pa.DataType) -> Cell:
    source = low.type_of(arg)
    cell = low.lower(arg)
    if not calendar.is_temporal(source):
        return cell
    return Cell(cell.value.to(I64) * calendar.finer(source, dtype), cell.valid)


def _divide(low: Lowering, expr: ex.Call) -> Cell:
    a, b = (low.lower(arg) for arg in expr.args)
    return Cell(a.value.to(F64).div(b.value.to(F64)), both(a, b))


def _floordiv(low: Lowering, expr: ex.Call) -> Cell:
    goal = _machine(low.type_of(expr))
    a, b = (low.lower(arg) for arg in expr.args)
    if goal.is_float:
        return Cell(Unary("floor", a.value.to(F64).div(b.value.to(F64))), both(a, b))
    return _integer_division(low, a, b, goal, calendar.floor_div)


def _modulo(low: Lowering, expr: ex.Call) -> Cell:
    goal = _machine(low.type_of(expr))
    a, b = (low.lower(arg) for arg in expr.args)
    if goal.is_float:
        x, y = low.k.var("x", a.value.to(F64)), low.k.var("y", b.value.to(F64))
        rest = low.k.var("rest", x.rem(y))
        wrong_sign = rest.ne(0.0) & ((rest < 0.0) ^ (y < 0.0))
        return Cell(select(wrong_sign, rest + y, rest), both(a, b))
    return _integer_division(low, a, b, goal, calendar.floor_mod)


def _integer_division(
    low: Lowering, a: Cell, b: Cell, goal: Type, op: Callable[[Value, Value], Value]
) -> Cell:
    inside = goal if _embeds(a.value.type, goal) and _embeds(b.value.type, goal) else I128
    x, y = low.k.var("x", a.value.to(inside)), low.k.var("y", b.value.to(inside))
    present = both(a, b)
    valid = present if isinstance(y, Const) and y.value else narrow(present, y.ne(0))
    result = op(x, y)
    if goal.kind == "int" and inside == goal:
        low.fail(narrow(valid, y.eq(-1) & x.eq(-(1 << (goal.bits - 1))) & op_is_division(op)))
        return Cell(result, valid)
    if inside == I128:
        wide = low.k.var("wide", result)
        least, most = _LIMITS[goal.kind](goal.bits)
        low.fail(narrow(valid, (wide < least) | (wide > most)))
        return Cell(wide.to(goal), valid)
    return Cell(result, valid)


def op_is_division(op: Callable[[Value, Value], Value]) -> Value:
    """Only the quotient of the smallest integer by -1 overflows; its remainder is 0."""
    return const(op is calendar.floor_div, BOOL)


def _power(low: Lowering, expr: ex.Call) -> Cell:
    a, b = (low.lower(arg) for arg in expr.args)
    return Cell(Binary("pow", a.value.to(F64), b.value.to(F64)), both(a, b))


def _negation(low: Lowering, expr: ex.Call) -> Cell:
    goal = _machine(low.type_of(expr))
    a = low.lower(expr.args[0])
    if goal.is_float:
        return Cell(Unary("neg", a.value.to(goal)), a.valid)
    return _exact(low, "sub", const(0, goal), a.value, goal, a.valid)


def _absolute(low: Lowering, expr: ex.Call) -> Cell:
    goal = _machine(low.type_of(expr))
    a = low.lower(expr.args[0])
    if goal.is_float:
        return Cell(Unary("abs", a.value.to(goal)), a.valid)
    value = low.k.var("x", a.value.to(goal))
    if goal.kind == "uint":
        return Cell(value, a.valid)
    low.fail(narrow(a.valid, value.eq(-(1 << (goal.bits - 1)))))
    return Cell(select(value < 0, Unary("neg", value), value), a.valid)


def _sign(low: Lowering, expr: ex.Call) -> Cell:
    goal = _machine(low.type_of(expr))
    a = low.lower(expr.args[0])
    value = a.value.to(goal)
    sign = select(value > 0, const(1, goal), select(value < 0, const(-1, goal), value))
    return Cell(sign, a.valid)


def _real(op: str) -> Callable[[Lowering, ex.Call], Cell]:
    def lower(low: Lowering, expr: ex.Call) -> Cell:
        a = low.lower(expr.args[0])
        return Cell(Unary(op, a.value.to(F64)), a.valid)

    return lower


def _rounding(op: str) -> Callable[[Lowering, ex.Call], Cell]:
    def lower(low: Lowering, expr: ex.Call) -> Cell:
        a = low.lower(expr.args[0])
        if not a.value.type.is_float:
            return Cell(a.value.to(_machine(low.type_of(expr))), a.valid)
        return Cell(Unary(op, a.value.to(F64)), a.valid)

    return lower


def _round(low: Lowering, expr: ex.Call) -> Cell:
    """Round half away from zero, exactly: adding 0.5 first would be wrong just below a half."""
    a = low.lower(expr.args[0])
    if not a.value.type.is_float:
        return Cell(a.value.to(_machine(low.type_of(expr))), a.valid)
    decimals = dict(expr.options).get("decimals", 0)
    assert isinstance(decimals, int)
    scale = 10.0 ** abs(decimals)
    source = low.k.var("x", a.value.to(F64))
    scaled = source * scale if decimals >= 0 else source.div(scale)
    x = low.k.var("scaled", scaled)
    whole = low.k.var("whole", Unary("trunc", x))
    step = select(x < 0.0, const(-1.0, F64), const(1.0, F64))
    rounded = select(Unary("abs", x - whole) >= 0.5, whole + step, whole)
    back = rounded.div(const(scale, F64)) if decimals >= 0 else rounded * scale
    big = ~(Unary("abs", x) < float(1 << 52))  # already whole, infinite or NaN: scaling back would only lose
    return Cell(select(big, source, back), a.valid)


def _comparison(test: Callable[[Value, Value], Value]) -> Callable[[Lowering, ex.Call], Cell]:
    def lower(low: Lowering, expr: ex.Call) -> Cell:
        left, right = (low.type_of(arg) for arg in expr.args)
        if is_text(left) or is_text(right):
            return _text_comparison(low, expr)
        a, b = (low.lower(arg) for arg in expr.args)
        x, y = _comparable(a.value, b.value, left, right)
        return Cell(test(x, y), both(a, b))

    return lower


def _text_comparison(low: Lowering, expr: ex.Call) -> Cell:
    column, literal = expr.args if isinstance(expr.args[0], ex.Column) else reversed(expr.args)
    if not (isinstance(column, ex.Column) and isinstance(literal, ex.Literal)):
        raise UnsupportedError("kernels compare text columns with literals only")
    if literal.value is None:
        return Cell(const(False, BOOL), const(False, BOOL))
    found = low.text_equals(column.name, str(literal.value))
    return found if expr.function == "eq" else Cell(negate(found.value), found.valid)


def _comparable(a: Value, b: Value, left: pa.DataType, right: pa.DataType) -> tuple[Value, Value]:
    if calendar.is_temporal(left) and calendar.is_temporal(right):
        x, y = a.to(I64), b.to(I64)
        up, down = calendar.finer(left, right), calendar.finer(right, left)
        if (up, down) == (1, 1):
            return x, y
        return x.to(I128) * max(up, 1), y.to(I128) * max(down, 1)
    if a.type == b.type:
        return a, b
    if a.type.is_float or b.type.is_float:
        return a.to(F64), b.to(F64)
    for goal in (I64, I128):
        if _embeds(a.type, goal) and _embeds(b.type, goal):
            return a.to(goal), b.to(goal)
    return a.to(I128), b.to(I128)


def _conjunction(low: Lowering, expr: ex.Call) -> Cell:
    """Kleene and: false wins over null."""
    a, b = (low.lower(arg) for arg in expr.args)
    if a.valid is None and b.valid is None:
        return Cell(a.value & b.value)
    sure_no = _known_to_be(a, False) | _known_to_be(b, False)
    present = both(a, b)
    assert present is not None
    return Cell(is_true(a) & is_true(b), sure_no | present)


def _disjunction(low: Lowering, expr: ex.Call) -> Cell:
    """Kleene or: true wins over null."""
    a, b = (low.lower(arg) for arg in expr.args)
    if a.valid is None and b.valid is None:
        return Cell(a.value | b.value)
    sure_yes = is_true(a) | is_true(b)
    present = both(a, b)
    assert present is not None
    return Cell(sure_yes, sure_yes | present)


def _known_to_be(cell: Cell, truth: bool) -> Value:
    value = cell.value if truth else negate(cell.value)
    return value if cell.valid is None else value & cell.valid


def _exclusive_or(low: Lowering, expr: ex.Call) -> Cell:
    a, b = (low.lower(arg) for arg in expr.args)
    return Cell(a.value ^ b.value, both(a, b))


def _not(low: Lowering, expr: ex.Call) -> Cell:
    a = low.lower(expr.args[0])
    return Cell(negate(a.value), a.valid)


def _is_null(low: Lowering, expr: ex.Call) -> Cell:
    valid = low.valid(expr.args[0])
    return Cell(const(False, BOOL) if valid is None else negate(valid))


def _is_not_null(low: Lowering, expr: ex.Call) -> Cell:
    valid = low.valid(expr.args[0])
    return Cell(valid if valid is not None else const(True, BOOL))


def _is_nan(low: Lowering, expr: ex.Call) -> Cell:
    a = low.lower(expr.args[0])
    value = is_nan(a.value) if a.value.type.is_float else const(False, BOOL)
    return Cell(value, a.valid)


def _coalesce(low: Lowering, expr: ex.Call) -> Cell:
    dtype = low.type_of(expr)
    result = low._as(expr.args[-1], dtype)
    for arg in reversed(expr.args[:-1]):
        cell = low._as(arg, dtype)
        result = cell if cell.valid is None else low._bind(_choose(cell.valid, cell, result))
    return result


def _extreme(pick: Callable[[Value, Value], Value]) -> Callable[[Lowering, ex.Call], Cell]:
    """least and greatest: nulls are skipped."""

    def lower(low: Lowering, expr: ex.Call) -> Cell:
        dtype = low.type_of(expr)
        result = low._as(expr.args[0], dtype)
        for arg in expr.args[1:]:
            result = low._bind(_pick_present(pick, result, low._as(arg, dtype)))
        return result

    return lower


def _pick_present(pick: Callable[[Value, Value], Value], a: Cell, b: Cell) -> Cell:
    best = pick(a.value, b.value)
    if a.valid is None and b.valid is None:
        return Cell(best)
    if a.valid is None or b.valid is None:
        sure, maybe = (a, b) if a.valid is None else (b, a)
        assert maybe.valid is not None
        return Cell(select(maybe.valid, best, sure.value))
    value = select(a.valid & b.valid, best, select(a.valid, a.value, b.value))
    return Cell(value, a.valid | b.valid)


def _time_part(low: Lowering, expr: ex.Call) -> Cell:
    source = low.type_of(expr.args[0])
    a = low.lower(expr.args[0])
    ticks = low.k.var("ticks", a.value.to(I64))
    part = calendar.PARTS[expr.function](low.k, ticks, source)
    return Cell(part.to(_machine(low.type_of(expr))), a.valid)


def _truncate(low: Lowering, expr: ex.Call) -> Cell:
    a = low.lower(expr.args[0])
    every = dict(expr.options)["every"]
    assert isinstance(every, int)
    ticks = low.k.var("ticks", a.value.to(I64))
    floored = ticks - calendar.floor_mod(ticks, const(every, I64))
    return Cell(floored.to(a.value.type), a.valid)


_CALLS: dict[str, Callable[[Lowering, ex.Call], Cell]] = {
    **{op: _arithmetic(op) for op in ("add", "sub", "mul")},
    "div": _divide,
    "floordiv": _floordiv,
    "mod": _modulo,
    "pow": _power,
    "neg": _negation,
    "abs": _absolute,
    "sign": _sign,
    **{op: _real(op) for op in ("sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan")},
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _round,
    "eq": _comparison(equal),
    "ne": _comparison(lambda a, b: negate(equal(a, b))),
    "lt": _comparison(less),
    "gt": _comparison(lambda a, b: less(b, a)),
    "le": _comparison(lambda a, b: negate(less(b, a))),
    "ge": _comparison(lambda a, b: negate(less(a, b))),
    "and": _conjunction,
    "or": _disjunction,
    "xor": _exclusive_or,
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "is_nan": _is_nan,
    "fill_null": _coalesce,
    "least": _extreme(smaller),
    "greatest": _extreme(larger),
    **dict.fromkeys(calendar.PARTS, _time_part),
    "truncate": _truncate,
}

KERNEL_FUNCTIONS = frozenset(_CALLS)
