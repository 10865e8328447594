"""What an aggregate is: a definition, and data about it that passes read."""

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
    """An aggregate, and its algebra as data: passes ask it what it is, never what it is called.

    `rule` gives the result's type from those of the arguments, None where there is none. `define` reduces
    the argument tuples of a window's rows, in order of (time, sequence, position).

    associative   the states of two neighbouring runs of rows merge into the state of both
    commutative   the order of the rows makes no difference
    invertible    a row can be taken out of a state again, without looking at the others and without loss
    holistic      a state has no fixed size: it is, in the end, the values themselves
    skips_nulls   a row in which an argument is null changes nothing
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
        """Check the options given, and add the defaults of those that are not."""
        named = dict(given)
        return named | {
            each.name: each.read(self.name, named.get(each.name, each.default)) for each in self.options
        }


def known(rows: Rows) -> list[Any]:
    """List the values of aggregates of one argument, without nulls."""
    return [value for (value,) in rows if value is not None]
