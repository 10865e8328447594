"""Decide what a pane must remember for a set of reductions, sharing whatever is the same.

`mean(x)` and `sum(x)` share one sum, `mean(x)` and `count(x)` one count, and where `x` has no nulls
`count(x)` is the number of rows. Which columns have nulls is an assumption about the data seen so far:
when a batch breaks it, the layout changes and `origin` tells where each partial's past comes from.
So is that integer sums fit 64 bits: the fold kernel checks every addition, and the runtime goes on with
128 bits (`wide`) from the first one that would not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.ir.nodes import Reduction
from penstock.kernels import monoids
from penstock.kernels.cells import Cell, conjunction, is_nan, is_true
from penstock.kernels.monoids import Monoid
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, F64, I32, I64, I128, U8, Value, const, select
from penstock.loop.numbers import limits
from penstock.lower.machine import is_text, machine_type


@dataclass(frozen=True, slots=True)
class Partial:
    """One monoid over some arguments: `kind` of `args`, counting only rows for which `where` is true."""

    kind: str
    args: tuple[ex.Expr, ...] = ()
    where: ex.Expr | None = None


ROWS = Partial("count")
PRESENT = Partial("present")

MayBeNull = Callable[[ex.Expr], bool]


def partials_of(reductions: Sequence[Reduction], may_be_null: MayBeNull) -> tuple[Partial, ...]:
    """List the partials all reductions need, each once, the presence of a row first."""
    needed = dict.fromkeys(each for reduction in reductions for each in _needs(reduction, may_be_null))
    head = ROWS if ROWS in needed else PRESENT
    return (head, *(each for each in needed if each != head))


def _needs(reduction: Reduction, may_be_null: MayBeNull) -> tuple[Partial, ...]:
    where = reduction.where
    if reduction.function == "count":
        return (_counted(reduction, may_be_null),)
    (arg,) = reduction.args
    value = Partial(_KINDS[reduction.function], (arg,), where)
    if reduction.function == "mean":
        return value, _counted(reduction, may_be_null)
    flag = _flag(arg, where, may_be_null)
    return (value,) if flag is None else (value, flag)


_KINDS = {"sum": "sum", "mean": "sum", "min": "least", "max": "greatest"}
DECOMPOSABLE = frozenset({"count", *_KINDS})


def _counted(reduction: Reduction, may_be_null: MayBeNull) -> Partial:
    args = tuple(arg for arg in reduction.args if may_be_null(arg))
    return Partial("count", args, reduction.where)


def _flag(arg: ex.Expr, where: ex.Expr | None, may_be_null: MayBeNull) -> Partial | None:
    """What tells that there was a value at all; None when every row of a window has one."""
    null = may_be_null(arg)
    return Partial("present", (arg,) if null else (), where) if null or where is not None else None


def origin(partial: Partial, old: Sequence[Partial]) -> Partial:
    """Name the partial of an older layout, made when no nulls had been seen, that holds the same."""
    if partial in old:
        return partial
    bare = Partial(partial.kind, (), partial.where)
    if bare in old:
        return bare
    assert bare in (PRESENT, ROWS)
    return old[0]


def monoid_of(partial: Partial, types: Sequence[pa.DataType], wide: bool) -> Monoid:
    """Choose the algebra for a partial's argument types."""
    if partial.kind == "present":
        return monoids.present()
    if partial.kind == "count":
        return monoids.count()
    (dtype,) = types
    if is_text(dtype) and partial.kind in ("least", "greatest"):
        (arg,) = partial.args
        assert isinstance(arg, ex.Column)
        return monoids.text_extreme(arg.name, largest=partial.kind == "greatest")
    machine = machine_type(dtype)
    if machine is None:
        raise UnsupportedError(f"{partial.kind} over {dtype} is not available")
    if machine == BOOL:
        machine = U8
    if partial.kind == "sum":
        return monoids.float_sum() if machine.is_float else monoids.integer_sum(wide)
    return monoids.least(machine) if partial.kind == "least" else monoids.greatest(machine)


@dataclass(frozen=True)
class Finish:
    """Read the result of reductions from the states of the partials."""

    k: KernelBuilder
    partials: Sequence[Partial]
    states: Sequence[tuple[Value, ...]]
    may_be_null: MayBeNull
    fail: Callable[[Value], None]

    def cell(self, reduction: Reduction, dtype: pa.DataType) -> Cell:
        """Give a reduction's value; `dtype` is its type."""
        if reduction.function == "count":
            return Cell(self._state(_counted(reduction, self.may_be_null))[0])
        value = Partial(_KINDS[reduction.function], reduction.args, reduction.where)
        if reduction.function == "mean":
            return self._mean(self._state(value), self._state(_counted(reduction, self.may_be_null))[0])
        valid = self._valid(reduction)
        if reduction.function == "sum":
            return Cell(self._sum(self._state(value), dtype, valid), valid)
        machine = machine_type(dtype) or I32
        return Cell(self._state(value)[0].to(machine), valid)

    def _state(self, partial: Partial) -> tuple[Value, ...]:
        return self.states[self.partials.index(partial)]

    def _valid(self, reduction: Reduction) -> Value | None:
        flag = _flag(reduction.args[0], reduction.where, self.may_be_null)
        return None if flag is None else self._state(flag)[0].ne(0)

    def _sum(self, state: tuple[Value, ...], dtype: pa.DataType, valid: Value | None) -> Value:
        if len(state) == 2:
            return compensated_total(state)
        goal = machine_type(dtype)
        assert goal is not None
        total = state[0]
        if total.type == I128:
            least, most = limits(goal)
            outside = (total < least) | (total > most)
            self.fail(outside if valid is None else outside & valid)
        return total.to(goal)

    def _mean(self, state: tuple[Value, ...], count: Value) -> Cell:
        total = compensated_total(state) if len(state) == 2 else state[0].to(F64)
        return Cell(total.div(count.to(F64)), count.ne(0))


def compensated_total(state: tuple[Value, ...]) -> Value:
    """Add what rounding lost, unless the sum is not finite: then the compensation means nothing."""
    total, lost = state
    return select(is_nan(total - total), total, total + lost)


def values_added(
    partial: Partial, cells: Sequence[Cell], where: Cell | None
) -> tuple[tuple[Value, ...], Value | None]:
    """What a row contributes to a partial: its arguments, and the condition under which it does."""
    active = is_true(where) if where else None
    for cell in cells:
        active = conjunction(cell.valid, active)
    if not cells:
        return (const(1, I64),), active
    values = tuple(each.value for each in cells)
    if partial.kind == "sum":
        values = tuple(each.to(I64) if each.type == BOOL else each for each in values)
    return values, active
