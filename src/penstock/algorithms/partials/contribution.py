"""The values that a row adds to a partial, and the condition under which it does."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algorithms.expressions.cells import Cell, is_true
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Values
from penstock.algorithms.partials import Partial, values_added
from penstock.loop.nodes import I64, Value, const

# The arguments that a row adds to a partial, and the condition under which it does (None: always).
Contribution = tuple[Values, Value | None]


def contribution(
    lowering: Lowering, partial: Partial, moment: Callable[[], Values] | None = None
) -> Contribution:
    """The values that a row adds to a partial; `moment` gives the row's time and position, if a partial needs them."""
    if partial.where is None:
        return values_added(partial, _arguments(lowering, partial), None, moment)
    where = lowering.lower(partial.where)
    with lowering.under(is_true(where)):
        cells = _arguments(lowering, partial)
    return values_added(partial, cells, where, moment)


def _arguments(lowering: Lowering, partial: Partial) -> list[Cell]:
    if partial.kind in ("count", "present"):  # reads only the validity, of any type
        return [Cell(const(1, I64), lowering.valid(arg)) for arg in partial.args]
    return [lowering.lower(arg) for arg in partial.args]
