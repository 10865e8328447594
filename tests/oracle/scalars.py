"""Scalar semantics in plain Python: exact integers, IEEE floats, SQL nulls.

Written from the text of the semantics, not from the engine, so that a shared misreading is unlikely.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from zoneinfo import ZoneInfo

import numpy as np

from tests.oracle.approx import Approx, add, divide, multiply, same_float, subtract, value_of

Cell = bool | int | float | str | Approx | None
EPOCH = datetime.datetime(1970, 1, 1)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
LIBM_ERROR = 4e-15


class Overflow(Exception):
    """The answer does not fit 64 bits."""


def fits(value: int, unsigned: bool = False) -> int:
    low, high = (0, 2**64) if unsigned else (-(2**63), 2**63)
    if not low <= value < high:
        raise Overflow
    return value


def order_key(value: Cell) -> tuple[int, object]:
    """Sort NaN above everything, strings by bytes."""
    if isinstance(value, str):
        return (0, value.encode())
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value)


def compare(name: str, a: Cell, b: Cell) -> bool:
    if isinstance(a, float) != isinstance(b, float):
        a, b = float(a), float(b)  # type: ignore[arg-type]
    x, y = order_key(a), order_key(b)
    match name:
        case "==":
            return x == y
        case "!=":
            return x != y
        case "<":
            return x < y
        case "<=":
            return x <= y
        case ">":
            return x > y
        case _:
            return x >= y


def _ieee(a: float, b: float, f: Callable[[np.float64, np.float64], np.float64]) -> float:
    with np.errstate(all="ignore"):
        return float(f(np.float64(a), np.float64(b)))


def _floor(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) and abs(x) < 2**53 else x


def floor_div(a: Cell, b: Cell) -> Cell:
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else a // b
    return _floor(_ieee(float(a), float(b), np.divide))  # type: ignore[arg-type]


def modulo(a: Cell, b: Cell) -> Cell:
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else a % b
    x, y = float(a), float(b)  # type: ignore[arg-type]
    if y == 0.0 or math.isnan(x) or math.isnan(y) or math.isinf(x):
        return math.nan
    rest = math.fmod(x, y)
    return rest + y if rest != 0 and (rest < 0) != (y < 0) else rest


def arithmetic(name: str, a: Cell, b: Cell) -> Cell:
    if isinstance(a, Approx) or isinstance(b, Approx):
        return {"+": add, "-": subtract, "*": multiply, "/": divide}[name](a, b)  # type: ignore[arg-type]
    if name == "/":
        return _ieee(float(a), float(b), np.divide)  # type: ignore[arg-type]
    if name == "**":
        return _inexact(_ieee(float(a), float(b), np.power))  # type: ignore[arg-type]
    if name == "//":
        return floor_div(a, b)
    if name == "%":
        return modulo(a, b)
    if isinstance(a, int) and isinstance(b, int):
        return {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[name](int(a), int(b))
    ufunc = {"+": np.add, "-": np.subtract, "*": np.multiply}[name]
    return _ieee(float(a), float(b), ufunc)  # type: ignore[arg-type]


def _inexact(value: float) -> Cell:
    return Approx(value, LIBM_ERROR * abs(value) + 5e-324) if math.isfinite(value) else Approx(value, 0.0)


def _round(x: float) -> float:
    if not math.isfinite(x) or abs(x) >= 2**52:
        return x
    return math.copysign(math.floor(abs(x) + 0.5) if abs(x) != 0.49999999999999994 else 0.0, x)


def unary(name: str, a: Cell) -> Cell:
    match name:
        case "neg":
            return -a if not isinstance(a, Approx) else Approx(-a.value, a.error)  # type: ignore[operator]
        case "abs":
            return abs(a)  # type: ignore[arg-type]
        case "floor" | "ceil" | "round" if isinstance(a, int):
            return a
        case "floor":
            return _floor(a)  # type: ignore[arg-type]
        case "ceil":
            return -_floor(-a)  # type: ignore[operator]
        case "round":
            return _round(a)  # type: ignore[arg-type]
        case "sqrt":
            return _ieee(float(a), 0.5, lambda x, _: np.sqrt(x))  # type: ignore[arg-type]
        case "exp":
            return _inexact(_ieee(value_of(a), 0, lambda x, _: np.exp(x)))  # type: ignore[arg-type]
        case "log":
            return _inexact(_ieee(value_of(a), 0, lambda x, _: np.log(x)))  # type: ignore[arg-type]
        case _:
            raise AssertionError(name)


def kleene(name: str, a: Cell, b: Cell) -> Cell:
    absorbing = name == "or"
    if a is absorbing or b is absorbing:
        return absorbing
    return None if a is None or b is None else not absorbing


def extreme(name: str, values: list[Cell]) -> Cell:
    """Pick least or greatest, skipping nulls; for approximations the errors of all are kept."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    pick = min if name in ("least", "min") else max
    if any(isinstance(value, Approx) for value in known):
        best = pick((value_of(value) for value in known), key=order_key)  # type: ignore[arg-type]
        return Approx(best, max(getattr(value, "error", 0.0) for value in known))
    return pick(known, key=order_key)


def truncate(ticks: int, every: int, unit: str, zone: str | None) -> int:
    """Floor on the clock of the zone, as in Polars."""
    ahead = 0 if zone is None else _ahead_of_utc(ticks, unit, zone)
    return (ticks + ahead) // every * every - ahead


def _ahead_of_utc(ticks: int, unit: str, zone: str) -> int:
    moment = EPOCH + datetime.timedelta(seconds=ticks // PER_SECOND[unit])
    offset = moment.replace(tzinfo=datetime.UTC).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return round(offset.total_seconds()) * PER_SECOND[unit]


def part(name: str, ticks: int, unit: str) -> int:
    """Read a calendar part of an instant, in UTC."""
    if unit == "d":
        moment, _below = EPOCH + datetime.timedelta(days=ticks), 0
    else:
        seconds, _below = divmod(ticks, PER_SECOND[unit])
        moment = EPOCH + datetime.timedelta(seconds=seconds)
    return moment.isoweekday() if name == "weekday" else getattr(moment, name)  # type: ignore[no-any-return]


def same(a: Cell, b: Cell) -> bool:
    """Tell whether an expected cell (left) admits an actual one."""
    if a is None or b is None:
        return a is None and b is None
    if isinstance(a, Approx):
        return isinstance(b, float) and a.admits(b)
    if isinstance(a, float):
        return isinstance(b, float) and same_float(a, b)
    return type(a) is type(b) and a == b
