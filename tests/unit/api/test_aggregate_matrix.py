"""Every cell of the matrix of aggregates in docs/semantics.md holds in every type of window, compiled and run."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.nodes import Aggregate, Column
from penstock.types.arrow import from_physical, physical_values
from tests.unit.expr.semantics import Cell, matrix, same

CELLS: dict[tuple[str, str], Cell] = {tuple(case.id.split(" of ")): case.values[0] for case in matrix()}
AGGREGATED = list(dict.fromkeys(aggregate for aggregate, _ in CELLS))
SITUATIONS = list(dict.fromkeys(situation for _, situation in CELLS))

# Each holds all rows, which lie one second apart, in its last result.
WINDOWS: dict[str, Any] = {
    "tumbling": lambda events, _: events.window(pk.tumbling("100s")),
    "sliding": lambda events, _: events.window(pk.sliding("100s", every="50s")),
    "sliding by what does not divide the size": lambda events, _: events.window("100s", every="70s"),
    "session": lambda events, _: events.window(pk.session("5s")),
    "count": lambda events, rows: events.window(pk.rows(rows)),
    "unbounded": lambda events, _: events.window(pk.unbounded()),
    "calendar": lambda events, _: events.window(pk.tumbling("1mo", tz="Europe/Berlin")),
    "look-back": lambda events, _: events.rolling("100s"),
    "look-back over rows": lambda events, rows: events.rolling(pk.rows(rows)),
}


def events_of(cell: Cell) -> tuple[pk.Stream, int]:
    """Make a stream of a situation's rows; where there are none, one that `kept` leaves out."""
    rows = len(next(iter(cell.columns.values()))[1])
    arrays = {name: from_physical(values or [None], dtype) for name, (dtype, values) in cell.columns.items()}
    times = from_physical(list(range(max(rows, 1))), pa.timestamp("s"))
    kept = pa.array([rows > 0] * max(rows, 1))
    return pk.from_arrow(pa.table({"t": times, "kept": kept, **arrays}), time="t"), max(rows, 1)


def where_kept(cell: Cell) -> pk.Expr:
    node = cell.expression.node
    assert isinstance(node, Aggregate)
    return pk.Expr(Aggregate(node.function, node.args, Column("kept"), node.options))


def holistic(aggregate: str) -> bool:
    return AGGREGATES[CELLS[aggregate, SITUATIONS[0]].expression.node.function].holistic


@cache
def answers(window: str, situation: str, in_holistic: bool) -> pa.Table:
    """Compute all aggregates of one kind in one query: compiling each alone would take minutes."""
    cells = {
        aggregate: CELLS[aggregate, situation]
        for aggregate in AGGREGATED
        if holistic(aggregate) == in_holistic and CELLS[aggregate, situation].error is None
    }
    events, rows = events_of(next(iter(cells.values())))
    expressions = {name: where_kept(cell) for name, cell in cells.items()}
    return WINDOWS[window](events, rows).agg(**expressions).collect()


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("aggregate", AGGREGATED)
def test_an_aggregate_gives_what_the_document_says(window: str, situation: str, aggregate: str) -> None:
    cell = CELLS[aggregate, situation]
    if cell.error is not None:
        events, rows = events_of(cell)
        with pytest.raises(cell.error):
            WINDOWS[window](events, rows).agg(r=where_kept(cell)).collect()
        return
    found = physical_values(answers(window, situation, holistic(aggregate))[aggregate])[-1]
    expected, _ = cell.value
    assert same(found, expected) or found == pytest.approx(expected, rel=1e-12)
