"""What an aggregate function is: its algebra as data, its options, and type rules that several share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import pyarrow as pa

from penstock.errors import ExpressionTypeError
from penstock.expr import decimals
from penstock.expr.nodes import Options
from penstock.expr.rules import REAL_KINDS
from penstock.types.arrow import kind_of
from penstock.types.duration import is_whole

# --- Options of aggregates: constants, checked where the query is written.


@dataclass(frozen=True, slots=True)
class Option:
    """A constant option of an aggregate. Without a default (None), the option is required."""

    name: str
    default: Any
    kind: Callable[[Any], Any]
    accepts: Callable[[Any], bool]
    expects: str

    def read(self, function: str, value: object) -> Any:
        """Check a value and return it in canonical form."""
        if self.accepts(value):
            return self.kind(value)
        raise ExpressionTypeError(f"{self.name} of {function} is {value!r}; {self.expects}")


def _is_small_count(value: object) -> bool:
    return is_whole(value) and 0 <= value < 1 << 31


def _is_fraction(value: Any) -> bool:
    number = is_whole(value) or (isinstance(value, Real) and not isinstance(value, Integral))
    return bool(number and 0 <= value <= 1)


def _flag(name: str, default: bool) -> Option:
    return Option(name, default, bool, lambda value: isinstance(value, bool), "write True or False")


DDOF = Option(
    "ddof", 1, int, _is_small_count, "write a whole number from 0 up: 1 for a sample, 0 for all there is"
)
Q = Option("q", None, float, _is_fraction, "write a number from 0 to 1, such as 0.5 for the median")
BIAS = _flag("bias", default=True)
FISHER = _flag("fisher", default=True)
IGNORE_NULLS = _flag("ignore_nulls", default=False)


# --- The record of an aggregate function: a definition, and properties that passes read.

Types = Sequence[pa.DataType]
Rows = Sequence[tuple[Any, ...]]
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate and its algebra as data. Passes read these properties, never the name.

    `rule` maps argument types to the result type, None where undefined. `define` reduces the argument tuples of
    a window's rows, in order of (time, sequence, position).

    associative   the states of two neighbouring runs of rows merge into the state of both
    commutative   the order of the rows does not matter
    invertible    a row can be removed from a state exactly, without reading other rows
    holistic      the state has no fixed size; it contains the values themselves
    skips_nulls   a row with a null argument does not change the state
    """

    name: str
    least: int
    most: int
    takes: str
    rule: Callable[[Types, Settings], pa.DataType | None]
    define: Callable[[Rows, Types, pa.DataType, Settings], Any]
    associative: bool = True
    commutative: bool = True
    invertible: bool = False
    holistic: bool = False
    skips_nulls: bool = True
    options: tuple[Option, ...] = ()

    def settings(self, given: Options) -> dict[str, Any]:
        """Check the given options, and add defaults for the others."""
        named = dict(given)
        return named | {
            option.name: option.read(self.name, named.get(option.name, option.default))
            for option in self.options
        }


def known(rows: Rows) -> list[Any]:
    """List the non-null values of an aggregate of one argument."""
    return [value for (value,) in rows if value is not None]


# --- The type rules of aggregates: argument types in, result type out, None where undefined.


def total(types: Types, settings: Settings) -> pa.DataType | None:
    """Widen numbers to 64 bits; decimals by ten digits; sums of durations are durations."""
    if decimals.is_exact(types[0]):
        return decimals.total_type(types[0])
    return types[0] if kind_of(types[0]) == "duration" else multiple(types, settings)


def multiple(types: Types, settings: Settings) -> pa.DataType | None:
    """Widen numbers to 64 bits."""
    match kind_of(types[0]):
        case "bool" | "int":
            return pa.int64()
        case "uint":
            return pa.uint64()
        case "float" | "decimal":
            return pa.float64()
        case _:
            return None


def number(types: Types, settings: Settings) -> pa.DataType | None:
    """Return int64 for any argument: a count."""
    return pa.int64()


def real(types: Types, settings: Settings) -> pa.DataType | None:
    """Return float64 for numbers."""
    return pa.float64() if all(kind_of(dtype) in REAL_KINDS for dtype in types) else None


def average(types: Types, settings: Settings) -> pa.DataType | None:
    """Return float64 for numbers, and for decimals a decimal with four more digits."""
    return decimals.mean_type(types[0]) if decimals.is_exact(types[0]) else real(types, settings)


def truth(types: Types, settings: Settings) -> pa.DataType | None:
    """Return bool for booleans."""
    return pa.bool_() if kind_of(types[0]) == "bool" else None


def itself(types: Types, settings: Settings) -> pa.DataType | None:
    """Return the argument's type, for any type but null."""
    return None if kind_of(types[0]) == "null" else types[0]


def ordered(types: Types, settings: Settings) -> pa.DataType | None:
    """Return the first argument's type if all arguments have an order."""
    return None if any(kind_of(dtype) in ("other", "null") for dtype in types) else types[0]


def number_of_ordered(types: Types, settings: Settings) -> pa.DataType | None:
    """Return int64 if the argument has an order."""
    return None if ordered(types, settings) is None else pa.int64()


def collected(types: Types, settings: Settings) -> pa.DataType | None:
    """Return a list of the argument's type, for any type but null."""
    return None if kind_of(types[0]) == "null" else pa.list_(types[0])
