"""Tell which streams' times matter only as far as they say in which pane of windows a row lies.

    ~w1[t] @ size 10s every 5s by k = { where kind == 1; sum(v) }   →   in0: steps of 5s

All rows of a pane are in the same windows. So where a file says that the times of a row group lie in one pane, the times
themselves need not be read: any of that pane will do. Nothing else may look at them, neither an expression nor
an aggregate that sees the order of rows.

This is an analysis: the program stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from penstock.analysis.order import sees_order
from penstock.expr.nodes import Expr, columns_of
from penstock.ir.nodes import Input, Object, Program, Reduce, sources_of
from penstock.types.windows import Steps, TimeWindow


def coarse_times(program: Program) -> dict[str, Steps]:
    """Give the panes of each stream that is read in this way, by the one window that reads it."""
    inputs = [each for each in program.objects if isinstance(each.body, Input)]
    found = {each.name: _steps(each, program) for each in inputs}
    streams = [each.body.stream for each in inputs if isinstance(each.body, Input)]
    return {
        stream: steps
        for stream, steps in zip(streams, found.values(), strict=True)
        if steps is not None and streams.count(stream) == 1
    }


def _steps(this: Object, program: Program) -> Steps | None:
    readers = [each.body for each in program.objects if this.name in sources_of(each.body)]
    match readers:
        case [Reduce(domain=TimeWindow(size=size, every=every, offset=offset)) as window] if not (
            this.time.implied or sees_order(window) or this.time.column in _read(window)
        ):
            return Steps(this.time.column, gcd(size, every), offset)
        case _:
            return None


def _read(window: Reduce) -> frozenset[str]:
    """Name the columns that expressions of a window read."""
    return frozenset(name for expr in _expressions(window) for name in columns_of(expr))


def _expressions(window: Reduce) -> Iterator[Expr]:
    for each in window.reductions:
        yield from each.args
        if each.where is not None:
            yield each.where
    yield from (key.expr for key in window.keys)
    yield from (each for each in (window.where,) if each is not None)
