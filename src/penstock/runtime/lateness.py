"""Drop and count late rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.runtime.buffers import indices
from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import Stage, TimedBatch, Trace


def on_time(flow: TimedBatch, metrics: Metrics, late: Callable[[np.ndarray], np.ndarray]) -> TimedBatch:
    """Keep the rows that are not late; count late and accepted rows, unless they are counted already.

    `late(arrival_watermarks)` returns which rows are late, given the watermark at each row's arrival; it is not called
    if no row can be late.
    """
    behind = None if flow.arrival_watermarks is None else late(flow.arrival_watermarks)
    missed = 0 if behind is None else int(behind.sum())
    if behind is not None and missed:
        flow = flow.without(behind)
    if not flow.counted:
        metrics.late += missed
        metrics.accepted += flow.batch.num_rows
    return flow


def passing(flow: TimedBatch, late: np.ndarray, filter: Stage) -> np.ndarray:
    """Which of the late rows pass the filter; rejected rows count as filtered, as with a separate filter stage."""
    numbers = np.flatnonzero(late)
    passed = np.zeros_like(late)
    for part in filter.push(0, [TimedBatch(flow.batch.take(indices(numbers)), trace=Trace(numbers, []))]):
        assert part.trace is not None, "filters hand on which rows they were given"
        passed[part.trace.rows] = True
    return passed
