"""The plain twin of `SortedWindows`: rows sorted by key and time, each window as a list of them."""

from __future__ import annotations

import pyarrow as pa

from penstock.ir.samples import Sample, as_table, canonical, to_rows, to_table
from penstock.operators.plain_rows import (
    FrameRows,
    Rows,
    bounds_of,
    frames,
    partitions,
    reduced,
    with_reduced,
)
from penstock.physical import nodes as ph
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow


def sorted_windows(op: ph.SortedWindows, node: ph.Node, given: ph.Node, samples: Rows) -> Rows:
    """Return one row per window and key, each window's rows, or what a function makes of them."""
    found = frames(op.window, partitions(_timed(op, given, samples), op.keys, given.clock))
    match op.output:
        case "aggregate":
            return [_aggregated(op, node, given, window) for window in found]
        case "attach":
            return _attached(op, node, given, samples, found)
        case ph.Apply() as apply:
            return [made for window in found for made in _applied(apply, op, node, given, window)]


def _timed(op: ph.SortedWindows, given: ph.Node, samples: Rows) -> Rows:
    """Rows of a carried window may have no time of their own; they are in order of position."""
    if not isinstance(op.window, CarriedWindow):
        return samples
    column = given.clock.column
    least = {column: -given.clock.shift}
    return [
        sample if sample.row.get(column) is not None else Sample(sample.row | least, sample.rank)
        for sample in samples
    ]


def _aggregated(op: ph.SortedWindows, node: ph.Node, given: ph.Node, frame: FrameRows) -> Sample:
    window, key, members = frame
    row = {name: canonical(members[0].row[name]) for name in op.keys} | bounds_of(window)
    values = reduced(op.reductions, [members], given.schema)
    return Sample(with_reduced(row, values, node.schema), ((), window[0], *key))


def _attached(
    op: ph.SortedWindows, node: ph.Node, given: ph.Node, samples: Rows, found: list[FrameRows]
) -> Rows:
    """Repeat each row once per window that holds it, ordered by window, then by the order of arrival."""
    places = {sample.rank: place for place, sample in enumerate(samples)}
    made = []
    for window, _, members in found:
        values = reduced(op.reductions, [members], given.schema)
        for member in members:
            row = with_reduced(member.row | bounds_of(window), values, node.schema)
            made.append(((window[::-1], places[member.rank]), Sample(row, ((), window, *member.rank))))
    return [sample for _, sample in sorted(made, key=lambda pair: pair[0])]


def _applied(apply: ph.Apply, op: ph.SortedWindows, node: ph.Node, given: ph.Node, frame: FrameRows) -> Rows:
    window, key, members = frame
    names = node.schema.names[len(WINDOW_BOUNDS) + len(op.keys) :]
    keys = node.schema.names[len(WINDOW_BOUNDS) : len(WINDOW_BOUNDS) + len(op.keys)]
    values = [canonical(members[0].row[name]) for name in op.keys]
    head = bounds_of(window) | dict(zip(keys, values, strict=True))
    columns = pa.schema([given.schema.field(name) for name in apply.columns])
    made = as_table(apply.function(to_table([member.row for member in members], columns)), node.schema, names)
    return [Sample(head | row, ((), window[0], *key, place)) for place, row in enumerate(to_rows(made))]
