"""The type rules of aggregates: argument types in, result type out, None where undefined."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.aggregates.function import Settings, Types
from penstock.expr.rules import NUMBERS
from penstock.types.arrow import kind_of


def total(types: Types, settings: Settings) -> pa.DataType | None:
    """Widen numbers to 64 bits; sums of durations are durations."""
    return types[0] if kind_of(types[0]) == "duration" else multiple(types, settings)


def multiple(types: Types, settings: Settings) -> pa.DataType | None:
    """Widen numbers to 64 bits."""
    match kind_of(types[0]):
        case "bool" | "int":
            return pa.int64()
        case "uint":
            return pa.uint64()
        case "float":
            return pa.float64()
        case _:
            return None


def number(types: Types, settings: Settings) -> pa.DataType | None:
    """Return int64 for any argument: a count."""
    return pa.int64()


def real(types: Types, settings: Settings) -> pa.DataType | None:
    """Return float64 for numbers."""
    return pa.float64() if all(kind_of(dtype) in NUMBERS for dtype in types) else None


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
