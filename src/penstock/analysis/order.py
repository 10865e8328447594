"""Which results depend on the order of rows, and which only on the pane of a row's time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from penstock.expr.aggregates import algebra_of
from penstock.expr.nodes import Column, Expr, Field, columns_of
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Body,
    Distinct,
    Input,
    Join,
    Lookback,
    Object,
    Program,
    Reduce,
    RollingJoin,
    Samples,
    Signals,
    Top,
    sources_of,
)
from penstock.types.windows import Count, Steps, TimeWindow

# --- Find the objects that depend on the order of samples of equal time: windows of rows, `first`, `distinct` and others.


def depends_on_order(body: Body) -> bool:
    """Return whether an object's result can depend on the order of samples of equal time."""
    match body:
        case Distinct() | Top() | Apply() | Signals() | Asof():
            return True
        case RollingJoin(reductions=reductions):
            return not all(algebra_of(reduction).commutative for reduction in reductions)
        case Reduce(domain=Count()) | Attach(domain=Count()):
            return True
        case Lookback(spans=spans) if any(span.rows is not None for span in spans):
            return True
        case Reduce(reductions=reductions) | Attach(reductions=reductions) | Lookback(reductions=reductions):
            return not all(algebra_of(reduction).commutative for reduction in reductions)
        case _:
            return False


def order_of_keys_is_seen(body: Reduce | Apply, program: Program) -> bool:
    """Return whether a later object depends on the order of a window's keys, which share a time."""
    this = next((obj for obj in program.objects if obj.body is body), None)
    if this is None or not body.keys:
        return False
    keys = frozenset(key.name for key in body.keys)
    return _seen(this.name, keys if isinstance(body, Apply) else _passed(keys, body.fields), program)


def _seen(name: str, keys: frozenset[str] | None, program: Program) -> bool:
    """Check the readers of an object. Columns `keys` distinguish samples of equal time; None: no known columns do."""
    return any(_seen_by(obj, keys, program) for obj in program.objects if name in sources_of(obj.body))


def _seen_by(this: Object, keys: frozenset[str] | None, program: Program) -> bool:
    """Check one reader and, if it passes samples on, its readers. Grouped by the keys, it reads one row per window."""
    match this.body:
        case Samples(fields=fields):
            return _seen(this.name, _passed(keys, fields), program)
        case Reduce() | Apply() as body:
            return depends_on_order(body) and not _apart(body, keys)
        case Attach(fields=fields) | Lookback(fields=fields) as body:
            here = depends_on_order(body) and not _apart(body, keys)
            return here or _seen(this.name, _passed(keys, fields), program)
        case Join() | Asof() | RollingJoin() as body:  # a join may repeat a sample
            return depends_on_order(body) or _seen(this.name, None, program)
        case body:
            return depends_on_order(body) or _seen(this.name, keys, program)


def _passed(keys: frozenset[str] | None, fields: Iterable[Field]) -> frozenset[str] | None:
    """Return the keys if the fields pass all of them unchanged, else None."""
    same = {field.name for field in fields if field.expr == Column(field.name)}
    return keys if keys is not None and keys <= same else None


def _apart(body: Reduce | Apply | Attach | Lookback, keys: frozenset[str] | None) -> bool:
    return keys is not None and keys <= {key.expr.name for key in body.keys if isinstance(key.expr, Column)}


# --- Find the streams whose row times matter only up to the pane of the windows.
#
#     ~w1[t] @ size 10s every 5s by k = { where kind == 1; sum(v) }   →   in0: steps of 5s
#
# All rows of a pane are in the same windows. If a file's statistics place all times of a row group in one pane, the
# time column of that row group need not be read: any time of the pane gives the same result. This requires that no
# expression reads the time column and no aggregate depends on the order of rows.
#
# This analysis does not change the program.


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
