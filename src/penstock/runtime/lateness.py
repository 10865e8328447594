"""Rows that come too late are left out, and counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.runtime.metrics import Metrics
from penstock.runtime.stage import TimedBatch


def on_time(flow: TimedBatch, metrics: Metrics, late: Callable[[np.ndarray], np.ndarray]) -> TimedBatch:
    """Keep the rows that are not late, and count what became of all of them, unless they are counted already.

    `late(arrival_watermarks)` tells which are, given the watermark when each row arrived; nobody asks where none can be.
    """
    behind = None if flow.arrival_watermarks is None else late(flow.arrival_watermarks)
    missed = 0 if behind is None else int(behind.sum())
    if behind is not None and missed:
        flow = flow.without(behind)
    if not flow.counted:
        metrics.late += missed
        metrics.accepted += flow.batch.num_rows
    return flow
