"""User-defined aggregates. The option `definition` holds the definition (`expr/custom.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from penstock.expr.aggregates.function import AggregateFunction, Rows, Settings, Types
from penstock.expr.nodes import Options

MOST_ARGUMENTS = 64


class Reducing(Protocol):
    """An aggregate in an expression, or a reduction of the IR."""

    @property
    def function(self) -> str: ...

    @property
    def options(self) -> Options: ...


def _type(types: Types, settings: Settings) -> pa.DataType | None:
    found: pa.DataType = settings["definition"].typed(types).value
    return found


def _define(rows: Rows, types: Types, result: pa.DataType, settings: Settings) -> Any:
    return settings["definition"].reduce(rows, types)


CUSTOM = AggregateFunction("custom", 0, MOST_ARGUMENTS, "numbers and booleans", _type, _define)


def specific(function: AggregateFunction, node: Reducing) -> AggregateFunction:
    """Return the function with the algebra of the custom aggregate's definition."""
    definition: Any = dict(node.options).get("definition")
    if definition is None:
        return function
    return replace(
        function,
        associative=definition.merge is not None,
        commutative=definition.commutative,
        invertible=definition.remove is not None,
    )
