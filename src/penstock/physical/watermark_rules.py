"""The watermark rule of each operator: how far its results may lie behind the watermark of its input."""

from __future__ import annotations

from penstock.expr import nodes as ex
from penstock.expr.show import show as show_expr
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.physical import nodes as ph
from penstock.types.windows import (
    LEFT_ROW_KINDS,
    Count,
    InWindow,
    Lookup,
    Session,
    TimeWindow,
    Unbounded,
    Window,
    Within,
)


def of_rows(body: ir.Samples, source: ir.Object, result: ir.Object) -> ph.WatermarkRule:
    """Rows follow their input, unless their time is computed."""
    column = ex.Column(source.time.column)
    computed = next((f for f in body.fields if f.name == result.time.column and f.expr != column), None)
    if computed is None or isinstance(source.body, jn.Table):
        return ph.Follows()
    return ph.AtEnd(f"the time of a row is computed, as {show_expr(computed.expr)}, and may be any")


def of_windows(body: ir.Reduce | ir.Attach | ir.Apply) -> ph.WatermarkRule:
    """The time of a window's result is its end - 1 tick; attached rows keep their own times."""
    if isinstance(body.domain, Unbounded):
        return ph.AtEnd("the window holds all rows")
    if isinstance(body, ir.Attach):
        return _of_attached(body.domain)
    match body.domain:
        case Session():
            return ph.Lags(1)  # a row at exactly last + gap still joins
        case Count(partial=True):
            return ph.AtEnd("a window that is not full leaves at the end, with the time of its last row")
        case _:
            return ph.Follows()


def _of_attached(window: Window) -> ph.WatermarkRule:
    return ph.Lags(window.size) if isinstance(window, TimeWindow) else ph.OldestOpenWindow()


def of_asof(body: jn.Asof) -> ph.WatermarkRule:
    """Results have the time of the left row, which waits for a later right one unless none can match."""
    if body.direction == "backward":
        return ph.Follows()
    return ph.OldestOpenWindow() if body.tolerance is None else ph.Lags(body.tolerance)


def of_join(body: jn.Join) -> ph.WatermarkRule:
    """A pair has the time of its later row."""
    match body.pairing:
        case Lookup():
            return ph.Follows()
        case Within(lo=lo, hi=hi):
            return _of_interval(body.how, lo, hi)
        case InWindow():
            return ph.OldestOpenWindow()


def _of_interval(how: str, lo: int, hi: int) -> ph.WatermarkRule:
    """A row that may stay without a partner waits for the interval."""
    left = max(hi, 0) if how in ("left", "full", *LEFT_ROW_KINDS) else 0
    right = max(-lo, 0) if how in ("right", "full") else 0
    wait = max(left, right)
    return ph.Lags(wait) if wait else ph.Follows()


def of_distinct(body: ir.Distinct) -> ph.WatermarkRule:
    """The first row of a value leaves at once; the last one when no later row can replace it."""
    if body.keep != "last":
        return ph.Follows()
    if body.within is None:
        return ph.AtEnd("a later row may replace the last one of its value")
    return ph.OldestOpenWindow()
