"""The type rules of aggregates: argument types in, result type out, None where there is none."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.aggregates.function import Settings, Types
from penstock.expr.rules import NUMBERS
from penstock.types.arrow import kind_of


def total(types: Types, settings: Settings) -> pa.DataType | None:
    """Widen numbers to 64 bits; durations add up to durations."""
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
    """Count anything."""
    return pa.int64()


def real(types: Types, settings: Settings) -> pa.DataType | None:
    """Compute with numbers in float64."""
    return pa.float64() if all(kind_of(each) in NUMBERS for each in types) else None


def truth(types: Types, settings: Settings) -> pa.DataType | None:
    """Ask booleans."""
    return pa.bool_() if kind_of(types[0]) == "bool" else None


def itself(types: Types, settings: Settings) -> pa.DataType | None:
    """Choose one of the values, whatever they are."""
    return None if kind_of(types[0]) == "null" else types[0]


def ordered(types: Types, settings: Settings) -> pa.DataType | None:
    """Choose one of the values by their order, or by another's."""
    return None if any(kind_of(each) in ("other", "null") for each in types) else types[0]


def number_of_ordered(types: Types, settings: Settings) -> pa.DataType | None:
    """Count values that can be told apart."""
    return None if ordered(types, settings) is None else pa.int64()


def collected(types: Types, settings: Settings) -> pa.DataType | None:
    """Gather values, whatever they are."""
    return None if kind_of(types[0]) == "null" else pa.list_(types[0])
