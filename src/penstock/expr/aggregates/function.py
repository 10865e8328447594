"""The record of an aggregate function: a definition, and properties that passes read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.expr.aggregates.options import Option
from penstock.expr.nodes import Options

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
