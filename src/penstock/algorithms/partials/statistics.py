"""Variance, skewness, kurtosis, covariance and correlation from the states of `algorithms/monoids/moments.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.algorithms.expressions.cells import Cell
from penstock.algorithms.monoids import Values
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import F64, Unary, Value, select

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
