"""Aggregates that compare values: extremes, order statistics, mode and distinct counts.

NaN is the greatest value and equals itself; -0.0 equals 0.0. No result depends on the order of the rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from penstock.expr.aggregates.function import Rows, Settings, Types, known
from penstock.expr.order import order_key


def least(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return min(known(rows), key=order_key, default=None)


def greatest(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return max(known(rows), key=order_key, default=None)


def least_by(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return _extreme_by(rows, min)


def greatest_by(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return _extreme_by(rows, max)


def _extreme_by(rows: Rows, choose: Callable[..., Any]) -> Any:
    """Return the smallest value among the rows with the extreme `by`; null only if all are null."""
    ranked = [(order_key(by), value) for value, by in rows if by is not None]
    extreme = choose((rank for rank, _ in ranked), default=None)
    beside = [value for rank, value in ranked if rank == extreme]
    return min(beside, key=lambda value: (value is None, order_key(value)), default=None)


def median(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    return quantile_of(sorted(map(float, known(rows)), key=order_key), 0.5)


def quantile(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> float | None:
    return quantile_of(sorted(map(float, known(rows)), key=order_key), settings["q"])


def quantile_of(ordered: Sequence[float], q: float) -> float | None:
    """Interpolate between the two values nearest to fraction `q`, in IEEE 754 arithmetic.

    >>> quantile_of([1.0, 2.0, 4.0], 0.75), quantile_of([1.0, math.inf, math.inf], 0.75)
    (3.0, inf)
    """
    if not ordered:
        return None
    place = q * (len(ordered) - 1)
    below = math.floor(place)
    low, high, part = ordered[below], ordered[math.ceil(place)], place - below
    return low if part == 0 or low == high else low + (high - low) * part


def mode(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    """Return the smallest of the most frequent values; 0.0 represents both zeros."""
    values = known(rows)
    times = Counter(map(order_key, values))
    most = max(times.values(), default=0)
    found = min((value for value in values if times[order_key(value)] == most), key=order_key, default=None)
    return 0.0 if isinstance(found, float) and found == 0 else found


def count_distinct(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> int:
    return len(set(map(order_key, known(rows))))
