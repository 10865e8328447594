"""What the plain twins of operators share: rows as Python values in order, grouped by key, and reductions over them.

A twin is an operator's definition on a page of Python: it takes the node, the nodes it reads, and their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from penstock.ir import nodes as ir
from penstock.ir.samples import Rank, Row, Sample, ordering, reduced_over, time_at
from penstock.ir.windows import Timed, WindowBounds, windows_of
from penstock.physical import nodes as ph
from penstock.types.time import Time
from penstock.types.windows import WINDOW_BOUNDS, Window

Rows = list[Sample]
FrameRows = tuple[WindowBounds, Rank, Rows]


def rank_of(values: Iterable[Any]) -> Rank:
    """Return a tuple that sorts and hashes as the values do."""
    return tuple(map(ordering, values))


def in_order(samples: Iterable[Sample], time: Time) -> Rows:
    """Sort rows by time, sequence and position."""
    return sorted(samples, key=lambda sample: (ordering(time_at(sample.row, time)), sample.rank))


def partitions(samples: Iterable[Sample], keys: Sequence[str], time: Time) -> dict[Rank, list[Timed]]:
    """Sort rows by key and time; rows without a time are dropped."""
    found: dict[Rank, list[Timed]] = {}
    for sample in in_order(samples, time):
        at = time_at(sample.row, time)
        if at is not None:
            found.setdefault(rank_of(sample.row[name] for name in keys), []).append((at, sample))
    return found


def frames(window: Window, rows: dict[Rank, list[Timed]]) -> list[FrameRows]:
    """List the windows of each key, by window end, window start and key, each with its rows in order."""
    several = [
        (bounds, key, [member for _, member in members])
        for key, found in windows_of(window, rows).items()
        for bounds, members in found
    ]
    return sorted(several, key=lambda entry: (entry[0][::-1], entry[1]))


def bounds_of(window: WindowBounds) -> Row:
    return dict(zip(WINDOW_BOUNDS, window, strict=True))


def reduced(reductions: Sequence[ph.Reduction], spans: Sequence[Rows], schema: pa.Schema) -> tuple[Any, ...]:
    """Compute each reduction over the rows of its span."""
    each_as_ir = [
        ir.Reduction(reduction.function, reduction.args, reduction.where, reduction.options, reduction.span)
        for reduction in reductions
    ]
    return reduced_over(each_as_ir, spans, schema)


def with_reduced(row: Row, values: Sequence[Any], schema: pa.Schema) -> Row:
    """Add values of reductions to a row, as the last columns of a schema."""
    return row | dict(zip(schema.names[len(schema) - len(values) :], values, strict=True))
