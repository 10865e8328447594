"""The plain twin of `PaneAggregate`: rows by (pane, key), and each window as the panes between its bounds."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr.evaluate import evaluator
from penstock.expr.typing import type_of
from penstock.ir.samples import Rank, Sample, canonical, kept, record, time_at
from penstock.ir.windows import WindowBounds, windows_of
from penstock.operators.plain_rows import Rows, bounds_of, in_order, rank_of, reduced
from penstock.physical import nodes as ph
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, TimeWindow

Panes = dict[WindowBounds, Rows]


def pane_aggregate(op: ph.PaneAggregate, node: ph.Node, given: ph.Node, samples: Rows) -> Rows:
    """Return one row per window and key, ordered by window end, window start and key."""
    keys, (scope, types) = record(op.keys, given.schema), _scope(op, given)
    fill = record(op.fields, scope, types)
    holds = None if op.having is None else evaluator(op.having, scope, types)
    results: list[tuple[WindowBounds, Rank, Sample]] = []
    for key, panes in _panes(op, given, samples).items():
        for window in _windows(op, panes):
            members = [sample for pane in sorted(panes) if _inside(pane, window) for sample in panes[pane]]
            row = {n: canonical(v) for n, v in keys(members[0].row).items()} | bounds_of(window)
            values = reduced(op.reductions, [members], given.schema)
            if holds is None or holds(row, values) is True:
                results.append((window[::-1], key, Sample(fill(row, values), ((), window[0], *key))))
    return [result for _, _, result in sorted(results, key=lambda entry: entry[:2])]


def _panes(op: ph.PaneAggregate, given: ph.Node, samples: Rows) -> dict[Rank, Panes]:
    """Put each row into its only pane, in the order of time."""
    keys = record(op.keys, given.schema)
    found: dict[Rank, Panes] = {}
    for sample in in_order(kept(op.where, samples, given.schema), given.clock):
        pane = _pane(op, given, sample)
        if pane is not None:
            own = found.setdefault(rank_of(keys(sample.row).values()), {})
            own.setdefault(pane, []).append(sample)
    return found


def _pane(op: ph.PaneAggregate, given: ph.Node, sample: Sample) -> WindowBounds | None:
    """Return the bounds of a row's pane: the part of a slide between the ends of windows, or a carried window."""
    if isinstance(op.window, CarriedWindow):
        start, end = (sample.row[name] for name in WINDOW_BOUNDS)
        return None if start is None or end is None else (start, end)
    at = time_at(sample.row, given.clock)
    if at is None:
        return None
    assert isinstance(op.window, TimeWindow)
    every, cut = op.window.every, op.window.size % op.window.every
    begin = at - (at - op.window.offset) % every
    return (begin, begin + cut) if at < begin + cut else (begin + cut, begin + every)


def _windows(op: ph.PaneAggregate, panes: Panes) -> list[WindowBounds]:
    """List the windows that hold a pane."""
    if isinstance(op.window, CarriedWindow):
        return list(panes)
    found = windows_of(op.window, {(): [(begin, None) for begin, _ in sorted(panes)]})[()]
    return [window for window, _ in found]


def _inside(pane: WindowBounds, window: WindowBounds) -> bool:
    return window[0] <= pane[0] and pane[1] <= window[1]


def _scope(op: ph.PaneAggregate, given: ph.Node) -> tuple[pa.Schema, tuple[pa.DataType, ...]]:
    """Return the columns and the types of reductions that result fields may read."""
    carried = isinstance(op.window, CarriedWindow)
    bounds = [
        pa.field(name, given.schema.field(name).type if carried else given.clock.type)
        for name in WINDOW_BOUNDS
    ]
    keys = [pa.field(key.name, type_of(key.expr, given.schema)) for key in op.keys]
    return pa.schema([*bounds, *keys]), tuple(reduction.type for reduction in op.reductions)
