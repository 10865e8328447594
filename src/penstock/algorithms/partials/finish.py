"""Compute results from the states of partials: also variance, skewness, kurtosis, covariance and correlation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.algorithms import monoids
from penstock.algorithms.expressions.cells import Cell, is_nan
from penstock.algorithms.monoids import Values
from penstock.algorithms.partials.algebra import MayBeNull, Partial, counted, flag_of, largest, value_of
from penstock.algorithms.partials.custom import result_cell
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.decimals import MORE_DIGITS, is_exact
from penstock.ir.nodes import Reduction
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, I32, I64, I128, U64, Binary, Bitcast, Type, Unary, Value, const, select
from penstock.loop.numbers import limits, machine_type

Settings = Mapping[str, Any]


def _var(k: KernelBuilder, state: Values, settings: Settings) -> Cell:
    return _average(state[3], state[0], settings["ddof"])


def _std(k: KernelBuilder, state: Values, settings: Settings) -> Cell:
    variance = _var(k, state, settings)
    return Cell(_root(variance.value), variance.valid)


def _cov(k: KernelBuilder, state: Values, settings: Settings) -> Cell:
    return _average(state[7], state[0], settings["ddof"])


def _average(total: Value, count: Value, ddof: int) -> Cell:
    return Cell(total.div((count - ddof).to(F64)), count > ddof)


def _skew(k: KernelBuilder, state: Values, settings: Settings) -> Cell:
    count, _, _, second, third, *_ = state
    n, second = k.var("n", count.to(F64)), k.var("second", second)
    value = third.div(second) * _root(n.div(second))
    if settings["bias"]:
        return Cell(value, count > 0)
    return Cell(value * _root(n * (n - 1)).div(n - 2), count > 2)


def _kurtosis(k: KernelBuilder, state: Values, settings: Settings) -> Cell:
    count, _, _, second, _, fourth = state
    n, second = k.var("n", count.to(F64)), k.var("second", second)
    value = fourth.div(second) * n.div(second) - 3
    if not settings["bias"]:
        value = (n - 1).div((n - 2) * (n - 3)) * ((n + 1) * value + 6)
    return Cell(value if settings["fisher"] else value + 3, count > (0 if settings["bias"] else 3))


def _corr(k: KernelBuilder, state: Values, settings: Settings) -> Cell:
    """Clamp to [-1, 1]: rounding may exceed the bounds of an exact correlation."""
    count, *_, xx, yy, xy = state
    value = k.var("corr", xy.div(_root(xx) * _root(yy)))
    return Cell(select(value > 1, 1.0, select(value < -1, -1.0, value)), count > 0)


def _root(value: Value) -> Value:
    return Unary("sqrt", value)


STATISTICS: dict[str, Callable[[KernelBuilder, Values, Settings], Cell]] = {
    "var": _var,
    "std": _std,
    "cov": _cov,
    "skew": _skew,
    "kurtosis": _kurtosis,
    "corr": _corr,
}


_BITS_OF_2_52 = 0x433 << 52
_LOW_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Finish:
    """Computes the results of reductions from the states of the partials."""

    k: KernelBuilder
    partials: Sequence[Partial]
    states: Sequence[tuple[Value, ...]]
    may_be_null: MayBeNull
    fail: Callable[[Value], None]

    def cell(self, reduction: Reduction, dtype: pa.DataType) -> Cell:
        """Compute a reduction's value; `dtype` is its type."""
        if reduction.function == "count":
            return Cell(self._state(counted(reduction, self.may_be_null))[0])
        state = self._state(value_of(reduction))
        match reduction.function:
            case "mean" if is_exact(dtype):
                return self._exact_mean(state, self._state(counted(reduction, self.may_be_null))[0], dtype)
            case "mean":
                return self._mean(state, self._state(counted(reduction, self.may_be_null))[0])
            case "sum":
                valid = self._valid(reduction)
                return Cell(self._sum(state, dtype, valid), valid)
            case "product":
                valid = self._valid(reduction)
                return Cell(self._product(state, dtype), valid)
            case "min" | "max" | "any" | "all":
                return Cell(state[0].to(_held(dtype)), self._valid(reduction))
            case "min_by" | "max_by" | "first" | "last":
                return Cell(state[2].to(_held(dtype)), state[3].ne(0))
            case "custom":
                return self._custom(reduction, state)
            case name:
                return STATISTICS[name](self.k, state, AGGREGATES[name].settings(reduction.options))

    def _state(self, partial: Partial) -> tuple[Value, ...]:
        return self.states[self.partials.index(largest(partial, self.partials))]

    def _valid(self, reduction: Reduction) -> Value | None:
        flag = flag_of(reduction, self.may_be_null)
        return None if flag is None else self._state(flag)[0].ne(0)

    def _sum(self, state: tuple[Value, ...], dtype: pa.DataType, valid: Value | None) -> Value:
        if is_exact(dtype):
            return self._exact_sum(state, dtype, valid)
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
        return Cell(total.div(_as_float(count)), count.ne(0))

    def _exact_sum(self, state: tuple[Value, ...], dtype: pa.DataType, valid: Value | None) -> Value:
        """Read a sum of decimals; one of more digits than the type has is an error."""
        total = state[0].to(I128)
        if len(state) == 2:
            high, total = _joined(self.k, state)
            self._fail_where((high < -(1 << 63)) | (high >= 1 << 63), valid)
        total = self.k.var("total", total)
        most = const(10**dtype.precision, I128)
        self._fail_where((total >= most) | (total <= Unary("neg", most)), valid)
        return total.to(machine_type(dtype) or I128)

    def _fail_where(self, condition: Value, valid: Value | None) -> None:
        self.fail(condition if valid is None else condition & valid)

    def _exact_mean(self, state: tuple[Value, ...], count: Value, dtype: pa.DataType) -> Cell:
        """Divide a sum of decimals, and round halves away from zero."""
        k, many = self.k, self.k.var("many", count.to(I128))
        negative = k.var("negative", state[0] < const(0, state[0].type))
        if len(state) == 2:
            high, low = _joined(k, state)
            negative = k.var("negative", high < 0)
            whole, rest = _divided(k, high, low, negative, many)
        else:
            size = k.var("size", Unary("abs", state[0].to(I128)))
            whole = k.var("whole", size.div(many))
            rest = size - whole * many
        scale = 10**MORE_DIGITS
        rest = k.var("rest", rest * scale)
        more = k.var("more", rest.div(many))
        left = k.var("left", rest - more * many)
        most = const(10 ** (dtype.precision - MORE_DIGITS), I128)
        self._fail_where(whole >= most, count.ne(0))
        digits = k.var("digits", whole * scale + more + (left >= many - left).to(I128))
        self._fail_where(digits >= const(10**dtype.precision, I128), count.ne(0))
        value = select(negative, Unary("neg", digits), digits)
        return Cell(value.to(machine_type(dtype) or I128), count.ne(0))

    def _custom(self, reduction: Reduction, state: tuple[Value, ...]) -> Cell:
        definition = value_of(reduction).definition
        assert definition is not None
        return result_cell(self.k, definition, state, self.fail)

    def _product(self, state: tuple[Value, ...], dtype: pa.DataType) -> Value:
        """Compute a product. An empty product is 1, which fits, so overflow needs no presence test."""
        if state[0].type.is_float:
            return monoids.scaled_product(self.k, state)
        read = monoids.unsigned_product if machine_type(dtype) == U64 else monoids.signed_product
        value, beyond = read(state)
        self.fail(beyond)
        return value


def _joined(k: KernelBuilder, state: tuple[Value, ...]) -> tuple[Value, Value]:
    """The upper words of a long sum, and the sum in 128 bits, which is right if the upper words fit 64."""
    high = k.var("high", state[0] + Binary("shr", state[1], const(64, I128)))
    low = Binary("and", state[1], const(_LOW_WORD, I128))
    return high, k.var("low", Binary("or", Binary("shl", high, const(64, I128)), low))


def _divided(
    k: KernelBuilder, high: Value, joined: Value, negative: Value, many: Value
) -> tuple[Value, Value]:
    """Divide the size of a long sum by a count, word by word: the quotient and the rest."""
    low = k.var("low", Binary("and", joined, const(_LOW_WORD, I128)))
    borrow = low.ne(0).to(I128)
    top = k.var("top", select(negative, Unary("neg", high) - borrow, high))
    rest = select(negative, Binary("and", Unary("neg", low), const(_LOW_WORD, I128)), low)
    first = k.var("first", top.div(many))
    carried = k.var("carried", Binary("shl", top - first * many, const(64, I128)) + rest)
    second = k.var("second", carried.div(many))
    return k.var("whole", Binary("shl", first, const(64, I128)) + second), carried - second * many


def _as_float(count: Value) -> Value:
    """Convert a count: as the lowest bits of 2**52, which vector units support, unlike a 64-bit conversion."""
    if count.type != I64:
        return count.to(F64)
    return Bitcast(count | _BITS_OF_2_52, F64) - 2.0**52


def _held(dtype: pa.DataType) -> Type:
    """The type of a value taken from a row: texts are codes."""
    return machine_type(dtype) or I32


def compensated_total(state: tuple[Value, ...]) -> Value:
    """Add the rounding error, unless the sum is not finite: the compensation is then meaningless."""
    total, lost = state
    return select(is_nan(total - total), total, total + lost)
