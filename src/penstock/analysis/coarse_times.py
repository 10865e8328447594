"""Find the streams whose row times matter only up to the pane of the windows.

    ~w1[t] @ size 10s every 5s by k = { where kind == 1; sum(v) }   →   in0: steps of 5s

All rows of a pane are in the same windows. If a file's statistics place all times of a row group in one pane, the
time column of that row group need not be read: any time of the pane gives the same result. This requires that no
expression reads the time column and no aggregate depends on the order of rows.

This analysis does not change the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from penstock.analysis.order import depends_on_order
from penstock.expr.nodes import Expr, columns_of
from penstock.ir.nodes import Input, Object, Program, Reduce, sources_of
from penstock.types.windows import Steps, TimeWindow


def coarse_times(program: Program) -> dict[str, Steps]:
    """Return, by stream, the panes of the single window that reads the stream."""
    inputs = [obj for obj in program.objects if isinstance(obj.body, Input)]
    found = {input_.name: _steps(input_, program) for input_ in inputs}
    streams = [input_.body.stream for input_ in inputs if isinstance(input_.body, Input)]
    return {
        stream: steps
        for stream, steps in zip(streams, found.values(), strict=True)
        if steps is not None and streams.count(stream) == 1
    }


def _steps(this: Object, program: Program) -> Steps | None:
    readers = [obj.body for obj in program.objects if this.name in sources_of(obj.body)]
    match readers:
        case [Reduce(domain=TimeWindow(size=size, every=every, offset=offset)) as window] if not (
            this.time.implied or depends_on_order(window) or this.time.column in _read(window)
        ):
            return Steps(this.time.column, gcd(size, every), offset)
        case _:
            return None


def _read(window: Reduce) -> frozenset[str]:
    """Return the columns that the expressions of a window read."""
    return frozenset(name for expr in _expressions(window) for name in columns_of(expr))


def _expressions(window: Reduce) -> Iterator[Expr]:
    for reduction in window.reductions:
        yield from reduction.args
        if reduction.where is not None:
            yield reduction.where
    yield from (key.expr for key in window.keys)
    yield from (node for node in (window.where,) if node is not None)
