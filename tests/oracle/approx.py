"""A float with the error it may carry: the promised 1e-12 * sum|x|, followed through arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

RELATIVE = 1e-12
ROUNDING = 1e-15


@dataclass(frozen=True, slots=True)
class Approx:
    value: float
    error: float

    def admits(self, other: float) -> bool:
        """Tell whether `other` is an allowed answer."""
        if math.isnan(self.error) or math.isinf(self.error):
            return True
        if math.isnan(self.value) or math.isinf(self.value):
            return same_float(self.value, other)
        return not math.isnan(other) and abs(self.value - other) <= self.error


def same_float(left: float, right: float) -> bool:
    """Compare as the engine's keys do: NaN is itself, and the sign of zero does not count."""
    return left == right or (math.isnan(left) and math.isnan(right))


def value_of(x: float | Approx) -> float:
    return x.value if isinstance(x, Approx) else float(x)


def error_of(x: float | Approx) -> float:
    return x.error if isinstance(x, Approx) else 0.0


def rounded(value: float, error: float) -> Approx:
    return Approx(value, error + ROUNDING * abs(value) + 1e-300 if math.isfinite(value) else error)


def total(values: list[float | Approx]) -> Approx:
    """Add exactly, allowing the promised error; an overflowing sum of magnitudes promises nothing."""
    plain = [value_of(value) for value in values]
    special = [x for x in plain if not math.isfinite(x)]
    error = sum(error_of(value) for value in values)
    if math.isinf(error):
        return Approx(0.0, math.inf)
    if special:
        return Approx(_sum_special(special), 0.0)
    magnitude = math.fsum(abs(x) / 2**80 for x in plain)
    if magnitude > 1.7e308 / 2**80:
        return Approx(0.0, math.inf)
    return Approx(math.fsum(plain), error + RELATIVE * magnitude * 2**80)


def _sum_special(values: list[float]) -> float:
    if any(math.isnan(x) for x in values) or len(set(values)) > 1:
        return math.nan
    return values[0]


def mean(values: list[float | Approx]) -> Approx:
    whole = total(values)
    return rounded(whole.value / len(values), whole.error / len(values))


def add(a: float | Approx, b: float | Approx) -> Approx:
    return rounded(value_of(a) + value_of(b), error_of(a) + error_of(b))


def subtract(a: float | Approx, b: float | Approx) -> Approx:
    return rounded(value_of(a) - value_of(b), error_of(a) + error_of(b))


def multiply(a: float | Approx, b: float | Approx) -> Approx:
    x, y = value_of(a), value_of(b)
    error = abs(x) * error_of(b) + abs(y) * error_of(a) + error_of(a) * error_of(b)
    return rounded(x * y, 0.0 if error_of(a) == error_of(b) == 0 else error)


def divide(a: float | Approx, b: float | Approx) -> Approx:
    """Divide; where the divisor may be zero nothing is promised."""
    x, y, dx, dy = value_of(a), value_of(b), error_of(a), error_of(b)
    if abs(y) <= dy or (y == 0.0 and dx > 0):
        return Approx(0.0, math.inf)
    if y == 0.0:
        return Approx(_over_zero(x, y), 0.0)
    if not math.isfinite(x) or not math.isfinite(y):
        return Approx(x / y, 0.0)
    error = (dx + abs(x / y) * dy) / (abs(y) - dy)
    return rounded(x / y, error)


def _over_zero(x: float, zero: float) -> float:
    if x == 0.0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1, zero)
